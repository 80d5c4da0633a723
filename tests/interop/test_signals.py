"""Figures that operators look at: counters that move, operations that are described, health that notices slowness."""
import json
import re
import socket
import subprocess
import time
import urllib.request

from harness import HERE, ROOT, ClusterTest, eventually, run

#: Prefixes of families that a stock manager's page has and shoal's does not, each with its reason (docs/guide/signals.md).
NOT_SERVED = {
    "ceph_mgr_module_": "there are no modules",
    "ceph_prometheus_": "of the module itself",
    "ceph_paxos_": "there is no Paxos", "ceph_rocksdb_": "there is no RocksDB", "ceph_prioritycache": "there is none",
    "ceph_objecter_": "the manager has no client of its own",
    "ceph_mon_election_": "elections are not counted", "ceph_mon_num_elections": "elections are not counted",
    "ceph_mon_session_": "sessions are counted, not their comings and goings",
    "ceph_osd_numpg_removing": "not counted",
    "ceph_fs_": "there is no file system", "ceph_mds_": "there is no file system",
    "ceph_rgw_": "there is no gateway", "ceph_rbd_": "images are not counted",
}
OPERATIONS, STORE, REACTOR = "every_counter_of_an_operation_moves", "waits_and_levels_of_a_busy_store_are_counted", "failed_accepts_and_refused_callers_are_counted"
COPIES = "reads_of_copies_are_counted_by_their_outcome"
OUTAGE = "outage_of_nine_seconds_loses_nothing"
PACE, STARVED = "window_converges_to_the_target", "starved_class_is_counted"
#: Counters that `test_every_counter_moves` need not move: the test that does.
MOVED_BY = {
    "osd.op_wip": OPERATIONS, "osd.messages_delayed_for_map": OPERATIONS, "osd.op_rw_in_bytes": OPERATIONS, "osd.op_rw_out_bytes": OPERATIONS,
    "osd.numpg_replica": "copies_are_counted_by_role", "osd.numpg_stray": "copies_are_counted_by_role",
    "osd.recovery_ops": "test_recovered_objects_are_counted", "osd.recovery_bytes": "test_recovered_objects_are_counted",
    "osd.replica_read": COPIES, "osd.replica_read_served": COPIES, "osd.replica_read_redirect_missing": COPIES, "osd.replica_read_redirect_conflict": COPIES,
    "osd.numpg_moving": "moves_are_counted", "osd.pg_moves_given_up": "moves_are_counted",
    "store.waited_for_log": STORE, "store.waited_for_index": STORE,
    "store.waited_for_cleaner": "write_waits_for_the_cleaner_without_planning_again", "store.fresh_tables": STORE, "store.deferred_bytes": STORE,
    "store.numbers_to_clean": STORE, "store.discarded_bytes": "freed_blocks_are_discarded_and_reused",
    "store.reads_repeated": OUTAGE, "store.reads_recovered": OUTAGE, "store.reads_waiting": OUTAGE,
    "store.reads_lost": "lasting_outage_fails_the_shard_and_records_no_loss",
    "reactor.accepts_failed": REACTOR, "reactor.writes_short": "large_messages_are_read_and_written_in_parts",
    "reactor.turns_polled": "polling_reactor_finds_messages_before_it_sleeps",
    "bluefs.wal_total_bytes": "test_devices_are_told_as_stock_tells_them", "bluefs.wal_used_bytes": "test_devices_are_told_as_stock_tells_them",
    "bluefs.slow_total_bytes": "test_devices_are_told_as_stock_tells_them",
    "osd_pace.baseline_us": PACE, "osd_pace.target_us": PACE, "osd_pace.halvings": PACE, "osd_pace.pauses": PACE,
    "osd_pace.urgent_bytes": "waiting_write_passes_a_pause", "osd_pace.recovery_bytes": "report_ends_with_the_background_work",
    "osd_pace.backfill_bytes": "misplaced_objects_of_a_backfill_are_counted", "osd_pace.removal_bytes": "removal_waits_for_the_window",
    "osd_pace.scrub_bytes": "scrub_waits_for_the_window", "osd_pace.recovery_starved_ms": STARVED, "osd_pace.backfill_starved_ms": STARVED,
    "osd_pace.removal_starved_ms": "removal_waits_for_the_window", "osd_pace.scrub_starved_ms": "scrub_waits_for_the_window",
    "bluefs.slow_used_bytes": "test_spilled_index_is_a_warning_in_stock_words",
}


class Signals(ClusterTest):
    OPTIONS, OSDS = ("--cores", "2", "--store", "disk"), 2
    #: Provokes them.
    QUIET = False

    def setUp(self):
        self.asok = str(self.cluster.dir / "osd.0.asok")

    def daemon(self, *words):
        return run(["ceph", "daemon", self.asok, *words]).json

    def tell(self, *words):
        return self.client.json("tell", "osd.0", *words)

    def page(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            return page.read().decode()

    def load(self, pool, seconds=2):
        for words in (["write", "--no-cleanup"], ["rand"]):
            self.client.rados("-p", pool, "bench", str(seconds), words[0], "-t", "8", *(["-b", "4096"] if words[0] == "write" else []), *words[1:])

    def test_every_counter_moves(self):
        """Each counter of `perf dump`, of OSDs and monitor, is above zero at some time, here or in the test that `MOVED_BY` names."""
        moved, seen = set(), set()

        def look():
            for asok in ("osd.0.asok", "osd.1.asok", "mon.a.asok"):
                for group, counters in run(["ceph", "daemon", str(self.cluster.dir / asok), "perf", "dump"]).json.items():
                    for name, value in counters.items():
                        seen.add(f"{group}.{name}")
                        if (value["avgcount"] if isinstance(value, dict) else value) > 0:
                            moved.add(f"{group}.{name}")
            return not seen - moved - MOVED_BY.keys()

        pool = self.pool("moves")
        with socket.create_connection(("127.0.0.1", self.cluster.port + 10)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            stranger.recv(1000)
        self.client.ceph("osd", "pool", "set", pool, "compression_mode", "force")
        eventually(lambda: self.client.json("osd", "pool", "get", pool, "compression_mode")["compression_mode"] == "force")
        self.load(pool)
        for n in range(8):
            self.client.rados("-p", pool, "put", f"text{n}", "-", stdin=b"compressible " * 100_000)
            # It reads and writes.
            self.client.rados("-p", pool, "lock", "get", f"text{n}", "l")
        pg = eventually(lambda: self.tell("pg", "cores")["pgs"])[0]
        for words in (["config", "set", "shoal_balance_pgs", "false"], ["pg", "move", pg["pgid"], str(1 - pg["core"])]):
            run(["ceph", "daemon", self.asok, *words])
        eventually(lambda: self.daemon("perf", "dump")["osd"]["pg_moves"])
        look()
        dump = self.daemon("perf", "dump")
        parts = sum(dump["osd_stages"][f"w_{stage}_latency"]["sum"] for stage in ("route", "object_wait", "fetch", "commit"))
        # A reply takes a system call, or a mail, within the turn that made it.
        for kind in "rw":
            sent = dump["osd_stages"][f"{kind}_reply_latency"]
            self.assertTrue(0 < sent["avgtime"] < 0.1, sent)
        whole = dump["osd"]["op_w_latency"]["sum"] + dump["osd"]["op_rw_latency"]["sum"]
        self.assertAlmostEqual(parts / whole, 1, delta=0.02)
        # After a clean stop, which writes the index, what is read comes from the disk.
        self.cluster.down()
        self.cluster.up()
        for n in range(8):
            self.client.rados("-p", pool, "get", f"text{n}", "-")
        deadline = time.monotonic() + 20
        while not look() and time.monotonic() < deadline:
            time.sleep(0.5)

        self.assertEqual(sorted(seen - moved - MOVED_BY.keys()), [], "no test moves these counters")
        self.assertEqual(sorted(MOVED_BY.keys() - seen), [], "there are no such counters")
        tests = subprocess.run(["git", "grep", "-hoE", r"(fn|def) \w+", "--", "crates", "tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        self.assertEqual(sorted(set(MOVED_BY.values()) - {line.split()[1] for line in tests.splitlines()}), [], "there are no such tests")

    def test_schema_and_histograms_have_the_shape_of_stocks(self):
        self.pool("shapes")
        self.load("shapes", 1)
        schema = self.daemon("perf", "schema")["osd"]
        stock = json.loads((HERE / "stock" / "osd-perf-schema-pacific.json").read_text())
        for name, theirs in stock.items():
            if name in schema:
                with self.subTest(name):
                    self.assertEqual(schema[name], theirs)
        self.assertGreater(len(schema.keys() & stock.keys()), 30)
        histogram = self.daemon("perf", "histogram", "dump")["osd"]["op_w_latency_in_bytes_histogram"]
        self.assertEqual([axis["name"] for axis in histogram["axes"]], ["Latency (usec)", "Request size (bytes)"])
        self.assertEqual((len(histogram["values"]), len(histogram["values"][0])), (32, 32))
        self.assertGreater(sum(map(sum, histogram["values"])), 0)
        self.assertEqual(self.tell("perf", "histogram", "schema")["osd"]["op_w_latency_in_bytes_histogram"]["type"], 26)
        stage = self.daemon("perf", "histogram", "dump")["osd_stages"]["w_commit_latency"]
        self.assertGreater(sum(stage["values"]), 0)

    def test_slowest_operations_are_described(self):
        self.pool("history")
        self.load("history", 1)
        for ask in (self.daemon, self.tell):
            history = ask("dump_historic_ops")
            self.assertEqual((history["size"], history["duration"], len(history["ops"])), (20, 600, 20))
        op = history["ops"][0]
        self.assertEqual(list(op), ["description", "initiated_at", "age", "duration", "type_data"])
        self.assertEqual(list(op["type_data"]), ["flag_point", "client_info", "events"])
        self.assertRegex(op["description"], r"^osd_op\(client\.\d+\.\d+:\d+ \d+\.[0-9a-f]+ \d+:[0-9a-f]{8}:.*\) ?|^osd_op\(")
        self.assertEqual(op["type_data"]["events"][0]["event"], "initiated")
        self.assertEqual(op["type_data"]["events"][-1]["event"], "done")
        by_duration = self.tell("dump_historic_ops_by_duration")["ops"]
        self.assertEqual([o["duration"] for o in by_duration], sorted((o["duration"] for o in by_duration), reverse=True))
        nobody = self.tell("dump_historic_ops", "10.9.9.9:0/1")
        self.assertEqual(nobody["ops"], [])
        self.assertEqual(self.tell("dump_historic_slow_ops")["Ops"], [])
        self.client.ceph("config", "set", "osd", "osd_op_history_size", "3")
        eventually(lambda: len(self.tell("dump_historic_ops")["ops"]) == 3)
        self.client.ceph("config", "rm", "osd", "osd_op_history_size")

    def test_df_and_pg_dump_count_omaps(self):
        pool = self.pool("omaps", 4)
        for n in range(3):
            self.client.rados("-p", pool, "create", f"o{n}")
            self.client.rados("-p", pool, "setomapval", f"o{n}", "key", "-", stdin=b"v" * 1000)

        def row():
            pools = self.client.json("df", "detail")["pools"]
            stats = next(one["stats"] for one in pools if one["name"] == pool)
            return stats["stored_omap"] > 0 and stats
        stats = eventually(row)
        self.assertEqual(stats["stored"], stats["stored_data"] + stats["stored_omap"])
        self.assertEqual(stats["bytes_used"], stats["data_bytes_used"] + stats["omap_bytes_used"])

        def all_counted():
            pgs = self.client.json("pg", "ls-by-pool", pool)
            pgs = pgs.get("pg_stats", pgs) if isinstance(pgs, dict) else pgs
            return sum(pg["stat_sum"]["num_objects_omap"] for pg in pgs) == 3 and pgs
        # Each PG reports on its own.
        pgs = eventually(all_counted)
        self.assertEqual({pg["omap_stats_invalid"] for pg in pgs if pg["stat_sum"]["num_objects_omap"]}, {True})

    def test_status_and_mgr_dump_tell_what_is_kept(self):
        self.pool("another", 4)
        newest = self.client.json("osd", "dump")["epoch"]
        status = eventually(lambda: int((now := self.tell("status"))["newest_map"]) >= newest and now)
        first, length = status["maps"].strip("[]").split(",")[-1].split("~")
        self.assertEqual(int(first) + int(length) - 1, int(status["newest_map"]))
        self.assertGreater(int(length), 1)
        self.assertEqual(int(status["oldest_map"]), int(status["maps"].strip("[]").split("~")[0]))
        self.assertGreater(int(status["cluster_osdmap_trim_lower_bound"]), 0)
        dump = self.client.json("mgr", "dump")
        page = dump["services"]["prometheus"]
        self.assertEqual(self.client.json("mgr", "services"), {"prometheus": page})
        with urllib.request.urlopen(page + "metrics", timeout=20) as answer:
            self.assertIn(b"ceph_mgr_status", answer.read())
        self.assertGreater(dump["active_mgr_features"], 0)

    def test_commit_latency_reaches_osd_perf_and_the_pages(self):
        self.pool("perf")
        load = self.client.spawn("rados", "-p", "perf", "bench", "60", "write", "-t", "8", "-b", "4096")
        try:
            def told():
                stats = self.client.json("osd", "perf")
                latency = stats.get("osdstats", stats)["osd_perf_infos"][0]["perf_stats"]["commit_latency_ns"]
                page = self.page(port)
                reported = re.search(r'^ceph_osd_commit_latency_ms\{ceph_daemon="osd.0"\} (\S+)$', page, re.M)[1]
                return latency > 0 and float(reported) > 0 and page
            port = self.cluster.port + 2
            page = eventually(told, 40)
        finally:
            load.terminate()
            load.wait()
        families = set(re.findall(r"^# TYPE (\S+)", page, re.M))
        theirs = (HERE / "stock" / "metrics-pacific.txt").read_text().split()
        self.assertGreater(len(theirs), 200)
        missing = [f for f in theirs if f not in families]
        self.assertEqual([f for f in missing if not f.startswith(tuple(NOT_SERVED))], [])
        self.assertEqual([p for p in NOT_SERVED if not any(f.startswith(p) for f in missing)], [])
        self.assertIn("ceph_osd_op_w", families)
        self.assertGreater(float(re.search(r'^ceph_osd_op_w\{ceph_daemon="osd.0"\} (\S+)$', page, re.M)[1]), 0)
        own = self.page(self.cluster.port + 11)
        self.assertGreater(float(re.search(r'^ceph_osd_op_w\{ceph_daemon="osd.0"\} (\S+)$', own, re.M)[1]), 0)
        self.assertIn("shoal_osd_stages_w_commit_latency_count", own)
        # Whatever a page has is the text format: a sample's family was announced, and no sample stands twice.
        for text in (page, own):
            samples = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
            self.assertEqual(len(samples), len(set(samples)))
            announced = re.findall(r"^# TYPE (\S+)", text, re.M)
            self.assertEqual(len(announced), len(set(announced)))
            self.assertEqual({s.split("{")[0] for s in samples} - set(announced), set())


class SlowOps(ClusterTest):
    """An operation that waits: a read of an object whose write is stopped half way, by a complaint time of next to nothing."""

    def test_slow_operations_raise_health_and_clear(self):
        self.pool("slow")
        self.client.ceph("config", "set", "osd", "osd_op_complaint_time", "0.000001")
        load = self.client.spawn("rados", "-p", "slow", "bench", "60", "write", "-t", "32", "-b", "65536")
        try:
            def complaint():
                health = self.client.json("health", "detail")["checks"]
                return health.get("SLOW_OPS")
            check = eventually(complaint, 40)
            self.assertRegex(check["summary"]["message"], r"^\d+ slow ops, oldest one blocked for \d+ sec, osd.0 has slow ops$")
            described = self.client.json("tell", "osd.0", "dump_blocked_ops")
            self.assertEqual(described["num_blocked_ops"], len(described["ops"]))
        finally:
            load.terminate()
            load.wait()
        self.client.ceph("config", "rm", "osd", "osd_op_complaint_time")
        eventually(lambda: not complaint(), 40)
        self.assertEqual(self.client.json("tell", "osd.0", "dump_ops_in_flight"), {"ops": [], "num_ops": 0})
