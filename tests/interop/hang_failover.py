#!/usr/bin/python3
"""Measures failovers as `failover.py` does, of an OSD whose device hangs. Starts a cluster of shoal's for it; needs root.

    hang_failover.py [--osds N] [--seconds N] [--grace SECONDS]

SHOAL names the program. `--grace` is `osd_device_stall_grace`.
"""
import argparse
import os

import failover
import hangs
import replicated


class Hang:
    def __init__(self, disk):
        self.disk = disk

    def strike(self, _osd):
        self.disk.freeze()

    def heal(self):
        self.disk.thaw()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--grace", type=float, default=10)
    asked = parser.parse_args()
    cluster = hangs.HangingCluster(osds=asked.osds)
    try:
        replicated.configure(cluster, ("osd", "osd_device_stall_grace", str(asked.grace)))
        failover.show(failover.measure(cluster.dir, "device hang", Hang(cluster.disk), asked.seconds, victim=0))
    finally:
        cluster.close()
    # Without shutting the sessions down: an operation without an answer would keep one waiting.
    os._exit(0)


if __name__ == "__main__":
    main()
