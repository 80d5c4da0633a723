"""Daemons that panic: each reports its crash to the cluster, in stock's form, and the cluster warns until somebody archives it."""
import json
import re

from harness import Client, ClusterTest, eventually, run

#: The fields of a report of stock 16.2's daemons after a failed assertion.
FIELDS = {"crash_id", "timestamp", "process_name", "entity_name", "ceph_version", "utsname_hostname", "utsname_sysname", "utsname_release",
          "utsname_version", "utsname_machine", "os_name", "os_id", "os_version_id", "os_version", "assert_condition", "assert_func",
          "assert_file", "assert_line", "assert_thread_name", "assert_msg", "backtrace", "stack_sig"}
#: Of one daemon within a day.
REPORTS_MAX = 8


class Crashes(ClusterTest):
    OSDS = 3
    #: Panics are what it is about.
    QUIET = False

    def reports(self, of):
        return [row for row in self.client.json("crash", "ls") if row["entity_name"] == of]

    def allow(self, name):
        """Until the daemon ends."""
        eventually(lambda: self.client.ceph("tell", name, "config", "set", "debug_asok_assert_abort", "true"), 60)

    def panic(self, name, command="assert"):
        """The client's connection ends with the daemon, so it waits in vain."""
        asking = self.client.spawn("ceph", "tell", name, command)
        return asking

    def crash(self, name, command="assert"):
        """Ends a daemon by a panic."""
        self.allow(name)
        asking = self.panic(name, command)
        try:
            eventually(lambda: not self.cluster.is_running(name), 30)
        finally:
            asking.kill()
            asking.communicate()

    def folder(self, name):
        return self.cluster.dir / name / "crash"

    def check_report(self, report, entity, process):
        self.assertLessEqual(FIELDS, set(report))
        self.assertEqual((report["entity_name"], report["process_name"]), (entity, process))
        self.assertRegex(report["crash_id"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertEqual(report["timestamp"], report["crash_id"].split("_")[0])
        self.assertEqual(report["utsname_hostname"], run(["hostname"]).text.strip())
        self.assertRegex(report["stack_sig"], r"^[0-9a-f]{64}$")
        self.assertTrue(any("panics::obey" in frame for frame in report["backtrace"]), report["backtrace"])
        for frame in report["backtrace"]:
            self.assertRegex(frame, r"^\(.+\) \[.+\]$")
        text = json.dumps(report)
        self.assertLess(len(text), 32 << 10)
        for key in re.findall(r"key = (\S+)", (self.cluster.dir / "keyring").read_text()):
            self.assertNotIn(key, text)

    def test_osd_reports_its_panic(self):
        for command in ("assert", "abort"):
            refused = self.client.ceph("tell", "osd.0", command, check=False)
            self.assertEqual(refused.code, 1, refused.errors)
        self.assertEqual(self.reports("osd.0"), [])
        self.crash("osd.0")
        # It may have had the time to post its report.
        [meta] = self.folder("osd.0").rglob("meta")
        written = meta.parent
        self.assertTrue((written / "done").exists())
        self.assertEqual(json.loads((written / "meta").read_text())["crash_id"], written.name)
        self.assertEqual((written / "meta").stat().st_mode & 0o077, 0, "for its owner alone")
        self.cluster.start_daemon("osd.0")
        [row] = eventually(lambda: self.reports("osd.0"), 60)
        self.assertEqual(row["crash_id"], written.name)
        eventually(lambda: (self.folder("osd.0") / "posted" / written.name / "meta").exists())
        report = self.client.json("crash", "info", written.name)
        self.check_report(report, "osd.0", "ceph-osd")
        self.assertIn("assert: an operator asked for it", report["assert_condition"])
        line = {"message": f"osd.0 crashed on host {report['utsname_hostname']} at {report['timestamp']}"}

        def told():
            # Other tests' crashes raise it, too.
            check = self.client.json("health", "detail")["checks"].get("RECENT_CRASH", {"detail": []})
            return check if line in check["detail"] else None
        check = eventually(told, 30)
        self.assertIn("daemons have recently crashed", check["summary"]["message"])
        self.client.ceph("crash", "archive", written.name)
        eventually(lambda: not [line for line in self.client.json("health", "detail")["checks"].get("RECENT_CRASH", {}).get("detail", [])
                                if "osd.0" in line["message"]])
        self.assertNotIn(written.name, [row["crash_id"] for row in self.client.json("crash", "ls-new")])

    def test_monitor_reports_its_panic(self):
        self.crash("mon.a", "abort")
        self.cluster.start_daemon("mon.a")
        [row] = eventually(lambda: self.reports("mon.a"), 90)
        self.check_report(row, "mon.a", "ceph-mon")

    def test_manager_that_panics_starts_again_beside_its_monitor(self):
        process = self.cluster.pid("mon.a")
        before = self.client.json("mgr", "dump")["active_gid"]
        self.allow("mgr.a")
        asking = self.panic("mgr.a")
        try:
            eventually(lambda: self.client.json("mgr", "dump")["active_gid"] not in (0, before), 60)
        finally:
            asking.kill()
            asking.communicate()
        self.assertEqual(self.cluster.pid("mon.a"), process)
        self.assertTrue(self.cluster.is_running("mon.a"))
        [row] = eventually(lambda: self.reports("mgr.a"), 60)
        self.check_report(row, "mgr.a", "ceph-mgr")
        self.assertIn("pg_summary", self.client.json("pg", "stat"))

    def test_crash_loop_makes_a_bounded_number_of_reports(self):
        for _ in range(REPORTS_MAX + 2):
            self.crash("osd.1")
            self.cluster.start_daemon("osd.1")
        eventually(lambda: len(self.reports("osd.1")) >= REPORTS_MAX, 60)
        self.assertEqual(len(self.reports("osd.1")), REPORTS_MAX)
        self.assertEqual(len({row["stack_sig"] for row in self.reports("osd.1")}), 1, "all at one place")
        self.assertIn("no crash report is written", self.cluster.log("osd.1"))

    def test_client_without_capability_posts_nothing(self):
        report = {"crash_id": "2026-01-01T00:00:00.000000Z_forged", "timestamp": "2026-01-01T00:00:00.000000Z", "entity_name": "osd.1"}
        keyring = self.cluster.dir / "poster"
        self.client.ceph("auth", "get-or-create", "client.poster", "mon", "allow r", "-o", keyring)
        poster = Client(self.cluster, name="client.poster", options=[f"--keyring={keyring}"])
        for entity in ("osd.1", "client.poster"):
            text = json.dumps({**report, "entity_name": entity}).encode()
            refused = poster.ceph("crash", "post", "-i", "-", stdin=text, check=False)
            self.assertEqual(refused.code, 13, refused.errors)
        self.client.ceph("auth", "caps", "client.poster", "mon", "allow profile crash", "mgr", "allow profile crash")
        poster.ceph("crash", "post", "-i", "-", stdin=json.dumps(report).encode())
        self.client.ceph("crash", "rm", report["crash_id"])
