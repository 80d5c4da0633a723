"""Scrub and repair under stock's clients: damage that `shoal store object` makes on one copy is found by `ceph pg deep-scrub`,
listed by `rados list-inconsistent-obj`, and gone after `ceph pg repair`; reads are right all the time."""
import os

import harness
from harness import SHOAL, eventually, run
from replicated import CLEAN_SECONDS_MAX, ReplicatedTest

#: Objects with damage, in the gate and with --long.
OBJECTS, OBJECTS_LONG = 16, 200
#: The kinds of damage, in turn.
KINDS = ("remove", "bytes", "attr", "omap")


class Scrubs(ReplicatedTest):
    OSDS = 3

    def tool(self, osd, command, pgid, *args, **how):
        return run([SHOAL, "store", "object", command, self.cluster.dir / f"osd.{osd}", pgid, *args], **how)

    def damage(self, osd, pgid, name, kind):
        if kind == "remove":
            self.tool(osd, "remove", pgid, name)
        elif kind == "bytes":
            self.tool(osd, "set-bytes", pgid, name, stdin=os.urandom(4096))
        elif kind == "attr":
            self.tool(osd, "set-attr", pgid, name, "a", stdin=b"other")
        else:
            self.tool(osd, "set-omap", pgid, name, "k", stdin=b"other")

    def stamp(self, pool, pgid, key):
        return {row["pgid"]: row[key] for row in self.pgs.all(pool)}[pgid]

    def scrubbed(self, pool, pgids, order):
        """Gives the order for the PGs, and waits until each has a new stamp."""
        before = {pgid: self.stamp(pool, pgid, "last_deep_scrub_stamp") for pgid in pgids}
        for pgid in pgids:
            self.client.ceph("pg", order, pgid)
        eventually(lambda: all(self.stamp(pool, pgid, "last_deep_scrub_stamp") != before[pgid] for pgid in pgids), CLEAN_SECONDS_MAX)

    def test_damage_of_one_copy_is_listed_and_repaired(self):
        pool = self.make_pool("scrubbed", size=3, min_size=2, pgs=4)
        data = {f"o{n}": os.urandom(4096) for n in range(OBJECTS_LONG if harness.LONG else OBJECTS)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
            self.client.rados("-p", pool, "setxattr", name, "a", "value")
            self.client.rados("-p", pool, "setomapval", name, "k", "v")
        place = {name: self.client.json("osd", "map", pool, name) for name in data}
        self.client.ceph("osd", "set", "noout")
        self.addCleanup(self.client.ceph, "osd", "unset", "noout")
        # One OSD at a time, so that every object has two good copies.
        kinds = {name: KINDS[n % len(KINDS)] for n, name in enumerate(data)}
        for osd in range(3):
            self.stop(osd)
            for n, (name, kind) in enumerate(kinds.items()):
                if n % 3 == osd:
                    self.damage(osd, place[name]["pgid"], name, kind)
            self.start(osd)
            self.wait_up(osd)
            eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)
        pgids = sorted({row["pgid"] for row in place.values()})
        self.scrubbed(pool, pgids, "deep-scrub")
        self.assertEqual(set(self.client.rados("list-inconsistent-pg", pool).json), set(pgids))
        found = {}
        for pgid in pgids:
            for row in self.client.rados("list-inconsistent-obj", pgid, "--format=json").json["inconsistents"]:
                found[row["object"]["name"]] = row
        self.assertEqual(set(found), set(data))
        for name, kind in kinds.items():
            errors = set(found[name]["errors"]) | set(found[name]["union_shard_errors"])
            wanted = {"remove": "missing", "bytes": "data_digest_mismatch", "attr": "attr_value_mismatch",
                      "omap": "omap_digest_mismatch"}[kind]
            self.assertIn(wanted, errors, (name, kind))
        self.assertIn("PG_DAMAGED", self.client.ceph("health", "detail").text)
        self.scrubbed(pool, pgids, "repair")
        eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)
        for name, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)
        self.scrubbed(pool, pgids, "deep-scrub")
        self.assertEqual(self.client.rados("list-inconsistent-pg", pool).json, [])

    def test_clones_without_a_head_are_listed(self):
        pool = self.make_pool("headless", size=3, min_size=2, pgs=1)
        # The next test waits until every PG is clean, and no repair makes this one so.
        self.addCleanup(self.client.ceph, "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")
        for name in ("whole", "headless"):
            self.client.rados("-p", pool, "put", name, "-", stdin=b"one")
        self.client.ceph("osd", "pool", "mksnap", pool, "s")
        for name in ("whole", "headless"):
            self.client.rados("-p", pool, "put", name, "-", stdin=b"second")
        eventually(lambda: self.clones(pool) == 2, CLEAN_SECONDS_MAX)
        pgid = self.client.json("osd", "map", pool, "headless")["pgid"]
        self.client.ceph("osd", "set", "noout")
        self.addCleanup(self.client.ceph, "osd", "unset", "noout")
        for osd in range(3):
            self.stop(osd)
            self.tool(osd, "remove", pgid, "headless")
            self.start(osd)
            self.wait_up(osd)
            eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)
        self.scrubbed(pool, [pgid], "deep-scrub")
        listed = self.client.rados("list-inconsistent-snapset", pgid, "--format=json").json["inconsistents"]
        self.assertEqual([(row["name"], row["errors"]) for row in listed], [("headless", ["headless"])])
        for code in ("PG_DAMAGED", "OSD_SCRUB_ERRORS"):
            eventually(lambda: code in self.client.ceph("health", "detail").text, CLEAN_SECONDS_MAX)
        self.assertEqual(self.client.rados("list-inconsistent-obj", pgid, "--format=json").json["inconsistents"], [])

    def clones(self, pool):
        rows = self.client.rados("df", "--format=json").json["pools"]
        return next(int(row["num_object_clones"]) for row in rows if row["name"] == pool)
