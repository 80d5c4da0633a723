"""Ceph's own librados test programs, of the newest release that is here, against a cluster of ours."""
import os
from pathlib import Path

import harness
from harness import ClusterTest

RUN = Path(__file__).resolve().parent / "librados/run"


class Programs(ClusterTest):
    def test_every_case_that_passes_on_stock(self):
        # Each program removes the pools that it makes.
        self.client.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        # Two cases change a pool to 11 PGs: from 8 that is a split. (From the default of 32 it would be a merge, which
        # shoal refuses for now.)
        self.client.ceph("config", "set", "mon", "osd_pool_default_pg_num", "8")
        root = os.environ.get("SHOAL_CEPH20")
        enter = ["--root", root] if root else []
        if root:
            # The programs see the cluster's files at the same path inside.
            harness.Client(self.cluster, root)
        for line in (RUN.parent / "programs.txt").read_text().splitlines():
            program, *only = line.split()
            if "long" in only and not harness.LONG:
                continue
            with self.subTest(program):
                argv = [RUN, str(self.cluster.conf), *enter, "--seconds", "200", program]
                harness.give_time(1300)
                done = harness.run(argv, check=False, timeout=1200)
                if done.code == 77:
                    self.skipTest(done.text.strip())
                print(done.text, end="", flush=True)
                self.assertEqual(done.code, 0, done.text + done.errors[-2000:])
