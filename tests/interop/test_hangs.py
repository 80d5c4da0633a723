"""An OSD whose device hangs, and one with a core that hangs, under verifying clients: health tells at once, the OSD goes down
after its grace, clients go on, and it returns when the hang is over and not before."""
import time
import unittest

import hangs
from harness import eventually
from replicated import ReplicatedTest, configure

#: Short, so that the test is.
GRACE_SECONDS = 4


class Hangs(ReplicatedTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        why = hangs.why_no_frozen_disk()
        if why:
            raise unittest.SkipTest(why)
        cluster = hangs.HangingCluster("--cores", "2", osds=cls.OSDS)
        configure(cluster, ("mon", "mon_osd_reporter_subtree_level", "osd"),
                  ("osd", "osd_device_stall_grace", str(GRACE_SECONDS)))
        return cluster

    def hangs(self, osd, code, end):
        """A part of the OSD hangs, until `end` is called."""
        pool = self.make_pool("hangs")
        load = self.load(pool)
        hang = self.begin(osd)
        self.addCleanup(end, hang)
        eventually(lambda: code in self.checks(), 30)
        eventually(lambda: osd not in self.up(), 60)
        self.assertEqual(len(self.up()), self.OSDS - 1, "others went down, too")
        self.goes_on(load)
        # It does not come back while the hang lasts, and health still tells why.
        until = time.monotonic() + 8
        while time.monotonic() < until:
            self.assertNotIn(osd, self.up())
            time.sleep(0.2)
        self.assertIn(code, self.checks())
        self.goes_on(load)
        end(hang)
        self.wait_up(osd)
        self.pgs.wait_clean()
        self.goes_on(load)
        self.assert_right(load)
        self.assert_healthy()

    def test_osd_whose_device_hangs_goes_down_until_it_answers(self):
        self.begin = lambda _osd: self.cluster.disk.freeze()
        self.hangs(0, "OSD_DEVICE_STALLED", lambda _hang: self.cluster.disk.thaw())

    def test_osd_with_a_core_that_hangs_goes_down_until_it_runs(self):
        self.begin = lambda osd: hangs.StoppedThread(self.cluster.pid(f"osd.{osd}"), hangs.LAST_CORE)
        self.hangs(1, "OSD_CORE_STALLED", lambda hang: hang.go_on())
