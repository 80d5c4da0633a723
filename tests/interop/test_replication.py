"""Replicated pools on real daemons: OSDs are killed, stopped and frozen, disks are lost, OSDs join and leave, while verifying
clients write and read. Nothing acknowledged is lost, no answer is wrong, and the cluster tells its state as stock does."""
import threading
import time

import rados

from harness import eventually
from replicated import CLEAN_SECONDS_MAX, DOWN_SECONDS_MAX, OP_SECONDS_MAX, ReplicatedTest

# A merge waits for the reports of both PGs and for an answer of their primary.
MERGE_SECONDS_MAX = 240


class ThreeOsds(ReplicatedTest):
    OSDS = 3

    def test_kill_under_load_then_each_other_osd(self):
        pool = self.make_pool("kills")
        load = self.load(pool)
        for osd in self.osds():
            self.kill(osd)
            self.goes_on(load)
            self.wait_down(osd)
            self.goes_on(load)
            self.start(osd)
            self.wait_up(osd)
            self.pgs.wait_clean()
            self.goes_on(load)
        self.assert_right(load)
        self.assert_healthy()

    def test_each_osd_alone_has_every_object(self):
        pool = self.make_pool("alone")
        load = self.load(pool)
        # Objects whose copies come from the log, not from the write alone.
        self.kill(0)
        self.goes_on(load, 150)
        self.start(0)
        self.wait_up(0)
        load.stop()
        self.pgs.wait_clean()
        self.verify_each_copy(load, pool)
        self.assert_right(load)

    def test_all_osds_killed_at_once_lose_nothing(self):
        pool = self.make_pool("blackout")
        load = self.load(pool)
        for _ in range(2):
            self.kill(*self.osds())
            self.start(*reversed(self.osds()))
            self.goes_on(load)
        self.pgs.wait_clean()
        self.assert_right(load)
        self.assert_healthy()

    def test_size_grows_from_one_to_three_and_shrinks(self):
        pool = self.make_pool("sizes", size=1, min_size=1)
        load = self.load(pool)
        self.set(pool, "size", 3)
        self.set(pool, "min_size", 2)
        self.pgs.wait_clean()
        self.goes_on(load)
        load.hold()
        eventually(lambda: self.copies(pool, 3), 30)
        self.verify_each_copy(load, pool)
        load.go_on()
        self.goes_on(load)
        self.set(pool, "size", 2)
        self.set(pool, "min_size", 1)
        self.pgs.wait_clean()
        self.goes_on(load)
        load.hold()
        eventually(lambda: self.copies(pool, 2), 30)
        load.go_on()
        self.kill(1)
        self.goes_on(load)
        self.start(1)
        self.wait_up(1)
        self.pgs.wait_clean()
        self.assert_right(load)

    def copies(self, pool, count):
        """True if the statistics tell of so many copies of each object, and of none that is missing."""
        sums = [row["stat_sum"] for row in self.pgs.all(pool)]
        objects = sum(s["num_objects"] for s in sums)
        return (objects > 0 and sum(s["num_object_copies"] for s in sums) == count * objects
                and not sum(s["num_objects_degraded"] + s["num_objects_misplaced"] for s in sums))

    def test_frozen_osd_is_marked_down_and_returns(self):
        pool = self.make_pool("frozen")
        load = self.load(pool)
        self.cluster.pause("osd.1")
        try:
            self.wait_down(1)
            self.goes_on(load)
        finally:
            self.cluster.resume("osd.1")
        self.wait_up(1)
        self.pgs.wait_clean()
        self.goes_on(load)
        self.assert_right(load)
        self.assert_healthy()

    def test_writes_block_below_min_size_and_resume(self):
        pool = self.make_pool("blocked")
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            for n in range(8):
                io.write_full(f"o{n}", b"before")
            self.stop(1, 2)
            answers, began = {}, time.monotonic()
            waiting = [io.aio_write_full(f"o{n}", b"after",
                                         oncomplete=lambda _c, n=n: answers.setdefault(n, time.monotonic() - began))
                       for n in range(8)]
            read = threading.Thread(target=lambda: answers.setdefault("read", io.read("o0", 100)), daemon=True)
            read.start()
            eventually(lambda: self.pgs.states(pool) == {"undersized+degraded+peered"} or
                       self.pgs.states(pool) == {"undersized+peered", "undersized+degraded+peered"}, DOWN_SECONDS_MAX)
            time.sleep(6)
            self.assertEqual(answers, {}, "answered below min_size")
            self.start(1)
            for completion in waiting:
                self.wait_for(completion)
                self.assertEqual(completion.get_return_value(), 0)
            read.join(OP_SECONDS_MAX)
            self.assertEqual(answers["read"], b"after", "a read waits behind the write that was before it")
            self.assertEqual({io.read(f"o{n}", 100) for n in range(8)}, {b"after"})
            self.start(2)
            self.wait_up(2)
            self.pgs.wait_clean()
            self.assertEqual({io.read(f"o{n}", 100) for n in range(8)}, {b"after"})

    @staticmethod
    def wait_for(completion):
        eventually(completion.is_complete, OP_SECONDS_MAX, 0.05)

    def test_watches_locks_and_splits_survive_failover(self):
        pool = self.make_pool("kept")
        load = self.load(pool)
        told, errors = [], []
        first, second = (rados.Rados(conffile=str(self.cluster.conf), name="client.admin") for _ in range(2))
        with first, second, first.open_ioctx(pool) as one, second.open_ioctx(pool) as two:
            one.write_full("watched", b"x")
            watch = one.watch("watched", lambda *event: told.append(event[-1]), errors.append)
            one.lock_exclusive("watched", "lock", "cookie-1")
            two.notify("watched", "before", 10_000)
            eventually(lambda: told)
            primary = self.primary(pool, "watched")
            self.kill(primary)
            self.set(pool, "pg_num", 32)
            self.wait_down(primary)
            with self.assertRaises((rados.ObjectBusy, rados.ObjectExists)):
                two.lock_exclusive("watched", "lock", "cookie-2")
            # The watcher's client sets its watch up again when it has the new map.
            heard = len(told)
            eventually(lambda: (two.notify("watched", "after", 5000), len(told) > heard)[1], OP_SECONDS_MAX)
            self.start(primary)
            self.wait_up(primary)
            eventually(lambda: self.pgs.pool(pool)["pg_num"] == 32, 60)
            self.pgs.wait_clean()
            heard = len(told)
            eventually(lambda: (two.notify("watched", "again", 5000), len(told) > heard)[1], OP_SECONDS_MAX)
            one.unlock("watched", "lock", "cookie-1")
            two.lock_exclusive("watched", "lock", "cookie-2")
            watch.close()
        self.assertEqual(len(self.pgs.all(pool)), 32)
        self.goes_on(load)
        self.assert_right(load)

    def test_pgs_merge_under_load_and_a_kill(self):
        pool = self.make_pool("shrinking", pgs=32)
        self.client.ceph("config", "set", "mgr", "target_max_misplaced_ratio", "1")
        load = self.load(pool)
        self.set(pool, "pg_num", 8)
        row = self.pgs.pool(pool)
        self.assertEqual((row["pg_num_target"], row["pg_placement_num_target"]), (8, 8))
        eventually(lambda: self.pgs.pool(pool)["pg_num"] <= 28, MERGE_SECONDS_MAX)
        self.kill(1)
        self.wait_down(1)
        seen = self.pgs.pool(pool)["pg_num"]
        self.goes_on(load)
        self.start(1)
        self.wait_up(1)
        eventually(lambda: self.pgs.pool(pool)["pg_num"] == 8, MERGE_SECONDS_MAX)
        row = self.pgs.pool(pool)
        self.assertLess(8, seen, "the OSD was down in the middle of the merges")
        self.assertEqual(row["last_pg_merge_meta"]["source_pgid"], f"{row['pool']}.8")
        self.assertEqual((row["pg_num_pending"], row["pg_placement_num"]), (8, 8))
        self.pgs.wait_clean()
        self.assertEqual(len(self.pgs.all(pool)), 8)
        self.goes_on(load)
        self.assert_right(load)
        # What was merged splits again.
        self.set(pool, "pg_num", 16)
        self.pgs.wait_clean()
        self.assertEqual(load.verify(), [])

    def test_states_and_health_are_those_of_stock(self):
        pool = self.make_pool("told")
        # Stock reports PGs as undersized or inactive when they have been so for this long.
        self.client.ceph("config", "set", "global", "mon_pg_stuck_threshold", 3)
        self.addCleanup(self.client.ceph, "config", "rm", "global", "mon_pg_stuck_threshold")
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(pool) as io:
            # So many that no PG is empty: one without objects is not degraded.
            for n in range(200):
                io.write_full(f"o{n}", b"x")
        eventually(lambda: sum(row["stat_sum"]["num_objects"] for row in self.pgs.all(pool)) == 200)
        self.assert_healthy()
        self.kill(2)
        self.wait_down(2)
        eventually(lambda: self.pgs.states(pool) == {"active+undersized+degraded"}, DOWN_SECONDS_MAX)

        def one_is_down():
            checks = self.checks()
            self.assertEqual(checks["OSD_DOWN"]["severity"], "HEALTH_WARN")
            self.assertEqual(checks["OSD_DOWN"]["summary"], {"message": "1 osds down", "count": 1})
            self.assertRegex(checks["OSD_DOWN"]["detail"][0]["message"], r"^osd\.2 \(root=default,host=[\w-]+\) is down$")
            degraded = checks["PG_DEGRADED"]
            self.assertEqual(degraded["severity"], "HEALTH_WARN")
            self.assertEqual(degraded["summary"]["message"], "Degraded data redundancy: 200/600 objects degraded (33.333%), "
                             "16 pgs degraded, 16 pgs undersized")
            for row in degraded["detail"]:
                self.assertRegex(row["message"], r"^pg \d+\.[0-9a-f]+ is stuck undersized for \S+, current state "
                                                 r"active\+undersized\+degraded, last acting \[[01],[01]\]$")
            self.assertEqual(len(degraded["detail"]), 16)
            self.assertNotIn("PG_AVAILABILITY", checks)
            return True
        eventually(one_is_down, 30, 0.5)
        status = self.client.json("-s")
        self.assertEqual(status["health"]["status"], "HEALTH_WARN")
        self.assertEqual(status["osdmap"]["num_up_osds"], 2)
        self.assertEqual(status["pgmap"]["pgs_by_state"], [{"state_name": "active+undersized+degraded", "count": 16}])
        self.assertEqual((status["pgmap"]["degraded_objects"], status["pgmap"]["degraded_total"]), (200, 600))
        self.assertAlmostEqual(status["pgmap"]["degraded_ratio"], 1 / 3, places=5)

        self.stop(1)
        eventually(lambda: self.pgs.states(pool) == {"undersized+degraded+peered"}, DOWN_SECONDS_MAX)

        def two_are_down():
            checks = self.checks()
            self.assertEqual(checks["OSD_DOWN"]["summary"]["message"], "2 osds down")
            self.assertEqual(checks["PG_AVAILABILITY"]["severity"], "HEALTH_WARN")
            self.assertEqual(checks["PG_AVAILABILITY"]["summary"]["message"], "Reduced data availability: 16 pgs inactive")
            for row in checks["PG_AVAILABILITY"]["detail"]:
                self.assertRegex(row["message"], r"^pg \d+\.[0-9a-f]+ is stuck inactive for \S+, current state "
                                                 r"undersized\+degraded\+peered, last acting \[0\]$")
            self.assertEqual(checks["PG_DEGRADED"]["summary"]["message"], "Degraded data redundancy: 400/600 objects degraded "
                             "(66.667%), 16 pgs degraded, 16 pgs undersized")
            return True
        eventually(two_are_down, 30, 0.5)
        self.assertAlmostEqual(self.client.json("-s")["pgmap"]["inactive_pgs_ratio"], 1.0)
        self.start(1, 2)
        self.wait_up(1, 2)
        self.pgs.wait_clean()
        self.assert_healthy()

    def test_slow_heartbeats_show_in_health_and_dump(self):
        """A limit that every heartbeat exceeds. "Minutes" of two seconds, so that the first is over soon."""
        options = [("debug_heartbeat_testing_span", "2"), ("osd_heartbeat_interval", "1"),
                   ("mon_warn_on_slow_ping_time", "0.001")]
        for name, value in options:
            self.addCleanup(self.client.ceph, "config", "rm", "global", name)
            self.client.ceph("config", "set", "global", name, value)
        eventually(lambda: {"OSD_SLOW_PING_TIME_BACK", "OSD_SLOW_PING_TIME_FRONT"} <= set(self.checks()), 60, 0.5)
        for network in ("back", "front"):
            check = self.checks()[f"OSD_SLOW_PING_TIME_{network.upper()}"]
            self.assertEqual(check["severity"], "HEALTH_WARN")
            self.assertRegex(check["summary"]["message"], rf"^Slow OSD heartbeats on {network} \(longest \d+\.\d{{3}}ms\)$")
            self.assertRegex(check["detail"][0]["message"],
                             rf"^Slow OSD heartbeats on {network} from osd\.\d \[.*\] to osd\.\d \[.*\] \d+\.\d{{3}} msec")

        def pairs(of):
            return {(row["from osd"], row["to osd"]) for row in self.client.json("tell", of, "dump_osd_network", 0)["entries"]}
        # Each OSD has a first minute of its own, and the manager's report comes later still.
        eventually(lambda: pairs("osd.0") == {(0, 1), (0, 2)})
        eventually(lambda: pairs("mgr") == {(a, b) for a in range(3) for b in range(3) if a != b})
        everything = self.client.json("tell", "osd.0", "dump_osd_network", 0)
        self.assertEqual(everything["threshold"], 0)
        self.assertEqual({(row["from osd"], row["to osd"], row["interface"]) for row in everything["entries"]},
                         {(0, peer, interface) for peer in (1, 2) for interface in ("back", "front")})
        for row in everything["entries"]:
            self.assertEqual(list(row), ["last update", "stale", "from osd", "to osd", "interface", "average", "min", "max", "last"])
            self.assertEqual(list(row["average"]), ["1min", "5min", "15min"])
            self.assertRegex(row["last update"], r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d 20\d\d$")
            self.assertFalse(row["stale"])
        self.assertEqual(self.client.json("tell", "osd.0", "dump_osd_network", 1000000), {"threshold": 1000000, "entries": []})
        for name, _ in options:
            self.client.ceph("config", "rm", "global", name)
        self.assert_healthy()


class Disks(ReplicatedTest):
    """OSDs that lose their disk, join and leave."""

    OSDS = 3

    def test_lost_disk_after_blackout_is_backfilled(self):
        pool = self.make_pool("lost-disk")
        load = self.load(pool)
        self.kill(*self.osds())
        self.start(0, 1)
        self.wait_down(2)
        self.goes_on(load)
        self.cluster.replace_osd(2)
        self.wait_up(2)
        self.pgs.wait_clean()
        self.goes_on(load)
        load.stop()
        self.verify_each_copy(load, pool)
        self.assert_right(load)
        self.assert_healthy()

    def test_pgs_move_to_a_new_osd_and_off_one_that_is_out(self):
        pool = self.make_pool("moves")
        load = self.load(pool)
        new = self.cluster.add_osd()
        self.wait_up(new)
        self.pgs.wait_clean()
        self.goes_on(load)
        eventually(lambda: any(new in row["acting"] for row in self.pgs.all(pool)))
        self.client.ceph("osd", "out", 0)
        eventually(lambda: not any(0 in row["up"] for row in self.pgs.all(pool)), DOWN_SECONDS_MAX)
        self.pgs.wait_clean()
        self.goes_on(load)
        self.assertFalse([row["pgid"] for row in self.pgs.all(pool) if 0 in row["acting"]])
        # It removes its copies.
        eventually(lambda: self.client.json("tell", "osd.0", "status")["num_pgs"] == 0, CLEAN_SECONDS_MAX, 0.5)
        nodes = {node["id"]: node["pgs"] for node in self.client.json("osd", "df")["nodes"]}
        self.assertEqual((nodes[0], sum(nodes.values())), (0, 3 * 16))
        self.assert_right(load)
        self.client.ceph("osd", "in", 0)
        self.pgs.wait_clean()
        self.assertEqual(load.verify(), [])
        self.assert_healthy()
