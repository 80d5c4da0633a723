#!/usr/bin/python3
"""Measures failovers as `failover.py` does, of OSDs that a network cuts off. Starts a cluster of shoal's for it; needs root.

    cut_failover.py [--osds N] [--seconds N] [--cut out|in|both|cluster]

SHOAL names the program. Of each cut: nobody hears the OSD, the OSD hears nobody, both, or both in the cluster network alone.
"""
import argparse
import os

import failover
import networks
import replicated


class Cut:
    def __init__(self, network, how):
        self.network, self.how = network, how

    def strike(self, osd):
        self.network.cut(osd, self.how)

    def heal(self):
        self.network.heal()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--cut", choices=networks.CUTS, action="append")
    asked = parser.parse_args()
    cluster = networks.CutCluster(asked.osds)
    try:
        replicated.configure(cluster)
        for how in asked.cut or networks.CUTS:
            found = failover.measure(cluster.dir, how, Cut(cluster.networks, how), asked.seconds)
            failover.show(found)
    finally:
        cluster.close()
    # Without shutting the sessions down: an operation without an answer would keep one waiting.
    os._exit(0)


if __name__ == "__main__":
    main()
