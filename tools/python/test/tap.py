# SPDX-License-Identifier: MIT
"""Print unittest results as TAP, for the tests of this package and of the connectors.

usage: tap.py AREA MODULE...   run the tests of modules, one line each, with AREA before each name

If TAP_FROM=N is set, line numbers continue from N, and the caller prints the plan.
"""

import os
import sys
import unittest


class Result(unittest.TestResult):
    """Prints details of a failure below its line."""

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
        # unittest does not call addSuccess() for a test with a failed subtest
        if err is not None:
            self.complain(subtest, err)


def run(area, tests):
    """Run tests; return the exit code."""
    result = Result(area)
    tests.run(result)
    if "TAP_FROM" not in os.environ:
        print(f"1..{result.number}", flush=True)
    return 0 if result.wasSuccessful() and result.testsRun else 1


def main(area):
    """Run the tests of the main module, or those named on the command line."""
    module = sys.modules["__main__"]
    loader = unittest.defaultTestLoader
    return run(area, loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:])))
