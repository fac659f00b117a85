# SPDX-License-Identifier: MIT
"""unittest that prints TAP, for this package's tests and the connectors'.

usage: tap.py AREA MODULE...   runs the tests of modules, one line each; AREA is in front of their names

With TAP_FROM=N in the environment lines are numbered on from N, and whoever set it prints the plan.
"""

import os
import sys
import unittest


class Result(unittest.TestResult):
    """What is not well is told below its line."""

    def __init__(self, area):
        super().__init__()
        self.area = area
        self.number = int(os.environ.get("TAP_FROM", "0"))

    def line(self, test, verdict="ok", more=""):
        self.number += 1
        what = test.shortDescription() or test.id().removeprefix("__main__.")
        print(f"{verdict} {self.number} {self.area}: {what}{more}", flush=True)

    def complain(self, test, err):
        self.line(test, "not ok")
        print("".join(f"  | {line}\n" for line in self._exc_info_to_string(err, test).splitlines()), end="", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, more=f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.complain(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self.complain(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        # addSuccess() is not called for a test with a part that failed
        if err is not None:
            self.complain(subtest, err)


def run(area, tests):
    """Run these tests; the exit code."""
    result = Result(area)
    tests.run(result)
    if "TAP_FROM" not in os.environ:
        print(f"1..{result.number}", flush=True)
    return 0 if result.wasSuccessful() and result.testsRun else 1


def main(area):
    """The same with the tests of the main module, or those of it that the command line names."""
    module = sys.modules["__main__"]
    loader = unittest.defaultTestLoader
    return run(area, loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])))
