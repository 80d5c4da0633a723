"""OSDs that a network cuts off while verifying clients write and read: from everybody or from the cluster network, one way or both ways.
Each is marked down within seconds, clients go on, nothing acknowledged is lost, and the OSD returns when the network does."""
import unittest

import networks
from harness import eventually
from replicated import OP_SECONDS_MAX, ReplicatedTest, configure

#: shoal's grace for pulses is 1 s and for partners 2 s.
CUT_SECONDS_MAX = 10


class Cuts(ReplicatedTest):
    OSDS = 4

    @classmethod
    def make_cluster(cls):
        why = networks.why_not()
        if why:
            raise unittest.SkipTest(why)
        cluster = networks.CutCluster(cls.OSDS)
        configure(cluster)
        return cluster

    def test_osds_meet_in_the_cluster_network(self):
        for row in self.client.json("osd", "dump")["osds"]:
            for name, want in (("public", self.cluster.networks.addr), ("heartbeat_front", self.cluster.networks.addr),
                               ("cluster", self.cluster.networks.cluster_addr),
                               ("heartbeat_back", self.cluster.networks.cluster_addr)):
                addr = row[f"{name}_addrs"]["addrvec"][0]["addr"].rsplit(":", 1)[0]
                self.assertEqual(addr, want(row["osd"]), f"osd.{row['osd']}: {name}")

    def test_osd_that_is_cut_off_goes_down_and_returns(self):
        pool = self.make_pool("cuts")
        load = self.load(pool)
        self.addCleanup(self.cluster.networks.heal)
        for osd, how in enumerate(networks.CUTS):
            with self.subTest(how):
                self.cluster.networks.cut(osd, how)
                eventually(lambda: osd not in self.up(), CUT_SECONDS_MAX)
                self.assertEqual(len(self.up()), self.OSDS - 1, "others went down, too")
                self.goes_on(load)
                self.cluster.networks.heal()
                self.wait_up(osd)
                self.pgs.wait_clean()
                self.goes_on(load)
        self.assert_right(load)
        self.assert_healthy()
        self.assertLess(load.slowest()[0], OP_SECONDS_MAX)
