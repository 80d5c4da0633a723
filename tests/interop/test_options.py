"""Options: ten of them, of each kind and daemon, set in each layer, shown, acted on and unset; and stock's answers."""
import os
import signal
import socket
import subprocess
import time

from harness import SHOAL, ClusterTest, eventually, run

#: Option, daemon, value in the written form, and the check that the daemon acts on it.
LIVE = [
    ("osd_max_object_size", "osd.0", "8192", "objects_of_16_kib_are_refused"),
    ("osd_max_object_name_len", "osd.0", "12", "names_of_20_bytes_are_refused"),
    ("log_level", "osd.0", "debug", "debug_lines_are_logged"),
    ("osd_failsafe_full_ratio", "osd.0", "0.000001", "writes_are_refused_as_full"),
    ("mon_allow_pool_delete", "mon.a", "true", "pools_are_deleted"),
    ("mon_osd_down_out_interval", "mon.a", "1", "a_down_osd_goes_out"),
    ("mon_warn_on_pool_no_app_grace", "mon.a", "1", "a_new_pool_is_warned_about"),
    ("osd_pool_default_pg_num", "mon.a", "4", "new_pools_have_4_pgs"),
    ("mgr_stats_period", "mgr.a", "1", "reports_come_every_second"),
]
#: Acts at start alone.
START = ("shoal_cores", "osd.0", "2")

#: What 16.2.15's monitor answers: arguments of `ceph`, exit code, standard error. Values that fit warn on standard error here.
STOCK_MON = [
    (("config", "set", "osd", "osd_max_backfills", "banana"), 22,
     "Error EINVAL: error parsing value: strict_si_cast: unit prefix not recognized"),
    (("config", "set", "osd", "no_such_thing", "3"), 22, "Error EINVAL: unrecognized config option 'no_such_thing'"),
    (("config", "set", "nobody", "osd_max_backfills", "3"), 22, "Error EINVAL: unrecognized config target 'nobody'"),
    (("config", "set", "osd", "osd_data", "/x"), 22, "Error EINVAL: osd_data is special and cannot be stored by the mon"),
    (("config", "set", "osd", "mon_host", "1.2.3.4"), 22,
     "Error EINVAL: mon_host is special and cannot be stored by the mon"),
    (("config", "set", "osd", "osd_pool_default_size", "99"), 22,
     "Error EINVAL: error parsing value: Value '99' exceeds maximum 10"),
    (("config", "set", "osd", "osd_heartbeat_interval", "0"), 22,
     "Error EINVAL: error parsing value: Value '0' is below minimum 1"),
    (("config", "set", "osd", "bluestore_compression_mode", "foo"), 22,
     "Error EINVAL: error parsing value: 'foo' is not one of the permitted values: none, passive, aggressive, force"),
    (("config", "set", "osd", "mon_allow_pool_delete", "maybe"), 22,
     "Error EINVAL: error parsing value: Expected option value to be integer, got 'maybe'"),
    (("config", "set", "osd", "osd_memory_target", "1.5G"), 22,
     "Error EINVAL: error parsing value: strict_iecstrtoll: illegal prefix (length > 2)"),
    (("config", "set", "osd", "debug_osd", "100"), 34, "Error ERANGE: error parsing value: value must be in range [0, 99]"),
    (("config", "set", "mgr", "mgr_tick_period", "100ms"), 22, "Error EINVAL: error parsing value: unrecogized unit 'ms'"),
    (("config", "get", "osd.0", "no_such"), 2, "Error ENOENT: unrecognized key 'no_such'"),
    (("config", "get", "nobody", "osd_max_backfills"), 22, "Error EINVAL: unrecognized entity 'nobody'"),
    (("config", "show", "osd.9"), 2, "Error ENOENT: no config state for daemon osd.9"),
    (("config", "show-with-defaults", "osd.9"), 2, "Error ENOENT: no config state for daemon osd.9"),
    (("config", "rm", "osd", "nonsense"), 0, ""),
]
#: The same of `ceph tell osd.0`.
STOCK_TELL = [
    (("config", "get", "no_such"), 2, "Error ENOENT: error getting 'no_such': (2) No such file or directory"),
    (("config", "set", "no_such", "1"), 2, "Error ENOENT: error setting 'no_such' to '1': (2) No such file or directory"),
    (("config", "set", "osd_objectstore", "disk"), 1,
     "Error EPERM: error setting 'osd_objectstore' to 'disk': (1) Operation not permitted"),
    (("config", "unset", "no_such"), 22, "Error EINVAL: error unsetting 'no_such': (22) Invalid argument"),
    (("injectargs", "--osd_max_backfills=banana"), 22,
     "Error EINVAL: Parse error setting osd_max_backfills to 'banana' using injectargs "
     "(strict_si_cast: unit prefix not recognized)."),
    (("injectargs", "--no_such_thing=3"), 22, "Error EINVAL:  failed to parse arguments: --no_such_thing=3"),
    (("injectargs", "nonsense"), 22, "Error EINVAL:  failed to parse arguments: nonsense"),
    (("injectargs", "--osd_data=/x"), 1,
     "Error EPERM: Parse error setting osd_data to '/x' using injectargs "
     "(Configuration option 'osd_data' may not be modified at runtime)."),
]


class Layers(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "4G", "--cores", "2")
    OSDS = 2
    #: osd.1 is killed, and writes are refused as if the store were full.
    QUIET = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # One OSD stays down, for the option that decides how soon it goes out.
        cls.client.ceph("config", "set", "mon", "mon_osd_min_in_ratio", "0")
        # Before the pool is made: a PG of one copy whose OSD is down stays with that OSD.
        cls.client.ceph("osd", "crush", "reweight", "osd.1", "0")
        cls.client.ceph("osd", "pool", "create", "data", "8")
        cls.client.ceph("osd", "pool", "application", "enable", "data", "rados")
        cls.cluster.kill("osd.1")
        eventually(lambda: cls.client.json("osd", "stat")["num_up_osds"] == 1, 60)
        cls.made = 0
        # `shoal up` wrote it, and the file outweighs the monitors' database.
        conf = cls.cluster.conf.read_text()
        cls.cluster.conf.write_text("".join(line for line in conf.splitlines(True) if "shoal cores" not in line))

    # ---- whether each is acted on; `on`: the value is in force

    def put(self, name, size):
        file = self.cluster.dir / "payload"
        file.write_bytes(b"x" * size)
        return self.client.rados("-p", "data", "put", name, file, check=False, timeout=20)

    def objects_of_16_kib_are_refused(self, on):
        done = self.put("large", 16 << 10)
        self.assertEqual("File too large" in done.errors, on, done.errors)

    def names_of_20_bytes_are_refused(self, on):
        done = self.put("n" * 20, 10)
        self.assertEqual("File name too long" in done.errors, on, done.errors)

    def debug_lines_are_logged(self, on):
        def lines():
            return self.cluster.log("osd.0").count(" DEBUG ")

        before = lines()
        # A peer that goes away during its handshake is logged, at this level alone.
        osd = next(osd for osd in self.client.json("osd", "dump")["osds"] if osd["osd"] == 0)
        host, port = osd["public_addrs"]["addrvec"][0]["addr"].rsplit(":", 1)
        with socket.create_connection((host, int(port))) as peer:
            peer.send(b"ceph v2\n")
            time.sleep(0.3)
        time.sleep(1)
        self.assertEqual(lines() > before, on)

    def writes_are_refused_as_full(self, on):
        since_start = self.cluster.log("osd.0").rpartition("daemon::boot: osd.0:")[2]
        words = [line.endswith("no writes are taken") for line in since_start.splitlines()
                 if "writes are taken" in line]
        self.assertEqual(bool(words) and words[-1], on)

    def new_pool(self, application="rados"):
        """With an application, so that a pool older than the grace is not warned about."""
        type(self).made += 1
        name = f"made{self.made}"
        self.client.ceph("osd", "pool", "create", name)
        if application:
            self.client.ceph("osd", "pool", "application", "enable", name, application)
        return name

    def pools_are_deleted(self, on):
        name = self.new_pool()
        done = self.client.ceph("osd", "pool", "rm", name, name, "--yes-i-really-really-mean-it", check=False)
        self.assertEqual(done.code == 0, on, done.errors)

    def a_down_osd_goes_out(self, on):
        self.client.ceph("osd", "in", "1")
        if on:
            eventually(lambda: self.client.json("osd", "stat")["num_in_osds"] == 1, 10)
        else:
            time.sleep(4)
            self.assertEqual(self.client.json("osd", "stat")["num_in_osds"], 2)

    def a_new_pool_is_warned_about(self, on):
        name = self.new_pool(application=None)
        time.sleep(3.5)
        checks = self.client.json("health")["checks"]
        self.client.ceph("osd", "pool", "application", "enable", name, "rados")
        self.assertEqual("POOL_APP_NOT_ENABLED" in checks, on)

    def new_pools_have_4_pgs(self, on):
        name = self.new_pool()
        pg_num = self.client.json("osd", "pool", "get", name, "pg_num")["pg_num"]
        self.assertEqual(pg_num, 4 if on else 32)

    def reports_come_every_second(self, on):
        def seq():
            stats = self.client.json("pg", "dump", "osds")
            return next(osd["seq"] for osd in stats["osd_stats"] if osd["osd"] == 0)

        before = seq()
        time.sleep(5)
        self.assertEqual(seq() - before >= 4, on)

    # ---- the layers

    def shown(self, option, daemon):
        """Value and source, as `config show` has them; without a row, the default."""
        done = self.client.ceph("config", "show", daemon, "-f", "json", check=False)
        if "no config state" in done.errors:
            return "not reported yet"
        rows = {row["name"]: row for row in done.json}
        row = rows.get(option)
        return (row["value"], row["source"]) if row else None

    def check(self, rows, source):
        """Each is shown with its source, and acted on; with no source, neither."""
        for option, daemon, value, acts in rows:
            with self.subTest(option, source=source):
                expected = (value, source) if source else None
                eventually(lambda: self.shown(option, daemon) == expected, 20)
                plain = self.client.ceph("config", "show", daemon, option).text.strip()
                self.assertEqual(plain == value, bool(source), plain)
                eventually(lambda: getattr(self, acts)(bool(source)) or True, 25)

    def passes(self, source, set_it, unset_it, rows):
        """The one that keeps others from writing goes through by itself."""
        alone = [row for row in rows if row[0] == "osd_failsafe_full_ratio"]
        others = [row for row in rows if row not in alone]
        for batch in (others, alone):
            for option, daemon, value, _ in batch:
                set_it(option, daemon, value)
            self.check(batch, source)
            for option, daemon, _, _ in batch:
                unset_it(option, daemon)
            self.check(batch, None)

    def test_monitors_database(self):
        def set_it(option, daemon, value):
            done = self.client.ceph("config", "set", daemon, option, value)
            self.assertEqual(done.errors, "", "what acts at once is not warned about")

        self.passes("mon", set_it, lambda option, daemon: self.client.ceph("config", "rm", daemon, option), LIVE)

    def test_override_by_tell(self):
        def set_it(option, daemon, value):
            done = self.client.ceph("tell", daemon, "config", "set", option, value)
            self.assertEqual(done.json, {"success": f"{option} = '{value}' "})
            self.assertEqual(done.errors, "")

        def unset_it(option, daemon):
            self.client.ceph("tell", daemon, "config", "unset", option)

        self.passes("override", set_it, unset_it, LIVE)

    def test_override_by_injectargs_and_socket(self):
        injected, by_socket = LIVE[0::2], [row for row in LIVE[1::2] if not row[1].startswith("mgr")]

        def inject(option, daemon, value):
            done = self.client.ceph("tell", daemon, "injectargs", f"--{option.replace('_', '-')}={value}")
            self.assertIn(f"{option} = '{value}'", done.errors)

        def withdraw(option, daemon):
            self.client.ceph("tell", daemon, "config", "unset", option)

        def ask(daemon, *words):
            return run(["ceph", "daemon", self.cluster.dir / f"{daemon}.asok", *words]).json

        def set_it(option, daemon, value):
            self.assertEqual(ask(daemon, "config", "set", option, value), {"success": f"{option} = '{value}' "})
            self.assertEqual(ask(daemon, "config", "get", option), {option: value})
            diff = ask(daemon, "config", "diff", "get", option)["diff"]
            self.assertEqual({"default", "override", "final"}, set(diff[option]))

        self.passes("override", inject, withdraw, injected)
        self.passes("override", set_it, lambda option, daemon: ask(daemon, "config", "unset", option), by_socket)

    def start(self, daemon, *arguments):
        """In the foreground, as an init system does, with options on the command line."""
        kind, number = daemon.split(".")
        log = open(self.cluster.dir / f"{daemon}.out", "ab")
        process = subprocess.Popen([SHOAL, kind, "--conf", self.cluster.conf, "--id", number, *arguments],
                                   stdout=log, stderr=log, process_group=0)
        self.addCleanup(process.kill)
        return process

    def stop(self, daemon):
        pid = self.cluster.pid(daemon)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in open(f"/proc/{pid}/stat").read().split()[2], 30)

    def test_file(self):
        before = self.cluster.conf.read_text()
        sections = {}
        for option, daemon, value, _ in LIVE:
            sections.setdefault(daemon, []).append(f"{option.replace('_', ' ')} = {value}")
        extra = "".join(f"\n[{daemon}]\n" + "\n".join(lines) + "\n" for daemon, lines in sections.items())
        self.cluster.down()
        self.cluster.conf.write_text(before + extra)
        try:
            self.start_all()
            self.check([row for row in LIVE if row[0] not in ("osd_failsafe_full_ratio",)
                        and not row[0].startswith("osd_max_object")], "file")
            eventually(lambda: self.shown("osd_failsafe_full_ratio", "osd.0") == ("0.000001", "file"), 20)
            eventually(lambda: self.writes_are_refused_as_full(True) or True, 20)
        finally:
            self.cluster.conf.write_text(before)
            self.restart()
        self.check(LIVE, None)

    def test_command_line(self):
        rows = [row for row in LIVE if row[0] != "osd_failsafe_full_ratio"]
        self.cluster.down()
        for kind in ("mon.a", "osd.0"):
            mine = [row for row in rows if row[1] == kind or (kind == "mon.a" and row[1].startswith("mgr"))]
            cores = ("--cores", "2") if kind == "osd.0" else ()
            self.start(kind, *cores, *[word for option, _, value, _ in mine for word in ("--set", f"{option}={value}")])
            eventually(lambda: (self.cluster.dir / f"{kind}.asok").exists(), 30)
        eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 1, 60)
        self.check(rows, "cmdline")
        self.assertEqual(self.shown("shoal_cores", "osd.0"), ("2", "cmdline"))
        for daemon in ("osd.0", "mon.a"):
            self.stop(daemon)
        self.restart()
        self.check(rows, None)

    def start_all(self):
        """Not by `shoal up`, which waits for clean PGs: the pools ask for two copies, and osd.1 gets none."""
        for daemon in ("mon.a", "osd.0", "osd.1"):
            self.cluster.start_daemon(daemon)
        eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 2, 60)
        self.cluster.kill("osd.1")
        # Else a monitor that starts soon counts osd.1 where a test means osd.0.
        eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 1, 60)

    def restart(self):
        self.cluster.down()
        self.start_all()
        # As with stock, the manager knows a daemon's options from its first report on.
        eventually(lambda: self.shown("osd_class_load_list", "osd.0") is None, 30)

    def cores(self):
        lines = [line for line in self.cluster.log("osd.0").splitlines() if " core(s)" in line]
        return lines[-1].split(", ")[-1]

    def test_start_option_waits_for_a_restart(self):
        option, daemon, value = START
        self.restart()
        self.assertEqual(self.cores(), "1 core(s)")
        # The manager has no configuration of an OSD that has just started.
        self.assertIsNone(eventually(lambda: [self.shown(option, daemon)], 20)[0])
        done = self.client.ceph("config", "set", daemon, option, value)
        self.assertIn("shoal_cores takes effect when osd restarts", done.errors)
        rows = eventually(lambda: [row for row in self.client.json("config", "show", daemon)
                                   if row["name"] == option], 20)
        self.assertEqual(rows, [{"name": option, "value": "1", "source": "default", "ignores": "mon"}])
        refused = self.client.ceph("tell", daemon, "config", "set", option, value, check=False)
        self.assertEqual((refused.code, "Operation not permitted" in refused.errors), (1, True), refused.errors)
        self.restart()
        self.assertEqual(self.cores(), "2 core(s)")
        eventually(lambda: self.shown(option, daemon) == (value, "mon"), 20)
        self.client.ceph("config", "rm", daemon, option)
        self.restart()
        self.assertEqual(self.cores(), "1 core(s)")

    def test_start_waits_for_the_monitors(self):
        option, daemon, value = START
        self.client.ceph("config", "set", daemon, option, value)
        self.cluster.down()
        osd = self.start(daemon)
        waits = "osd.0 waits for its options from the monitors: no monitor answers"
        eventually(lambda: waits in self.cluster.log(daemon), 20)
        self.assertEqual(self.cluster.pid(daemon), osd.pid)
        os.kill(osd.pid, signal.SIGHUP)
        self.start("mon.a")
        eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 1, 60)
        self.assertEqual(self.cores(), "2 core(s)")
        self.client.ceph("config", "rm", daemon, option)
        for name in (daemon, "mon.a"):
            self.stop(name)
        # Without the database on request.
        self.start(daemon, "--no-mon-config")
        eventually(lambda: self.cores() == "1 core(s)", 20)
        self.stop(daemon)
        self.restart()


class Answers(ClusterTest):
    OPTIONS = ("--store", "mem", "--size", "1G")

    def test_refusals_are_stocks(self):
        for arguments, code, errors in STOCK_MON:
            with self.subTest(arguments):
                done = self.client.ceph(*arguments, check=False)
                self.assertEqual((done.code, done.errors.strip()), (code, errors.strip()))
        for arguments, code, errors in STOCK_TELL:
            with self.subTest(arguments):
                words = [*arguments[:-1], "--", arguments[-1]] if arguments[-1].startswith("--") else arguments
                done = self.client.ceph("tell", "osd.0", *words, check=False)
                self.assertEqual((done.code, done.errors.strip()), (code, errors.strip()))

    def test_values_that_would_stop_a_start_are_refused(self):
        for option, value, reason in (
                ("ms_cluster_mode", "banana", "is not a list of connection modes"),
                ("auth_client_required", "kerberos", "is not one of the permitted values: cephx, none"),
                ("log_level", "loud", "is not a log level"),
                ("public_addr", "10.0.0.1", "is not an address with a port"),
                ("osd_uuid", "00000000-0000-0000-0000-000000000001", "is special and cannot be stored by the mon")):
            with self.subTest(option):
                done = self.client.ceph("config", "set", "osd", option, value, check=False)
                self.assertEqual((done.code, reason in done.errors), (22, True), done.errors)

    def test_unusable_values_of_the_database_do_not_stop_a_start(self):
        stored = (("global", "log_level", "loud"), ("global", "ms_service_mode", "banana"))
        for who, option, value in stored:
            self.client.ceph("config", "set", who, option, value, "--force")
        try:
            self.cluster.down()
            run([SHOAL, "up", "--dir", self.cluster.dir])
            eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 1, 60)
            for daemon in ("mon.a", "osd.0"):
                log = self.cluster.log(daemon)
                for _, option, value in stored:
                    self.assertIn(f"the monitors' database: {option} = {value}", log)
        finally:
            for who, option, _ in stored:
                self.client.ceph("config", "rm", who, option)

    def test_manager_starts_with_the_options_of_the_database(self):
        self.client.ceph("config", "set", "mgr", "ms_mon_service_mode", "secure")
        try:
            self.cluster.down()
            run([SHOAL, "up", "--dir", self.cluster.dir])
            rows = eventually(lambda: [row for row in self.client.json("config", "show", "mgr.a")
                                       if row["name"] == "ms_mon_service_mode"], 20)
            self.assertEqual([(row["value"], row["source"]) for row in rows], [("secure", "mon")])
        finally:
            self.client.ceph("config", "rm", "mgr", "ms_mon_service_mode")

    def test_options_that_nobody_acts_on_are_stored_with_a_warning(self):
        done = self.client.ceph("config", "set", "osd", "osd_recovery_max_active_hdd", "3")
        self.assertEqual(done.errors.strip(), "osd_recovery_max_active_hdd is stored, but shoal does not act on it")
        self.assertEqual(self.client.ceph("config", "get", "osd.0", "osd_recovery_max_active_hdd").text, "3\n")
        self.assertIn("shoal does not act on it", self.client.ceph("config", "help", "osd_recovery_max_active_hdd").text)
        self.assertIn("Acted on by mon (live), mgr (live), osd (live)", self.client.ceph("config", "help", "osd_heartbeat_grace").text)
        told = self.client.ceph("tell", "osd.0", "config", "set", "osd_recovery_max_active_hdd", "4")
        self.assertEqual(told.json, {"success": "osd_recovery_max_active_hdd = '4' (stored, not acted on by this daemon) "})
        self.assertIn("shoal does not act on it", told.errors)
        for words in (("config", "rm", "osd", "osd_recovery_max_active_hdd"), ("tell", "osd.0", "config", "unset", "osd_recovery_max_active_hdd")):
            self.client.ceph(*words)

    def test_config_is_dumped_logged_reset_and_assimilated(self):
        log = self.client.json("config", "log")
        start = log[0]["version"] if log else 0
        self.client.ceph("config", "set", "osd", "debug osd", "1")
        self.client.ceph("config", "set", "osd.0", "osd-memory-target", "2G")
        rows = {(row["section"], row["name"]): row["value"] for row in self.client.json("config", "dump")}
        self.assertEqual(rows[("osd", "debug_osd")], "1/1")
        self.assertEqual(rows[("osd.0", "osd_memory_target")], str(2 << 30))
        log = self.client.json("config", "log", "2")
        self.assertEqual([entry["changes"][0]["name"] for entry in log], ["osd.0/osd_memory_target", "osd/debug_osd"])
        self.client.ceph("config", "reset", start)
        self.assertFalse(any(row["name"] == "debug_osd" for row in self.client.json("config", "dump")))
        conf = b"[osd]\nosd_heartbeat_grace = 25\nbanana = 6\nosd_data = /x\n[global]\nmon_max_pg_per_osd = 500\n"
        left = self.client.ceph("config", "assimilate-conf", "-i", "-", stdin=conf).text
        self.assertIn("banana = 6", left)
        self.assertIn("osd_data = /x", left)
        self.assertNotIn("heartbeat", left)
        self.assertEqual(self.client.ceph("config", "get", "osd.0", "osd_heartbeat_grace").text, "25\n")
        everything = self.client.json("config", "show-with-defaults", "osd.0")
        self.assertGreater(len(everything), 2000)
        self.assertEqual(len(self.client.json("config", "ls")), len(everything))

    def test_every_daemon_shows_its_own(self):
        for daemon in ("mon.a", "mgr.a", "osd.0"):
            with self.subTest(daemon):
                rows = eventually(lambda: self.client.json("config", "show", daemon), 20)
                sources = {row["name"]: row["source"] for row in rows}
                self.assertEqual(sources["run_dir"], "file")
                told = self.client.json("tell", daemon, "config", "show")
                self.assertEqual((told["name"], told["run_dir"]), (daemon, str(self.cluster.dir)))
