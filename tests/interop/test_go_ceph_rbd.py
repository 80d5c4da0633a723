"""go-ceph's `./rbd` and `./rbd/admin` test suites against three OSDs and pools of three copies: each case that passes on stock
daemons of 16.2.15 passes (tests/go-ceph/stock-passes-rbd.txt, stock-passes-rbd-admin.txt). Their tests are compiled against
librbd 16.2."""
import unittest

import go_ceph
import harness
import replicated
from harness import ClusterTest


class GoCephRbd(ClusterTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        return go_ceph.make_stock_cluster(cls.OSDS) if harness.STOCK else replicated.make_cluster(cls.OSDS)

    def test_images_that_pass_on_stock_pass(self):
        suite = go_ceph.SUITES["rbd"]
        suite.compile()
        suite.check(self, self.cluster.conf)

    def test_admin_commands_that_pass_on_stock_pass(self):
        suite = go_ceph.SUITES["rbd/admin"]
        suite.compile()
        suite.check(self, self.cluster.conf)


if __name__ == "__main__":
    unittest.main()
