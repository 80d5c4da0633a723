"""Ceph's own test programs against a cluster of shoal's with three OSDs and pools of three copies: each passes the cases that
the list of its release counts (librados/RELEASE/programs.tsv).

Programs of 18.2 are in a folder that tests/tools fills. Their list was made on stock daemons of 16.2.15. Those of 20.2, with
a list of stock 20.2.4, run where SHOAL_CEPH20 names a folder that has them.
"""
import csv
import unittest
from pathlib import Path

import harness
from harness import HERE, ClusterTest

RUN = HERE / "librados/run"
RELEASES = ("18.2", "20.2")


def programs(release):
    with open(RUN.parent / release / "programs.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def skips(release):
    lines = (RUN.parent / release / "skips.txt").read_text().splitlines()
    return [line.split(maxsplit=2) for line in lines if line.strip() and not line.startswith("#")]


class List(unittest.TestCase):
    def test_every_difference_has_a_reason(self):
        for release in RELEASES:
            for row in programs(release):
                with self.subTest(f"{release} {row['program']}"):
                    self.assertIn(row["run"], ("gate", "long", "no"))
                    different = (row["stock_passed"] != row["shoal_passed"] or row["stock_failed"] not in "0-"
                                 or row["run"] == "no")
                    self.assertEqual(row["reason"] == "none", not different, row["reason"])

    def test_list_has_every_program_of_the_folder(self):
        for release in RELEASES:
            root = harness.programs_root(release)
            if not root:
                self.skipTest(harness.no_programs(release))
            with self.subTest(release):
                installed = {path.name for path in Path(root, "usr/bin").glob("ceph_test_*")}
                self.assertEqual(installed, {row["program"] for row in programs(release)})


class Programs(harness.CephPrograms):
    OSDS = 3

    def wanted(self):
        """The programs to run."""
        runs = ("gate", "long") if harness.LONG else ("gate",)
        return [row["program"] for row in programs(self.RELEASE) if row["run"] in runs]

    def run_program(self, program):
        argv = [RUN, str(self.cluster.conf), "--release", self.RELEASE, "--root", self.root, "--seconds", "200",
                *(["--side", "stock"] if harness.STOCK else []), program]
        return harness.run(argv, check=False, timeout=1200)

    def test_cases_that_pass_on_stock_pass(self):
        wanted = self.wanted()
        for program, pattern, reason in skips(self.RELEASE):
            if program in wanted:
                with self.subTest(f"{program}:{pattern}"):
                    self.skipTest(reason)
        for program in wanted:
            with self.subTest(program):
                harness.give_time(1300)
                done = self.run_program(program)
                print(done.text, end="", flush=True)
                self.assertEqual(done.code, 0, done.text + done.errors[-2000:])


class Programs18(Programs, ClusterTest):
    RELEASE = "18.2"


class Programs20(Programs, ClusterTest):
    RELEASE = "20.2"
