"""Data that is gone: unfound objects, PGs that wait for a dead OSD, and PGs of which no copy is left. What the operator sees,
what stock's commands say, and what becomes of the data. Each story asks for what stock 16.2 does (`--stock`)."""
import json
import threading
import time

import rados

from harness import eventually
from replicated import CLEAN_SECONDS_MAX, DOWN_SECONDS_MAX, OP_SECONDS_MAX, ReplicatedTest

SURE = "--yes-i-really-mean-it"


class LostTest(ReplicatedTest):
    OSDS = 3

    def setUp(self):
        super().setUp()
        self.flags = []
        self.addCleanup(self.unset_flags)

    def set_flags(self, *flags):
        self.flags += flags
        for flag in flags:
            self.client.ceph("osd", "set", flag)

    def unset_flags(self):
        for flag in self.flags:
            self.client.ceph("osd", "unset", flag, check=False)
        self.flags = []

    def one_pg(self, name, size=2, min_size=1):
        """A pool with one PG. Gives its id and its acting OSDs."""
        pool = self.make_pool(name, size, min_size, pgs=1)
        where = self.client.json("osd", "map", pool, "x")
        return pool, where["pgid"], where["acting"]

    def put(self, pool, **objects):
        for name, data in objects.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=data.encode())

    def get(self, pool, name):
        done = self.client.rados("-p", pool, "get", name, "-", check=False, timeout=OP_SECONDS_MAX)
        return done.text if done.code == 0 else None

    def row(self, pool):
        return self.pgs.all(pool)[0]

    def wait_state(self, pool, state, acting=None):
        def there():
            row = self.row(pool)
            flags = set(row["state"].split("+"))
            self.assertTrue(set(state.split("+")) <= flags and "stale" not in flags, f"{row['state']}, not {state}")
            self.assertIn(acting, (None, row["acting"]))
            return True
        eventually(there, DOWN_SECONDS_MAX, 0.3)

    def refused(self, errno, text, *command):
        """The command fails with this errno and this text, as stock's."""
        done = self.client.ceph(*command, check=False)
        self.assertEqual((done.code, done.errors.strip()), (errno, text))

    def says(self, text, *command):
        done = self.client.ceph(*command)
        self.assertEqual((done.text + done.errors).strip(), text)

    def query(self, pg):
        return self.client.json("pg", pg, "query")


class Unfound(LostTest):
    """Objects of which no reachable OSD has the newest version."""

    def make_unfound(self, name):
        """One OSD has the log of another, which is dead, and lacks the newest "a" and the new "n"."""
        pool, pg, (newest, stale) = self.one_pg(name)
        self.put(pool, a="old", b="kept")
        self.set_flags("noout")
        self.stop(stale)
        self.wait_state(pool, "active+undersized", [newest])
        self.put(pool, a="new", n="new")
        self.set_flags("norecover", "nobackfill")
        self.start(stale)
        self.wait_up(stale)
        self.wait_state(pool, "active+degraded", [newest, stale])
        self.stop(newest)
        self.wait_state(pool, "active+undersized+degraded", [stale])
        for flag in ("norecover", "nobackfill"):
            self.client.ceph("osd", "unset", flag)
        self.wait_state(pool, "active+recovery_unfound+undersized+degraded", [stale])
        return pool, pg, newest, stale

    def test_unfound_objects_are_reported_and_reverted(self):
        pool, pg, dead, primary = self.make_unfound("reverted")
        checks = eventually(lambda: (lambda c: c if "OBJECT_UNFOUND" in c and "PG_DAMAGED" in c else None)(self.checks()), 30)
        self.assertEqual(checks["OBJECT_UNFOUND"]["severity"], "HEALTH_WARN")
        self.assertEqual(checks["OBJECT_UNFOUND"]["summary"]["message"], "2/3 objects unfound (66.667%)")
        self.assertEqual([d["message"] for d in checks["OBJECT_UNFOUND"]["detail"]], [f"pg {pg} has 2 unfound objects"])
        self.assertEqual(checks["PG_DAMAGED"]["severity"], "HEALTH_ERR")
        self.assertEqual(checks["PG_DAMAGED"]["summary"]["message"], "Possible data damage: 1 pg recovery_unfound")
        self.assertEqual([d["message"] for d in checks["PG_DAMAGED"]["detail"]],
                         [f"pg {pg} is active+recovery_unfound+undersized+degraded, acting [{primary}], 2 unfound"])
        self.assertEqual(self.row(pool)["stat_sum"]["num_objects_unfound"], 2)
        active = self.query(pg)["recovery_state"][0]
        self.assertEqual(active["name"], "Started/Primary/Active")
        might_have = [{"osd": str(dead), "status": "osd is down"}]
        self.assertEqual(active["might_have_unfound"], might_have)

        listed = self.client.json("pg", pg, "list_unfound")
        objects = {row["oid"]["oid"]: row for row in listed.pop("objects")}
        self.assertEqual(listed, {"num_missing": 2, "num_unfound": 2, "state": "NotRecovering",
                                  "available_might_have_unfound": True, "might_have_unfound": might_have, "more": False})
        self.assertEqual(set(objects), {"a", "n"})
        for name, row in objects.items():
            self.assertEqual(set(row), {"oid", "need", "have", "flags", "clean_regions", "locations"})
            self.assertEqual(set(row["oid"]), {"oid", "key", "snapid", "hash", "max", "pool", "namespace"})
            self.assertEqual((row["oid"]["snapid"], row["oid"]["max"], row["flags"], row["locations"]), (-2, 0, "none", []))
            self.assertEqual(row["have"] == "0'0", name == "n")
            self.assertEqual(row["clean_regions"].split(", ")[-1], f"new_object: {int(name == 'n')}")
        # Pages begin behind an object, in the order of hashes.
        first, second = (row["oid"] for row in sorted(objects.values(), key=lambda row: int(f"{row['oid']['hash']:032b}"[::-1], 2)))
        page = self.client.json("pg", pg, "list_unfound", json.dumps(first))
        self.assertEqual(([row["oid"] for row in page["objects"]], page["offset"]), ([second], first))
        self.refused(22, "Error EINVAL: error parsing offset: bad json", "pg", pg, "list_unfound", "garbage")

        for how in ("revert", "delete"):
            self.refused(22, "Error EINVAL: pg has 2 unfound objects but we haven't probed all sources, not marking lost",
                         "pg", pg, "mark_unfound_lost", how)
        self.client.ceph("osd", "lost", dead, SURE)
        marked = "pg has 2 objects unfound and apparently lost marking"
        eventually(lambda: self.client.ceph("pg", pg, "mark_unfound_lost", "revert", check=False).errors.strip() == marked, 30, 0.5)
        self.assertEqual((self.get(pool, "a"), self.get(pool, "b"), self.get(pool, "n")), ("old", "kept", None))
        self.says("pg has no unfound objects", "pg", pg, "mark_unfound_lost", "revert")
        # The OSD returns with what was given up.
        self.start(dead)
        self.wait_up(dead)
        self.unset_flags()
        self.pgs.wait_clean()
        self.assertEqual((self.get(pool, "a"), self.get(pool, "b"), self.get(pool, "n")), ("old", "kept", None))
        self.stop(primary)
        self.assertEqual((self.get(pool, "a"), self.get(pool, "b"), self.get(pool, "n")), ("old", "kept", None))

    def test_requests_on_unfound_objects_wait_for_their_end(self):
        pool, pg, dead, _ = self.make_unfound("deleted")
        answers = {}
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            def read():
                try:
                    answers["read"] = io.read("a", 100)
                except rados.ObjectNotFound as error:
                    answers["read"] = error
            reading = threading.Thread(target=read, daemon=True)
            reading.start()
            writing = io.aio_write_full("n", b"again")
            time.sleep(2)
            self.assertFalse(answers or writing.is_complete())
            self.client.ceph("osd", "lost", dead, SURE)
            marked = "pg has 2 objects unfound and apparently lost marking"
            eventually(lambda: self.client.ceph("pg", pg, "mark_unfound_lost", "delete", check=False).errors.strip() == marked,
                       30, 0.5)
            reading.join(OP_SECONDS_MAX)
            self.assertIsInstance(answers["read"], rados.ObjectNotFound)
            eventually(writing.is_complete, OP_SECONDS_MAX)
            self.assertEqual(writing.get_return_value(), 0)
            self.assertEqual(sorted(o.key for o in io.list_objects()), ["b", "n"])
        self.start(dead)
        self.wait_up(dead)
        self.unset_flags()
        self.pgs.wait_clean()
        self.assertEqual((self.get(pool, "a"), self.get(pool, "b"), self.get(pool, "n")), (None, "kept", "again"))
        eventually(lambda: self.row(pool)["stat_sum"]["num_objects"] == 2, 30)


class Down(LostTest):
    """A PG whose newest writes only a dead OSD has."""

    def test_down_pg_goes_on_when_its_osd_is_declared_lost(self):
        pool, pg, (newest, stale) = self.one_pg("down")
        self.put(pool, a="old")
        self.set_flags("noout")
        self.stop(stale)
        self.wait_state(pool, "active+undersized", [newest])
        self.put(pool, a="new")
        self.stop(newest)
        self.start(stale)
        self.wait_up(stale)
        self.wait_state(pool, "down", [stale])
        self.says("pg has no unfound objects", "pg", pg, "mark_unfound_lost", "delete")
        self.assertEqual(self.client.json("pg", pg, "list_unfound"),
                         {"num_missing": 0, "num_unfound": 0, "objects": [], "state": "Down",
                          "available_might_have_unfound": False, "more": False})
        first, peering = self.query(pg)["recovery_state"][:2]
        self.assertEqual((first["name"], first["comment"]),
                         ("Started/Primary/Peering/Down", "not enough up instances of this PG to go active"))
        self.assertEqual(peering["blocked"], "peering is blocked due to down osds")
        self.assertEqual((peering["probing_osds"], peering["down_osds_we_would_probe"]), ([str(stale)], [newest]))
        (blocker,) = peering["peering_blocked_by"]
        self.assertEqual((blocker["osd"], blocker["comment"]),
                         (newest, "starting or marking this osd lost may let us proceed"))
        def availability_of_monitors():
            # Half a second behind the manager, the PG is stale in it.
            told = self.checks().get("PG_AVAILABILITY")
            return told if told and not any("stale" in line["message"] for line in told["detail"]) else None
        availability = eventually(availability_of_monitors, 30)
        self.assertEqual(availability["summary"]["message"], "Reduced data availability: 1 pg down")
        self.assertEqual([d["message"] for d in availability["detail"]], [f"pg {pg} is down, acting [{stale}]"])

        sure = ("Error EPERM: are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you "
                "really do.")
        self.refused(1, sure, "osd", "lost", newest)
        self.refused(16, f"Error EBUSY: osd.{stale} is not down", "osd", "lost", stale, SURE)
        self.refused(2, "Error ENOENT: osd.77 does not exist", "osd", "lost", 77, SURE)
        self.client.ceph("osd", "lost", newest, SURE)
        self.wait_state(pool, "active", [stale])
        self.assertEqual(self.get(pool, "a"), "old")
        self.put(pool, a="newest")
        self.start(newest)
        self.wait_up(newest)
        self.unset_flags()
        self.pgs.wait_clean()
        self.assertEqual(self.get(pool, "a"), "newest")

    def test_down_pg_goes_on_when_its_osd_returns(self):
        pool, _, (newest, stale) = self.one_pg("returned")
        self.put(pool, a="old")
        self.set_flags("noout")
        self.stop(stale)
        self.put(pool, a="new")
        self.stop(newest)
        self.start(stale)
        self.wait_up(stale)
        self.wait_state(pool, "down", [stale])
        self.start(newest)
        self.wait_up(newest)
        self.unset_flags()
        self.pgs.wait_clean()
        self.assertEqual(self.get(pool, "a"), "new")


class Gone(LostTest):
    """PGs without a whole copy."""

    def test_pg_whose_only_disk_is_lost_is_created_anew(self):
        pool, pg, (only,) = self.one_pg("gone", size=1)
        self.put(pool, a="lost")
        self.stop(only)
        self.cluster.replace_osd(only)
        self.wait_up(only)
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            writing = io.aio_write_full("z", b"new")
            time.sleep(3)
            self.assertFalse(writing.is_complete(), "nobody has the PG")
            text = ("Error EPERM: This command will recreate a lost (as in data lost) PG with data in it, such that the cluster "
                    "will give up ever trying to recover the lost data.  Do this only if you are certain that all copies of the "
                    "PG are in fact lost and you are willing to accept that the data is permanently destroyed.  Pass "
                    "--yes-i-really-mean-it to proceed.")
            self.refused(1, text, "osd", "force-create-pg", pg)
            self.says(f"pg {pg} now creating, ok", "osd", "force-create-pg", pg, SURE)
            eventually(writing.is_complete, OP_SECONDS_MAX)
            self.assertEqual(writing.get_return_value(), 0)
            self.assertEqual([o.key for o in io.list_objects()], ["z"])
        self.pgs.wait_clean()
        eventually(lambda: "creating" not in self.pgs.pool(pool)["flags_names"], 30)
        self.stop(only)
        self.start(only)
        self.wait_up(only)
        self.pgs.wait_clean()
        self.assertEqual((self.get(pool, "a"), self.get(pool, "z")), (None, "new"))

    def test_pg_with_copies_is_not_created_anew(self):
        pool, pg, acting = self.one_pg("kept")
        self.put(pool, a="kept")
        self.says(f"pg {pg} now creating, ok", "osd", "force-create-pg", pg, SURE)
        time.sleep(3)
        self.pgs.wait_clean()
        self.assertEqual(self.get(pool, "a"), "kept")
        self.stop(acting[0])
        self.assertEqual(self.get(pool, "a"), "kept")
        self.assertEqual(self.client.ceph("osd", "force-create-pg", "999.0", SURE, check=False).code, 2)

    def test_half_filled_copy_waits_for_a_whole_one(self):
        # Stock fills a new disk by the log while that reaches back to the beginning.
        for option, value in (("max_pg_log_entries", 5), ("min_pg_log_entries", 5), ("pg_log_trim_min", 1)):
            self.client.ceph("config", "set", "osd", f"osd_{option}", value)
            self.addCleanup(self.client.ceph, "config", "rm", "osd", f"osd_{option}")
        pool, pg, (whole, empty) = self.one_pg("half")
        (third,) = set(self.osds()) - {whole, empty}
        self.set_flags("noout")
        self.stop(third)
        self.put(pool, **{f"o{n}": "data" for n in range(30)})
        self.stop(empty)
        self.set_flags("nobackfill")
        self.cluster.replace_osd(empty)
        self.wait_up(empty)
        self.wait_state(pool, "active+degraded", [whole])
        self.stop(whole)
        self.client.ceph("osd", "lost", whole, SURE)
        self.wait_state(pool, "incomplete")
        first, peering = self.query(pg)["recovery_state"][:2]
        self.assertEqual((first["name"], first["comment"]),
                         ("Started/Primary/Peering/Incomplete", "not enough complete instances of this PG"))
        self.assertEqual(peering["peering_blocked_by"], [])
        self.assertEqual(peering["peering_blocked_by_detail"], [{"detail": "peering_blocked_by_history_les_bound"}])
        # The manager's last report may still have the PG as down.
        message = "Reduced data availability: 1 pg incomplete"
        eventually(lambda: self.checks().get("PG_AVAILABILITY", {}).get("summary", {}).get("message") == message, 30)
        self.says(f"pg {pg} now creating, ok", "osd", "force-create-pg", pg, SURE)
        self.refused(11, "Error EAGAIN: not enough up OSDs in the cluster to force repeer", "pg", "repeer", pg)
        time.sleep(3)
        self.wait_state(pool, "incomplete")
        # The whole copy returns.
        self.start(whole, third)
        self.wait_up(whole, third)
        self.unset_flags()
        self.pgs.wait_clean()
        self.assertEqual({self.get(pool, f"o{n}") for n in range(30)}, {"data"})

    def test_repeered_pg_begins_an_interval_with_the_same_primary(self):
        pool, pg, acting = self.one_pg("repeered", size=3)
        self.put(pool, a="kept")
        before = self.query(pg)["info"]["history"]
        self.says("", "pg", "repeer", pg)
        eventually(lambda: self.query(pg)["info"]["history"]["same_interval_since"] > before["same_interval_since"], 30)
        self.pgs.wait_clean(CLEAN_SECONDS_MAX)
        after = self.query(pg)["info"]["history"]
        self.assertEqual(after["same_primary_since"], before["same_primary_since"])
        self.assertEqual(self.row(pool)["acting"], acting)
        self.assertEqual(self.client.json("osd", "dump")["pg_temp"], [])
        self.assertEqual(self.get(pool, "a"), "kept")
        self.assertEqual(self.client.ceph("pg", "repeer", "999.0", check=False).code, 2)
