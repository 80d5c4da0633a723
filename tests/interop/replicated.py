"""Shared parts of the suites for replicated pools: a cluster whose OSDs die and return, its PGs' states, and waits for them.

With `--stock` the cluster is stock Ceph's, on bluestore in files: that shows that a suite asks for what stock does. With
`--mons 3` the monitor that leads dies in the moment in which OSDs are killed or stopped, and starts again with the next OSD.
"""
import json
import time

import harness
import stock_cluster
from harness import ClusterTest, Failed, eventually
from history import History

#: No client operation may take longer, whatever dies. Generous: stock marks a frozen OSD down after its grace, and its clients
#: ask for a new map only when an operation is 10 s old.
OP_SECONDS_MAX = 40
#: A PG is clean again, an OSD is marked down or up, all monitors take part within this.
CLEAN_SECONDS_MAX, DOWN_SECONDS_MAX, QUORUM_SECONDS_MAX = 90, 60, 60
#: As on the stock cluster: one host, so OSDs are reporters of their own, and faults show within seconds.
FAULTS = (("mon", "mon_osd_reporter_subtree_level", "osd"), ("global", "osd_heartbeat_grace", "8"))


def make_cluster(osds, *options, stock=None):
    """A cluster of ours, or of stock's with `stock`: by default as --stock says."""
    if not (harness.STOCK if stock is None else stock):
        cluster = harness.Cluster("--store", "disk", "--size", "4G", *options, osds=osds)
        configure(cluster, *FAULTS)
        return cluster
    cluster = stock_cluster.StockCluster(osds=osds, store="bluestore", extra=stock_cluster.FAULTS)
    client = harness.Client(cluster)
    # Its own pool has one copy, which would show in the states of this cluster.
    client.ceph("device", "monitoring", "off")
    client.ceph("osd", "pool", "rm", "device_health_metrics", "device_health_metrics", "--yes-i-really-really-mean-it",
                check=False)
    return cluster


def configure(cluster, *options):
    client = harness.Client(cluster)
    # An OSD that these tests mark down again and again is to come back each time.
    often = ("osd", "osd_max_markdown_count", "1000")
    for who, name, value in [("mon", "mon_allow_pool_delete", "true"), often, *options]:
        client.ceph("config", "set", who, name, value)


class Pgs:
    """PG states as the manager tells them, taken as stale until each is newer than the last boot of its acting OSDs."""

    def __init__(self, client):
        self.client = client

    def all(self, pool=None):
        """The rows of `pg dump`, of one pool or of all."""
        rows = self.client.json("pg", "dump", "pgs")
        rows = rows.get("pg_stats", rows) if isinstance(rows, dict) else rows
        if pool is None:
            return rows
        number = self.pool(pool)["pool"]
        return [row for row in rows if row["pgid"].partition(".")[0] == str(number)]

    def pool(self, name):
        return next(row for row in self.client.json("osd", "dump")["pools"] if row["pool_name"] == name)

    def states(self, pool):
        """The set of state strings."""
        return {row["state"] for row in self.all(pool)}

    def unclean(self):
        """The reason why some PG is not active+clean with all its copies, or an empty string."""
        dump = self.client.json("osd", "dump")
        since = {row["osd"]: row["up_from"] for row in dump["osds"] if row["up"]}
        rows = {row["pgid"]: row for row in self.all()}
        for pool in dump["pools"]:
            for number in range(pool["pg_num"]):
                pgid = f"{pool['pool']}.{number:x}"
                row = rows.get(pgid)
                if row is None:
                    return f"{pgid} is not reported"
                acting = row["acting"]
                # Neither scrubbing nor trimming is a fault.
                flags = set(row["state"].split("+")) - {"scrubbing", "deep", "repair", "snaptrim", "snaptrim_wait"}
                if (flags != {"active", "clean"} or len(acting) != pool["size"] or row["up"] != acting
                        or any(osd not in since or row["reported_epoch"] < since[osd] for osd in acting)):
                    return f"{pgid} is {row['state']}, up {row['up']}, acting {acting}, as of epoch {row['reported_epoch']}"
        return "" if len(rows) == sum(pool["pg_num"] for pool in dump["pools"]) else "PGs of a removed pool are reported"

    def wait_clean(self, seconds=CLEAN_SECONDS_MAX):
        """Waits until every PG is active+clean with all its copies. Returns the seconds it took."""
        began, why = time.monotonic(), ""
        while time.monotonic() < began + seconds:
            why = self.unclean()
            if not why:
                return time.monotonic() - began
            time.sleep(0.3)
        raise Failed(f"not clean within {seconds} s: {why}")


class ReplicatedTest(ClusterTest):
    """A suite on a cluster whose OSDs die. Each test begins with all OSDs up and in, and all PGs clean."""

    OSDS = 3
    QUIET = False

    @classmethod
    def make_cluster(cls):
        return make_cluster(cls.OSDS)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pgs = Pgs(cls.client)
        cls.client.ceph("config", "set", "global", "mon_allow_pool_size_one", "true")
        cls.baseline = set(cls.client.json("health", "detail")["checks"])

    def setUp(self):
        self.loads = []
        self.addCleanup(self.end_loads)
        self.start_monitors()
        for osd in self.osds():
            if not self.cluster.is_running(f"osd.{osd}"):
                self.start(osd)
        eventually(lambda: self.up() == self.osds(), DOWN_SECONDS_MAX)
        self.pgs.wait_clean()

    def end_loads(self):
        """A test that failed leaves no load that waits for its OSDs."""
        for load in self.loads:
            load.ending.set()
            load.running.set()

    def osds(self):
        return list(range(self.cluster.osds))

    def up(self):
        return [row["osd"] for row in self.client.json("osd", "dump")["osds"] if row["up"]]

    def make_pool(self, name, size=3, min_size=2, pgs=16):
        """A pool with nothing in it; the pool of an earlier test is removed."""
        for old in self.client.json("osd", "pool", "ls"):
            self.client.ceph("osd", "pool", "rm", old, old, "--yes-i-really-really-mean-it")
        self.client.ceph("osd", "pool", "create", name, pgs, pgs, "replicated", "--size", max(size, 2))
        if size == 1:
            # 16.2 has no word that makes such a pool at once.
            self.set(name, "size", 1, "--yes-i-really-mean-it")
        # Another `min_size` is a new interval, and its peering may begin after the PGs were seen to be clean.
        if self.client.json("osd", "pool", "get", name, "min_size")["min_size"] != min_size:
            self.client.ceph("osd", "pool", "set", name, "min_size", min_size)
        self.client.ceph("osd", "pool", "application", "enable", name, "rados")
        self.pgs.wait_clean()
        return name

    def load(self, pool, **how):
        """Verifying clients at work, once each has something to lose."""
        load = History(self.cluster.conf, pool, **how).start()
        self.loads.append(load)
        eventually(lambda: load.problems or load.writes() > 200, 60, 0.05)
        return load

    def goes_on(self, load, writes=40):
        """Waits until clients have had so many more changes acknowledged."""
        before = load.writes()
        eventually(lambda: load.problems or load.writes() >= before + writes, OP_SECONDS_MAX, 0.05)
        self.assertEqual(load.problems, [])

    def assert_right(self, load):
        """Ends the clients: every answer was right, every acknowledged change is there, and nothing took too long."""
        self.assertEqual(load.finish(), [])
        self.assertEqual(load.undecided, 0, load.summary())
        self.assertLess(load.slowest()[0], OP_SECONDS_MAX, load.summary())

    def assert_healthy(self):
        """Nothing is left in health but what was there from the start."""
        self.start_monitors()
        eventually(lambda: set(self.client.json("health", "detail")["checks"]) <= self.baseline, 60, 0.5)

    def start(self, *osds):
        for osd in osds:
            self.cluster.start_daemon(f"osd.{osd}")
        self.start_monitors()

    def kill(self, *osds):
        self.kill_leader()
        for osd in osds:
            self.cluster.kill(f"osd.{osd}")

    def kill_leader(self):
        """Nothing where the suite's clusters have one monitor. Without the others' vote nobody would hear of OSDs that die, so
        all others take part."""
        if harness.MONS > 1:
            self.start_monitors()
            self.cluster.kill(f"mon.{self.client.json('quorum_status')['quorum_leader_name']}")

    def start_monitors(self):
        if harness.MONS > 1:
            for name in self.cluster.monitors:
                if not self.cluster.is_running(f"mon.{name}"):
                    self.cluster.start_daemon(f"mon.{name}")
            eventually(lambda: all(self.client.mon_status(name)["state"] in ("leader", "peon") for name in self.cluster.monitors),
                       QUORUM_SECONDS_MAX)

    def stop(self, *osds):
        """A clean stop: the OSD tells the monitor that it goes."""
        self.kill_leader()
        for osd in osds:
            self.cluster.stop_daemon(f"osd.{osd}")
        self.wait_down(*osds)

    def wait_down(self, *osds):
        eventually(lambda: not set(osds) & set(self.up()), DOWN_SECONDS_MAX)

    def wait_up(self, *osds):
        eventually(lambda: set(osds) <= set(self.up()), DOWN_SECONDS_MAX)

    def primary(self, pool, name):
        return self.client.json("osd", "map", pool, name)["acting_primary"]

    def set(self, pool, option, value, *sure):
        self.client.ceph("osd", "pool", "set", pool, option, value, *sure)

    def verify_each_copy(self, load, pool):
        """Reads everything from each OSD alone, with all others stopped: each has a whole copy of every object."""
        self.set(pool, "min_size", 1)
        for last in self.osds():
            others = [osd for osd in self.osds() if osd != last]
            self.stop(*others)
            eventually(lambda: {tuple(row["acting"]) for row in self.pgs.all(pool)} == {(last,)}, DOWN_SECONDS_MAX)
            self.assertEqual(load.verify(), [], f"only osd.{last} serves")
            self.start(*others)
            self.wait_up(*others)
            self.pgs.wait_clean()
        self.set(pool, "min_size", 2)

    def checks(self):
        return self.client.json("health", "detail")["checks"]

    def show_states(self):
        """For a person: what the cluster says now."""
        return json.dumps({"states": sorted({row["state"] for row in self.pgs.all()}), "health": self.checks()}, indent=1)
