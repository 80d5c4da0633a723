"""librbd's own test program, `ceph_test_librbd` of 18.2.7 and 20.2.4, with images of several sets of features: no case fails.

The gate runs cases of each part of the library (rbd/gate-cases.txt); --long runs all of them.
"""
import unittest

import harness
from harness import HERE, ClusterTest

#: `RBD_FEATURES`: layering alone; with exclusive-lock, object-map, fast-diff and deep-flatten, as `rbd create` has it; those
#: and journaling.
LAYERING, USUAL, JOURNALING = 1, 61, 125
PROGRAM = "ceph_test_librbd"
CASE_SECONDS_MAX, RUN_SECONDS_MAX = 240, 3600


def lines(name):
    return [line for line in (HERE / "rbd" / name).read_text().splitlines() if line.strip() and not line.startswith("#")]


class Librbd(harness.CephPrograms):
    def run_cases(self, features, *only):
        argv = [HERE / "librados/run", str(self.cluster.conf), "--release", self.RELEASE, "--root", self.root,
                "--seconds", str(CASE_SECONDS_MAX), "--env", f"RBD_FEATURES={features}",
                *[word for pattern in only for word in ("--only", pattern)], PROGRAM]
        harness.give_time(RUN_SECONDS_MAX)
        done = harness.run(argv, check=False, timeout=RUN_SECONDS_MAX)
        print(f"{self.RELEASE}, RBD_FEATURES={features}: {done.text}", end="", flush=True)
        self.assertEqual(done.code, 0, done.text + done.errors[-2000:])

    def test_cases_of_each_part_pass(self):
        self.run_cases(USUAL, *lines("gate-cases.txt"))

    @harness.long_only
    def test_all_cases_pass(self):
        for features in (LAYERING, USUAL, JOURNALING):
            with self.subTest(features):
                self.run_cases(features)


class Librbd18(Librbd, ClusterTest):
    RELEASE = "18.2"


class Librbd20(Librbd, ClusterTest):
    RELEASE = "20.2"


if __name__ == "__main__":
    unittest.main()
