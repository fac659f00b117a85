#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: top_test.py COMMAND

kvblk top on a pseudo-terminal, with the pools of KVBLK_FAKE_ADMIN: the content of the screen at several sizes, and the
restored terminal. Tests wait for a screen, never for a time.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE = 30


class Screen:
    """A terminal of this size; fails on control sequences that top must not use."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.lines = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.scrolled = self.wrapped = self.other = False
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        while text:
            if text[0] == "\033":
                match = re.match(r"\033\[(\??[0-9;]*)([A-Za-z])", text)
                if not match:
                    self.rest = text
                    return
                self.escape(*match.groups())
                text = text[match.end():]
                continue
            self.put(text[0])
            text = text[1:]

    def escape(self, number, letter):
        if letter == "H" and not number:
            self.row = self.column = 0
        elif letter == "K" and not number:
            self.lines[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif letter == "J" and not number:
            self.escape("", "K")
            for line in self.lines[self.row + 1:]:
                line[:] = [" "] * self.columns
        elif (number, letter) == ("?1049", "h"):
            self.other = True
        elif (number, letter) == ("?1049", "l"):
            self.other = False
        elif not (letter == "m" or number == "?25"):
            raise AssertionError(f"an unknown sequence: {number}{letter}")

    def put(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.scrolled |= self.row == self.rows - 1
            self.row = min(self.row + 1, self.rows - 1)
        else:
            self.wrapped |= self.column >= self.columns
            if self.column < self.columns:
                self.lines[self.row][self.column] = char
            self.column += 1

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)


class Top:
    def __init__(self, *args, rows=24, columns=80, env=None):
        pid, fd = pty.fork()
        if not pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(sys.argv[1], ["kvblk", "top", *args], {**os.environ, "TERM": "xterm", **(env or {})})
        self.pid, self.fd = pid, fd
        self.before = termios.tcgetattr(fd)
        self.screen = Screen(rows, columns)
        self.raw = ""

    def read(self):
        """Read the available output; returns False at its end."""
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.raw += data.decode()
        self.screen.feed(data.decode())
        return bool(data)

    def shows(self, pattern):
        """Wait until the complete screen matches ``pattern``."""
        end = time.monotonic() + PATIENCE
        while not (self.raw.endswith("\033[J") and re.search(pattern, self.screen.text(), re.M)):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0] or not self.read():
                raise AssertionError(f"no {pattern!r} on the screen:\n{self.screen.text()}")

    def resize(self, rows, columns):
        self.screen = Screen(rows, columns)
        self.screen.other = True
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ends(self, code):
        while self.read():
            pass
        got = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert got == code, f"exit code {got}: {self.raw}"

    def in_place(self):
        """Check that no output was outside the screen."""
        assert not self.screen.scrolled and not self.screen.wrapped, "it does not fit"


def case_screen():
    top = Top("200ms")
    top.shows(r"^POOL +HEALTH +PUT MiB +GET MiB +HIT % +GET p50 +GET p99 +PUT p99 +FREE INDEX$")
    # rates need two samples
    top.shows(r"^kv0 +note +[1-9][0-9.]* +[1-9][0-9.]* +80\.0 +512 ns +512 ns +1\.05 ms +50 % +10 %$")
    top.shows(r"^kv0 +m0 +up +1 GiB +128 +64 +60 +3$")
    # twice as many gets as misses, of 1 MiB each
    top.shows(r"^kv0 +f0 +suspect +other-node +([1-9][0-9.]*) +\1 +[1-9][0-9.]*$")
    top.shows(r"^kv0: 7 failed reads")
    top.shows(r"^kv0: followed member f0 of node other-node does not answer")
    assert re.search(r"^kvblk top  \d\d:\d\d:\d\d  each 0.2 s  what to do: kvblk status  \(q quits\)$", top.screen.text(), re.M)
    assert top.screen.other
    top.in_place()
    os.write(top.fd, b"xq")
    top.ends(0)
    assert not top.screen.other, "it is left on the other screen"
    assert top.raw.endswith("\033[?25h\033[?1049l")


def case_resize():
    top = Top("3600")
    top.shows("q quits")
    # redraws on a resize, not after the interval of an hour
    for rows, columns in ((10, 60), (40, 132), (2, 20), (1, 10), (24, 80)):
        top.resize(rows, columns)
        top.shows(r"^kvblk top"[:columns + 1])
        top.shows("^POOL") if rows > 2 else None
        top.in_place()
    os.write(top.fd, b"Q")
    top.ends(0)


def case_many():
    top = Top("3600", rows=12, env={"KVBLK_FAKE_ADMIN": os.environ["KVBLK_FAKE_ADMIN"] + ".many"})
    top.shows(r"^\.\.\. and \d+ more; name one: kvblk top POOL$")
    top.in_place()
    os.write(top.fd, b"q")
    top.ends(0)


def case_follows():
    top = Top("3600", rows=20, env={"KVBLK_FAKE_ADMIN": os.environ["KVBLK_FAKE_ADMIN"] + ".follows"})
    top.shows(r"^kv0 +f0 +suspect +other-node +0\.0 +0\.0 +0\.0$")
    top.shows(r"^\.\.\. and \d+ more; see: kvblk member list --foreign$")
    top.in_place()
    os.write(top.fd, b"q")
    top.ends(0)


def case_restored():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        pid, fd = pty.openpty()
        before = termios.tcgetattr(fd)
        child = os.fork()
        if not child:
            os.setsid()
            fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
            for n in (0, 1, 2):
                os.dup2(fd, n)
            os.execve(sys.argv[1], ["kvblk", "top"], {**os.environ, "TERM": "xterm"})
        shown = b""
        while b"q quits" not in shown:
            shown += os.read(pid, 65536)
        assert termios.tcgetattr(fd) != before, "it does not read keys"
        os.kill(child, number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert termios.tcgetattr(fd) == before, f"signal {number} leaves the terminal changed"
        os.close(fd)
        os.close(pid)


def case_fails_later():
    state = os.environ["KVBLK_FAKE_ADMIN"]
    top = Top("kv0", "200ms")
    top.shows("q quits")
    os.rename(state, state + ".gone")
    top.ends(1)
    os.rename(state + ".gone", state)
    assert re.search(r"\033\[\?1049l.*kvblk: kv0: there is no pool kv0", top.raw, re.S), "the message is on the wrong screen"


def case_dumb():
    top = Top(env={"TERM": "dumb"})
    top.ends(1)
    assert "TERM is dumb" in top.raw and "\033" not in top.raw


failed = 0
cases = [(name[5:], case) for name, case in sorted(globals().items()) if name.startswith("case_")]
for number, (name, case) in enumerate(cases, 1):
    try:
        case()
        print(f"ok {number} top: {name}")
    except AssertionError as error:
        failed += 1
        print(f"not ok {number} top: {name}")
        print("  # " + str(error).replace("\n", "\n  # "))
sys.exit(failed > 0)
