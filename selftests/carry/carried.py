# SPDX-License-Identifier: MIT
"""The pool of selftests/runtimes for tests of a runtime: its counters, and faults to inject."""

import contextlib
import json
import pathlib
import subprocess

#: commands, also for KVBLK_CARRY_BEFORE_GET; see guest.bash
EVICT = "evict"
FAIL, HEAL = "drives_fail", "drives_heal"
GO, COME = "drives_go", "drives_come"


def guest(command):
    """Run a shell command in the VM. Returns its output; raises RuntimeError if it fails."""
    done = subprocess.run([pathlib.Path(__file__).with_name("carry"), command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def counters():
    """Return the pool's counters by name."""
    return json.loads(guest("kvblk stat t -o json"))[0]["counters"]


@contextlib.contextmanager
def during(begin, end):
    """Run one command before and one after the block: ``with during(FAIL, HEAL): ...``"""
    guest(begin)
    try:
        yield
    finally:
        guest(end)
