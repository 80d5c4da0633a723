"""go-ceph's `./rados` test suite against three OSDs and pools of three copies: each case that passes on stock daemons of
16.2.15 passes (tests/go-ceph/stock-passes.txt). Its tests are compiled against librados 16.2.
"""
import unittest

import go_ceph
import harness
import kills
import replicated
from harness import ClusterTest

#: What the cases that talk to a cluster belong to.
GROUP = "TestRadosTestSuite"


class GoCeph(ClusterTest):
    OSDS = 3
    SUITE = go_ceph.SUITES["rados"]

    @classmethod
    def make_cluster(cls):
        return go_ceph.make_stock_cluster(cls.OSDS) if harness.STOCK else replicated.make_cluster(cls.OSDS)

    @classmethod
    def setUpClass(cls):
        cls.SUITE.compile()
        super().setUpClass()
        # TestPGCommand asks PG 1.2.
        if harness.STOCK:
            # The manager makes it some seconds after its start.
            harness.eventually(lambda: "device_health_metrics" in cls.client.json("osd", "pool", "ls"))
            cls.client.ceph("osd", "pool", "set", "device_health_metrics", "pg_num", "8")
        else:
            cls.client.ceph("osd", "pool", "create", "first", "8")

    def test_cases_that_pass_on_stock_pass(self):
        self.SUITE.check(self, self.cluster.conf)

    @unittest.skipUnless(harness.LONG, "each case in a process of its own and with deaths: a quarter of an hour, --long")
    def test_cases_pass_while_osds_die(self):
        """The primary of most PGs is killed at the beginning of each case, and again and again until it ends."""
        cases = self.SUITE.stock_passes()
        skipped = [case for case, _ in self.SUITE.skips()]
        harness.give_time(60 * len(cases))
        for name in [case.partition("/")[2] for case in cases if case.startswith(GROUP) and case.count("/") == 1]:
            with self.subTest(name):
                with kills.Killer(self.cluster) as killer:
                    verdicts, done = self.SUITE.run(self.cluster.conf, f"^{GROUP}$/^{name}$", skipped)
                print(f"{name}: deaths of OSDs {killer.deaths}", flush=True)
                self.assertTrue(killer.deaths)
                for case in cases:
                    if case == f"{GROUP}/{name}" or case.startswith(f"{GROUP}/{name}/"):
                        self.assertEqual(verdicts.get(case), "PASS", f"{case}\n{done.text[-3000:]}{done.errors[-2000:]}")


if __name__ == "__main__":
    unittest.main()
