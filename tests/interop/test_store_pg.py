"""`shoal store pg` on the stores of stopped OSDs: a PG of a dead host comes back through export and import, an incomplete PG
becomes active, info and log have the keys of stock's ceph-objectstore-tool 16.2."""
import json
import os
from pathlib import Path

from harness import SHOAL, eventually, run
from replicated import CLEAN_SECONDS_MAX, ReplicatedTest

RECORDED = json.loads((Path(__file__).parent / "stock" / "objectstore-tool-pacific.json").read_text())
#: Keys of releases after 16.2, which shoal prints everywhere.
NEWER = {"objects_scrubbed", "log_dups_size", "last_scrub_duration", "scrub_schedule", "scrub_duration", "objects_trimmed",
         "snaptrim_duration", "num_shards_repaired"}


def differences(stock, ours, at=""):
    """Where the keys or the kinds of values differ. Of lists, the first elements are compared."""
    if isinstance(stock, dict) and isinstance(ours, dict):
        out = [f"{at}.{key} is missing" for key in stock.keys() - ours.keys()]
        out += [f"{at}.{key} is not stock's" for key in ours.keys() - stock.keys() - NEWER]
        for key in stock.keys() & ours.keys():
            out += differences(stock[key], ours[key], f"{at}.{key}")
        return out
    if isinstance(stock, list) and isinstance(ours, list):
        return differences(stock[0], ours[0], f"{at}[]") if stock and ours else []
    number = (int, float)
    same = type(stock) is type(ours) or (isinstance(stock, number) and isinstance(ours, number) and
                                         bool not in (type(stock), type(ours)))
    return [] if same else [f"{at} is {ours!r}, and stock's {stock!r}"]


class StoppedOsds(ReplicatedTest):
    OSDS = 3

    def setUp(self):
        super().setUp()
        self.scratch = self.cluster.dir / "exports"
        self.scratch.mkdir(exist_ok=True)

    def tool(self, command, osd, *args, **how):
        return run([SHOAL, "store", "pg", command, self.cluster.dir / f"osd.{osd}", *args], **how)

    def refused(self, why, command, osd, *args):
        done = self.tool(command, osd, *args, check=False)
        self.assertEqual(done.code, 1, done.text)
        self.assertRegex(done.errors, why)

    def put(self, pool, objects):
        for name, value in objects.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)

    def assert_objects(self, pool, objects):
        for name, value in objects.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)

    def acting(self, pool):
        return {row["pgid"]: row["acting"] for row in self.pgs.all(pool)}

    def states(self, pool, wanted):
        eventually(lambda: self.pgs.states(pool) <= wanted, CLEAN_SECONDS_MAX)

    def test_pg_of_a_dead_host_comes_back(self):
        pool = self.make_pool("story", size=2, min_size=1, pgs=8)
        self.client.ceph("osd", "set", "noout")
        self.addCleanup(self.client.ceph, "osd", "unset", "noout")
        data = {f"o{n}": os.urandom(50_000 + n) for n in range(40)}
        self.put(pool, data)
        self.client.rados("-p", pool, "setxattr", "o1", "a", "value")
        self.client.rados("-p", pool, "setomapval", "o2", "k", "v")
        # osd.1 misses writes that osd.0 takes alone; then the host of osd.0 dies.
        pgs = [pgid for pgid, acting in self.acting(pool).items() if set(acting) == {0, 1}]
        self.assertTrue(pgs, "PGs of osd.0 and osd.1")
        self.stop(1)
        self.states(pool, {"active+clean", "active+undersized", "active+undersized+degraded"})
        data.update({f"o{n}": os.urandom(40_000 + n) for n in range(0, 40, 2)})
        self.put(pool, data)
        self.kill(0)
        self.wait_down(0)
        self.start(1)
        self.wait_up(1)
        eventually(lambda: all(row["state"] == "down" for row in self.pgs.all(pool) if row["pgid"] in pgs), CLEAN_SECONDS_MAX)

        # A running OSD's store is refused, and so is a PG that is there.
        self.refused("in use", "list", 2)
        listed = {row["pgid"]: row for row in json.loads(self.tool("list", 0, "--format", "json").text)}
        for pgid in pgs:
            file = self.scratch / f"{pgid}.export"
            said = self.tool("export", 0, pgid, "--file", file).text
            self.assertIn(f"PG {pgid}: {listed[pgid]['objects']} objects", said)
            self.refused("is there already", "export", 0, pgid, "--file", file)
        self.refused("not in this store", "export", 0, "999.0", "--file", self.scratch / "none")
        self.refused("has PG .* already", "import", 0, "--file", self.scratch / f"{pgs[0]}.export")
        self.stop(2)
        whole = (self.scratch / f"{pgs[0]}.export").read_bytes()
        for name, content, why in [("cut", whole[:-100], "cut off"), ("flipped", whole[:5000] + b"\0\1" + whole[5002:], "damaged")]:
            (self.scratch / name).write_bytes(content)
            self.refused(why, "import", 2, "--file", self.scratch / name)
        self.assertNotIn(pgs[0], self.tool("list", 2).text)
        for pgid in pgs:
            self.tool("import", 2, "--file", self.scratch / f"{pgid}.export")
        self.start(2)
        self.wait_up(2)
        eventually(lambda: all(row["state"].startswith("active") for row in self.pgs.all(pool)), CLEAN_SECONDS_MAX)
        self.assert_objects(pool, data)
        self.assertEqual(self.client.rados("-p", pool, "getxattr", "o1", "a").text, "value")
        self.assertEqual(self.client.rados("-p", pool, "listomapkeys", "o2").text, "k\n")
        # The dead host is given up, and the others become clean without it.
        self.client.ceph("osd", "unset", "noout")
        self.client.ceph("osd", "out", "0")
        eventually(lambda: self.pgs.states(pool) == {"active+clean"}, CLEAN_SECONDS_MAX)
        self.assert_objects(pool, data)
        # Its disk is found later: the copies there are behind, and the PGs stay right.
        self.start(0)
        self.wait_up(0)
        self.client.ceph("osd", "in", "0")
        self.pgs.wait_clean()
        self.assert_objects(pool, data)

    def test_incomplete_pg_becomes_active_by_mark_complete(self):
        pool = self.make_pool("incomplete", size=2, min_size=1, pgs=8)
        data = {f"o{n}": os.urandom(20_000) for n in range(40)}
        self.put(pool, data)
        pgs = [pgid for pgid, acting in self.acting(pool).items() if set(acting) == {0, 1}]
        self.assertTrue(pgs, "PGs of osd.0 and osd.1")
        # osd.1 stops and osd.2 takes its place, and may not be filled. Then the disk of osd.0 is lost.
        self.client.ceph("osd", "set", "nobackfill")
        self.addCleanup(self.client.ceph, "osd", "unset", "nobackfill")
        self.stop(1)
        self.client.ceph("osd", "out", "1")
        self.addCleanup(self.client.ceph, "osd", "in", "1")
        eventually(lambda: all(row["up"] and set(row["up"]) == {0, 2} for row in self.pgs.all(pool) if row["pgid"] in pgs),
                   CLEAN_SECONDS_MAX)
        eventually(lambda: all(row["state"].startswith("active") for row in self.pgs.all(pool)), CLEAN_SECONDS_MAX)
        self.put(pool, {f"new{n}": b"lost" for n in range(20)})
        self.kill(0)
        self.wait_down(0)
        # A declaration needs the OSD down: an empty one takes its place afterwards.
        self.client.ceph("osd", "lost", "0", "--yes-i-really-mean-it")
        self.start(1)
        self.wait_up(1)
        self.client.ceph("osd", "in", "1")
        self.cluster.replace_osd(0)
        self.wait_up(0)
        eventually(lambda: all("incomplete" in row["state"] for row in self.pgs.all(pool) if row["pgid"] in pgs),
                   CLEAN_SECONDS_MAX)
        self.stop(1)
        for pgid in pgs:
            self.refused("repeat with --force", "mark-complete", 1, pgid)
            said = self.tool("mark-complete", 1, pgid, "--force")
            self.assertIn("is complete", said.text)
            self.assertIn("are lost", said.errors)
        self.start(1)
        self.wait_up(1)
        self.client.ceph("osd", "unset", "nobackfill")
        eventually(lambda: all(row["state"].startswith("active") for row in self.pgs.all(pool)), CLEAN_SECONDS_MAX)
        self.assert_objects(pool, data)
        self.pgs.wait_clean()
        self.assert_objects(pool, data)

    def test_removed_copy_is_filled_again(self):
        pool = self.make_pool("removed", size=2, min_size=1, pgs=4)
        data = {f"o{n}": os.urandom(20_000) for n in range(20)}
        self.put(pool, data)
        pgid, acting = next((pgid, acting) for pgid, acting in self.acting(pool).items())
        self.stop(acting[0])
        self.refused("repeat with --force", "remove", acting[0], pgid)
        self.tool("remove", acting[0], pgid, "--force")
        self.assertNotIn(pgid, self.tool("list", acting[0]).text.split())
        self.start(acting[0])
        self.wait_up(acting[0])
        self.pgs.wait_clean()
        self.assert_objects(pool, data)

    def test_info_and_log_have_stocks_keys(self):
        pool = self.make_pool("keys", size=2, min_size=1, pgs=1)
        self.client.ceph("osd", "set", "norecover")
        self.addCleanup(self.client.ceph, "osd", "unset", "norecover")
        self.put(pool, {f"o{n}": b"x" for n in range(4)})
        primary, other = self.pgs.all(pool)[0]["acting"]
        pgid = self.pgs.all(pool)[0]["pgid"]
        self.stop(other)
        self.put(pool, {"o1": b"y", "new": b"z"})
        self.start(other)
        self.wait_up(other)
        eventually(lambda: len(self.pgs.all(pool)[0]["acting"]) == 2 and "active" in self.pgs.all(pool)[0]["state"],
                   CLEAN_SECONDS_MAX)
        self.stop(other)
        info = json.loads(self.tool("info", other, pgid).text)
        log = json.loads(self.tool("log", other, pgid).text)
        self.assertEqual(differences(RECORDED["info"], info), [])
        self.assertEqual(differences(RECORDED["log"], log), [])
        self.assertEqual(info["pgid"], pgid)
        names = {row["object"].split(":")[-2]: row for row in log["pg_missing_t"]["missing"]}
        self.assertEqual(set(names), {"o1", "new"})
        self.assertEqual(names["new"]["have"], "0'0")
        self.assertNotEqual(names["o1"]["have"], "0'0")
        self.assertEqual(log["pg_log_t"]["head"], info["last_update"])
        self.assertNotEqual(info["last_complete"], info["last_update"])


    def test_single_objects_are_shown_and_changed_in_one_copy(self):
        pool = self.make_pool("objects", size=2, min_size=1, pgs=1)
        data = os.urandom(9_000_000)
        self.client.rados("-p", pool, "put", "photo", "-", stdin=data)
        self.client.rados("-p", pool, "-N", "other", "put", "photo", "-", stdin=b"of a namespace")
        self.client.rados("-p", pool, "setxattr", "photo", "colour", "red")
        self.client.rados("-p", pool, "setomapval", "photo", "key", "value")
        where = self.client.json("osd", "map", pool, "photo")
        pg, osd = where["pgid"], where["acting_primary"]
        self.client.ceph("osd", "set", "noout")
        self.addCleanup(self.client.ceph, "osd", "unset", "noout")

        def tool(command, *args, check=True, **how):
            return run([SHOAL, "store", "object", command, self.cluster.dir / f"osd.{osd}", pg, *args], check=check, **how)

        running = tool("get-bytes", "photo", check=False)
        self.assertEqual(running.code, 1)
        self.stop(osd)
        self.assertEqual(tool("get-bytes", "photo").out, data)
        self.assertEqual(tool("get-bytes", "photo", "--nspace", "other").out, b"of a namespace")
        self.assertEqual(tool("list-attrs", "photo").text.split(), ["colour"])
        self.assertEqual(tool("get-attr", "photo", "colour").out, b"red")
        self.assertEqual(tool("list-omap", "photo").text.split(), ["key"])
        self.assertEqual(tool("get-omap", "photo", "key").out, b"value")
        for refused in (("get-bytes", "none"), ("get-attr", "photo", "none"), ("rm-attr", "photo", "none"), ("get-omap", "photo", "none"),
                        ("rm-omap", "photo", "none")):
            self.assertEqual(tool(*refused, check=False).code, 1, refused)
        changed = data[:5_000_000] + bytes(100) + data[5_000_100:]
        tool("set-bytes", "photo", stdin=changed)
        tool("set-attr", "photo", "colour", stdin=b"blue")
        tool("set-attr", "photo", "size", stdin=b"large")
        tool("rm-attr", "photo", "size")
        tool("set-omap", "photo", "more", stdin=b"here")
        tool("rm-omap", "photo", "key")
        tool("set-omaphdr", "photo", stdin=b"header")
        self.assertEqual(tool("get-omaphdr", "photo").out, b"header")
        tool("remove", "photo", "--nspace", "other")
        self.start(osd)
        self.wait_up(osd)
        self.pgs.wait_clean()
        # The primary's copy is what was made of it, and the other one knows nothing of that.
        self.assertEqual(self.client.rados("-p", pool, "get", "photo", "-").out, changed)
        self.assertEqual(self.client.rados("-p", pool, "getxattr", "photo", "colour").text, "blue")
        self.assertEqual(self.client.rados("-p", pool, "listomapkeys", "photo").text.split(), ["more"])
        other = next(one for one in where["acting"] if one != osd)
        self.stop(other)
        done = run([SHOAL, "store", "object", "get-bytes", self.cluster.dir / f"osd.{other}", pg, "photo"])
        self.assertEqual(done.out, data)
        self.start(other)
