"""Scrub and repair under stock's clients: damage to one copy of single objects, of every kind that a tool or a rotting device makes,
is found by `ceph pg deep-scrub` and nothing else is, listed by `rados list-inconsistent-obj` as on stock, and gone after
`ceph pg repair`. Reads are right meanwhile, wherever a store can tell: a tool's change of the primary's own copy is what a read
returns, on stock as here, so those objects are read again after the repair alone.

With --stock the same on stock Ceph. SHOAL_RECORD=FILE then writes its reports, which the gate compares with (stock/scrub-pacific.json)."""
import itertools
import json
import os
import threading
from pathlib import Path

import rados

import harness
import injections
from harness import eventually
from injections import ATTR, KEY, KINDS, SIZE, VALUE, Copy
from replicated import CLEAN_SECONDS_MAX, ReplicatedTest

RECORDED = Path(__file__).parent / "stock" / "scrub-pacific.json"
#: Objects with damage and without, in the gate and with --long. In the gate each kind comes once on a replica.
DAMAGED, WHOLE = (200, 100) if harness.LONG else (len(KINDS), 15)
DEEP_SECONDS_MAX = 300
#: Words that either report has and the other one lacks, by kind. A survey digests names and values of attributes together. A copy
#: whose info denies its size is bad by itself, and is compared no further. A copy with another omap is named; stock names the object.
NO_SIZE = {"data_digest_mismatch", "data_digest_mismatch_info", "size_mismatch", "size_mismatch_info"}
NO_NAMES = {"attr_name_mismatch", "attr_value_mismatch"}
MEANT = {"attr gone": NO_NAMES, "attr more": NO_NAMES, "short": NO_SIZE, "long": NO_SIZE,
         **{kind: {"omap_digest_mismatch_info"} for kind in KINDS if kind.startswith("omap")}}


class Reader(threading.Thread):
    """A client that reads objects again and again. Every answer must be right."""

    def __init__(self, conf, pool, data):
        super().__init__(daemon=True)
        self.conf, self.pool, self.data = str(conf), pool, data
        self.problems, self.reads, self.ending = [], 0, threading.Event()

    def run(self):
        with rados.Rados(conffile=self.conf, name="client.admin") as session, session.open_ioctx(self.pool) as io:
            for name in itertools.cycle(self.data):
                if self.ending.is_set():
                    return
                try:
                    self.look(io, name)
                except (rados.Error, AssertionError) as error:
                    self.problems.append(f"{name}: {error!r}")
                self.reads += 1

    def look(self, io, name):
        assert io.read(name, SIZE + 1) == self.data[name], "the bytes are wrong"
        assert dict(io.get_xattrs(name)) == {ATTR: VALUE}, "the attributes are wrong"
        with rados.ReadOpCtx() as op:
            entries, _ = io.get_omap_vals(op, "", "", 10)
            io.operate_read_op(op, name)
            assert list(entries) == [(KEY, VALUE)], "the omap is wrong"


class Scrubs(ReplicatedTest):
    OSDS = 3

    def tool(self, osd, command, pgid, *args, **how):
        return harness.run([harness.SHOAL, "store", "object", command, self.cluster.dir / f"osd.{osd}", pgid, *args], **how)

    def stamp(self, pool, pgid, key):
        return {row["pgid"]: row[key] for row in self.pgs.all(pool)}[pgid]

    def scrubbed(self, pool, pgids, order):
        """Gives the order for the PGs, and waits until each has a new stamp."""
        before = {pgid: self.stamp(pool, pgid, "last_deep_scrub_stamp") for pgid in pgids}
        for pgid in pgids:
            self.client.ceph("pg", order, pgid)
        eventually(lambda: all(self.stamp(pool, pgid, "last_deep_scrub_stamp") != before[pgid] for pgid in pgids), DEEP_SECONDS_MAX)

    def write(self, pool, data):
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            for name, value in data.items():
                with rados.WriteOpCtx() as op:
                    op.write_full(value)
                    op.set_xattr(ATTR, VALUE)
                    io.set_omap(op, (KEY,), (VALUE,))
                    io.operate_write_op(op, name)

    def plan(self, pool, data):
        """The damage of each object, and the OSD of the copy that gets it: a replica in two of three rounds."""
        copies = {}
        for n, (name, kind) in enumerate(zip(data, itertools.cycle(KINDS))):
            row = self.client.json("osd", "map", pool, name)
            turn = n // len(KINDS)
            others = [osd for osd in row["acting"] if osd != row["acting_primary"]]
            osd = row["acting_primary"] if turn % 3 == 1 else others[turn % 2]
            copies[name] = (kind, Copy(osd, row["pgid"], name, data[name]), osd == row["acting_primary"])
        return copies

    def stopped(self, pool, osd, change):
        self.stop(osd)
        change()
        self.start(osd)
        self.wait_up(osd)
        eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)

    def injected(self, pool, data):
        """Damages one copy of each object. Writes that are to be lost come after their older version was kept."""
        tool = injections.Tool(self.cluster)
        plan = self.plan(pool, data)
        losing = [copy for kind, copy, _ in plan.values() if kind == "lost write"]

        def keep(copy):
            out = tool(copy.osd, copy.pgid, copy.name, "get-bytes").out, tool.info(copy.osd, copy.pgid, copy.name, "get-attr").out
            copy.older = out

        for osd in {copy.osd for copy in losing}:
            self.stopped(pool, osd, lambda: [keep(copy) for copy in losing if copy.osd == osd])
        newer = {copy.name: os.urandom(SIZE) for copy in losing}
        self.write(pool, newer)
        data.update(newer)
        for osd in range(self.OSDS):
            def damage():
                here = [(kind, copy) for kind, copy, _ in plan.values() if copy.osd == osd]
                for kind, copy in here:
                    if KINDS[kind]:
                        KINDS[kind](tool, copy)
                if rotting := [copy for kind, copy in here if kind == "rot"]:
                    injections.rot(self.cluster, rotting)
            self.stopped(pool, osd, damage)
        return plan

    def found(self, pgids):
        """The reports on objects, by name."""
        rows = [self.client.rados("list-inconsistent-obj", pgid, "--format=json").json["inconsistents"] for pgid in pgids]
        return {row["object"]["name"]: row for row in itertools.chain(*rows)}

    @staticmethod
    def words(row, osd):
        """A report in short: the errors of the object, of its copies, and of the damaged copy."""
        shard = next(shard for shard in row["shards"] if shard["osd"] == osd)
        return {"errors": sorted(row["errors"]), "union": sorted(row["union_shard_errors"]), "copy": sorted(shard["errors"])}

    def test_damage_of_one_copy_is_listed_and_repaired(self):
        pool = self.make_pool("scrubbed", size=3, min_size=2, pgs=4)
        data = {f"o{n}": os.urandom(SIZE) for n in range(DAMAGED)}
        whole = {f"w{n}": os.urandom(SIZE) for n in range(WHOLE)}
        self.write(pool, {**data, **whole})
        self.client.ceph("osd", "set", "noout")
        self.addCleanup(self.client.ceph, "osd", "unset", "noout")
        self.client.ceph("osd", "set", "noscrub")
        self.client.ceph("osd", "set", "nodeep-scrub")
        self.addCleanup(self.client.ceph, "osd", "unset", "noscrub")
        self.addCleanup(self.client.ceph, "osd", "unset", "nodeep-scrub")
        plan = self.injected(pool, data)
        pgids = sorted({row["pgid"] for row in self.pgs.all(pool)})
        # The store finds rot by its checksums, on the primary too.
        tells = [name for name, (kind, _, on_primary) in plan.items() if kind == "rot" or not on_primary]
        reader = Reader(self.cluster.conf, pool, {**{name: data[name] for name in tells}, **whole})
        reader.start()
        self.addCleanup(reader.ending.set)
        self.scrubbed(pool, pgids, "deep-scrub")
        found = self.found(pgids)
        # A read of rot on a primary is repaired at once, and the scrub after it finds nothing any more.
        mended = {name for name, (kind, _, on_primary) in plan.items() if kind == "rot" and on_primary}
        self.assertEqual(set(found) - mended, set(data) - mended)
        self.compare({kind: self.words(found[name], copy.osd) for name, (kind, copy, _) in plan.items() if name in found})
        self.assertIn("PG_DAMAGED", self.client.ceph("health", "detail").text)
        self.scrubbed(pool, pgids, "repair")
        eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)
        self.scrubbed(pool, pgids, "deep-scrub")
        self.assertEqual(self.found(pgids), {})
        reads = reader.reads
        eventually(lambda: reader.reads > reads + len(reader.data), CLEAN_SECONDS_MAX)
        reader.ending.set()
        reader.join()
        self.assertEqual(reader.problems, [])
        last = Reader(self.cluster.conf, pool, data)
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            for name in data:
                last.look(io, name)

    def compare(self, reports):
        """Each kind's report beside stock's."""
        if harness.STOCK:
            if out := os.environ.get("SHOAL_RECORD"):
                Path(out).write_text(json.dumps(reports, indent=1, sort_keys=True) + "\n")
            return
        for kind, stock in json.loads(RECORDED.read_text()).items():
            for part, words in stock.items():
                differs = set(words) ^ set(reports[kind][part])
                self.assertLessEqual(differs, MEANT.get(kind, set()), (kind, part, words, reports[kind]))

    def test_clones_without_a_head_are_listed(self):
        if harness.STOCK:
            self.skipTest("the tool of stock names a head in another way")
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
