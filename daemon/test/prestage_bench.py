#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""usage: prestage_bench.py KVBLKD KVBLK FAKE-POOL

Measure the time from connecting to kvblkd's answer 202 to a hint, with the pool simulated by libkvblk-fake: the median of 21 hints for
each number of keys. Exits with 1 if a median exceeds its limit. Run it on an idle host.
"""
import json
import statistics
import sys
import tempfile
import time

from prestage_test import Daemon

# keys of 32 bytes: milliseconds; 2048 keys are a prompt of 32 K tokens in blocks of 16, 65536 are the most of a request
LIMITS = {1: None, 128: None, 2048: 20, 65536: 200}
TIMES = 21


def answer_ms(daemon, body):
    begin = time.monotonic()
    status, answer = daemon.ask("POST", "/l2/prefetch", body)
    ms = (time.monotonic() - begin) * 1000
    assert status == 202, (status, answer)
    while daemon.ask("GET", "/l2/prefetch/" + answer["request_id"])[1]["status"] == "pending":
        time.sleep(0.01)
    assert daemon.ask("DELETE", "/l2/prefetch/" + answer["request_id"])[0] == 200
    return ms


def main():
    failed = False
    with tempfile.TemporaryDirectory() as where:
        daemon = Daemon(where)
        for number, limit in LIMITS.items():
            body = json.dumps({"keys": [f"{key:064x}" for key in range(number)]})
            median = statistics.median(answer_ms(daemon, body) for _ in range(TIMES))
            wrong = limit is not None and median > limit
            failed |= wrong
            print(f"{number} keys, {len(body)} bytes: {median:.2f} ms{f', at most {limit}' if limit else ''}{': TOO SLOW' if wrong else ''}")
        daemon.end()
    return failed


if __name__ == "__main__":
    sys.exit(main())
