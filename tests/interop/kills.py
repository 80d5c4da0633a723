"""Suites under failover: the OSD that is primary of most of a pool's PGs is killed in the middle of a test and restarted some
seconds later, again and again until the test ends.
"""
import collections
import itertools
import json
import threading
import time

import rados

import harness
import replicated

#: A dead OSD stays dead for so long: longer than the monitor takes to mark it down.
DEAD_SECONDS = 4
#: Seconds from the return of one OSD to the death of the next.
BETWEEN_SECONDS = 5
#: Between two deaths the PGs become clean, or this time passes: tests make and remove pools all the while.
CLEAN_SECONDS_MAX = 10
#: So many objects tell which OSD is primary of most PGs.
SAMPLES = 32


class Killer:
    """A context in which OSDs die, one at a time: the first at once or, with `new_pool`, as soon as the test has made a pool. At
    the end of the context all OSDs are up and every PG is clean. `deaths` has the number of each OSD that died. An exception in
    the thread is raised at the end. With `in_turn` the OSDs die in order of their numbers, whatever PGs they have."""

    def __init__(self, cluster, new_pool=False, in_turn=False):
        self.cluster, self.new_pool = cluster, new_pool
        self.turns = itertools.cycle(range(cluster.osds)) if in_turn else None
        self.pgs = replicated.Pgs(harness.Client(cluster))
        self.session = rados.Rados(conffile=str(cluster.conf), name="client.admin")
        self.ending = threading.Event()
        self.deaths, self.problem = [], None
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.session.connect(timeout=30)
        self.pools_before = self.ask("osd dump")["pool_max"]
        # Chosen before the test begins: one that ends within milliseconds meets the death, too.
        self.first = None if self.new_pool else self.next_victim()
        self.thread.start()
        return self

    def __exit__(self, *_error):
        self.ending.set()
        self.thread.join()
        if self.problem:
            raise self.problem
        harness.eventually(self.all_up, replicated.DOWN_SECONDS_MAX)
        self.pgs.wait_clean()
        self.session.shutdown()

    def ask(self, prefix, **words):
        """A monitor's answer. It takes a millisecond, not a process."""
        code, out, errors = self.session.mon_command(json.dumps({"prefix": prefix, "format": "json", **words}), b"", timeout=30)
        if code:
            raise harness.Failed(f"{prefix} {words}: {errors}")
        return json.loads(out)

    def next_victim(self):
        """The OSD that is primary of most PGs of the newest pool, by a sample of objects; the first OSD without a pool. With
        `in_turn` the next one."""
        if self.turns:
            return next(self.turns)
        primaries = collections.Counter()
        try:
            pools = self.ask("osd dump")["pools"]
            name = max(pools, key=lambda pool: pool["pool"])["pool_name"] if pools else None
            for number in range(SAMPLES if pools else 0):
                primaries[self.ask("osd map", pool=name, object=str(number))["acting_primary"]] += 1
        except harness.Failed:
            pass  # The test removed the pool.
        del primaries[-1]
        return primaries.most_common(1)[0][0] if primaries else 0

    def work(self):
        try:
            while self.new_pool and self.ask("osd dump")["pool_max"] <= self.pools_before:
                if self.ending.wait(0.01):
                    return
            self.kill(self.next_victim() if self.new_pool else self.first)
            while not self.ending.wait(BETWEEN_SECONDS):
                self.kill(self.next_victim())
        except Exception as problem:  # pylint: disable=broad-except
            self.problem = problem

    def kill(self, osd):
        # Where there are several monitors, the one that leads dies with it.
        several = len(self.cluster.monitors) > 1
        victims = [*([f"mon.{self.ask('quorum_status')['quorum_leader_name']}"] if several else []), f"osd.{osd}"]
        for name in victims:
            self.cluster.kill(name)
        self.deaths.append(osd)
        time.sleep(DEAD_SECONDS)
        for name in victims:
            self.cluster.start_daemon(name)
        harness.eventually(self.all_up, replicated.DOWN_SECONDS_MAX)
        deadline = time.monotonic() + CLEAN_SECONDS_MAX
        while self.pgs.unclean() and time.monotonic() < deadline:
            time.sleep(0.3)

    def all_up(self):
        return all(row["up"] for row in self.ask("osd dump")["osds"])


class Killed:
    """A mixin before a `ClusterTest`: its cluster has three OSDs, its pools three copies, and OSDs die while each of its tests
    runs. With `--stock` the cluster is stock Ceph's."""

    OSDS = 3
    #: Deaths leave errors in the logs of those that live.
    QUIET = False

    @classmethod
    def make_cluster(cls):
        return replicated.make_cluster(cls.OSDS, *cls.OPTIONS)

    def run(self, result=None):
        test = getattr(self, self._testMethodName)
        if getattr(test, "__unittest_skip__", False) or getattr(type(self), "__unittest_skip__", False):
            return super().run(result)
        with Killer(self.cluster) as killer:
            result = super().run(result)
        print(f"{self._testMethodName}: deaths of OSDs {killer.deaths}", flush=True)
        return result

    def pool(self, name, pgs=8):
        if name not in self.client.json("osd", "pool", "ls"):
            self.client.ceph("osd", "pool", "create", name, pgs, pgs, "replicated", "--size", "3")
            self.client.ceph("osd", "pool", "set", name, "min_size", "2")
        return name
