"""The calls of OpenStack Cinder's volume and backup drivers on block images of shoal: each answer of the story rbd/cinder.txt is the one that stock 16.2.15
gave (rbd/drivers-pacific.json, made by `rbd_drivers.py --stock`), but for those that rbd/drivers-meant.tsv names with a reason."""
import unittest

import rbd_drivers
from harness import ClusterTest


class Cinder(ClusterTest):
    def test_each_answer_is_stocks(self):
        rbd_drivers.check(self, self.cluster.conf, "cinder")


if __name__ == "__main__":
    unittest.main()
