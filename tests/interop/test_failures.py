"""Failures as docs/guide/failures.md walks through them: each happens to a real cluster under verifying clients, and the commands of
its section, performed in the page's order, show it and end it."""
import errno
import re
import threading
import time
import unittest

import hangs
import harness
from harness import Failed, eventually, run
from replicated import CLEAN_SECONDS_MAX, ReplicatedTest, configure

#: The page's ratios, and those of a test that need not write gigabytes.
RATIOS = {"0.95": "0.07", "0.96": "0.10"}


class Section:
    """The commands of one section of the page. `words` replaces words of the page by those of this cluster."""

    def __init__(self, title, cluster, **words):
        text = (harness.ROOT / "docs/guide/failures.md").read_text()
        section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.M | re.S)
        if section is None:
            raise Failed(f"the page has no section `{title}`")
        blocks = re.findall(r"^```sh$(.*?)^```$", section[1], re.M | re.S)
        lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
        self.commands = [line for line in lines if line]
        self.cluster, self.words = cluster, words

    def perform(self, command, check=True):
        """Performs the section's next command, which must be this one."""
        if not self.commands or self.commands[0] != command:
            raise Failed(f"the page has {self.commands[:1]} next, and not `{command}`")
        self.commands.pop(0)
        words = [self.word(word) for word in command.split()]
        if words[0] in ("ceph", "rados"):
            words[1:1] = ["-c", str(self.cluster.conf)]
        if words[0] == "shoal":
            words[0] = harness.SHOAL
        return run(words, check=check, timeout=120)

    def word(self, word):
        return self.words.get(word, word).replace("/srv/shoal", str(self.cluster.dir))

    def ends(self):
        if self.commands:
            raise Failed(f"the section goes on with {self.commands}")


class SlowDisk(threading.Thread):
    """Hangs of a disk for 50 ms, one after the other, with as much time between them."""

    def __init__(self, disk):
        super().__init__(daemon=True)
        self.disk, self.ending = disk, threading.Event()
        self.start()

    def run(self):
        while not self.ending.wait(0.05):
            self.disk.freeze()
            time.sleep(0.05)
            self.disk.thaw()

    def end(self):
        self.ending.set()
        self.join()


class Failures(ReplicatedTest):
    OSDS = 4

    @classmethod
    def make_cluster(cls):
        if harness.STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        why = hangs.why_no_frozen_disk()
        if why:
            raise unittest.SkipTest(why)
        cluster = hangs.HangingCluster(osds=cls.OSDS)
        configure(cluster, ("mon", "mon_osd_reporter_subtree_level", "osd"))
        return cluster

    def section(self, title, **words):
        return Section(title, self.cluster, **words)

    def code_comes(self, code, seconds=60):
        return eventually(lambda: self.checks().get(code), seconds, 0.5)

    def code_goes(self, *codes, seconds=90):
        eventually(lambda: not set(codes) & set(self.checks()), seconds, 0.5)

    def test_dead_disk_is_taken_out_and_replaced(self):
        page = self.section("A dead disk")
        load = self.load(self.make_pool("data"))
        self.kill(1)
        self.code_comes("OSD_DOWN")
        self.code_comes("PG_DEGRADED")
        self.goes_on(load)
        self.assertIn("osd.1", page.perform("ceph health detail").text)
        self.assertIn("osd.1", page.perform("ceph osd tree down").text)
        self.assertEqual(page.perform("ceph osd ok-to-stop 2", check=False).code, errno.EBUSY)
        page.perform("ceph osd out 1")
        safe = "ceph osd safe-to-destroy 1"
        page.commands[1:1] = [safe] * 400
        eventually(lambda: page.perform(safe, check=False).code == 0, CLEAN_SECONDS_MAX, 0.5)
        page.commands = [one for one in page.commands if one != safe]
        page.perform("ceph osd purge 1 --yes-i-really-mean-it")
        page.perform("rm -rf /srv/shoal/osd.1")
        page.perform("shoal up --dir /srv/shoal --osds 4")
        page.perform("ceph -s")
        page.ends()
        self.wait_up(1)
        self.pgs.wait_clean()
        self.goes_on(load)
        self.assert_right(load)
        self.assert_healthy()

    def test_dead_host_returns(self):
        page = self.section("A dead host")
        for osd, host in enumerate(["h1", "h2", "h3", "h3"]):
            self.client.ceph("osd", "crush", "set", f"osd.{osd}", "1.0", "root=default", f"host={host}")
        self.addCleanup(self.one_host)
        self.client.ceph("osd", "crush", "rule", "create-replicated", "by-host", "default", "host")
        pool = self.make_pool("data")
        self.set(pool, "crush_rule", "by-host")
        self.pgs.wait_clean()
        load = self.load(pool)
        self.kill(2, 3)
        self.code_comes("OSD_HOST_DOWN")
        self.assertIn("host h3", page.perform("ceph health detail").text)
        page.perform("ceph osd set-group noout h3")
        self.goes_on(load)
        page.perform("shoal up --dir /srv/shoal")
        page.perform("ceph osd unset-group noout h3")
        page.perform("ceph -s")
        page.ends()
        self.pgs.wait_clean()
        self.goes_on(load)
        self.assert_right(load)
        self.client.ceph("osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")
        self.client.ceph("osd", "crush", "rule", "rm", "by-host")
        self.one_host()
        self.assert_healthy()

    def one_host(self):
        """All OSDs on one host again."""
        for osd in self.osds():
            self.client.ceph("osd", "crush", "set", f"osd.{osd}", "1.0", "root=default", "host=h0")
        for host in ("h1", "h2", "h3"):
            self.client.ceph("osd", "crush", "rm", host, check=False)

    def test_full_cluster_has_room_again(self):
        page = self.section("A full cluster", **RATIOS)
        self.make_pool("data")
        self.client.ceph("osd", "pool", "create", "old", 16)
        self.client.ceph("osd", "pool", "application", "enable", "old", "rados")
        self.pgs.wait_clean()
        for kind, ratio in (("nearfull", "0.05"), ("backfillfull", "0.06"), ("full", RATIOS["0.95"])):
            self.client.ceph("osd", f"set-{kind}-ratio", ratio)
        self.addCleanup(self.usual_ratios)
        self.client.rados("-p", "data", "put", "dump.tar", "-", stdin=bytes(1 << 20))
        writer = self.client.spawn("rados", "-p", "old", "bench", "600", "write", "-t", "4", "--no-cleanup")
        try:
            self.code_comes("OSD_FULL", 120)
        finally:
            writer.kill()
            writer.communicate()
        self.code_comes("POOL_FULL")
        refused = self.client.rados("-p", "data", "put", "more", "-", "--rados_osd_op_timeout=3", stdin=b"x", check=False)
        self.assertNotEqual(refused.code, 0, "writes wait while the pool is full")
        self.assertIn("is full", page.perform("ceph health detail").text)
        self.assertIn("%USE", page.perform("ceph osd df").text)
        self.assertIn("old", page.perform("ceph df").text)
        page.perform("ceph osd set-full-ratio 0.96")
        page.perform("rados -p data rm dump.tar --force-full")
        page.perform("ceph osd pool rm old old --yes-i-really-really-mean-it")
        page.perform("ceph osd set-full-ratio 0.95")
        page.perform("ceph health detail")
        page.ends()
        self.code_goes("OSD_FULL", "OSD_NEARFULL", "POOL_FULL", "OSD_BACKFILLFULL")
        self.client.rados("-p", "data", "put", "more", "-", stdin=b"x")
        self.usual_ratios()
        self.assert_healthy()

    def usual_ratios(self):
        for kind, ratio in (("full", "0.95"), ("backfillfull", "0.90"), ("nearfull", "0.85")):
            self.client.ceph("osd", f"set-{kind}-ratio", ratio)

    def test_inconsistent_pg_is_repaired(self):
        pool = self.make_pool("data", pgs=1)
        where = self.client.json("osd", "map", pool, "x")
        pg, bad = where["pgid"], where["acting"][1]
        page = self.section("An inconsistent PG", **{"4.0": pg})
        self.client.rados("-p", pool, "put", "x", "-", stdin=b"good")
        self.client.ceph("osd", "set", "noout")
        self.stop(bad)
        run([harness.SHOAL, "store", "object", "set-bytes", self.cluster.dir / f"osd.{bad}", pg, "x"], stdin=b"evil")
        self.start(bad)
        self.wait_up(bad)
        self.pgs.wait_clean()
        load = self.load(pool)
        self.client.ceph("pg", "deep-scrub", pg)
        self.code_comes("OSD_SCRUB_ERRORS")
        detail = page.perform("ceph health detail").text
        self.assertIn("PG_DAMAGED", detail)
        self.assertRegex(detail, rf"pg {re.escape(pg)} is active\+clean\+inconsistent")
        self.assertEqual(page.perform("rados list-inconsistent-pg data").json, [pg])
        [found] = page.perform("rados list-inconsistent-obj 4.0 --format=json-pretty").json["inconsistents"]
        self.assertEqual(found["object"]["name"], "x")
        self.assertEqual([copy["osd"] for copy in found["shards"] if copy["errors"]], [bad])
        self.assertRegex(page.perform("ceph log last 50 info cluster").text, rf"shard {bad} soid .*:x:")
        page.perform("ceph pg repair 4.0")
        page.perform("ceph health detail")
        page.ends()
        self.code_goes("OSD_SCRUB_ERRORS", "PG_DAMAGED")
        self.assertEqual(self.client.rados("list-inconsistent-pg", pool).json, [])
        self.goes_on(load)
        self.assert_right(load)
        self.assertEqual(self.client.rados("-p", pool, "get", "x", "-").out, b"good")
        self.stop(bad)
        copy = run([harness.SHOAL, "store", "object", "get-bytes", self.cluster.dir / f"osd.{bad}", pg, "x"])
        self.assertEqual(copy.out, b"good")
        self.start(bad)
        self.wait_up(bad)
        self.pgs.wait_clean()
        self.client.ceph("osd", "unset", "noout")
        self.assert_healthy()

    def test_slow_disk_is_named_and_emptied(self):
        page = self.section("A slow disk")
        pool = self.make_pool("data")
        load = self.load(pool)
        slow = SlowDisk(self.cluster.disk)
        self.addCleanup(slow.end)
        self.code_comes("OSD_SLOWER_THAN_PEERS", 200)
        self.assertRegex(page.perform("ceph health detail").text, r"osd\.0 .*ms")
        self.assertIn("commit_latency", page.perform("ceph osd perf").text)
        doctor = page.perform("shoal lab doctor --conf /srv/shoal/ceph.conf", check=False)
        self.assertIn("OSD_SLOWER_THAN_PEERS", doctor.text)
        page.perform("ceph osd primary-affinity 0 0")
        page.perform("ceph osd out 0")
        page.perform("ceph -s")
        page.ends()
        eventually(lambda: all(0 not in row["up"] + row["acting"] for row in self.pgs.all(pool)), CLEAN_SECONDS_MAX)
        self.goes_on(load)
        self.assert_right(load)
        slow.end()
        self.client.ceph("osd", "in", "0")
        self.client.ceph("osd", "primary-affinity", "0", "1")
        self.pgs.wait_clean()
        # It takes a minute and a half with writes until the disk counts as well again.
        self.baseline.add("OSD_SLOWER_THAN_PEERS")

    def test_unfound_object_waits_for_its_osd(self):
        pool = self.make_pool("data", size=2, min_size=1, pgs=1)
        where = self.client.json("osd", "map", pool, "x")
        pg, (newest, stale) = where["pgid"], where["acting"]
        page = self.section("An unfound object", **{"3.0": pg})
        self.client.ceph("osd", "set", "noout")
        self.client.rados("-p", pool, "put", "x", "-", stdin=b"old")
        self.stop(stale)
        self.client.rados("-p", pool, "put", "x", "-", stdin=b"new")
        for flag in ("norecover", "nobackfill"):
            self.client.ceph("osd", "set", flag)
        self.start(stale)
        self.wait_up(stale)
        eventually(lambda: self.pgs.all(pool)[0]["state"].startswith("active+"), 60)
        eventually(lambda: sorted(self.pgs.all(pool)[0]["acting"]) == sorted([newest, stale]), 60)
        eventually(lambda: "degraded" in self.pgs.all(pool)[0]["state"], 60)
        self.stop(newest)
        for flag in ("norecover", "nobackfill"):
            self.client.ceph("osd", "unset", flag)
        self.code_comes("OBJECT_UNFOUND")
        self.assertIn(pg, page.perform("ceph health detail").text)
        self.assertIn("osd is down", page.perform("ceph pg 3.0 list_unfound").text)
        answers = []
        reader = threading.Thread(target=lambda: answers.append(self.client.rados("-p", pool, "get", "x", "-").out), daemon=True)
        reader.start()
        time.sleep(2)
        self.assertEqual(answers, [], "the request waits")
        page.perform("shoal up --dir /srv/shoal")
        page.perform("ceph -s")
        page.ends()
        self.pgs.wait_clean()
        reader.join(60)
        self.assertEqual(answers, [b"new"])
        self.client.ceph("osd", "unset", "noout")
        self.assert_healthy()
