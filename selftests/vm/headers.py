# SPDX-License-Identifier: MIT
"""The headers of the tests in tests/, and the table in Documentation/testing.rst that is generated from them.

The rule: the first comment after the `# vm:` line says what is tested. Documentation/testing.rst explains the keys.
"""
import glob
import os
import re
import sys
import textwrap

from machine import KERNELS, SHAPE, SWITCHES, VM_DIR

TESTS = os.path.join(VM_DIR, "tests")
HEADER = dict(SHAPE, phases="1", timeout="60", kernels="newest,6.12,debug", check="newest,debug", takes="0", leaks="0", waits="0", nodes="")
SLOW = 40  # seconds on the newest kernel; slower tests need a "# slow:" line
DEPTHS = ("check", "all")


class Test:
    """A file in tests/ with its `# vm:` line; if pci= has several topologies, one of them."""

    def __init__(self, path, pci=None):
        self.name = os.path.basename(path)
        self.header = dict(HEADER)
        with open(path, errors="replace") as source:
            text = source.read()
        for words in re.findall(r"^# vm:(.*)", text, re.M):
            for word in words.split():
                key, _, value = word.partition("=")
                if key not in HEADER:
                    sys.exit(f"{path}: unknown key in the vm line: {key}")
                self.header[key] = value.replace("%", " ") if key == "append" else value
        self.slow = re.findall(r"^# slow: (.*)", text, re.M)
        self.topologies = self.header["pci"].split(",")
        takes = dict(zip(self.topologies, self.header["takes"].split(",")))
        for name in self.topologies:
            if name not in ("", *SWITCHES):
                sys.exit(f"{path}: no such PCIe topology, it is one of {', '.join(SWITCHES)}: {name}")
        for key in "kernels", "check":
            for name in self.header[key].split(","):
                if name.partition(":")[0] not in KERNELS:
                    sys.exit(f"{path}: {key}= names no kernel, it is one of {', '.join(KERNELS)}: {name}")
        if "debug" in self.header["kernels"].split(",") and (self.header["pci"] or self.header["net"] == "1"):
            sys.exit(f"{path}: user-mode Linux, the kernel debug, has neither PCI nor a network card")
        if self.header["nodes"] and self.header["kernels"] != "debug":
            sys.exit(f"{path}: nodes= is for kernels=debug only, user-mode Linux: see kvblk_wire")
        self.nodes = self.header["nodes"].split(",") if self.header["nodes"] else []
        if pci:
            self.name += f":{pci}"
            self.header["pci"] = pci
        self.phases = int(self.header["phases"])
        self.takes = int(takes.get(self.header["pci"], 0))

    def shape(self, args):
        shape = {key: self.header[key] for key in SHAPE}
        for key in ("disks", "mem"):
            if getattr(args, key):
                shape[key] = getattr(args, key)
        return shape

    def runs_on(self, kernel, depth):
        """Return whether the test runs on a kernel. An entry of kernels= and check= may be limited to one topology."""
        def named(key):
            return any(word in (kernel, f"{kernel}:{self.header['pci']}") for word in self.header[key].split(","))
        return named("kernels") and (depth == "all" or named("check"))

    def alone(self):
        """Return whether the test boots machines of its own."""
        return self.phases > 1 or self.nodes

    def seconds(self, machine, args):
        return args.timeout or int(self.header["timeout"]) * machine.slow


def tests_in(path):
    test = Test(path)
    return [test] if len(test.topologies) == 1 else [Test(path, pci) for pci in test.topologies]


def find_tests(names):
    found = []
    if not names:
        names = [path for path in sorted(glob.glob(f"{TESTS}/*")) if os.access(path, os.X_OK) and os.path.isfile(path)]
    for name in names:
        base, _, topology = os.path.basename(name).partition(":")
        paths = [p for pattern in (base, base + ".sh", f"[0-9]*-{base}", f"[0-9]*-{base}.sh") for p in glob.glob(f"{TESTS}/{pattern}")]
        if not paths:
            sys.exit(f"no test of this name in selftests/vm/tests: {name}")
        found += [test for test in tests_in(paths[0]) if topology in ("", test.header["pci"])]
    return found


def table():
    """Return an RST table of the tests and their kernels, and the reasons of the slow ones."""
    def where(test, kernel):
        return next((word for word, depth in (("check", "check"), ("all", "all")) if test.runs_on(kernel, depth)), "")
    rows = [["test", "s", *KERNELS]]
    reasons = []
    for test in find_tests([]):
        rows.append([test.name.replace(".sh", ""), str(test.takes or ""), *(where(test, kernel) for kernel in KERNELS)])
        reason = textwrap.fill(f"{test.name.partition('.')[0]}: {' '.join(test.slow)}", 79, initial_indent="* ", subsequent_indent="  ")
        if test.slow and reason not in reasons:
            reasons.append(reason)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rule = " ".join("=" * width for width in widths)
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, "", *reasons]) + "\n"


def complaints():
    """Return a message for each slow test without a reason."""
    return [f"selftests/vm/tests/{test.name}: takes {test.takes} s and has no line '# slow: why'"
            for test in find_tests([]) if test.takes > SLOW and not test.slow]
