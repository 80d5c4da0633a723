"""Runs the interop suites and prints one closing line, `N passed, N failed, N skipped`."""
import sys
import time
import unittest

import harness


#: What gates a change: the suites that hold today and take a few minutes together. `--long` runs every suite,
#: also those that show what is not right yet.
GATE = ["test_admin_socket", "test_python_rados", "test_rados", "test_hostile", "test_modes", "test_commands",
        "test_maps", "test_caps", "test_librados", "test_restart", "test_reqid", "test_disk", "test_death",
        "test_lab", "test_report"]


class Result(unittest.TextTestResult):
    """A line a test, with its time; passes are counted too."""

    passed = 0

    def startTest(self, test):
        self.began = time.monotonic()
        unittest.TestResult.startTest(self, test)

    def line(self, word, test, why=""):
        took = time.monotonic() - getattr(self, "began", time.monotonic())
        self.stream.writeln(f"{word:<6} {took:5.1f}s  {name_of(test)}{'  ' + why if why else ''}")
        self.stream.flush()

    def addSuccess(self, test):
        self.passed += 1
        self.line("ok", test)

    def addFailure(self, test, err):
        unittest.TestResult.addFailure(self, test, err)
        self.line("FAILED", test)

    def addError(self, test, err):
        unittest.TestResult.addError(self, test, err)
        self.line("FAILED", test)

    def addSkip(self, test, reason):
        unittest.TestResult.addSkip(self, test, reason)
        self.line("skip", test, reason)

    def addSubTest(self, test, subtest, err):
        unittest.TestResult.addSubTest(self, test, subtest, err)
        if err is None:
            self.passed += 1
        else:
            self.line("FAILED", subtest)


def name_of(test):
    return test.id() if hasattr(test, "id") else str(test)


def main():
    args = sys.argv[1:]
    if "--store" in args:
        at = args.index("--store")
        harness.STORE = args[at + 1]
        del args[at:at + 2]
    harness.LONG = "--long" in args
    args = [a for a in args if not a.startswith("-")]
    loader = unittest.TestLoader()
    if args:
        suite = loader.loadTestsFromNames(args)
    elif harness.LONG:
        suite = loader.discover(".", pattern="test_*.py")
    else:
        suite = loader.loadTestsFromNames(GATE)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result)
    result = runner.run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.passed} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed else 0)


main()
