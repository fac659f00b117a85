# SPDX-License-Identifier: MIT
"""The pool of selftests/runtimes, as a test of a runtime sees it: what it counted, and what may happen to it."""

import contextlib
import json
import pathlib
import subprocess

#: for KVBLK_CARRY_BEFORE_GET, too; guest.bash says what they do
EVICT = "evict"
FAIL, HEAL = "drives_fail", "drives_heal"
GO, COME = "drives_go", "drives_come"


def guest(command):
    """What a command of the shell prints in the VM; RuntimeError: it failed."""
    done = subprocess.run([pathlib.Path(__file__).with_name("carry"), command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def counters():
    """Those of the pool, by name."""
    return json.loads(guest("kvblk stat t -o json"))[0]["counters"]


@contextlib.contextmanager
def during(begin, end):
    """Between two commands: ``with during(FAIL, HEAL): ...``"""
    guest(begin)
    try:
        yield
    finally:
        guest(end)
