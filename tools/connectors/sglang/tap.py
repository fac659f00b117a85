# SPDX-License-Identifier: MIT
"""usage: tap.py MODULE...

Runs unittest modules, one TAP line for each test.
"""

import sys
import unittest
import warnings


class Tap(unittest.TextTestResult):
    def told(self, test, good, note=""):
        print(f"{'ok' if good else 'not ok'} {self.testsRun} sglang: {test.id()}{note}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.told(test, True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.told(test, True, f" # SKIP {reason}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.told(test, False)

    def addError(self, test, err):
        super().addError(test, err)
        self.told(test, False)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        # success() is not called for a test with a part that failed
        if err is not None:
            self.told(subtest, False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tests = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(sys.stderr, verbosity=0, resultclass=Tap, warnings="ignore").run(tests)
    print(f"1..{result.testsRun}")
    sys.exit(not result.wasSuccessful())
