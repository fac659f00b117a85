# SPDX-License-Identifier: MIT
"""unittest that prints TAP, numbered from what the environment's TAP_FROM says."""

import os
import sys
import unittest


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.number = int(os.environ.get("TAP_FROM", 0))

    def line(self, test, ok, more=""):
        self.number += 1
        what = test.shortDescription() or str(test)
        print(f"{'ok' if ok else 'not ok'} {self.number} vllm: {what}{more}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line(test, True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, True, f" # SKIP {reason}")

    def bad(self, test, err, add):
        add(test, err)
        self.line(test, False)
        for line in self._exc_info_to_string(err, test).splitlines():
            print(f"# {line}", flush=True)

    def addFailure(self, test, err):
        self.bad(test, err, super().addFailure)

    def addError(self, test, err):
        self.bad(test, err, super().addError)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.bad(subtest, err, lambda t, e: super(Result, self).addSubTest(test, t, e))


def main():
    """Run the tests of the main module, or those that are named."""
    module = sys.modules["__main__"]
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module)
    result = Result()
    suite.run(result)
    sys.exit(not result.wasSuccessful())
