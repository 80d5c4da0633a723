#!/usr/bin/python3
"""go-ceph's test suites on a cluster: compiled against the installed libraries of 16.2, run, and their verdicts by case.

    go_ceph.py PACKAGE ...      writes the cases that pass on stock daemons of three OSDs to tests/go-ceph/stock-passes*.txt

A PACKAGE is `rados`, `rbd` or `rbd/admin`. go.mod and go.sum in tests/go-ceph pin the module.
"""
import argparse
import os
import re
import shutil
import sys
import unittest
from pathlib import Path

import harness
import stock_cluster
from harness import ROOT

PINNED = ROOT / "tests/go-ceph"
MODULE = "github.com/ceph/go-ceph"
HEADERS = {"rados": "/usr/include/rados/librados.h", "rbd": "/usr/include/rbd/librbd.h"}
VERDICT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


class Suite:
    """The tests of one package of go-ceph, its list of cases that pass on stock, and its list of skips."""

    def __init__(self, package, run_seconds_max):
        self.package, self.run_seconds_max = package, run_seconds_max
        name = package.replace("/", "-")
        suffix = "" if package == "rados" else f"-{name}"
        self.passes_path, self.skips_path = PINNED / f"stock-passes{suffix}.txt", PINNED / f"skips{suffix}.txt"
        self.binary = ROOT / f"target/tools/go-ceph-{name}.test"

    def stock_passes(self):
        """The cases that pass on stock daemons."""
        return lines(self.passes_path)

    def skips(self):
        """`[case, reason]` of each case that is not run. A name stands for its subtests too."""
        return [line.split(maxsplit=1) for line in lines(self.skips_path)]

    def compile(self):
        """Compiles the suite. Raises `SkipTest` where Go, a header or the module cannot be had."""
        go = next((path for path in ("/usr/local/go/bin/go", shutil.which("go")) if path and os.path.exists(path)), None)
        if not go:
            raise unittest.SkipTest("go is not installed")
        for library in {"rados", self.package.partition("/")[0]}:
            if not Path(HEADERS[library]).exists():
                raise unittest.SkipTest(f"lib{library}-dev is not installed")
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        package, what = f"{MODULE}/{self.package}", ["-mod=readonly", "-tags", "pacific,ceph_preview"]
        listed = harness.run([go, "-C", PINNED, "list", *what, "-deps", "-test", package], check=False, env=environment,
                             timeout=120)
        if listed.code and "SECURITY ERROR" in listed.errors:
            raise harness.Failed(listed.errors)
        if listed.code:
            raise unittest.SkipTest(f"go-ceph cannot be had: {' '.join(listed.errors.split())[-200:]}")
        self.binary.parent.mkdir(parents=True, exist_ok=True)
        harness.run([go, "-C", PINNED, "test", *what, "-c", "-o", self.binary, package], env=environment, timeout=280)

    def run(self, conf, only=".", skipped=()):
        """The verdict of each case that the pattern `only` matches, and everything that was printed."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CEPH_")}
        pattern = "|".join("/".join(f"^{re.escape(part)}$" for part in case.split("/")) for case in skipped)
        done = harness.run([self.binary, "-test.v", "-test.timeout", f"{self.run_seconds_max}s", "-test.run", only,
                            *(["-test.skip", pattern] if pattern else [])],
                           check=False, timeout=self.run_seconds_max + 10, env={**environment, "CEPH_CONF": str(conf)})
        return {case: verdict for verdict, case in VERDICT.findall(done.text)}, done

    def check(self, test, conf):
        """Checks that each case that passes on stock passes on a cluster, and that no list lacks a case."""
        skips = self.skips()
        for case, reason in skips:
            with test.subTest(case):
                test.skipTest(reason)
        passes = self.stock_passes()
        verdicts, done = self.run(conf, skipped=[case for case, _ in skips])
        for case in passes:
            with test.subTest(case):
                test.assertEqual(verdicts.get(case), "PASS", done.text[-3000:] + done.errors[-2000:])
        unlisted = sorted(set(verdicts) - set(passes) - set(HOLDERS))
        test.assertEqual(unlisted, [], "cases that no list has")
        test.assertEqual(done.code, 0, done.text[-3000:] + done.errors[-2000:])


#: Tests whose cases count, and not they themselves: the first passes when all its cases do, the second skips itself behind its only
#: case for want of a second cluster.
HOLDERS = ("TestRadosTestSuite", "TestMirrorImageInstanceIDLists")
SUITES = {suite.package: suite for suite in (Suite("rados", 240), Suite("rbd", 380), Suite("rbd/admin", 200))}


def lines(path):
    return [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def make_stock_cluster(osds):
    cluster = stock_cluster.StockCluster(osds=osds, store="bluestore", extra=stock_cluster.FAULTS)
    client = harness.Client(cluster)
    # The manager loads its modules some seconds after its start.
    harness.eventually(lambda: client.ceph("rbd", "task", "list", check=False).code == 0, 60)
    return cluster


def record(package):
    """Writes the list of cases that pass on stock daemons."""
    suite = SUITES[package]
    suite.compile()
    cluster = make_stock_cluster(osds=3)
    try:
        # A case of the skips that need shoal's reason alone passes here and is left out of the list.
        skipped = [case for case, _ in suite.skips()]
        verdicts, done = suite.run(cluster.conf, skipped=skipped)
    finally:
        cluster.close()
    print(done.text[-2000:], done.errors[-2000:])
    for case, verdict in verdicts.items():
        if verdict != "PASS":
            print(f"{package}: {case}: {verdict}")
    title = (f"# Cases of go-ceph's ./{package} suite that pass on stock daemons of 16.2.15 with three OSDs, but for those in "
             f"{suite.skips_path.name}.")
    passed = sorted(case for case, verdict in verdicts.items() if verdict == "PASS" and case not in HOLDERS)
    suite.passes_path.write_text("\n".join([title, *passed]) + "\n")
    print(f"{package}: {len(passed)} cases pass, exit code {done.code}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", choices=list(SUITES), metavar="PACKAGE")
    for name in parser.parse_args().packages:
        record(name)
    sys.exit()
