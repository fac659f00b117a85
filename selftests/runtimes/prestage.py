#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Keys of numbered blocks, and requests to kvblkd's socket for hints.

usage: prestage.py keys FIRST COUNT         in hex, one per line, the same as guest_blocks'
       prestage.py ask SOCKET METHOD PATH [FIRST COUNT [FIELD=JSON...]]
                                            prints the response; FIRST and COUNT: a body of these keys and fields
       prestage.py order SOCKET FIRST COUNT [FIELD=JSON...]
                                            waits, then prints the outcome as shell assignments; results has one letter
                                            per key: l(oaded), r(esident), m(issing), c(lipped), e(xpired). COUNT 0: no keys
"""
import http.client
import json
import socket
import sys
import time

MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & MASK
    return x ^ (x >> 31)


def key(number):
    mixed = mix(number)
    length = 16 + mixed % (512 - 15) if number % 8 == 7 else 16
    rest = bytes((mixed >> (i % 8 * 8) ^ i) & 0xff for i in range(16, length))
    return (number.to_bytes(8, "little") + mixed.to_bytes(8, "little") + rest).hex()


def keys(first, count):
    return [key(number) for number in range(int(first), int(first) + int(count))]


def ask(path, method, url, body=None):
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request(method, url, None if body is None else json.dumps(body))
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


def body_of(words):
    fields = dict(word.split("=", 1) for word in words[2:])
    body = {name: json.loads(value) for name, value in fields.items()}
    if int(words[1]):
        body["keys"] = keys(*words[:2])
    return body


def order(path, words):
    answer = ask(path, "POST", "/l2/prefetch", body_of(words))
    request = answer.get("request_id") or sys.exit(f"refused: {answer}")
    while answer["status"] in ("submitted", "pending"):
        time.sleep(0.02)
        answer = ask(path, "GET", "/l2/prefetch/" + request)
    print(f"request={request} state={answer['status']} loaded={answer.get('found_keys', 0)} leading={answer.get('leading_keys', 0)} "
          f"leased={answer.get('leased_keys', 0)} results={''.join(result[0] for result in answer.get('results', []))}")


def main(verb, *words):
    if verb == "keys":
        print("\n".join(keys(*words)))
    elif verb == "order":
        order(words[0], words[1:])
    else:
        print(json.dumps(ask(*words[:3], body_of(words[3:]) if words[3:] else None)))


main(*sys.argv[1:])
