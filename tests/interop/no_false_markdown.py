#!/usr/bin/python3
"""Full load on a cluster of shoal's, with busy processes beside it, watched for OSDs that are marked down though they live.

    no_false_markdown.py [--minutes N] [--osds N] [--cores N] [--busy N] [--depth N] [--bytes N]

Stock clients write and read with operations of 4 KiB and 64 KiB in flight all the time. SHOAL names the program. Prints a line a
minute, and ends with 1 as soon as a map has an OSD down.
"""
import argparse
import json
import os
import subprocess
import sys
import threading
import time

import failover
import harness
import rados
import replicated

BUSY = "import hashlib\nwhile True:\n    hashlib.sha256(bytes(1 << 20)).digest()\n"


class Watch:
    """Every map since the first look: an OSD that went down and came back between two looks is noticed by its `up_from`."""

    def __init__(self, session):
        self.session, self.first = session, None

    def osds(self):
        return {row["osd"]: (row["up"], row["up_from"], row["down_at"])
                for row in failover.ask(self.session, prefix="osd dump")["osds"]}

    def complaint(self):
        now = self.osds()
        if self.first is None:
            self.first = now
            return ""
        return "; ".join(f"osd.{osd} was {self.first[osd]}, is {now.get(osd)}" for osd in self.first
                         if now.get(osd) != self.first[osd])


def streams(conf, pool, depth, sizes):
    made = [failover.Stream(conf, pool, kind, depth, size) for size in sizes for kind in ("write", "read")]
    made[0].fill()
    for stream in made:
        threading.Thread(target=stream.run, daemon=True).start()
    return made


def watch(cluster, minutes, busy, depth, size):
    conf = str(cluster.conf)
    neighbours = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        with rados.Rados(conffile=conf, name="client.admin") as session:
            failover.prepare(session, "full-load", min(3, cluster.osds))
            looks = Watch(session)
            looks.complaint()
            load = streams(conf, "full-load", depth, (size, 16 * size))
            began, shown = time.monotonic(), 0
            while time.monotonic() < began + 60 * minutes:
                time.sleep(1)
                complaint = looks.complaint()
                if complaint:
                    return f"after {(time.monotonic() - began) / 60:.1f} minutes: {complaint}"
                if time.monotonic() - began >= 60 * (shown + 1):
                    shown += 1
                    print_minute(session, shown, load)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    return ""


def print_minute(session, minute, load):
    """Prints the work done so far. The list of durations is emptied: a long run must not grow."""
    counts, slowest = [], 0
    for stream in load:
        with stream.lock:
            done, stream.done = stream.done, []
        counts.append(len(done))
        slowest = max([slowest, *(end - start for start, end in done)])
    checks = sorted(failover.ask(session, prefix="health").get("checks", {}))
    print(json.dumps({"minute": minute, "operations": sum(counts), "slowest_seconds": round(slowest, 2),
                      "load_average": os.getloadavg()[0], "health": checks}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--osds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--bytes", type=int, default=4096)
    asked = parser.parse_args()
    cluster = harness.Cluster("--store", "disk", "--size", "4G", "--cores", str(asked.cores), osds=asked.osds)
    try:
        replicated.configure(cluster)
        complaint = watch(cluster, asked.minutes, asked.busy, asked.depth, asked.bytes)
    finally:
        cluster.close()
    print(complaint or f"{asked.minutes:g} minutes without a markdown", flush=True)
    # Without shutting the sessions down: an operation without an answer would keep one waiting.
    os._exit(1 if complaint else 0)


if __name__ == "__main__":
    main()
