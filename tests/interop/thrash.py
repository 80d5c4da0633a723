#!/usr/bin/python3
"""A thrasher: OSDs are killed, frozen, cut off, filled, marked out and reweighted at random, while verifying clients write and
read: our own (history.py) and Ceph's model checker (`ceph_test_rados`, where it is unpacked), once with its own snapshots and once with the pool's, each in a pool of its own. Every
minute all OSDs return, and every PG must become active+clean.

    thrash.py [--minutes N] [--seed N] [--osds N] [--mons 1|3|5] [--stock] [--without ACTION ...] [--quiet]

Actions and weights are those of Ceph's own thrasher (qa/tasks/ceph_manager.py); cuts are ours. A seed gives the same actions
in the same order; what they meet depends on time. A second OSD dies only when the copies of the first have been made anew, so
a PG keeps min_size of its copies, and clients wait no longer than an OSD's death takes to be seen.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import rados

import harness
import networks
import replicated
from harness import Client, Failed, eventually
from history import History

#: Weights of the actions.
ACTIONS = {"out": 1.0, "into": 1.7, "kill": 0.4, "kill_primary": 0.4, "revive": 1.0, "reweight": 0.5, "affinity": 1.0,
           "pause": 0.7, "grow": 0.3, "shrink": 0.3, "force_recovery": 0.3, "upmap": 1.0, "full": 0.2, "map_gap": 0.3, "cut": 0.7,
           "pause_long": 0.1}
#: Further actions where there are several monitors.
ACTIONS_ON_MONITORS = {"kill_leader_and_primary": 0.8, "kill_monitor": 0.4, "pause_monitor": 0.4}
#: Actions that only a long run has time for.
ONLY_LONG = ("pause_long", "map_gap", "shrink")
#: Seconds between actions.
DELAY_SECONDS = (0.5, 4.0)
#: All OSDs are back and all PGs clean so often, and within this.
CLEAN_EVERY_SECONDS, CLEAN_SECONDS_MAX = 60, 120
PAUSE_SECONDS, LONG_PAUSE_SECONDS = 3, 80
MONITOR_DEAD_SECONDS = 3
CUT_SECONDS, FULL_SECONDS = 3, 3
#: The monitors keep so many maps, and a dead OSD misses more.
MAPS_KEPT, MAPS_MISSED, TRIM_SECONDS_MAX = 20, 160, 15
PGS_MAX, PGS_MIN = 64, 8
POOL = "thrash"
#: Pools of the model checker, with its arguments: snapshots of a client, and snapshots of the pool.
MODELS = {"model": (), "model-snaps": ("--pool-snaps",)}
#: Each ratio with the value that a cluster is made with, and one that a store with next to nothing in it exceeds.
RATIOS = {"full": (0.95, 0.003), "backfillfull": (0.9, 0.002), "nearfull": (0.85, 0.001)}


class Thrasher:
    """Draws actions and performs them. `actions` counts those that found something to do."""

    def __init__(self, cluster, seed, without=(), say=print):
        self.cluster, self.client, self.pgs = cluster, Client(cluster), replicated.Pgs(Client(cluster))
        self.dice, self.say = random.Random(seed), say
        known = {**ACTIONS, **(ACTIONS_ON_MONITORS if len(cluster.monitors) > 1 else {})}
        self.weights = {name: weight for name, weight in known.items() if name not in without}
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

    def kill_monitor(self, name=None):
        """A monitor is dead for some seconds."""
        name = self.pick(self.cluster.monitors) if name is None else name
        self.cluster.kill(f"mon.{name}")
        time.sleep(MONITOR_DEAD_SECONDS)
        self.cluster.start_daemon(f"mon.{name}")
        return f"mon.{name} for {MONITOR_DEAD_SECONDS} s"

    def kill_leader_and_primary(self):
        """The leader dies at the moment at which an OSD's death is to be noticed."""
        leader, killed = self.client.json("quorum_status")["quorum_leader_name"], self.kill_primary()
        return f"{killed or 'no OSD'} and {self.kill_monitor(leader)}"

    def pause_monitor(self):
        name = self.pick(self.cluster.monitors)
        self.cluster.pause(f"mon.{name}")
        try:
            time.sleep(PAUSE_SECONDS)
        finally:
            self.cluster.resume(f"mon.{name}")
        return f"mon.{name} for {PAUSE_SECONDS} s"

    def revive(self, osd=None):
        osd = self.pick(self.dead) if osd is None else osd
        if osd is None:
            return None
        self.cluster.start_daemon(f"osd.{osd}")
        self.dead.discard(osd)
        return f"osd.{osd}"

    def out(self, osd=None):
        # CRUSH finds three OSDs for each PG among those that are in.
        osd = self.pick(self.osds - self.outs) if osd is None else osd
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

    def pause_long(self):
        """A pause that outlasts every grace."""
        osd = self.pick(self.osds - self.dead)
        if not self.may_lose_one():
            return None
        self.cluster.pause(f"osd.{osd}")
        try:
            time.sleep(LONG_PAUSE_SECONDS)
        finally:
            self.cluster.resume(f"osd.{osd}")
        return f"osd.{osd} for {LONG_PAUSE_SECONDS} s"

    def cut(self):
        """The network loses all that an OSD sends, all that it is sent, both, or all of its cluster network."""
        osd, how = self.pick(self.osds - self.dead), self.dice.choice(networks.CUTS)
        if not hasattr(self.cluster, "networks") or not self.may_lose_one():
            return None
        self.cluster.networks.cut(osd, how)
        try:
            time.sleep(CUT_SECONDS)
        finally:
            self.cluster.networks.heal()
        return f"osd.{osd}, {how}, for {CUT_SECONDS} s"

    def full(self, kind="backfillfull"):
        """The cluster is too full for backfills, or full, for some seconds."""
        names = list(RATIOS)[list(RATIOS).index(kind):]
        # Their order is kept at every step: the least first on the way down.
        for name in reversed(names):
            self.client.ceph("osd", f"set-{name}-ratio", RATIOS[name][1])
        try:
            time.sleep(FULL_SECONDS)
        finally:
            for name in names:
                self.client.ceph("osd", f"set-{name}-ratio", RATIOS[name][0])
        return f"{kind} for {FULL_SECONDS} s"

    def map_gap(self):
        """An OSD misses many maps, where the monitors trim them more than are kept. The copies of the others are whole before it
        returns."""
        osd = self.pick(self.osds - self.dead)
        if self.dead or not self.kill(osd):
            return None
        self.out(osd)
        try:
            self.pgs.wait_clean(CLEAN_SECONDS_MAX)
        except Failed:
            # With fewer OSDs than copies it stays degraded.
            if len(self.osds - self.outs) >= 3:
                raise
        missed = self.client.json("osd", "stat")["epoch"]
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session:
            for number in range(MAPS_MISSED):
                asked = {"prefix": "osd primary-affinity", "id": osd, "weight": float(number % 2)}
                session.mon_command(json.dumps(asked), b"", timeout=30)
        other = self.pick(self.osds - self.dead)
        deadline = time.monotonic() + TRIM_SECONDS_MAX
        while (oldest := int(self.client.json("tell", f"osd.{other}", "status")["oldest_map"])) <= missed and time.monotonic() < deadline:
            time.sleep(0.5)
        self.revive(osd)
        if osd in self.outs:
            self.into(osd)
        return f"osd.{osd} knew maps up to {missed}, the oldest that others keep is {oldest}"

    def grow(self):
        pool = self.dice.choice((POOL, *MODELS))
        now = self.pgs.pool(pool)["pg_num"]
        if now >= PGS_MAX:
            return None
        self.client.ceph("osd", "pool", "set", pool, "pg_num", now + 4)
        self.client.ceph("osd", "pool", "set", pool, "pgp_num", now + 4, check=False)
        return f"pool {pool} from {now} to {now + 4} PGs"

    def shrink(self):
        pool = self.dice.choice((POOL, *MODELS))
        now = self.pgs.pool(pool)["pg_num"]
        if now <= PGS_MIN:
            return None
        self.client.ceph("osd", "pool", "set", pool, "pg_num", now - 4)
        return f"pool {pool} from {now} to {now - 4} PGs"

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


class Model:
    """Ceph's model checker at work in a pool of its own: it draws operations, knows what each object and each snapshot must be, and
    ends itself at a wrong answer. Without `watch`: its watcher never acknowledges, so that each notify waits for 600 s, whatever
    the cluster."""

    #: The mix of Ceph's own suites.
    OPS = {"read": 100, "write": 50, "write_excl": 50, "delete": 50, "setattr": 25, "rmattr": 25, "append": 50,
           "append_excl": 50, "writesame": 10, "snap_create": 50, "snap_remove": 50, "rollback": 50, "copy_from": 50}
    #: The last operations are answered within this after its time.
    GRACE_SECONDS = 120

    def __init__(self, cluster, seconds, pool, *arguments, ops_max=100_000_000):
        self.root = harness.programs_root("20.2") or harness.programs_root("18.2")
        self.ends, self.pool = time.monotonic() + seconds, pool
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        if not self.root:
            return
        ops = [word for name, weight in self.OPS.items() for word in ("--op", name, str(weight))]
        argv = ["nice", *harness.program_of(self.root, "ceph_test_rados"), "--pool", pool, "--max-ops", str(ops_max),
                "--max-seconds", str(round(seconds)), "--objects", "50", "--max-in-flight", "4", "--size", "400000",
                "--min-stride-size", "40000", "--max-stride-size", "80000", *arguments, *ops]
        self.process = subprocess.Popen(argv, env={**os.environ, "CEPH_CONF": str(cluster.conf)}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def ended(self):
        """True if it ended before its time: it found something wrong."""
        return bool(self.root) and self.process.poll() not in (None, 0)

    def operations(self):
        """The number of operations that it finished."""
        self.log.seek(0)
        return sum(": done (" in line for line in self.log)

    def stop(self):
        """Kills it where it is at work still."""
        if self.root and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def finish(self):
        """The problems that it found."""
        if not self.root:
            return []
        try:
            code = self.process.wait(max(1, self.ends - time.monotonic()) + self.GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            code = "no end"
            self.process.kill()
            self.process.wait()
        if code == 0:
            return []
        self.log.seek(0)
        return [f"ceph_test_rados in pool {self.pool}: exit code {code}: " + "".join(self.log.readlines()[-30:])]


def make_pool(client, name, pgs=16):
    client.ceph("osd", "pool", "create", name, pgs, pgs, "replicated", "--size", 3)
    client.ceph("osd", "pool", "set", name, "min_size", 2)
    client.ceph("osd", "pool", "application", "enable", name, "rados")


def make_cluster(osds):
    """A cluster whose OSDs can be cut off, where there are network namespaces."""
    if harness.STOCK or networks.why_not():
        return replicated.make_cluster(osds)
    cluster = networks.CutCluster(osds)
    replicated.configure(cluster, *replicated.FAULTS)
    return cluster


def thrash(cluster, minutes, seed, without=(), say=print):
    """Thrashes a cluster for so long. Returns the thrasher, the history, the model checkers, and the problems."""
    client = Client(cluster)
    for pool in (POOL, *MODELS):
        make_pool(client, pool)
    # Monitors let maps go as soon as OSDs tell that they need them no longer.
    client.ceph("config", "set", "mon", "mon_min_osdmap_epochs", MAPS_KEPT)
    client.ceph("config", "set", "osd", "osd_beacon_report_interval", 1)
    thrasher = Thrasher(cluster, seed, without, say)
    thrasher.pgs.wait_clean()
    load = History(cluster.conf, POOL, seed, writers=3, readers=2, objects=20, pause=0.004).start()
    models = [Model(cluster, 60 * minutes, pool, *arguments) for pool, arguments in MODELS.items()]
    ends, problems = time.monotonic() + 60 * minutes, []
    has_failed = lambda: load.problems or any(model.ended() for model in models)
    try:
        while time.monotonic() < ends and not has_failed():
            minute = min(ends, time.monotonic() + CLEAN_EVERY_SECONDS)
            while time.monotonic() < minute and not has_failed():
                thrasher.step()
                time.sleep(thrasher.dice.uniform(*DELAY_SECONDS))
            before = load.writes()
            thrasher.restore()
            eventually(lambda: load.problems or load.writes() > before + 50, replicated.OP_SECONDS_MAX)
            thrasher.tell(load.summary())
        problems += [problem for model in models for problem in model.finish()]
        # Not beside the model checker: librados holds writes to a full pool back, but not the ordered reads behind them, and
        # the checker ends itself at answers out of order, on stock's daemons too.
        thrasher.tell(f"full: {thrasher.full('full')}")
        before = load.writes()
        eventually(lambda: load.problems or load.writes() > before + 50, replicated.OP_SECONDS_MAX)
    except Failed as error:
        problems.append(f"at {time.monotonic() - thrasher.began:.1f} s: {error}")
        problems += [problem for model in models if model.ended() for problem in model.finish()]
    load.stop()
    for model in models:
        model.stop()
    problems += load.finish()
    if load.undecided:
        problems.append(f"{load.undecided} objects are undecided")
    if load.slowest()[0] > replicated.OP_SECONDS_MAX:
        problems.append(f"slower than {replicated.OP_SECONDS_MAX} s: {load.summary()}")
    return thrasher, load, models, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--osds", type=int, default=5, help="4 to 6")
    parser.add_argument("--mons", type=int, choices=[1, 3, 5], default=1, help="with several, monitors die, too")
    parser.add_argument("--stock", action="store_true", help="thrash stock Ceph")
    parser.add_argument("--without", action="append", default=[], choices=[*ACTIONS, *ACTIONS_ON_MONITORS], help="leave an action out")
    parser.add_argument("--quiet", action="store_true")
    asked = parser.parse_args()
    harness.STOCK, harness.MONS = asked.stock, asked.mons
    cluster = make_cluster(asked.osds)
    problems = ["interrupted"]
    try:
        thrasher, load, models, problems = thrash(cluster, asked.minutes, asked.seed, asked.without,
                                                 (lambda _text: None) if asked.quiet else lambda text: print(text, flush=True))
        print(load.summary())
        for model in models:
            print(f"the model checker finished {model.operations()} operations in pool {model.pool}")
        print(" ".join(f"{name}={count}" for name, count in sorted(thrasher.actions.items())))
        print("\n".join(problems) or "no problem")
        if problems:
            print(f"the cluster's directory is {cluster.dir}: set SHOAL_KEEP=1 to keep it")
    finally:
        cluster.close()
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
