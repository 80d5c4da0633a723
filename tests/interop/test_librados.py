"""Ceph's own test programs of release 20.2 against a cluster of shoal's: each passes the cases that `programs.tsv` counts."""
import csv
import os
import unittest
from pathlib import Path

import harness
from harness import ClusterTest

RUN = Path(__file__).resolve().parent / "librados/run"
ROOT = os.environ.get("SHOAL_CEPH20")


def programs():
    with open(RUN.parent / "programs.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def skips():
    lines = (RUN.parent / "skips.txt").read_text().splitlines()
    return [line.split(maxsplit=2) for line in lines if line.strip() and not line.startswith("#")]


class List(unittest.TestCase):
    def test_every_difference_has_a_reason(self):
        for row in programs():
            with self.subTest(row["program"]):
                self.assertIn(row["run"], ("gate", "long", "no"))
                different = row["stock_passed"] != row["shoal_passed"] or row["stock_failed"] not in "0-" or row["run"] == "no"
                self.assertEqual(row["reason"] == "none", not different, row["reason"])

    @unittest.skipUnless(ROOT, "SHOAL_CEPH20 names no folder with Ceph 20.2")
    def test_list_has_every_program_of_the_folder(self):
        installed = {path.name for path in Path(ROOT, "usr/bin").glob("ceph_test_*")}
        self.assertEqual(installed, {row["program"] for row in programs()})


@unittest.skipUnless(ROOT, "SHOAL_CEPH20 names no folder with Ceph 20.2")
class Programs(ClusterTest):
    def test_cases_that_pass_on_stock_pass(self):
        # Each program removes the pools that it makes.
        self.client.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        # Two cases change a pool to 11 PGs: from 8 that is a split. From the default of 32 it would be a merge, which
        # shoal refuses for now.
        self.client.ceph("config", "set", "mon", "osd_pool_default_pg_num", "8")
        # The programs see the cluster's files at the same path inside.
        harness.Client(self.cluster, ROOT)
        wanted = ("gate", "long") if harness.LONG else ("gate",)
        chosen = {row["program"] for row in programs() if row["run"] in wanted}
        for program, pattern, reason in skips():
            if program in chosen:
                with self.subTest(f"{program}:{pattern}"):
                    self.skipTest(reason)
        for row in programs():
            if row["run"] not in wanted:
                continue
            with self.subTest(row["program"]):
                argv = [RUN, str(self.cluster.conf), "--root", ROOT, "--seconds", "200", row["program"]]
                harness.give_time(1300)
                done = harness.run(argv, check=False, timeout=1200)
                print(done.text, end="", flush=True)
                self.assertEqual(done.code, 0, done.text + done.errors[-2000:])
