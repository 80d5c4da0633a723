"""Figures that operators look at: counters that move, operations that are described, health that notices slowness."""
import json
import re
import urllib.request

from harness import HERE, ClusterTest, eventually, run

#: Prefixes of families that a stock manager's page has and shoal's does not, each with its reason (docs/guide/signals.md).
NOT_SERVED = {
    "ceph_mgr_module_": "there are no modules",
    "ceph_prometheus_": "of the module itself",
    "ceph_paxos_": "there is no Paxos", "ceph_rocksdb_": "there is no RocksDB", "ceph_prioritycache": "there is none",
    "ceph_objecter_": "the manager has no client of its own",
    "ceph_mon_election_": "elections are not counted", "ceph_mon_num_elections": "elections are not counted",
    "ceph_mon_session_": "sessions are counted, not their comings and goings",
    "ceph_osd_recovery_": "there is no recovery", "ceph_osd_numpg_removing": "not counted",
    "ceph_disk_occupation": "devices are not tracked",
    "ceph_fs_": "there is no file system", "ceph_mds_": "there is no file system",
    "ceph_rgw_": "there is no gateway", "ceph_rbd_": "images are not counted",
}
#: What moves only with a second OSD, or is shoal's own and moves with a PG's move.
STILL = {"heartbeat_to_peers", "messages_delayed_for_map", "pg_moves", "pg_moves_given_up", "numpg_moving", "op_wip"}


class Signals(ClusterTest):
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
        self.pool("moves")
        self.load("moves")
        # Operations that read and write: locks; and one whose data is written by a class.
        self.client.rados("-p", "moves", "put", "locked", "/etc/hostname")
        self.client.rados("-p", "moves", "lock", "get", "locked", "l")
        dump, tell = self.daemon("perf", "dump"), self.tell("perf", "dump")
        for group in ("osd", "osd_stages"):
            self.assertEqual(dump[group].keys(), tell[group].keys())
            for name, value in dump[group].items():
                if name in STILL or name.startswith("op_rw_") and name.endswith("_bytes"):
                    continue
                with self.subTest(name):
                    moved = value["avgcount"] if isinstance(value, dict) else value
                    self.assertGreater(moved, 0)
        self.assertGreater(dump["osd"]["op_w_latency"]["sum"], 0)
        stages = sum(dump["osd_stages"][f"w_{s}_latency"]["sum"] for s in ("route", "object_wait", "fetch", "commit", "reply"))
        whole = dump["osd"]["op_w_latency"]["sum"] + dump["osd"]["op_rw_latency"]["sum"]
        self.assertAlmostEqual(stages / whole, 1, delta=0.02)

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

    def test_commit_latency_reaches_osd_perf_and_the_pages(self):
        self.pool("perf")
        self.load("perf", 7)
        port = self.cluster.port + 2
        stats = self.client.json("osd", "perf")
        infos = stats.get("osdstats", stats)["osd_perf_infos"]
        page = self.page(port)
        reported = float(re.search(r'^ceph_osd_commit_latency_ms\{ceph_daemon="osd.0"\} (\S+)$', page, re.M)[1])
        self.assertTrue(infos[0]["perf_stats"]["commit_latency_ns"] > 0 or reported > 0, (infos, reported))
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
