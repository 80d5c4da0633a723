"""The calls of ceph-csi on block images of shoal: each answer of the story rbd/ceph-csi.txt is the one that stock 16.2.15
gave (rbd/drivers-pacific.json, made by `rbd_drivers.py --stock`), but for those that rbd/drivers-meant.tsv names with a reason."""
import unittest

import rbd_drivers
from harness import ClusterTest


class CephCsi(ClusterTest):
    def test_each_answer_is_stocks(self):
        rbd_drivers.check(self, self.cluster.conf, "ceph-csi")


if __name__ == "__main__":
    unittest.main()
