"""`ceph` commands: the shape of each answer against what stock printed, and each change seen by a second command."""
import json
import shlex
import time
import unittest

import harness
import shapes
import values
from harness import HERE, Client, ClusterTest, eventually

#: Differences from stock, of shapes and of values: `[kind, command, text, reason]`. A difference of that command that holds
#: the text is `meant`, or `open`: then every run prints it and docs/commands.md does not call the command working.
MEANT = json.loads((HERE / "meant.json").read_text())


class Known:
    """The known differences of one comparison. Each must have a text and a reason, and match a difference."""

    def __init__(self, rows):
        self.rows, self.used = rows, set()
        for row in rows:
            kind, command, text, reason = row
            assert kind in ("meant", "open") and command and text and reason, f"meant.json: {row}"

    def unknown(self, command, differences):
        """The differences of a command that no row knows."""
        left = []
        for difference in differences:
            matching = [number for number, (_, of, text, _) in enumerate(self.rows) if of == command and text in difference]
            self.used.update(matching)
            if not matching:
                left.append(difference)
            elif all(self.rows[number][0] == "open" for number in matching):
                print(f"open: {difference[:200]}: {self.rows[matching[0]][3]}")
        return left

    def unused(self):
        return [row for number, row in enumerate(self.rows) if number not in self.used]


class Shapes(ClusterTest):
    OSDS = 3

    def test_answers_have_the_shape_of_stocks(self):
        for command in shapes.POPULATE:
            done = self.client.ceph(*shlex.split(command), check=False)
            with self.subTest(command):
                self.assertEqual(done.code, 0, done.errors)
        claimed = "tentacle" if "tentacle" in self.client.ceph("versions").text else "pacific"
        theirs = json.loads((HERE / "stock" / f"{claimed}.json").read_text())
        details = self.client.json("osd", "pool", "ls", "detail")
        pool = next(p.get("pool", p.get("pool_id")) for p in details if p["pool_name"] == "shape")
        eventually(lambda: self.client.json("pg", "stat")["pg_summary"]["num_pgs"] >= 12)
        # Stock's answers were taken of a cluster at rest: until then `status` has figures that it otherwise leaves out.
        eventually(lambda: not {"unknown_pgs_ratio", "inactive_pgs_ratio"} & self.client.json("status")["pgmap"].keys())
        ours = shapes.take(lambda *words: _quiet(self.client, *words), f"{pool}.0")
        known = Known(MEANT["shapes"])
        for command, stock in theirs.items():
            with self.subTest(command):
                self.assertEqual(known.unknown(command, shapes.differences(stock, ours[command], command)), [])
        self.assertEqual(known.unused(), [], "entries of meant.json that match no difference")


class Values(ClusterTest):
    """The answers of values.txt, beside those that `values.py` recorded on stock 20.2.4."""

    OSDS = 3
    OPTIONS = ("--store", "mem", "--size", "8G")
    QUIET = False

    @classmethod
    def make_cluster(cls):
        """A cluster that grew from one OSD: its pools have one copy by default, as those of the recorded cluster."""
        cluster = harness.Cluster(*cls.OPTIONS, osds=1)
        cluster.again[cluster.again.index("--osds") + 1] = str(cls.OSDS)
        cluster.up()
        return cluster

    def test_answers_are_stocks(self):
        theirs = json.loads((HERE / "stock/tentacle-values.json").read_text())
        client = self.client
        ours = values.take(lambda *words: client.ceph(*words, check=False), progress=harness.give_time)
        self.assertEqual([one["command"] for one in ours], [one["command"] for one in theirs], "record values.txt anew")
        known = Known(MEANT["values"])
        for stock, own in zip(theirs, ours):
            command = stock.pop("command")
            own.pop("command")
            with self.subTest(command):
                self.assertEqual(known.unknown(command, values.differences(stock, own, command)), [])
        self.assertEqual(known.unused(), [], "entries of meant.json that match no difference")

    def test_tests_that_compare_elsewhere_exist(self):
        for test in values.elsewhere():
            with self.subTest(test):
                self.assertEqual(unittest.TestLoader().loadTestsFromName(test).countTestCases(), 1)


class _Quiet:
    def __init__(self, done):
        self.code, self.text = done.code, done.text


def _quiet(client, *words):
    return _Quiet(client.ceph(*words, check=False))


class Changes(ClusterTest):
    """Each change, and a second command that sees it."""

    OSDS = 3
    QUIET = False

    def test_pools(self):
        ceph, ask = self.client.ceph, self.client.json
        ceph("osd", "pool", "create", "one", 8)
        self.assertIn("one", ask("osd", "pool", "ls"))
        ceph("osd", "pool", "set", "one", "pg_autoscale_mode", "off")
        self.assertEqual(ask("osd", "pool", "get", "one", "pg_autoscale_mode")["pg_autoscale_mode"], "off")
        ceph("osd", "pool", "rename", "one", "uno")
        self.assertIn("uno", ask("osd", "pool", "ls"))
        refused = ceph("osd", "pool", "rm", "uno", check=False)
        self.assertEqual(refused.code, 1, "EPERM without saying it twice")
        ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        ceph("osd", "pool", "rm", "uno", "uno", "--yes-i-really-really-mean-it")
        self.assertNotIn("uno", ask("osd", "pool", "ls"))

    def test_pool_sizes_above_one_are_mapped_to_distinct_osds(self):
        ceph, ask = self.client.ceph, self.client.json
        refused = ceph("osd", "pool", "create", "coded", 8, 8, "erasure", check=False)
        self.assertEqual(refused.code, 95)
        ceph("osd", "pool", "create", "big", 8, 8, "replicated", "--size", 3)
        self.assertEqual(ask("osd", "pool", "get", "big", "min_size")["min_size"], 2)
        # All three OSDs are on one host.
        ceph("osd", "in", "any")
        ceph("osd", "reweight", 1, 1)
        self.assertEqual(sorted(ask("osd", "map", "big", "x")["up"]), [0, 1, 2])
        ceph("osd", "pool", "set", "big", "size", 2)
        self.assertEqual(len(ask("osd", "map", "big", "x")["up"]), 2)

    def test_flags_weights_and_marks(self):
        ceph, ask = self.client.ceph, self.client.json
        ceph("osd", "set", "noout")
        self.assertIn("noout", ask("osd", "dump")["flags"])
        self.assertIn("OSDMAP_FLAGS", ask("health")["checks"])
        ceph("osd", "unset", "noout")
        self.assertNotIn("noout", ask("osd", "dump")["flags"])
        ceph("osd", "reweight", 1, 0.5)
        self.assertAlmostEqual(next(o for o in ask("osd", "dump")["osds"] if o["osd"] == 1)["weight"], 0.5, 2)
        ceph("osd", "out", 2)
        self.assertEqual(ask("osd", "stat")["num_in_osds"], 2)
        ceph("osd", "in", 2)
        self.assertEqual(ask("osd", "stat")["num_in_osds"], 3)

    def test_keys_and_configuration(self):
        ceph, ask = self.client.ceph, self.client.json
        ceph("auth", "get-or-create", "client.x", "mon", "allow r", "osd", "allow rw pool=p")
        entry = next(e for e in ask("auth", "ls")["auth_dump"] if e["entity"] == "client.x")
        self.assertEqual(entry["caps"], {"mon": "allow r", "osd": "allow rw pool=p"})
        ceph("auth", "caps", "client.x", "mon", "allow *")
        self.assertEqual(ask("auth", "get", "client.x")[0]["caps"], {"mon": "allow *"})
        ceph("auth", "rm", "client.x")
        self.assertEqual(ceph("auth", "get", "client.x", check=False).code, 2)
        ceph("config", "set", "osd", "osd_max_backfills", 3)
        self.assertEqual(ceph("config", "get", "osd.0", "osd_max_backfills").text.strip(), "3")
        ceph("config", "rm", "osd", "osd_max_backfills")
        self.assertEqual(ceph("config", "get", "osd.0", "osd_max_backfills").text.strip(), "1")
        ceph("config-key", "set", "a/b", "c")
        self.assertEqual(ceph("config-key", "get", "a/b").text, "c")
        self.assertIn("a/b", ask("config-key", "ls"))

    def test_configuration_reaches_daemons_that_run(self):
        ceph, ask = self.client.ceph, self.client.json

        def value():
            return ask("tell", "osd.0", "config", "get", "osd_heartbeat_interval")["osd_heartbeat_interval"]

        self.assertEqual(value(), "6")
        ceph("config", "set", "osd.0", "osd_heartbeat_interval", 4)
        eventually(lambda: value() == "4", 5)
        ceph("tell", "osd.0", "config", "set", "osd_heartbeat_interval", 3)
        self.assertEqual(value(), "3", "what is said to the daemon itself comes first")
        self.assertEqual(ask("tell", "osd.0", "config", "diff")["diff"]["osd_heartbeat_interval"],
                         {"default": 6, "mon": 4, "override": 3, "final": 3})
        ceph("tell", "osd.0", "config", "unset", "osd_heartbeat_interval")
        self.assertEqual(value(), "4")
        ceph("config", "rm", "osd.0", "osd_heartbeat_interval")
        eventually(lambda: value() == "6", 5)
        self.assertEqual(ceph("tell", "osd.0", "config", "set", "no_such", "1", check=False).code, 2)
        self.assertEqual(ceph("tell", "osd.0", "config", "set", "osd_heartbeat_interval", "x", check=False).code, 22)

    def test_crash_reports_are_kept_until_removed(self):
        """The outputs are those of stock 16.2 for the same commands."""
        client = self.client
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        # Reports are removed after a year.
        past = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 60 * 86400)) + ".000001Z"
        new, old = f"{now}.123456Z_new", f"{past}_old"
        for name, stamp, entity in ((new, f"{now}.123456Z", "osd.0"), (old, past, "client.x")):
            report = {"crash_id": name, "timestamp": stamp, "entity_name": entity, "utsname_hostname": "h1", "backtrace": ["f"]}
            client.ceph("crash", "post", "-i", "-", stdin=json.dumps(report).encode())
        wrong = client.ceph("crash", "post", "-i", "-", stdin=b'{"a":1}')
        self.assertEqual(wrong.errors.strip(), "malformed crash metadata: missing 'crash_id' field")
        lines = [line.split() for line in client.ceph("crash", "ls").text.splitlines()]
        self.assertEqual(lines, [["ID", "ENTITY", "NEW"], [old, "client.x", "*"], [new, "osd.0", "*"]])
        self.assertEqual([row["crash_id"] for row in client.json("crash", "ls")], [old, new])
        self.assertEqual(client.ceph("crash", "stat").text, "2 crashes recorded\n" + "".join(
            f"1 older than {days} days old:\n{old}\n" for days in (1, 3, 7)))
        eventually(lambda: "RECENT_CRASH" in client.json("health")["checks"])
        check = client.json("health", "detail")["checks"]["RECENT_CRASH"]
        self.assertEqual(check["summary"], {"message": "1 daemons have recently crashed", "count": 1})
        self.assertEqual(check["detail"], [{"message": f"osd.0 crashed on host h1 at {now}.123456Z"}])
        client.ceph("crash", "archive", new)
        eventually(lambda: "RECENT_CRASH" not in client.json("health")["checks"])
        self.assertIn("archived", client.json("crash", "info", new))
        self.assertEqual([row["crash_id"] for row in client.json("crash", "ls-new")], [old])
        self.cluster.kill("mon.a")
        self.cluster.start_daemon("mon.a")
        eventually(lambda: [row["crash_id"] for row in client.json("crash", "ls")] == [old, new], 60)
        client.ceph("crash", "prune", "30")
        client.ceph("crash", "rm", new)
        self.assertEqual(client.ceph("crash", "ls").text.strip(), "")
        self.assertEqual(client.json("config-key", "dump", "mgr/crash"), {})

    def test_monitor_passes_commands_of_the_manager_on(self):
        """Programs that know librados' `mon_command` alone get the answers that the manager gives."""
        import rados
        commands = [{"prefix": "pg stat"}, {"prefix": "osd df", "output_method": "tree"}, {"prefix": "osd pool stats"},
                    {"prefix": "pg dump_pools_json"}, {"prefix": "osd safe-to-destroy", "ids": ["99"]}, {"prefix": "pg repair", "pgid": "99.0"},
                    {"prefix": "osd pool autoscale-status"}, {"prefix": "no such"}]
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as cluster:
            for command in commands:
                text = json.dumps({**command, "format": "json"})
                (code, out, words), asked = cluster.mon_command(text, b""), cluster.mgr_command(text, b"")
                self.assertEqual(code, asked[0], command)
                if command["prefix"] == "no such":
                    self.assertEqual((code, words), (-22, "command not known"))
                elif code:
                    self.assertEqual((out, words), asked[1:], command)
                else:
                    self.assertEqual(shapes.shape(json.loads(out)), shapes.shape(json.loads(asked[1])), command)
            code, _, words = cluster.mon_command(json.dumps({"prefix": "pg repair"}), b"")
            self.assertEqual(code, -22, words)
        self.client.ceph("auth", "get-or-create", "client.reader", "mon", "allow r", "-o", self.cluster.dir / "reader")
        with rados.Rados(conffile=str(self.cluster.conf), name="client.reader", conf={"keyring": str(self.cluster.dir / "reader")}) as cluster:
            self.assertEqual(cluster.mon_command(json.dumps({"prefix": "pg stat"}), b"")[0], 0)
            self.assertEqual(cluster.mon_command(json.dumps({"prefix": "pg repair", "pgid": "1.0"}), b"")[0], -13)
        self.client.ceph("auth", "rm", "client.reader")

    def test_the_cluster_log_is_watched(self):
        watching = self.client.spawn("ceph", "-w")
        try:
            time.sleep(2)
            self.client.ceph("log", "hello there")
            self.client.ceph("osd", "set", "norebalance")
            time.sleep(2)
            self.client.ceph("osd", "unset", "norebalance")
        finally:
            watching.terminate()
            out, _ = watching.communicate(timeout=20)
        shown = out.decode()
        self.assertIn("services:", shown)
        self.assertIn("client.admin [INF] hello there", shown)
        self.assertIn("Health check failed: norebalance flag(s) set (OSDMAP_FLAGS)", shown)

    def test_a_pool_at_its_quota_takes_no_more(self):
        ceph, pool = self.client.ceph, self.pool("limited")
        # A client holds writes to a full pool back; it waits no longer than this.
        patient = Client(self.cluster, options=["--rados_osd_op_timeout=3"])

        def put(name):
            return patient.rados("-p", pool, "put", name, "-", stdin=b"x", check=False, timeout=30)

        ceph("osd", "pool", "set-quota", pool, "max_objects", 2)
        self.assertEqual(self.client.json("osd", "pool", "get-quota", pool)["quota_max_objects"], 2)
        for name in "ab":
            self.assertEqual(put(name).code, 0)
        eventually(lambda: "POOL_FULL" in self.client.json("health")["checks"], 20)
        self.assertNotEqual(put("c").code, 0)
        self.assertIn("full_quota", self.client.json("osd", "pool", "ls", "detail")[-1]["flags_names"])
        ceph("osd", "pool", "set-quota", pool, "max_objects", 0)
        eventually(lambda: "POOL_FULL" not in self.client.json("health")["checks"], 20)
        self.assertEqual(put("c").code, 0)
        for name in "abc":
            self.client.rados("-p", pool, "rm", name)

    def test_figures_move_with_what_happens(self):
        ceph, ask = self.client.ceph, self.client.json
        pool = self.pool("figures")

        def stats():
            return next(p for p in ask("df")["pools"] if p["name"] == pool)["stats"]

        for index in range(10):
            self.client.rados("-p", pool, "put", f"o{index}", "-", stdin=b"x" * 100_000)
        eventually(lambda: stats()["objects"] == 10 and stats()["stored"] == 1_000_000, 30)
        for index in range(4):
            self.client.rados("-p", pool, "rm", f"o{index}")
        eventually(lambda: stats()["objects"] == 6 and stats()["stored"] == 600_000, 30)
        everything = sum(p["stats"]["objects"] for p in ask("df")["pools"])
        self.assertEqual(ask("status")["pgmap"]["num_objects"], everything)

    def test_unknown_and_malformed_commands_get_stocks_errno(self):
        self.assertEqual(self.client.ceph("no", "such", check=False).code, 22)
        self.assertEqual(self.client.ceph("osd", "pool", "get", "nowhere", "size", check=False).code, 2)
        self.assertEqual(self.client.ceph("osd", "find", "99", check=False).code, 2)


class Damaged(ClusterTest):
    """A dead OSD whose objects were in memory, as the commands show it."""

    OPTIONS = ("--store", "mem")
    OSDS = 3
    QUIET = False

    def test_dead_osd_is_marked_down_and_its_pgs_become_stale(self):
        ask = self.client.json
        pool = self.pool("damaged", 16)
        for index in range(20):
            self.client.rados("-p", pool, "put", f"o{index}", "-", stdin=b"x")

        def states():
            return {p["state_name"]: p["count"] for p in ask("status")["pgmap"]["pgs_by_state"]}

        eventually(lambda: states() == {"active+clean": 16}, 30)
        # Nobody listens at its port any more: its neighbours see that at their next heartbeat, not after its grace.
        self.cluster.kill("osd.2")
        eventually(lambda: ask("osd", "stat")["num_up_osds"] == 2, 10)
        self.assertIn("OSD_DOWN", ask("health", "detail")["checks"])
        eventually(lambda: states().get("stale+active+clean", 0) > 0, 10)
        tree = ask("osd", "tree")
        self.assertEqual([n["status"] for n in tree["nodes"] if n["name"] == "osd.2"], ["down"])
        # As on stock, that is no news before a minute has passed, or as long as someone has set.
        self.assertNotIn("PG_AVAILABILITY", ask("health")["checks"])
        self.client.ceph("config", "set", "mgr", "mon_pg_stuck_threshold", 10)
        check = eventually(lambda: ask("health", "detail")["checks"]["PG_AVAILABILITY"], 30)
        self.assertRegex(check["summary"]["message"], r"^Reduced data availability: \d+ pgs stale$")
        self.assertRegex(check["detail"][0]["message"],
                         r"is stuck stale for \d+[sm], current state stale\+active\+clean, last acting \[2\]$")
        # It comes back with an empty store: what it held is lost, and said to be, never silently empty.
        self.cluster.options += ["--timeout", "5"]
        with self.assertRaisesRegex(AssertionError, "not healthy"):
            self.cluster.up()
        eventually(lambda: ask("osd", "stat")["num_up_osds"] == 3, 30)
        eventually(lambda: states().get("incomplete", 0) > 0, 30)
        self.assertRegex(ask("health")["checks"]["PG_AVAILABILITY"]["summary"]["message"], r"\d+ pgs? incomplete")


class Heartbeats(ClusterTest):
    """OSDs hear one another: nobody reports a neighbour that answers."""

    OSDS = 3

    def test_neighbours_that_live_are_not_reported(self):
        for osd in range(self.OSDS):
            self.client.ceph("tell", f"osd.{osd}", "config", "set", "osd_heartbeat_interval", "1")
            self.client.ceph("tell", f"osd.{osd}", "config", "set", "osd_heartbeat_grace", "3")
        time.sleep(8)
        for osd in range(self.OSDS):
            self.assertNotIn("does not answer", self.cluster.log(f"osd.{osd}"))
        self.assertEqual(self.client.json("osd", "stat")["num_up_osds"], self.OSDS)
