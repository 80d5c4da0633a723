"""All monitors' directories are lost, and a monitor is made from the stores of the OSDs: the maps come back, clients read every
object and write again, and what cannot come back is gone and said."""
import shutil

from harness import SHOAL, Client, Cluster, ClusterTest, eventually, run
from replicated import FAULTS, Pgs, configure

#: Epochs that a rebuild leaves out by itself.
SKIPPED = 1000
#: Keys of `osd dump` that a rebuild and the boots after it change: epochs, times, the highest number of a pool (a number is not
#: given twice), and what an OSD's boot writes.
CHANGED_DUMP = {"epoch", "modified", "last_up_change", "last_in_change", "pool_max", "osds", "osd_xinfo", "pools", "pg_temp",
                "primary_temp"}
CHANGED_OSD = {"up_from", "up_thru", "down_at", "last_clean_begin", "last_clean_end", "lost_at", "public_addrs", "cluster_addrs",
               "heartbeat_back_addrs", "heartbeat_front_addrs", "public_addr", "cluster_addr", "heartbeat_back_addr",
               "heartbeat_front_addr"}


class RebuildTest(ClusterTest):
    """A cluster with data, whose daemons die and whose monitors' directories are deleted."""

    OSDS = 3
    OPTIONS = ("--mons", "1", "--store", "disk", "--size", "4G")
    QUIET = False

    def setUp(self):
        configure(self.cluster, *FAULTS)
        self.pgs = Pgs(self.client)
        self.pgs.wait_clean()

    def rebuild(self, *args, check=True):
        return run([SHOAL, "mon", "rebuild", *map(str, args)], check=check)

    def refused(self, sentence, *args):
        """The rebuild fails with this sentence."""
        done = self.rebuild(*args, check=False)
        self.assertEqual((done.code, done.errors.strip().splitlines()[-1]), (1, f"shoal: {sentence}"))

    def store(self, osd):
        return self.cluster.dir / f"osd.{osd}"

    def stores(self, *osds):
        return [self.store(osd) for osd in osds or range(self.cluster.osds)]

    def as_monitor(self, name="a"):
        return ["--conf", self.cluster.conf, "--id", name]

    def lose_monitors(self):
        for name in [f"mon.{name}" for name in self.cluster.monitors] + [f"osd.{n}" for n in range(self.cluster.osds)]:
            if self.cluster.is_running(name):
                self.cluster.kill(name)
        for name in self.cluster.monitors:
            shutil.rmtree(self.cluster.dir / f"mon.{name}")

    def fill(self, pool, count=40):
        for number in range(count):
            self.client.rados("-p", pool, "put", f"o{number}", "-", stdin=f"{pool} {number} ".encode() * 500)

    def read(self, pool, count=40):
        for number in range(count):
            data = self.client.rados("-p", pool, "get", f"o{number}", "-").out
            self.assertEqual(data, f"{pool} {number} ".encode() * 500, f"{pool}/o{number}")

    def make_pool(self, name, pgs=8):
        self.client.ceph("osd", "pool", "create", name, pgs, pgs)
        self.client.ceph("osd", "pool", "application", "enable", name, "rados")
        self.pgs.wait_clean()

    def maps(self):
        """The OSDMap and CRUSH, without what a rebuild changes."""
        dump, crush = self.client.json("osd", "dump"), self.client.json("osd", "crush", "dump")
        return {"pools": {pool["pool_name"]: pool for pool in dump["pools"]}, "crush": crush,
                "osds": [{key: osd[key] for key in osd.keys() - CHANGED_OSD} for osd in dump["osds"]],
                "map": {key: dump[key] for key in dump.keys() - CHANGED_DUMP}}

    def dump(self, key):
        return self.client.json("osd", "dump")[key]

    def move_on(self, steps=6):
        """The OSDMap moves on, by maps that change no interval."""
        for number in range(steps):
            self.client.ceph("osd", "set" if number % 2 == 0 else "unset", "nodeep-scrub")

    def logged(self, text):
        """Lines of the cluster log with this text."""
        lines = self.client.json("log", "last", "1000", "debug", "cluster")
        return [line["message"] for line in lines if text in line["message"]]

    def has_map(self, osd):
        """The newest OSDMap in a stopped OSD's store, by the tool's own word."""
        done = self.rebuild("--collect", self.cluster.dir / f"map.{osd}", self.store(osd))
        return int(done.text.split("has OSDMap ")[1].split()[0])


class OneMonitor(RebuildTest):
    OSDS = 4

    def test_rebuilt_cluster_has_its_maps_and_data(self):
        client = self.client
        self.make_pool("data")
        self.make_pool("gone")
        client.ceph("osd", "pool", "rm", "gone", "gone", "--yes-i-really-really-mean-it")
        self.fill("data")
        client.ceph("auth", "get-or-create", "client.user", "mon", "allow r", "osd", "allow rw pool=data")
        client.ceph("auth", "get-or-create", "client.forgotten", "mon", "allow r")
        backup = self.cluster.dir / "backup.keyring"
        backup.write_text(client.ceph("auth", "get", "client.user").text)
        client.ceph("config", "set", "osd", "osd_recovery_sleep", "0.5")
        client.ceph("config-key", "set", "some/key", "value")
        client.ceph("osd", "out", 3)
        self.pgs.wait_clean()
        client.ceph("osd", "in", 3)
        client.ceph("osd", "reweight", 2, "0.8")
        client.ceph("osd", "set", "noscrub")
        client.ceph("osd", "blocklist", "add", "10.9.8.7:0/123", 86400)
        client.ceph("osd", "primary-affinity", 1, "0.5")
        self.make_pool("late")
        self.fill("late")
        before, epoch, pool_max = self.maps(), self.dump("epoch"), self.dump("pool_max")
        checks = set(client.json("health", "detail")["checks"])

        self.lose_monitors()
        done = self.rebuild(*self.as_monitor(), "--keyring", backup, *self.stores())
        self.assertIn(f"mon.a is rebuilt in {self.cluster.dir}/mon.a, from the stores of osd.0, osd.1, osd.2, osd.3", done.text)
        self.assertIn("client.admin, client.user", done.text)
        self.refused(f"{self.cluster.dir}/mon.a/log.redb is a monitor's disk: start that monitor if it is the cluster's. A monitor "
                     "that was started after the loss may have made an empty cluster there: move the directory away then, and "
                     "repeat this", *self.as_monitor(), *self.stores())
        self.cluster.up()
        self.pgs.wait_clean()

        after = self.maps()
        for pool in after["pools"].values():
            self.assertEqual(pool, before["pools"][pool["pool_name"]])
        self.assertEqual(after["osds"], before["osds"])
        self.assertEqual(after["crush"], before["crush"])
        self.assertEqual(after["map"], before["map"])
        self.assertGreater(self.dump("epoch"), epoch + SKIPPED)
        self.assertGreaterEqual(self.dump("pool_max"), pool_max + SKIPPED)
        pools = {pool["poolname"]: pool["poolnum"] for pool in client.json("osd", "lspools")}
        self.assertEqual(pools, {name: pool["pool"] for name, pool in before["pools"].items()})
        for pool in ("data", "late"):
            self.read(pool)
        user = Client(self.cluster, options=["--keyring", str(backup)], name="client.user")
        user.rados("-p", "data", "put", "again", "-", stdin=b"written after the rebuild")
        self.assertEqual(user.rados("-p", "data", "get", "again", "-").out, b"written after the rebuild")
        self.make_pool("new")
        self.assertGreater(self.pgs.pool("new")["pool"], pool_max + SKIPPED)

        # Gone, and said.
        self.assertNotIn("client.forgotten", client.ceph("auth", "ls").text)
        self.assertEqual(client.json("config-key", "ls"), [])
        self.assertNotIn("osd_recovery_sleep", client.ceph("config", "dump").text)
        for word in ("`ceph config`", "`ceph config-key`", "`ceph auth import", "the cluster log", "join tokens"):
            self.assertIn(word, done.text)
        self.assertTrue(self.logged("mon.a was rebuilt from the stores of osd.0, osd.1, osd.2, osd.3"))
        configure(self.cluster, *FAULTS)
        eventually(lambda: set(client.json("health", "detail")["checks"]) == checks, 30)

        # Growth works as before.
        self.cluster.again += ["--mons", "3"]
        self.cluster.up()
        eventually(lambda: sorted(client.json("quorum_status")["quorum_names"]) == ["a", "b", "c"], 60)
        self.cluster.kill("mon.a")
        self.read("data", 5)


class ThreeMonitors(RebuildTest):
    OPTIONS = ("--mons", "3", "--store", "disk", "--size", "4G")

    def test_three_monitors_come_back_from_one(self):
        self.make_pool("data")
        self.fill("data")
        before = self.maps()
        self.lose_monitors()
        done = run([SHOAL, "up", "--dir", self.cluster.dir], check=False)
        self.assertEqual((done.code, done.errors.strip()), (1, (
            f"shoal: osd.0 has a store, and no monitor of {self.cluster.dir} has a disk: the monitors' directories are lost. Put one "
            f"back, or make a monitor from the OSDs: shoal mon rebuild --conf {self.cluster.dir}/ceph.conf --id a "
            f"{self.cluster.dir}/osd.*/")))
        self.rebuild(*self.as_monitor("b"), *self.stores())
        self.cluster.up()
        eventually(lambda: sorted(self.client.json("quorum_status")["quorum_names"]) == ["a", "b", "c"], 60)
        self.pgs.wait_clean()
        after = self.maps()
        for part, value in before.items():
            self.assertEqual(after[part], value, part)
        self.read("data")
        # The quorum holds without the monitor that was rebuilt.
        self.cluster.kill("mon.b")
        self.client.ceph("config-key", "set", "after", "1")
        self.read("data", 5)


class Behind(RebuildTest):
    """OSDs whose maps are not the newest, or newer than those that were read."""

    def test_osd_that_was_behind_catches_up(self):
        self.make_pool("data")
        self.client.ceph("osd", "set", "noout")
        self.cluster.kill("osd.2")
        eventually(lambda: not self.dump("osds")[2]["up"], 60)
        self.fill("data")
        self.move_on()
        self.lose_monitors()
        self.assertLess(self.has_map(2), self.has_map(0))

        # Host after host, with a file.
        file = self.cluster.dir / "maps"
        self.rebuild("--collect", file, self.store(2))
        self.rebuild("--collect", file, self.store(0))
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.refused_without(1, "--with", file)
        done = self.rebuild(*self.as_monitor(), "--with", file, self.store(1))
        self.assertIn("from the stores of osd.0, osd.1, osd.2", done.text)
        self.assertNotIn("warning", done.errors)
        self.cluster.up()
        self.pgs.wait_clean()
        self.read("data")
        self.assertNotIn("is not used", self.cluster.log("osd.2"))
        # Alone with osd.2's copies: they have everything.
        self.client.ceph("osd", "unset", "noout")

    def refused_without(self, osd, *args):
        done = self.rebuild(*self.as_monitor(), *args, check=False)
        self.assertEqual(done.code, 1)
        self.assertRegex(done.errors, rf"OSDMap \d+ names osd\.{osd} and no store of them was read\. They may have newer maps and newer "
                         rf"writes: read their stores, too\. If a store is lost, say so: --without {osd}\n$")


class Ahead(RebuildTest):
    def lose_all_but_newer_maps_of_osd_2(self, pool):
        self.make_pool(pool)
        self.fill(pool)
        self.client.ceph("osd", "set", "noout")
        for osd in (0, 1):
            self.cluster.kill(f"osd.{osd}")
        eventually(lambda: [osd["up"] for osd in self.dump("osds")] == [0, 0, 1], 60)
        self.move_on(12)
        newest = self.dump("epoch")
        eventually(lambda: self.client.json("daemon", self.cluster.dir / "osd.2.asok", "status")["newest_map"] == str(newest), 20)
        self.lose_monitors()
        return newest

    def test_osd_with_lost_maps_is_told_and_comes_back(self):
        self.lose_all_but_newer_maps_of_osd_2("data")
        self.rebuild(*self.as_monitor(), "--without", 2, *self.stores(0, 1))
        self.cluster.up()
        self.pgs.wait_clean()
        self.read("data")
        eventually(lambda: self.logged("osd.2 with OSDMap"), 30)
        self.assertIn("this OSD has maps that were lost", self.logged("osd.2 with OSDMap")[0])

        # Fewer epochs are left out than were lost: the OSD stays down, and the monitor says why.
        newest = self.lose_all_but_newer_maps_of_osd_2("other")
        self.rebuild(*self.as_monitor(), "--without", 2, "--skip-epochs", 2, *self.stores(0, 1))
        self.cluster.start_daemon("mon.a")
        self.cluster.start_daemon("osd.2")
        line = eventually(lambda: self.logged("osd.2 is not marked up: it has OSDMap"), 30)[0]
        self.assertIn(f"it has OSDMap {newest}, and the monitors' newest is ", line)
        self.assertEqual(len(self.logged("osd.2 is not marked up")), 1)


class Refusals(RebuildTest):
    def test_rebuild_refuses_what_does_not_belong_together(self):
        file = self.cluster.dir / "maps"
        done = self.rebuild("--collect", file, self.store(1), check=False)
        self.assertEqual(done.code, 1)
        self.assertIn(f"{self.store(1)}/block is in use by ", done.errors)
        self.assertFalse(file.exists())
        done = self.rebuild(*self.as_monitor(), check=False)
        self.assertIn(f"{self.cluster.dir}/mon.a is in use by another process: stop that one first", done.errors)
        self.lose_monitors()
        self.refused("no store has OSDMaps: name the directories or devices of the OSDs, or --with FILE", *self.as_monitor())
        file.write_bytes(b"garbage")
        self.refused(f"{file}: it is no file of `shoal mon rebuild --collect`", "--collect", file, self.store(0))
        file.unlink()
        self.rebuild("--collect", file, *self.stores())
        torn = bytearray(file.read_bytes())
        torn[len(torn) // 2] ^= 1
        file.write_bytes(torn)
        self.refused(f"{file}: it is damaged or cut off: its checksum does not match", *self.as_monitor(), "--with", file)

        other = Cluster("--mons", "1", "--store", "disk", "--size", "4G", osds=1)
        self.addCleanup(other.close)
        other.down()
        ours, theirs = (Client(cluster).tool("ceph-conf", "-c", cluster.conf, "--lookup", "fsid").text.strip()
                        for cluster in (self.cluster, other))
        foreign = other.dir / "osd.0"
        self.refused(f"osd.0 ({foreign}) is of cluster {theirs}, the stores before it are of {ours}: give the stores of one cluster",
                     *self.as_monitor(), *self.stores(), foreign)
        self.refused(f"{self.cluster.conf} is of cluster {ours}, and the stores are of {theirs}", *self.as_monitor(), foreign)
        self.assertFalse((self.cluster.dir / "mon.a/log.redb").exists())

        # The administrator's key is lost, too.
        keyring = self.cluster.dir / "keyring"
        sections = keyring.read_text().split("[")
        keyring.write_text("[".join(section for section in sections if not section.startswith("client.admin]")))
        done = self.rebuild(*self.as_monitor(), *self.stores())
        self.assertIn(f"new keys client.admin, in {keyring}: clients and hosts need the new ones", done.text)
        self.cluster.up()
        self.pgs.wait_clean()
