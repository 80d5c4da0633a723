"""go-ceph's `./rados` test suite against three OSDs and pools of three copies: each case that passes on stock daemons of
16.2.15 passes (tests/go-ceph/stock-passes.txt). Its tests are compiled against librados 16.2; go.mod and go.sum in
tests/go-ceph pin the module.
"""
import os
import re
import shutil
import unittest
from pathlib import Path

import harness
import kills
import replicated
import stock_cluster
from harness import ROOT, ClusterTest

PINNED = ROOT / "tests/go-ceph"
BINARY = ROOT / "target/tools/go-ceph-rados.test"
PACKAGE = "github.com/ceph/go-ceph/rados"
HEADER = Path("/usr/include/rados/librados.h")
#: What the cases that talk to a cluster belong to.
SUITE = "TestRadosTestSuite"
VERDICT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


def lines(name):
    text = (PINNED / name).read_text().splitlines()
    return [line for line in text if line.strip() and not line.startswith("#")]


def skips():
    """`[case, reason]` of each case that is not run."""
    return [line.split(maxsplit=1) for line in lines("skips.txt")]


def compile_suite():
    """Compiles the suite. Raises `SkipTest` where Go, the header or the module cannot be had."""
    go = next((path for path in ("/usr/local/go/bin/go", shutil.which("go")) if path and os.path.exists(path)), None)
    if not go:
        raise unittest.SkipTest("go is not installed")
    if not HEADER.exists():
        raise unittest.SkipTest("librados-dev is not installed")
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    what = ["-mod=readonly", "-tags", "pacific,ceph_preview"]
    listed = harness.run([go, "-C", PINNED, "list", *what, "-deps", "-test", PACKAGE], check=False, env=environment, timeout=120)
    if listed.code and "SECURITY ERROR" in listed.errors:
        raise harness.Failed(listed.errors)
    if listed.code:
        raise unittest.SkipTest(f"go-ceph cannot be had: {' '.join(listed.errors.split())[-200:]}")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    harness.run([go, "-C", PINNED, "test", *what, "-c", "-o", BINARY, PACKAGE], env=environment, timeout=280)


class GoCeph(ClusterTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        if not harness.STOCK:
            return replicated.make_cluster(cls.OSDS)
        return stock_cluster.StockCluster(osds=cls.OSDS, store="bluestore", extra=stock_cluster.FAULTS)

    @classmethod
    def setUpClass(cls):
        compile_suite()
        super().setUpClass()
        # TestPGCommand asks PG 1.2.
        if harness.STOCK:
            # The manager makes it some seconds after its start.
            harness.eventually(lambda: "device_health_metrics" in cls.client.json("osd", "pool", "ls"))
            cls.client.ceph("osd", "pool", "set", "device_health_metrics", "pg_num", "8")
        else:
            cls.client.ceph("osd", "pool", "create", "first", "8")

    def run_suite(self, only="."):
        """The verdict of each case that the pattern `only` matches, and everything that was printed."""
        pattern = "|".join(case.rpartition("/")[2] for case, _ in skips())
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CEPH_")}
        done = harness.run([BINARY, "-test.v", "-test.timeout", "240s", "-test.run", only,
                            "-test.skip", f"^{SUITE}$/^({pattern})$"],
                           check=False, timeout=250, env={**environment, "CEPH_CONF": str(self.cluster.conf)})
        return {case: verdict for verdict, case in VERDICT.findall(done.text)}, done

    def test_cases_that_pass_on_stock_pass(self):
        for case, reason in skips():
            with self.subTest(case):
                self.skipTest(reason)
        verdicts, done = self.run_suite()
        for case in lines("stock-passes.txt"):
            with self.subTest(case):
                self.assertEqual(verdicts.get(case), "PASS", done.text[-3000:] + done.errors[-2000:])
        unlisted = sorted(set(verdicts) - set(lines("stock-passes.txt")) - {SUITE})
        self.assertEqual(unlisted, [], "cases that no list has")
        self.assertEqual(done.code, 0, done.text[-3000:] + done.errors[-2000:])

    @unittest.skipUnless(harness.LONG, "each case in a process of its own and with deaths: a quarter of an hour, --long")
    def test_cases_pass_while_osds_die(self):
        """The primary of most PGs is killed at the beginning of each case, and again and again until it ends."""
        cases = lines("stock-passes.txt")
        harness.give_time(60 * len(cases))
        for name in [case.partition("/")[2] for case in cases if case.startswith(SUITE) and case.count("/") == 1]:
            with self.subTest(name):
                with kills.Killer(self.cluster) as killer:
                    verdicts, done = self.run_suite(f"^{SUITE}$/^{name}$")
                print(f"{name}: deaths of OSDs {killer.deaths}", flush=True)
                self.assertTrue(killer.deaths)
                for case in cases:
                    if case == f"{SUITE}/{name}" or case.startswith(f"{SUITE}/{name}/"):
                        self.assertEqual(verdicts.get(case), "PASS", f"{case}\n{done.text[-3000:]}{done.errors[-2000:]}")
