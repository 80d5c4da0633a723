"""The admin socket under the stock `ceph daemon`, and the metrics page under a plain HTTP client."""
import json
import socket
import struct
import urllib.error
import urllib.request

from harness import ClusterTest, releases, run


class AdminSocket(ClusterTest):
    def ask(self, name, *words, root=None, check=True):
        enter = ["chroot", root] if root else []
        return run([*enter, "ceph", "daemon", self.cluster.dir / f"{name}.asok", *words], check=check)

    def test_common_commands_on_every_daemon(self):
        for name in ("mon.a", "osd.0"):
            with self.subTest(name):
                self.assertIn("ceph version", self.ask(name, "version").json["version"])
                self.assertIn("perf dump", self.ask(name, "help").json)
                shown = self.ask(name, "config", "show").json
                self.assertEqual(shown["name"], name)
                self.assertEqual(shown["run_dir"], str(self.cluster.dir))
                dump, schema = self.ask(name, "perf", "dump").json, self.ask(name, "perf", "schema").json
                self.assertTrue(dump)
                self.assertEqual({g: set(c) for g, c in dump.items()}, {g: set(c) for g, c in schema.items()})

    def test_config_set_acts_and_unset_takes_it_back(self):
        before = self.ask("osd.0", "config", "get", "log_level").json
        self.assertIn("success", self.ask("osd.0", "config", "set", "log_level", "debug").json)
        self.assertEqual(self.ask("osd.0", "config", "get", "log_level").json, {"log_level": "debug"})
        self.assertIn("override", json.dumps(self.ask("osd.0", "config", "diff").json))
        self.ask("osd.0", "config", "unset", "log_level")
        self.assertEqual(self.ask("osd.0", "config", "get", "log_level").json, before)
        wrong = self.ask("osd.0", "config", "set", "osd_memory_target", "much")
        self.assertIn("ERROR: (22) Invalid argument", wrong.text)
        late = self.ask("osd.0", "config", "set", "shoal_cores", "2")
        self.assertIn("ERROR: (1) Operation not permitted", late.text)

    def test_socket_and_tell_share_one_override(self):
        name = "osd_heartbeat_interval"
        self.assertEqual(self.ask("osd.0", "config", "get", name).json, {name: "6"})
        self.ask("osd.0", "config", "set", name, "5")
        self.assertEqual(self.client.json("tell", "osd.0", "config", "get", name), {name: "5"})
        self.ask("osd.0", "config", "unset", name)
        self.assertEqual(self.ask("osd.0", "config", "get", name).json, {name: "6"})
        self.assertIn("ERROR: (2)", self.ask("osd.0", "config", "set", "no_such", "5").text)

    def test_no_secret_is_shown(self):
        keyring = (self.cluster.dir / "keyring").read_text()
        keys = [line.split("=", 1)[1].strip() for line in keyring.splitlines() if "key =" in line]
        for name in ("mon.a", "osd.0"):
            shown = self.ask(name, "config", "show").text + self.cluster.log(name)
            for key in keys:
                self.assertNotIn(key, shown)

    def test_the_oldest_protocol_still_answers(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.cluster.dir / "osd.0.asok"))
            s.sendall(struct.pack(">I", 0))
            length, = struct.unpack(">I", s.recv(4))
            self.assertEqual(s.recv(length), b"2")

    def test_nonsense_is_answered_with_an_error(self):
        for request in (b"[]\0", b"{\0", b'{"prefix": "no such"}\0', b'{"prefix": 7}\n'):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self.cluster.dir / "osd.0.asok"))
                s.sendall(request)
                length, = struct.unpack(">I", s.recv(4))
                self.assertIn(b"ERROR: (22)", s.recv(length))

    def test_metrics_are_a_prometheus_page(self):
        for port, daemon in ((self.cluster.port + 2, "mon.a"), (self.cluster.port + 11, "osd.0")):
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            lines = [line for line in page.splitlines() if not line.startswith("#")]
            self.assertTrue(lines)
            for line in lines:
                self.assertRegex(line, r'^[a-z_:][a-zA-Z0-9_:]*(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+$')
            own = [line for line in lines if f'{{ceph_daemon="{daemon}"}}' in line]
            self.assertGreater(len(own), 20, f"{daemon}'s own counters")
            with self.assertRaises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/nothing", timeout=10)
