#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""usage: prestage_test.py KVBLKD KVBLK FAKE-POOL

kvblkd's socket for hints, with the pool simulated by libkvblk-fake: answers, each kind of invalid request, each limit. Each test
starts a kvblkd and sends requests as a client does.
"""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../../tools/python/test")
import tap  # noqa: E402

KVBLKD, KVBLK, FAKE = map(os.path.abspath, sys.argv[1:4])
CHAIN = [f"{number:04x}" for number in range(1, 9)]
SIZE = 1000
POOLS = 'pools = ( "fake" ); mode = "0666"; '


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Daemon:
    """A running kvblkd with @settings in its group prestage."""

    def __init__(self, where, settings="", dram="100000000", **env):
        self.where, self.socket = where, where + "/s"
        self.conf = where + "/conf"
        self.configure(settings)
        os.chmod(where, 0o755)
        self.process = subprocess.Popen(
            [KVBLKD, "--config", self.conf], stderr=subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], "LD_PRELOAD": FAKE, "KVBLK_FAKE_STORE": where + "/store", "KVBLK_FAKE_DRAM": dram,
                 "RUNTIME_DIRECTORY": where, **env})
        self.log = ""
        self.says("prestage: listening at " + self.socket)

    def configure(self, settings):
        with open(self.conf, "w") as conf:
            conf.write(f'salt = ""; prestage: {{ socket = "{self.socket}"; {POOLS}{settings} }};')

    def says(self, text):
        while text not in self.log:
            line = self.process.stderr.readline()
            assert line, f"no {text!r} in {self.log}"
            self.log += line
        self.log = ""

    def reload(self):
        """Reload, and wait for the log line after which the new rules apply."""
        os.kill(self.process.pid, signal.SIGHUP)
        self.says("in force")

    def end(self):
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process.stderr.close()

    def ask(self, method, path, body=None):
        """Returns status and answer. @body is sent as JSON, as text, or from an iterator as chunks."""
        with contextlib.closing(Connection(self.socket)) as connection:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body)
            answer = connection.getresponse()
            text = answer.read().decode()
            self.allow = answer.getheader("Allow")
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text

    def order(self, **body):
        return self.ask("POST", "/l2/prefetch", body)

    def over(self, request):
        """Wait until the request is complete. Returns the answer."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            status, answer = self.ask("GET", "/l2/prefetch/" + request)
            if status != 200 or answer["status"] != "pending":
                return answer
            time.sleep(0.01)
        raise AssertionError("it is not over")

    def run(self, **body):
        status, answer = self.order(**body)
        assert status == 202, answer
        return self.over(answer["request_id"])

    def hint(self, *payloads, **action):
        action = {"action_type": "kv_hint.prefetch.v1", "action_version": "1.0", **action}
        status, answer = self.ask("POST", "/v1/hints", {
            "protocol_version": "0.1", "message_id": "m", "actions": [
                {"action_id": f"a{i}", "payload": payload, **action} for i, payload in enumerate(payloads)]})
        assert status == 200, answer
        return answer["outcomes"]


class Prestage(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        block = self.dir.name + "/block"
        with open(block, "wb") as file:
            file.write(bytes(SIZE))
        # all but the fifth
        for key in CHAIN[:4] + CHAIN[5:]:
            subprocess.run([KVBLK, "put", "fake", "--hex", key, block], check=True,
                           env={"LD_PRELOAD": FAKE, "KVBLK_FAKE_STORE": self.dir.name + "/store"})

    def start(self, settings="", **env):
        daemon = Daemon(self.dir.name, settings, **env)
        self.addCleanup(daemon.end)
        return daemon

    def test_prefetch(self):
        daemon = self.start()
        status, answer = daemon.order(pool="fake", keys=CHAIN)
        self.assertEqual((status, answer["status"], answer["chunks"]), (202, "submitted", 8))
        answer = daemon.over(answer["request_id"])
        self.assertEqual(answer["status"], "completed")
        self.assertEqual((answer["found_keys"], answer["total_keys"], answer["resident_keys"]), (7, 8, 0))
        self.assertEqual((answer["leading_keys"], answer["loaded_bytes"], answer["leased_keys"]), (4, 7 * SIZE, 0))
        self.assertEqual(answer["results"], ["loaded"] * 4 + ["missing"] + ["loaded"] * 3)
        # blocks in memory are not loaded again
        answer = daemon.run(keys=CHAIN[:3], mode="WARM")
        self.assertEqual((answer["found_keys"], answer["resident_keys"], answer["leased_keys"]), (0, 3, 0))

    def test_rules(self):
        daemon = self.start()
        answer = daemon.run(keys=CHAIN, stop_at_miss=True, max_bytes=2 * SIZE + 1)
        self.assertEqual(answer["results"], ["loaded"] * 2 + ["clipped"] * 2 + ["missing"] + ["clipped"] * 3)
        answer = daemon.run(keys=CHAIN, stop_at_miss=True)
        self.assertEqual(answer["results"], ["resident"] * 2 + ["loaded"] * 2 + ["missing"] + ["clipped"] * 3)

    def test_deadline(self):
        daemon = self.start(KVBLK_FAKE_DELAY_MS="1")
        self.assertEqual(daemon.run(keys=CHAIN[:2], deadline=time.time() - 1)["results"], ["expired"] * 2)
        self.assertEqual(daemon.run(keys=CHAIN[:2], deadline=time.time() + 600)["results"], ["loaded"] * 2)

    def test_lease(self):
        daemon = self.start("waiting = 1; lease = 60;", KVBLK_FAKE_LEASE="1")
        status, answer = daemon.order(keys=CHAIN, mode="lookup", lease_ms=60000)
        request = answer["request_id"]
        self.assertEqual(daemon.over(request)["leased_keys"], 7)
        # the request occupies the only slot until its release
        self.assertEqual(daemon.order(keys=CHAIN)[0], 429)
        self.assertEqual(daemon.ask("DELETE", "/l2/prefetch/" + request)[1]["status"], "released")
        self.assertEqual(daemon.ask("GET", "/l2/prefetch/" + request)[0], 404)
        answer = daemon.run(keys=CHAIN, mode="lookup", lease_ms=1)
        end = time.monotonic() + 60
        while daemon.order(keys=CHAIN)[0] != 202:
            self.assertLess(time.monotonic(), end, "a lease that has ended holds its place")
            time.sleep(0.01)

    def test_no_memory(self):
        daemon = self.start(dram=str(2 * SIZE))
        self.assertEqual(daemon.run(keys=CHAIN[:4])["results"], ["loaded"] * 2 + ["clipped"] * 2)

    def test_failed(self):
        daemon = self.start(dram="0")
        answer = daemon.run(keys=CHAIN)
        self.assertEqual((answer["status"], answer["error"]), ("failed", "not supported by the kernel module or the pool"))
        daemon.says("prestage: pool fake: a prefetch failed: not supported")

    def test_cancel(self):
        daemon = self.start("parallel = 1; waiting = 2;", KVBLK_FAKE_DELAY_MS="600000")
        running = daemon.order(keys=CHAIN)[1]["request_id"]
        waiting = daemon.order(keys=CHAIN)[1]["request_id"]
        status, answer = daemon.order(keys=CHAIN)
        self.assertEqual((status, answer["error"]), (429, "too many requests of this user are queued; retry later"))
        self.assertEqual(daemon.hint({"keys": CHAIN})[0]["outcome"], "deferred")
        self.assertEqual(daemon.ask("GET", "/l2/prefetch/" + waiting)[1]["status"], "pending")
        for request in waiting, running:
            self.assertEqual(daemon.ask("DELETE", "/l2/prefetch/" + request)[1]["status"], "canceled")
            self.assertEqual(daemon.ask("GET", "/l2/prefetch/" + request)[0], 404)
            self.assertEqual(daemon.ask("DELETE", "/l2/prefetch/" + request)[0], 404)
        # the only thread is free again, although its operation may not have started
        status, answer = daemon.order(keys=CHAIN)
        self.assertEqual(status, 202, answer)

    def test_bandwidth(self):
        daemon = self.start(f"bandwidth = {SIZE * 10};")
        begin = time.monotonic()
        daemon.run(keys=CHAIN[:4])
        daemon.run(keys=CHAIN[5:])
        self.assertGreater(time.monotonic() - begin, 0.4)

    def test_progress(self):
        """Results of the first keys are reported before the last keys are loaded."""
        daemon = self.start("bandwidth = 1;")
        request = daemon.order(keys=CHAIN + [f"ff{number:04x}" for number in range(1100)])[1]["request_id"]
        end = time.monotonic() + 60
        while not (answer := daemon.ask("GET", "/l2/prefetch/" + request)[1])["results"]:
            self.assertLess(time.monotonic(), end, "there is no progress")
            time.sleep(0.01)
        self.assertEqual((answer["status"], answer["total_keys"], len(answer["results"])), ("pending", 1108, 1024))
        self.assertEqual((answer["leading_keys"], answer["found_keys"], answer["loaded_bytes"]), (4, 7, 7 * SIZE))
        self.assertEqual(answer["results"][:6], ["loaded"] * 4 + ["missing", "loaded"])
        self.assertEqual(daemon.ask("DELETE", "/l2/prefetch/" + request)[1]["status"], "canceled")

    def test_priority(self):
        """The waiting request with the highest priority runs next; with equal priorities the oldest."""
        daemon = self.start("parallel = 1; bandwidth = 1;")
        daemon.run(keys=CHAIN[5:6])
        # occupies the only thread until the bandwidth limit allows more; highest priority, so that it is first
        daemon.order(keys=CHAIN[6:7], priority=3)
        requests = [daemon.order(keys=keys, priority=priority)[1]["request_id"]
                    for keys, priority in ((CHAIN[:2], 0), (CHAIN[:3], 2), (CHAIN[:1], 3), (CHAIN[:4], 2))]
        daemon.configure("parallel = 1;")
        daemon.reload()
        self.assertEqual([daemon.over(request)["found_keys"] for request in requests], [0, 2, 1, 1])

    def test_forgotten(self):
        """As many complete requests are kept as may wait."""
        daemon = self.start("waiting = 2;")
        requests = []
        for _ in range(3):
            requests.append(daemon.order(keys=CHAIN)[1]["request_id"])
            self.assertEqual(daemon.over(requests[-1])["status"], "completed")
        self.assertEqual([daemon.ask("GET", "/l2/prefetch/" + r)[0] for r in requests], [404, 200, 200])

    def test_hints(self):
        daemon = self.start(f"request_bytes = {2 * SIZE};")
        outcomes = daemon.hint({"keys": CHAIN[:2], "session_id": "s"}, {"keys": ["zz"]}, {"session_id": "t"},
                               {"keys": CHAIN[5:], "max_bytes": 3 * SIZE}, {"session_id": "s", "pool": "kv0"})
        self.assertEqual([(o["action_id"], o["outcome"]) for o in outcomes],
                         [("a0", "accepted"), ("a1", "rejected"), ("a2", "missing"), ("a3", "clipped"), ("a4", "rejected")])
        self.assertEqual(daemon.over(outcomes[0]["request_id"])["results"], ["loaded"] * 2)
        self.assertEqual(daemon.over(outcomes[3]["request_id"])["results"], ["loaded"] * 2 + ["clipped"])
        self.assertEqual([o.get("reason") for o in outcomes],
                         [None, "a key has a character that is not a hex digit", "unknown session t", "clipped to 2000 bytes",
                          "session s belongs to pool fake"])
        self.assertNotIn("request_id", outcomes[1])
        for action, why in (({"action_type": "kv_hint.pin.v1"},
                             "unknown action_type kv_hint.pin.v1; known: kv_hint.prefetch.v1, .demote.v1, .deref.v1, .retain.v1"),
                            ({"action_type": "kv_hint.deref.v1", "action_version": "2"}, "unknown action_version 2; known: 1"),
                            ({"action_version": "2.0"}, "unknown action_version 2.0; known: 1")):
            outcome = daemon.hint({"keys": CHAIN}, **action)[0]
            self.assertEqual((outcome["outcome"], outcome["reason"]), ("rejected", why))

    def test_block_hints(self):
        """Hints on stored blocks arrive at the pool, for keys or for a session's chain."""
        log = self.dir.name + "/hints"
        daemon = self.start(KVBLK_FAKE_HINTS=log)

        def told(kind, *payloads):
            with open(log, "w"):
                pass
            outcomes = daemon.hint(*payloads, action_type=f"kv_hint.{kind}.v1")
            with open(log) as lines:
                return [(o["outcome"], o.get("reason", "")) for o in outcomes], [line.strip() for line in lines]

        daemon.run(keys=CHAIN[:4], session_id="s")
        good, missing = ("accepted", ""), ("missing", "the pool has none of the blocks")
        self.assertEqual(told("deref", {"keys": CHAIN[3:6]}, {"keys": CHAIN[4:5], "pool": "fake"}),
                         ([good, missing], [f"{key} release" for key in (CHAIN[3], CHAIN[5])]))
        self.assertEqual(told("retain", {"session_id": "s", "seconds": 60}, {"keys": CHAIN[:1], "seconds": 0}),
                         ([good, good], [f"{key} retain=60" for key in CHAIN[:4]] + [f"{CHAIN[0]} retain=0"]))
        self.assertEqual(told("demote", {"keys": CHAIN[:2]}), ([good], [f"{key} demote" for key in CHAIN[:2]]))
        self.assertEqual(daemon.run(keys=CHAIN[:4])["results"], ["loaded"] * 2 + ["resident"] * 2)
        for kind, payload, outcome, why in (
                ("deref", {}, "rejected", "keys or session_id is missing"),
                ("deref", {"keys": ["zz"]}, "rejected", "a key has a character that is not a hex digit"),
                ("deref", {"keys": CHAIN, "seconds": 1}, "rejected", "unknown field; known fields: pool, keys, session_id"),
                ("demote", {"keys": CHAIN, "mode": "warm"}, "rejected", "unknown field; known fields: pool, keys, session_id"),
                ("retain", {"keys": CHAIN}, "rejected", "seconds is missing"),
                ("retain", {"keys": CHAIN, "seconds": 86401}, "rejected", "seconds must be a number from 0 to 86400"),
                ("retain", {"keys": CHAIN, "seconds": "1"}, "rejected", "seconds must be a number from 0 to 86400"),
                ("retain", {"keys": CHAIN, "seconds": 1, "x": 1}, "rejected", "unknown field; known fields: pool, keys, session_id, seconds"),
                ("demote", {"session_id": "a b"}, "rejected", "session_id must be a string of 1 to 128 characters without blanks and slashes"),
                ("demote", {"session_id": "t"}, "missing", "unknown session t"),
                ("demote", {"session_id": "s", "pool": "kv0"}, "rejected", "session s belongs to pool fake"),
                ("demote", {"keys": CHAIN, "pool": "kv0"}, "rejected", "pool kv0 is not available at this socket")):
            self.assertEqual(told(kind, payload), ([(outcome, why)], []))

    def test_hint_keys(self):
        """A request hints at no more keys than the main loop passes on at once."""
        daemon = self.start()
        status, _ = daemon.ask("POST", "/v1/sessions/s", {"keys": [f"{i:08x}" for i in range(65536)]})
        self.assertEqual(status, 200)
        outcomes = [o["outcome"] for o in daemon.hint(*[{"session_id": "s"}] * 5, action_type="kv_hint.demote.v1")]
        self.assertEqual(outcomes, ["missing"] * 4 + ["deferred"])

    def test_sessions(self):
        daemon = self.start("sessions = 2;")
        self.assertEqual(daemon.ask("POST", "/v1/sessions/one", {"keys": CHAIN[:2]})[1],
                         {"session_id": "one", "pool": "fake", "keys": 2})
        self.assertEqual(daemon.run(session_id="one")["results"], ["loaded"] * 2)
        # session one grows, and is used again before a third session is added
        daemon.ask("POST", "/v1/sessions/two", {"keys": CHAIN[:1], "pool": "fake"})
        daemon.ask("POST", "/v1/sessions/one", {"keys": CHAIN[:3]})
        self.assertEqual(daemon.ask("POST", "/v1/sessions/three", {"keys": CHAIN[:1]})[0], 200)
        self.assertEqual(daemon.run(session_id="one")["results"], ["resident"] * 2 + ["loaded"])
        status, answer = daemon.order(session_id="two")
        self.assertEqual((status, answer["error"]), (404, "unknown session two"))
        # a session that is too long changes nothing
        daemon.configure("session_bytes = 400;")
        daemon.reload()
        self.assertEqual(daemon.order(session_id="three")[0], 404)
        self.assertEqual(daemon.ask("POST", "/v1/sessions/one", {"keys": CHAIN[:1]})[0], 200)
        status, answer = daemon.ask("POST", "/v1/sessions/one", {"keys": ["00" * 512]})
        self.assertEqual((status, answer["error"]), (400, "the keys of the session exceed session_bytes, or sessions is 0"))
        self.assertEqual(daemon.run(session_id="one")["total_keys"], 1)

    def test_wrong(self):
        """Each invalid request is rejected with a sentence, and nothing is ordered."""
        daemon = self.start("body = 4096;")
        for body, why in (
                ("", "the request is not JSON"), ("{", "the request is not JSON"), ("[]", "must be a JSON object"),
                ('{"keys": ["aa"], "keys": ["bb"]}', "the request is not JSON: line 1: duplicate object key"),
                ({}, "keys or session_id is missing"), ({"keys": []}, "keys must be a list of 1 to 65536 keys"),
                ({"keys": "aa"}, "keys must be a list"), ({"keys": [1]}, "a key must be a string of 2 to 1024 hex digits"),
                ({"keys": [""]}, "a key must be"), ({"keys": ["abc"]}, "a key must be"), ({"keys": ["0" * 1026]}, "a key must be"),
                ({"keys": ["aa", "a\0"]}, "is not allowed"), ({"keys": ["xy"]}, "not a hex digit"),
                ({"keys": ["aa"], "pool": "kv0"}, "pool kv0 is not available at this socket"),
                ({"keys": ["aa"], "pool": "../fake"}, "pool must be the name of a pool"),
                ({"keys": ["aa"], "pool": 1}, "pool must be"),
                ({"keys": ["aa"], "mode": "hot"}, "mode must be warm or lookup"),
                ({"keys": ["aa"], "mode": 1}, "mode must be"),
                ({"keys": ["aa"], "lease_ms": 10}, "lease_ms requires the mode lookup"),
                ({"keys": ["aa"], "mode": "lookup", "lease_ms": 60001}, "lease_ms must be a number from 1 to 60000"),
                ({"keys": ["aa"], "mode": "lookup", "lease_ms": 0}, "lease_ms must be"),
                ({"keys": ["aa"], "max_bytes": 0}, "max_bytes must be a number from 1"),
                ({"keys": ["aa"], "max_bytes": "1G"}, "max_bytes must be"),
                ({"keys": ["aa"], "deadline": -1}, "deadline must be a time in seconds since 1970"),
                ({"keys": ["aa"], "deadline": "soon"}, "deadline must be"), ({"keys": ["aa"], "deadline": 1e300}, "deadline must be"),
                ({"keys": ["aa"], "priority": 4}, "priority must be a number from 0 to 3"),
                ({"keys": ["aa"], "priority": -1}, "priority must be"), ({"keys": ["aa"], "priority": "high"}, "priority must be"),
                ({"keys": ["aa"], "stop_at_miss": 1}, "stop_at_miss must be true or false"),
                ({"session_id": ""}, "session_id must be a string of 1 to 128 characters"), ({"session_id": "a b"}, "session_id must"),
                ({"session_id": "a/b"}, "session_id must"), ({"session_id": "x" * 129}, "session_id must"), ({"session_id": 7}, "session_id must"),
                ({"token_ids": [1]}, 'unknown field "token_ids"; known fields: pool, keys'),
                # the sentence would be cut within a character
                ({"x" * 39 + "\u00e9": 1}, "invalid request")):
            status, answer = daemon.ask("POST", "/l2/prefetch", body)
            self.assertEqual(status, 400, (body, answer))
            self.assertIn(why, answer["error"], body)
        good = {"action_id": "a", "action_type": "kv_hint.prefetch.v1", "action_version": "1", "payload": {"keys": ["aa"]}}
        for body, why in (
                ("nonsense", "not JSON"), ([], "must be a JSON object"),
                ({"message_id": "m", "actions": [good]}, 'protocol_version must be "0.1"'),
                ({"protocol_version": "0.2", "message_id": "m", "actions": [good]}, "protocol_version must be"),
                ({"protocol_version": "0.1", "actions": [good]}, "message_id must be a string"),
                ({"protocol_version": "0.1", "message_id": "m"}, "actions must be a list of 1 to 1024 actions"),
                ({"protocol_version": "0.1", "message_id": "m", "actions": []}, "actions must be"),
                *(({"protocol_version": "0.1", "message_id": "m", "actions": [good, {**good, field: None}]}, f"actions[1].{field} must be")
                  for field in good)):
            status, answer = daemon.ask("POST", "/v1/hints", body)
            self.assertEqual(status, 400, (body, answer))
            self.assertIn(why, answer["error"], body)
        for path, body, why in (("a", {}, "keys is missing"), ("a", {"keys": ["aa"], "mode": "warm"}, "object with pool and keys"),
                                ("a", {"keys": ["a"]}, "a key must be"), ("", {"keys": ["aa"]}, "a session ID must have"),
                                ("a/b", {"keys": ["aa"]}, "a session ID must have"), ("x" * 129, {"keys": ["aa"]}, "a session ID must have"),
                                ("a", {"keys": ["aa"], "pool": "kv0"}, "not available at this socket"), ("a", "x", "not JSON")):
            status, answer = daemon.ask("POST", "/v1/sessions/" + path, body)
            self.assertEqual(status, 400, (path, body, answer))
            self.assertIn(why, answer["error"], body)
        for method, path, status, allow in (("GET", "/l2/prefetch", 405, "POST"), ("PUT", "/l2/prefetch/1", 405, "GET, DELETE"),
                                            ("GET", "/v1/hints", 405, "POST"), ("GET", "/", 404, None), ("POST", "/metrics", 404, None),
                                            ("GET", "/l2/prefetch/", 404, None), ("DELETE", "/l2/prefetch/0123456789abcdef", 404, None)):
            self.assertEqual((daemon.ask(method, path)[0], daemon.allow), (status, allow), path)
        # with and without Content-Length
        self.assertEqual(daemon.ask("POST", "/l2/prefetch", "x" * 4097)[0], 413)
        self.assertEqual(daemon.ask("POST", "/l2/prefetch", iter([b"x" * 3000] * 3))[0], 413)
        self.assertEqual(daemon.ask("POST", "/v1/sessions/a", '{"keys": ["aa"]}' + " " * 4080)[0], 200)

    def test_counts(self):
        port = socket.create_server(("127.0.0.1", 0))
        number = port.getsockname()[1]
        port.close()
        daemon = self.start(f"}}; exporters: {{ metrics: {{ port = {number}; }};")
        daemon.run(keys=CHAIN)
        daemon.order(keys=[])
        daemon.hint({"session_id": "x"})
        daemon.ask("POST", "/v1/sessions/a", {"keys": ["aa"]})
        daemon.ask("POST", "/v1/sessions/a", {"keys": []})
        metrics = http.client.HTTPConnection("127.0.0.1", number)
        metrics.request("GET", "/metrics")
        text = metrics.getresponse().read().decode().splitlines()
        metrics.close()
        for line in ('kvblk_prestage_requests_total{outcome="accepted"} 2', 'kvblk_prestage_requests_total{outcome="rejected"} 2',
                     'kvblk_prestage_requests_total{outcome="missing"} 1', 'kvblk_prestage_blocks_total{result="loaded"} 7',
                     'kvblk_prestage_blocks_total{result="missing"} 1', f"kvblk_prestage_bytes_total {7 * SIZE}",
                     "kvblk_prestage_waiting 0", "kvblk_prestage_sessions 1"):
            self.assertIn(line, text)

    @unittest.skipIf(os.geteuid(), "only root can be another user")
    def test_users(self):
        """A user sees no orders or sessions of other users."""
        daemon = self.start()
        request = daemon.order(keys=CHAIN)[1]["request_id"]
        daemon.ask("POST", "/v1/sessions/s", {"keys": CHAIN})
        os.seteuid(65534)
        try:
            self.assertEqual(daemon.ask("GET", "/l2/prefetch/" + request)[0], 404)
            self.assertEqual(daemon.ask("DELETE", "/l2/prefetch/" + request)[0], 404)
            self.assertEqual(daemon.order(session_id="s")[0], 404)
            daemon.ask("POST", "/v1/sessions/s", {"keys": CHAIN[:1]})
        finally:
            os.seteuid(0)
        self.assertEqual(daemon.over(request)["status"], "completed")
        self.assertEqual(daemon.run(session_id="s")["total_keys"], 8)

    @unittest.skipIf(os.geteuid(), "only root can be another user")
    def test_shares(self):
        """A user's leases, waiting orders, sessions, priorities and connections do not delay other users."""
        daemon = self.start("parallel = 1; waiting = 4; sessions = 4; bandwidth = 1;", KVBLK_FAKE_LEASE="1")
        requests = [daemon.order(keys=CHAIN[:1 + number], mode="lookup", priority=3)[1]["request_id"] for number in range(4)]
        self.assertEqual(daemon.order(keys=CHAIN)[0], 429)
        idle = [Connection(daemon.socket) for _ in range(40)]
        for connection in idle:
            connection.connect()
            self.addCleanup(connection.close)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # kvblkd closes the user's connections above the limit
                connection.sock.sendall(b"POST /l2/prefetch HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        os.seteuid(65534)
        try:
            daemon.ask("POST", "/v1/sessions/mine", {"keys": CHAIN[:3]})
            status, answer = daemon.order(session_id="mine")
            self.assertEqual(status, 202, answer)
            mine = answer["request_id"]
        finally:
            os.seteuid(0)
        for connection in idle:
            connection.close()
        for number in range(9):
            daemon.ask("POST", f"/v1/sessions/{number}", {"keys": CHAIN})
        # the first order is complete, the second has the thread or is next; the other user's order goes before the third
        daemon.configure("parallel = 1; waiting = 4; sessions = 4;")
        daemon.reload()
        found = [daemon.over(request)["found_keys"] for request in requests]
        os.seteuid(65534)
        try:
            answer = daemon.over(mine)
            self.assertEqual(answer["status"], "completed")
            self.assertEqual(daemon.order(session_id="mine")[0], 202)
        finally:
            os.seteuid(0)
        self.assertEqual((found[0], *found[2:]), (1, 0, 1))

    def test_modest(self):
        """A request with too many values is rejected before parsing: 8 MB of empty objects would take 80 times as much memory."""
        daemon = self.start("parallel = 1;", KVBLK_FAKE_DELAY_MS="600000")
        for value in "{}", "[]", '{"a":1}', "1", "[[]]":
            status, answer = daemon.ask("POST", "/l2/prefetch", "[" + (value + ",") * (8000000 // (len(value) + 1)) + "1]")
            self.assertEqual((status, answer["error"]), (413, "the request has more than 4096 lists and objects, or 262144 values"))
        with open(f"/proc/{daemon.process.pid}/status") as file:
            most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        self.assertLess(most, 100000)
        # the longest allowed requests
        self.assertEqual(daemon.order(keys=[f"{key:0110x}" for key in range(65536)])[0], 202)
        outcomes = daemon.hint(*[{"keys": CHAIN * 16} for _ in range(1024)])
        self.assertEqual({outcome["outcome"] for outcome in outcomes}, {"accepted", "deferred"})

    def test_copies(self):
        """The keys of a session are not copied for a deferred order."""
        daemon = self.start('body = "64M"; session_bytes = "64M"; waiting = 1; parallel = 1; bandwidth = 1;')
        daemon.run(keys=CHAIN[:1])
        self.assertEqual(daemon.ask("POST", "/v1/sessions/s", {"keys": [f"{key:0512x}" for key in range(65536)]})[0], 200)
        daemon.order(session_id="s")
        begin = self.seconds(daemon)
        outcomes = daemon.hint(*[{"session_id": "s"} for _ in range(1024)])
        self.assertEqual({outcome["outcome"] for outcome in outcomes}, {"deferred"})
        self.assertLess(self.seconds(daemon) - begin, 0.5)

    @staticmethod
    def seconds(daemon):
        """Returns the CPU seconds that the daemon has used."""
        with open(f"/proc/{daemon.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @unittest.skipIf(os.geteuid(), "only root can be another user")
    def test_turns(self):
        """Another user's order runs between two batches of a long order."""
        daemon = self.start("parallel = 1; bandwidth = 1;")
        request = daemon.order(keys=CHAIN[:1] + [f"ff{number:04x}" for number in range(2047)] + CHAIN[1:2])[1]["request_id"]
        end = time.monotonic() + 60
        while not daemon.ask("GET", "/l2/prefetch/" + request)[1]["results"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        # the thread is at the second of three batches, and waits for the bandwidth limit
        os.seteuid(65534)
        try:
            other = daemon.order(keys=CHAIN[1:2])[1]["request_id"]
        finally:
            os.seteuid(0)
        daemon.configure("parallel = 1;")
        daemon.reload()
        answer = daemon.over(request)
        self.assertEqual((answer["results"][0], answer["results"][-1], answer["missing_keys"]), ("loaded", "resident", 2047))
        os.seteuid(65534)
        try:
            self.assertEqual(daemon.over(other)["results"], ["loaded"])
        finally:
            os.seteuid(0)

    def test_threads(self):
        """Orders that arrive while a thread is idle run concurrently, too."""
        port = socket.create_server(("127.0.0.1", 0))
        number = port.getsockname()[1]
        port.close()
        daemon = self.start(f"parallel = 4; bandwidth = 1; }}; exporters: {{ metrics: {{ port = {number}; }};")
        daemon.run(keys=CHAIN[:1])
        self.assertEqual({o["outcome"] for o in daemon.hint(*[{"keys": CHAIN[1:2]}] * 4)}, {"accepted"})
        end = time.monotonic() + 10
        while True:
            metrics = http.client.HTTPConnection("127.0.0.1", number)
            metrics.request("GET", "/metrics")
            text = metrics.getresponse().read().decode().splitlines()
            metrics.close()
            if "kvblk_prestage_waiting 0" in text:
                return
            self.assertLess(time.monotonic(), end, "orders wait beside idle threads")
            time.sleep(0.05)

    def test_waiting_bytes(self):
        """Waiting orders are limited in bytes; complete ones make space, and an order above the limit is rejected."""
        daemon = self.start('waiting_bytes = "1M";')
        keys = [f"{key:0512x}" for key in range(1500)]
        for _ in range(5):
            self.assertEqual(daemon.run(keys=keys)["total_keys"], 1500)
        status, answer = daemon.order(keys=keys * 3)
        self.assertEqual((status, answer["error"]), (400, "the keys of the request exceed waiting_bytes"))
        daemon.configure('waiting_bytes = "1M"; bandwidth = 1; parallel = 1;')
        daemon.reload()
        # the first order runs into the bandwidth limit
        self.assertEqual([daemon.order(keys=CHAIN[:2] + keys)[0] for _ in range(4)], [202, 202, 429, 429])

    @unittest.skipIf(os.geteuid(), "only root can be another user")
    def test_many_users(self):
        """Waiting orders of all users are limited, too, and each user has a share."""
        daemon = self.start('waiting_bytes = "1M"; bandwidth = 1; parallel = 1;')
        keys = [f"{key:0512x}" for key in range(1500)]
        statuses = []
        for uid in [*range(60000, 60016), 60000]:
            os.seteuid(uid)
            try:
                statuses.append(daemon.order(keys=CHAIN[:2] + keys)[0])
            finally:
                os.seteuid(0)
        self.assertEqual(statuses, [202] * 16 + [429])

    def test_socket(self):
        """The socket has its mode, replaces a stale one, stays when limits change, and is removed with its section."""
        daemon = Daemon(self.dir.name)
        daemon.process.kill()
        daemon.process.wait()
        daemon.process.stderr.close()
        self.assertTrue(os.path.exists(daemon.socket))
        daemon = self.start('parallel = 1;')
        self.assertEqual(os.stat(daemon.socket).st_mode & 0o777, 0o666)
        self.assertEqual(daemon.order(keys=CHAIN)[0], 202)
        ino = os.stat(daemon.socket).st_ino
        daemon.configure("body = 5000;")
        daemon.reload()
        self.assertEqual(daemon.ask("POST", "/l2/prefetch", "x" * 5001)[0], 413)
        self.assertEqual(os.stat(daemon.socket).st_ino, ino)
        with open(daemon.conf, "w"):
            pass
        os.kill(daemon.process.pid, signal.SIGHUP)
        daemon.says("prestage: no longer listening at")
        self.assertFalse(os.path.exists(daemon.socket))

    def test_no_http(self):
        """A socket that cannot be served is removed."""
        broken = self.dir.name + "/mhd.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", broken, "-xc", "-"], input=b"void *MHD_start_daemon(void) { return 0; }", check=True)
        with open(self.dir.name + "/conf", "w") as file:
            file.write(f'salt = ""; prestage: {{ socket = "{self.dir.name}/s"; pools = ( "fake" ); }};')
        daemon = subprocess.Popen([KVBLKD, "--config", file.name], stderr=subprocess.PIPE, text=True,
                                  env={"LD_PRELOAD": broken, "RUNTIME_DIRECTORY": self.dir.name})
        self.addCleanup(daemon.stderr.close)
        self.addCleanup(daemon.wait, 60)
        self.addCleanup(daemon.terminate)
        while "prestage: cannot open hint socket: Input/output error; hints disabled" not in daemon.stderr.readline():
            self.assertIsNone(daemon.poll())
        self.assertFalse(os.path.exists(self.dir.name + "/s"))

    def test_taken(self):
        """A socket in use is not replaced, and a missing group is reported."""
        daemon = self.start()
        for conf, why in ((daemon.conf, "Address already in use"), (self.dir.name + "/group", "no such group"),
                          (daemon.conf, "kvblkd is already running")):
            if conf.endswith("group"):
                with open(conf, "w") as file:
                    file.write(f'salt = ""; prestage: {{ socket = "{self.dir.name}/g"; group = "no-such-group"; pools = ( "fake" ); }};')
            second = subprocess.Popen([KVBLKD, "--config", conf], stderr=subprocess.PIPE, text=True,
                                      env={"RUNTIME_DIRECTORY": self.dir.name + ("" if "running" in why else "/second")})
            self.assertIn(why, second.stderr.readline())
            second.terminate()
            second.wait(60)
            second.stderr.close()
        self.assertEqual(daemon.order(keys=CHAIN)[0], 202)


if __name__ == "__main__":
    sys.exit(tap.run("prestage", unittest.defaultTestLoader.loadTestsFromTestCase(Prestage)))
