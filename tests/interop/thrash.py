#!/usr/bin/python3
"""A thrasher: OSDs are killed, frozen, marked out and reweighted at random, while verifying clients write and read. Every
minute all OSDs return, and every PG must become active+clean.

    thrash.py [--minutes N] [--seed N] [--osds N] [--stock] [--without ACTION ...] [--quiet]

Actions and weights are those of Ceph's own thrasher (qa/tasks/ceph_manager.py). A seed gives the same actions in the same
order; what they meet depends on time. A second OSD dies only when the copies of the first have been made anew, so a PG keeps
min_size of its copies, and clients wait no longer than an OSD's death takes to be seen.
"""
import argparse
import random
import sys
import time

import harness
import replicated
from harness import Client, Failed, eventually
from history import History

#: Weights of the actions.
ACTIONS = {"out": 1.0, "into": 1.7, "kill": 0.4, "kill_primary": 0.4, "revive": 1.0, "reweight": 0.5, "affinity": 1.0,
           "pause": 0.7, "grow": 0.3, "force_recovery": 0.3, "upmap": 1.0}
#: Seconds between actions.
DELAY_SECONDS = (0.5, 4.0)
#: All OSDs are back and all PGs clean so often, and within this.
CLEAN_EVERY_SECONDS, CLEAN_SECONDS_MAX = 60, 120
PAUSE_SECONDS = 3
PGS_MAX = 64
POOL = "thrash"


class Thrasher:
    """Draws actions and performs them. `actions` counts those that found something to do."""

    def __init__(self, cluster, seed, without=(), say=print):
        self.cluster, self.client, self.pgs = cluster, Client(cluster), replicated.Pgs(Client(cluster))
        self.dice, self.say = random.Random(seed), say
        self.weights = {name: weight for name, weight in ACTIONS.items() if name not in without}
        self.dead, self.outs, self.actions = set(), set(), {}
        self.began = time.monotonic()

    @property
    def osds(self):
        return set(range(self.cluster.osds))

    def tell(self, text):
        self.say(f"{time.monotonic() - self.began:6.1f} s  {text}")

    def step(self):
        name = self.dice.choices(list(self.weights), list(self.weights.values()))[0]
        done = getattr(self, name)()
        if done:
            self.actions[name] = self.actions.get(name, 0) + 1
            self.tell(f"{name.replace('_', ' ')}: {done}")

    def pick(self, among):
        return self.dice.choice(sorted(among)) if among else None

    def may_lose_one(self):
        """True while no OSD is dead, or all that are dead are out and their copies have been made anew."""
        return not self.dead or (self.dead <= self.outs and not self.pgs.unclean())

    def kill(self, osd=None):
        osd = self.pick(self.osds - self.dead) if osd is None else osd
        if not self.may_lose_one():
            return None
        self.cluster.kill(f"osd.{osd}")
        self.dead.add(osd)
        return f"osd.{osd}"

    def kill_primary(self):
        osd = primary_of_most(self.pgs.all(POOL))
        return self.kill(osd) if osd in self.osds - self.dead else None

    def revive(self, osd=None):
        osd = self.pick(self.dead) if osd is None else osd
        if osd is None:
            return None
        self.cluster.start_daemon(f"osd.{osd}")
        self.dead.discard(osd)
        return f"osd.{osd}"

    def out(self):
        # CRUSH finds three OSDs for each PG among those that are in.
        osd = self.pick(self.osds - self.outs)
        if len(self.outs) >= self.cluster.osds - 4 + (self.cluster.osds == 4):
            return None
        self.client.ceph("osd", "out", osd)
        self.outs.add(osd)
        return f"osd.{osd}"

    def into(self, osd=None):
        osd = self.pick(self.outs) if osd is None else osd
        if osd is None:
            return None
        self.client.ceph("osd", "in", osd)
        self.outs.discard(osd)
        return f"osd.{osd}"

    def reweight(self):
        osd, weight = self.pick(self.osds - self.outs), round(self.dice.uniform(0.3, 1), 2)
        self.client.ceph("osd", "reweight", osd, weight)
        return f"osd.{osd} to {weight}"

    def affinity(self):
        osd, value = self.pick(self.osds), self.dice.choice((0, 0.5, 1, round(self.dice.random(), 2)))
        self.client.ceph("osd", "primary-affinity", osd, value)
        return f"osd.{osd} to {value}"

    def pause(self):
        osd = self.pick(self.osds - self.dead)
        if not self.may_lose_one():
            return None
        self.cluster.pause(f"osd.{osd}")
        try:
            time.sleep(PAUSE_SECONDS)
        finally:
            self.cluster.resume(f"osd.{osd}")
        return f"osd.{osd} for {PAUSE_SECONDS} s"

    def grow(self):
        now = self.pgs.pool(POOL)["pg_num"]
        if now >= PGS_MAX:
            return None
        self.client.ceph("osd", "pool", "set", POOL, "pg_num", now + 4)
        self.client.ceph("osd", "pool", "set", POOL, "pgp_num", now + 4, check=False)
        return f"{now} to {now + 4} PGs"

    def force_recovery(self):
        chosen = self.dice.sample(sorted(row["pgid"] for row in self.pgs.all(POOL)), 3)
        kind = self.dice.choice(("force-recovery", "force-backfill"))
        self.client.ceph("pg", kind, *chosen, check=False)
        return f"{kind} {' '.join(chosen)}"

    def upmap(self):
        row = self.dice.choice(self.pgs.all(POOL))
        free = self.osds - self.outs - set(row["up"])
        if not row["up"] or not free:
            return None
        source, target = self.dice.choice(row["up"]), self.pick(free)
        self.client.ceph("osd", "pg-upmap-items", row["pgid"], source, target)
        return f"{row['pgid']} from osd.{source} to osd.{target}"

    def restore(self):
        """Revives and takes in every OSD, and waits until every PG is active+clean."""
        for osd in sorted(self.dead):
            self.revive(osd)
        for osd in sorted(self.osds):
            self.client.ceph("osd", "in", osd)
            self.client.ceph("osd", "reweight", osd, 1)
        self.outs.clear()
        eventually(lambda: all(row["up"] for row in self.client.json("osd", "dump")["osds"]), 60)
        took = self.pgs.wait_clean(CLEAN_SECONDS_MAX)
        self.tell(f"active+clean after {took:.1f} s")


def primary_of_most(rows):
    """The OSD that is primary of most of these PGs."""
    primaries = [row["acting_primary"] for row in rows]
    return max(set(primaries), key=primaries.count)


def make_pool(client, pgs=16):
    client.ceph("osd", "pool", "create", POOL, pgs, pgs, "replicated", "--size", 3)
    client.ceph("osd", "pool", "set", POOL, "min_size", 2)
    client.ceph("osd", "pool", "application", "enable", POOL, "rados")


def thrash(cluster, minutes, seed, without=(), say=print):
    """Thrashes a cluster for so long. Returns the thrasher, the history, and the problems."""
    client = Client(cluster)
    make_pool(client)
    thrasher = Thrasher(cluster, seed, without, say)
    thrasher.pgs.wait_clean()
    load = History(cluster.conf, POOL, seed, writers=3, readers=2, objects=20, pause=0.004).start()
    ends, problems = time.monotonic() + 60 * minutes, []
    try:
        while time.monotonic() < ends and not load.problems:
            minute = min(ends, time.monotonic() + CLEAN_EVERY_SECONDS)
            while time.monotonic() < minute and not load.problems:
                thrasher.step()
                time.sleep(thrasher.dice.uniform(*DELAY_SECONDS))
            before = load.writes()
            thrasher.restore()
            eventually(lambda: load.problems or load.writes() > before + 50, replicated.OP_SECONDS_MAX)
            thrasher.tell(load.summary())
    except Failed as error:
        problems.append(f"at {time.monotonic() - thrasher.began:.1f} s: {error}")
    load.stop()
    problems += load.finish()
    if load.undecided:
        problems.append(f"{load.undecided} objects are undecided")
    if load.slowest()[0] > replicated.OP_SECONDS_MAX:
        problems.append(f"slower than {replicated.OP_SECONDS_MAX} s: {load.summary()}")
    return thrasher, load, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--osds", type=int, default=5, help="4 to 6")
    parser.add_argument("--stock", action="store_true", help="thrash stock Ceph")
    parser.add_argument("--without", action="append", default=[], choices=list(ACTIONS), help="leave an action out")
    parser.add_argument("--quiet", action="store_true")
    asked = parser.parse_args()
    harness.STOCK = asked.stock
    cluster = replicated.make_cluster(asked.osds)
    problems = ["interrupted"]
    try:
        thrasher, load, problems = thrash(cluster, asked.minutes, asked.seed, asked.without,
                                          (lambda _text: None) if asked.quiet else lambda text: print(text, flush=True))
        print(load.summary())
        print(" ".join(f"{name}={count}" for name, count in sorted(thrasher.actions.items())))
        print("\n".join(problems) or "no problem")
        if problems:
            print(f"the cluster's directory is {cluster.dir}: set SHOAL_KEEP=1 to keep it")
    finally:
        cluster.close()
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
