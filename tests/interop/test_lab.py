"""`shoal lab`: from nothing to a report, on a cluster of shoal's and on stock Ceph, with stock tools and with the lab's own
load; by one host and by many; and what it says of what is wrong."""
import csv
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
from harness import ROOT, SHOAL, ClusterTest, eventually, free_port_base, long_only, run

MATRIX = """\
name: tiny
iterations: {iterations}
cool_down: 0
workloads:
  - {{ tool: rados-bench, op: [write, randread], op_size: 4k, depth: 8, time: 1, pg_num: 8 }}
  - {{ tool: shoal, op: mixed, op_size: 4k, depth: 8, time: 1, ramp: 0.2, objects: 64, verify: true, pg_num: 8 }}
  - {{ tool: shoal, op: randread, rate: 200, time: 1, objects: 64, pg_num: 8 }}
"""


class WithLab:
    """A folder for files and results, and the command."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)
        self.results = ["--results", self.dir / "results"]

    def lab(self, *args, check=True, timeout=120):
        return run([SHOAL, "lab", *map(str, args)], check=check, timeout=timeout)

    def matrix(self, text):
        path = self.dir / "matrix.yaml"
        path.write_text(text)
        return path

    def runs(self):
        return self.lab("list", "--json", *self.results).json

    def points(self):
        """The newest run's points, as its CSV tells them."""
        table = self.dir / "points.csv"
        self.lab("report", "--out", self.dir / "page.html", "--csv", table, *self.results)
        with open(table, newline="") as file:
            return list(csv.DictReader(file))


class Lab(WithLab, ClusterTest):
    def left_behind(self):
        return [p for p in self.client.json("osd", "pool", "ls") if p.startswith("shoal-lab-")]

    def test_from_nothing_to_a_verdict(self):
        file = self.matrix(MATRIX.format(iterations=2))
        for _ in range(2):
            self.lab("run", file, "--conf", self.cluster.conf, *self.results)
        first, second = (r["id"] for r in self.runs())
        self.assertEqual([r["state"] for r in self.runs()], ["complete"] * 2)
        page, table = self.dir / "page.html", self.dir / "points.csv"
        self.lab("report", "--out", page, "--csv", table, "--plots", self.dir / "plots", *self.results)
        text = page.read_text()
        for words in ("<svg", "Results", "what holds it back", "rados-bench · write · 4 KiB"):
            self.assertIn(words, text)
        self.assertNotIn("<script", text)
        self.assertTrue(list((self.dir / "plots").glob("*.svg")))
        lines = table.read_text().splitlines()
        self.assertEqual(len(lines), 1 + 4 * 2)
        verdict = self.lab("compare", first, second, "--json", *self.results).json
        self.assertEqual(len(verdict["points"]), 4)
        # Half of the rate is far more than any noise: the gate must let this pass.
        self.assertIn(self.lab("gate", first, second, "--threshold", 60, *self.results, check=False).code, (0, 2))
        self.lab("export", "--to", self.dir / "all.sqlite", *self.results)
        self.lab("import", self.dir / "all.sqlite", "--results", self.dir / "elsewhere")
        self.assertEqual(self.lab("list", "--json", "--results", self.dir / "elsewhere").json, self.runs())
        self.assertEqual(self.left_behind(), [])

    def test_each_point_has_a_bottleneck_with_evidence(self):
        """The workloads of the guide's first file, shorter. A host without other programs names the same with more certainty."""
        file = self.matrix("iterations: 1\ncool_down: 0\ndefaults: { pg_num: 8 }\nworkloads:\n"
                           "  - { tool: shoal, op: [randwrite, randread], op_size: 4k, depth: [1, 16, 64], time: 3, ramp: 0.5 }\n"
                           "  - { tool: rados-bench, op: [write, randread], op_size: 4k, depth: 16, time: 3 }\n")
        self.lab("run", file, "--conf", self.cluster.conf, *self.results)
        self.points()
        with sqlite3.connect(self.dir / "results/lab.sqlite") as database:
            verdicts = [json.loads(text)["verdict"] for (text,) in database.execute("SELECT record FROM points")]
            staged = database.execute("SELECT count(DISTINCT point) FROM samples WHERE metric LIKE 'perf:osd_stages.%'")
            self.assertEqual(staged.fetchone(), (8,), "points in whose time the OSD reported stages")
        self.assertEqual(len(verdicts), 8)
        for verdict in verdicts:
            self.assertFalse(verdict[0]["what"].startswith("unknown"), verdict)
            self.assertRegex(verdict[0]["evidence"], "[0-9]", verdict)

    def test_ctrl_c_leaves_what_is_complete(self):
        self.stopped_in_a_run(signal.SIGINT)

    def test_sigterm_does_too(self):
        self.stopped_in_a_run(signal.SIGTERM)

    def stopped_in_a_run(self, by):
        file = self.matrix(MATRIX.format(iterations=50))
        argv = [SHOAL, "lab", "run", file, "--conf", self.cluster.conf, *self.results]
        process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("points", process.stdout.readline())
        # Not the client's own ceiling, which comes before the run.
        eventually(lambda: "µs" in process.stdout.readline())
        process.send_signal(by)
        process.communicate(timeout=60)
        self.assertEqual([r["state"] for r in self.runs()], ["interrupted"])
        self.lab("report", "--out", self.dir / "partial.html", *self.results)
        self.assertIn("interrupted", (self.dir / "partial.html").read_text())
        self.assertEqual(self.left_behind(), [])

    def test_what_is_wrong_is_said(self):
        wrong = self.lab("run", self.matrix("workloads:\n  - tool: rados-bench\n    deepness: 3\n"), check=False)
        self.assertNotEqual(wrong.code, 0)
        self.assertIn("line 3, column 5: deepness is not known", wrong.errors)
        dead = self.dir / "dead.conf"
        dead.write_text("[global]\nmon host = 127.0.0.1:1\nauth client required = none\n")
        lost = self.lab("run", self.matrix(MATRIX.format(iterations=1)), "--conf", dead, *self.results, check=False)
        self.assertNotEqual(lost.code, 0)
        self.assertIn("cannot be reached", lost.errors)
        self.assertEqual(self.runs(), [])

    def test_a_wrong_key_is_said_at_once(self):
        other = run(["ceph-authtool", "--gen-print-key"]).text.strip()
        keyring = self.dir / "wrong"
        keyring.write_text(f"[client.admin]\n\tkey = {other}\n")
        file = self.matrix(MATRIX.format(iterations=1))
        done = self.lab("run", file, "--conf", self.cluster.conf, "--keyring", keyring, *self.results, check=False)
        self.assertNotEqual(done.code, 0)
        self.assertIn("refuses us: is the key of client.admin the one it knows", done.errors)
        none = self.lab("run", file, "--conf", self.cluster.conf, "--keyring", "/nonexistent", *self.results, check=False)
        self.assertIn("no keyring has a key of client.admin", none.errors)
        self.assertEqual(self.runs(), [])

    def test_keys_of_cbt_without_a_meaning_here(self):
        cbt = "benchmarks:\n  radosbench:\n    op_size: 4096\n    {}\n"
        for line, words in [("pool_per_proc: True", "line 4, column 5: pool_per_proc is CBT's and the lab does not do it: use "),
                            ("colour: blue", "line 4, column 5: colour is not known in radosbench; these are: op_size"),
                            ("time: [1, 2", "line ")]:
            done = self.lab("run", self.matrix(cbt.format(line)), "--conf", self.cluster.conf, *self.results, check=False)
            self.assertNotEqual(done.code, 0)
            self.assertIn(words, done.errors)

    def test_a_network_and_nothing(self):
        """Needs no cluster; and of the generator's own ceiling it is told before anything runs."""
        self.lab("run", self.matrix(
            "iterations: 1\ncool_down: 0\nworkloads:\n  - { tool: tcp-ping, op_size: 64, time: 1 }\n"
            "  - { tool: tcp-stream, clients: [1, 4], time: 1 }\n  - { tool: nothing, time: 1 }\n"), *self.results)
        points = {p["tool"]: p for p in self.points()}
        self.assertGreater(float(points["tcp-ping"]["p99_us"]), 1)
        self.assertGreater(float(points["tcp-stream"]["bytes_per_s"]), 10e6)
        lost = self.lab("run", self.matrix("iterations: 1\nworkloads: [{tool: tcp-ping, to: '127.0.0.1:1', time: 1}]"),
                        *self.results, check=False)
        self.assertEqual(lost.code, 1)
        self.assertIn("shoal lab agent --serve 1", lost.text)

    def test_iperf3(self):
        if not shutil.which("iperf3"):
            self.skipTest("iperf3 is not installed")
        self.lab("run", self.matrix(
            "iterations: 1\ncool_down: 0\nworkloads: [{ tool: iperf3, clients: [1, 4], time: 1, ramp: 1 }]\n"), *self.results)
        for point in self.points():
            self.assertEqual(point["error"], "")
            self.assertGreater(float(point["bytes_per_s"]), 10e6)

    def test_what_is_applied_is_put_back(self):
        setting = Path("/proc/sys/net/core/rmem_max")
        before = setting.read_text()
        if not os.access(setting, os.W_OK) or int(before) == 64 << 20:
            self.skipTest("socket buffers cannot be changed here")
        undo = ["--undo", self.dir / "undo.json"]
        try:
            self.lab("doctor", "--apply", "socket-buffers", *undo, check=False)
            applied = int(setting.read_text())
        finally:
            said = self.lab("doctor", "--revert", *undo, check=False).text
        self.assertEqual((applied, setting.read_text()), (64 << 20, before))
        self.assertRegex(said, "put back: [12] settings")

    def test_sizes_ramps_and_the_ceiling(self):
        done = self.lab("run", self.matrix(
            "iterations: 1\ncool_down: 0\ndefaults: { tool: shoal, time: 2, objects: 64, pg_num: 8 }\nworkloads:\n"
            "  - { op: mixed, op_size: { 4k: 50, 64k: 50 }, depth: 4 }\n  - { op: write, rate: 50..350 }\n"),
            "--conf", self.cluster.conf, *self.results)
        self.assertRegex(done.text, r"the client alone, on a target that takes no time: \d+ op/s of 4 KiB · depth 64")
        self.assertTrue(all(float(p["ceiling_ops_per_s"]) > 0 and p["client_thread_share"] for p in self.points()))
        ramp, mixed = sorted(self.points(), key=lambda point: point["op"] != "write")
        self.assertAlmostEqual(float(ramp["ops_per_s"]), 200, delta=60)
        bytes_each = float(mixed["bytes_per_s"]) / float(mixed["ops_per_s"])
        self.assertAlmostEqual(bytes_each, (4 + 64) * 1024 / 2, delta=6000)

    def sshd(self):
        """A server of our own on loopback, with a key of its own. How ssh gets in there."""
        sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
        if not sshd or not shutil.which("ssh"):
            self.skipTest("sshd is not installed (openssh-server)")
        port, key, host_key = free_port_base(), self.dir / "key", self.dir / "host_key"
        for path in (key, host_key):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path])
        known = self.dir / "known"
        public = Path(f"{host_key}.pub").read_text()
        known.write_text("".join(f"[{name}]:{port} {public}" for name in ("127.0.0.1", "localhost")))
        allowed = self.dir / "allowed"
        shutil.copy(f"{key}.pub", allowed)
        os.makedirs("/run/sshd", exist_ok=True)
        config = self.dir / "sshd_config"
        config.write_text(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nAuthorizedKeysFile {allowed}\n"
                          f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n")
        server = subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        ssh = f"ssh -4 -p {port} -i {key} -o UserKnownHostsFile={known} -o BatchMode=yes"
        eventually(lambda: run([*ssh.split(), "127.0.0.1", "true"], check=False).code == 0, 10)
        return ssh

    def hosts(self, hosts, seconds, ssh=None):
        """A matrix whose load is made by other hosts: this one, behind a program that does as ssh does."""
        if ssh is None:
            ssh = self.dir / "ssh"
            ssh.write_text("#!/bin/sh\nshift\necho $$ >> \"$(dirname \"$0\")/pids\"\nexec \"$@\"\n")
            ssh.chmod(0o755)
        return (f"iterations: 1\ncool_down: 0\nclients: {{ hosts: [{', '.join(hosts)}], ssh: {ssh}, shoal: {SHOAL} }}\n"
                f"workloads:\n  - {{ tool: shoal, op: mixed, depth: 4, time: {seconds}, objects: 64, verify: true, pg_num: 8 }}\n")

    def test_many_hosts_make_one_load(self):
        text = self.hosts(["host-0", "host-1"], 1)
        text += "  - { tool: rados-bench, op: randread, op_size: 4k, depth: 4, time: 1, pg_num: 8 }\n"
        self.lab("run", self.matrix(text), "--conf", self.cluster.conf, *self.results)
        self.assertEqual([p["error"] for p in self.points()], [""] * 2)
        self.assertEqual(self.left_behind(), [])
        self.assertEqual(list(Path(tempfile.gettempdir()).glob("shoal-lab-agent-*")), [])

    def test_a_client_host_that_dies(self):
        file = self.matrix(self.hosts(["host-0", "host-1"], 30))
        argv = [SHOAL, "lab", "run", file, "--conf", self.cluster.conf, *self.results]
        process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pids = self.dir / "pids"
        eventually(lambda: len(pids.read_text().split()) == 2 if pids.exists() else False)
        first, second = map(int, pids.read_text().split())
        time.sleep(2)
        os.kill(first, signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(out, r"client host host-\d died mid-run")
        self.assertFalse(Path(f"/proc/{second}").exists(), "the other host's agent still runs")
        self.assertEqual(self.left_behind(), [])

    def test_over_ssh(self):
        ssh = self.sshd()
        self.lab("run", self.matrix(self.hosts(["127.0.0.1"], 1, ssh)), "--conf", self.cluster.conf, *self.results)
        self.assertEqual([p["error"] for p in self.points()], [""])

    def test_doctor_over_ssh(self):
        ssh = self.sshd()
        found = self.lab("doctor", "--hosts", "127.0.0.1,localhost", "--ssh", ssh, "--json", "--all", check=False).json
        self.assertEqual({f["host"] for f in found if "host" in f}, {"127.0.0.1", "localhost"})
        own, theirs = ({f["id"]: f["measured"] for f in found if f.get("host") == host} for host in (None, "localhost"))
        self.assertIn("3 hosts are alike", own["alike"])
        for name in ("governor", "iommu", "socket-buffers"):
            self.assertEqual(theirs[name], own[name], name)
        lost = self.lab("doctor", "--hosts", "127.0.0.1", "--ssh", "ssh -p 1", check=False)
        self.assertNotEqual(lost.code, 0)
        self.assertIn("--no-ssh measures only the way to it", lost.errors)

    @long_only
    def test_many_hosts_whole(self):
        """The example as it is, but for its hosts, which are this one, twice; and its seconds."""
        ssh = self.sshd()
        text = (ROOT / "bench/lab/many-hosts.yaml").read_text()
        named = "hosts: [client-a, client-b]"
        self.assertIn(named, text)
        text = text.replace(named, f"hosts: [127.0.0.1, localhost], ssh: {ssh}, shoal: {SHOAL}")
        self.lab("run", self.matrix(text), "--time", 1, "--iterations", 1, "--conf", self.cluster.conf, *self.results,
                 timeout=1200)
        self.assertEqual([p["error"] for p in self.points()], [""] * 12)
        self.assertEqual(self.left_behind(), [])

    def test_a_host_that_is_only_watched(self):
        """Its daemons are seen there, and not here: the file says where their sockets are from where one stands."""
        conf = self.dir / "ceph.conf"
        text = self.cluster.conf.read_text()
        self.assertIn(f"= {self.cluster.dir}", text)
        conf.write_text("\n".join("run_dir = ." if "run_dir" in line or "run dir" in line else line
                                  for line in text.splitlines() if "admin" not in line) + "\n")
        shutil.copy(self.cluster.dir / "keyring", self.dir / "keyring")
        ssh = self.dir / "ssh"
        ssh.write_text(f"#!/bin/sh\nshift\ncd {self.cluster.dir}\nexec \"$@\"\n")
        ssh.chmod(0o755)
        self.lab("run", self.matrix(
            f"iterations: 1\ncool_down: 0\nwatch: {{ hosts: [elsewhere], ssh: {ssh}, shoal: {SHOAL} }}\n"
            "workloads: [{ tool: shoal, depth: 4, time: 2, objects: 64, pg_num: 8 }]\n"), "--conf", conf, *self.results)
        with sqlite3.connect(self.dir / "results/lab.sqlite") as results:
            seen = dict(results.execute("select source, count(*) from samples group by source"))
        self.assertGreater(seen.get("osd.0", 0), 3)
        self.assertGreater(seen.get("host:elsewhere", 0), 3)

    def test_doctor_reads_this_host_and_the_cluster(self):
        found = self.lab("doctor", "--conf", self.cluster.conf, "--json", check=False).json
        by_id = {f["id"]: f for f in found}
        for name in ("governor", "iommu", "health", "pgs", "background"):
            self.assertIn(name, by_id)
        self.assertTrue(by_id["health"]["measured"].startswith("HEALTH_"))

    def test_examples_are_matrices(self):
        for file in sorted((ROOT / "bench/lab").glob("*.yaml")):
            done = self.lab("run", file, "--dry-run")
            self.assertIn("points on", done.text, file.name)

class LabDeploys(WithLab, unittest.TestCase):
    """Clusters that the lab starts and stops itself."""

    def setUp(self):
        super().setUp()
        self.port = ["--port", free_port_base()]

    def needs_stock(self, release=None):
        if not shutil.which("ceph-osd"):
            self.skipTest("ceph-osd is not installed")
        if release and not os.environ.get(f"SHOAL_CEPH{release.split('.')[0]}"):
            self.skipTest(f"SHOAL_CEPH{release.split('.')[0]} names no folder")

    def test_one_that_does_not_start_does_not_end_the_others(self):
        done = self.lab("run", self.matrix(
            "iterations: 1\ncool_down: 0\ncluster: { deploy: [stock, shoal], release: '99.9' }\n"
            "workloads: [{ tool: shoal, depth: 4, time: 1, objects: 64, pg_num: 8 }]\n"), *self.port, *self.results, check=False)
        self.assertEqual(done.code, 1)
        self.assertIn("Ceph 99.9 is not on this machine", done.text)
        self.assertIn("complete: 2 points, 1 failed", done.text)
        errors = {p["cluster"].split()[0]: p["error"] for p in self.points()}
        self.assertIn("the cluster did not start", errors["stock"])
        self.assertEqual(errors["shoal"], "")

    def test_a_port_that_is_taken_is_said(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", int(self.port[1])))
            taken.listen()
            done = self.lab("run", self.matrix(
                "iterations: 1\ncluster: { deploy: shoal }\nworkloads: [{ tool: shoal, time: 1 }]\n"),
                *self.port, *self.results, check=False)
        self.assertIn(f"port {self.port[1]} cannot be used", done.text)

    def test_an_osd_dies_and_comes_back(self):
        self.lab("run", self.matrix(
            "iterations: 1\ncluster: { deploy: shoal, store: disk }\nworkloads:\n  - { tool: shoal, op: write, depth: 4,"
            " time: 5, objects: 64, pg_num: 8, faults: [{ at: 1, kill: osd.0 }, { at: 2, start: osd.0 }] }\n"),
            *self.port, *self.results)
        point, = self.points()
        self.assertEqual(point["error"], "")
        self.assertGreater(float(point["max_us"]), 500_000, "what waited for the OSD shows")

    def dying(self):
        """A cluster of shoal's, and a way to kill all of it."""
        directory = self.dir / "dying"
        run([SHOAL, "up", "--dir", directory, "--osds", "1", "--port", str(self.port[1])])
        self.addCleanup(run, [SHOAL, "down", "--dir", directory], check=False)

        def kill():
            for file in directory.glob("*.pid"):
                os.kill(int(file.read_text()), signal.SIGKILL)

        return directory, kill

    def test_bench_ends_when_cluster_dies(self):
        directory, kill = self.dying()
        argv = [SHOAL, "bench", "--dir", directory, "--pool", "p", "--create-pool", "--work", "write", "--connections", "2",
                "--depth", "8", "--seconds", "4", "--grace", "2", "--json"]
        process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(2.5)
        kill()
        began = time.monotonic()
        out, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - began, 12, "its time, the grace, and no more")
        result = json.loads(out)
        self.assertEqual((process.returncode, result["unanswered"]), (1, 16), err)
        self.assertGreater(result["ops"], 0)

    def test_run_ends_when_cluster_dies(self):
        directory, kill = self.dying()
        file = self.matrix("iterations: 1\ncool_down: 0\nworkloads:\n"
                           "  - { tool: shoal, op: write, depth: 8, time: 5, objects: 64, pg_num: 8 }\n")
        argv = [SHOAL, "lab", "run", file, "--conf", directory / "ceph.conf", *self.results]
        process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: "alone" in process.stdout.readline())
        time.sleep(4)
        kill()
        out, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1)
        self.assertIn("8 operations were never answered: the cluster went away", out)

    @long_only
    def test_stock_and_shoal_in_turns(self):
        self.needs_stock()
        done = self.lab("versus", "--time", 1, "--iterations", 1, "--matrix", self.matrix(
            "cool_down: 0\nworkloads: [{ tool: rados-bench, op: write, op_size: 4k, depth: 8, time: 1, pg_num: 8 }]\n"),
            *self.port, *self.results)
        self.assertIn("shoal's rate over stock's", done.text)
        self.assertEqual([p["error"] for p in self.points()], ["", ""])

    def test_a_peer_comes_and_goes(self):
        self.needs_stock()
        peer = ["--dir", self.dir / "peer"]
        said = self.lab("peer", "up", *peer, *self.port).text
        try:
            self.assertIn("it runs: ceph -c", said)
            again = self.lab("peer", "up", *peer, *self.port, check=False)
            self.assertIn("a cluster runs in", again.errors)
            self.assertIn("nothing of the lab's", self.lab("clean", "--conf", self.dir / "peer/ceph.conf").text)
            # What a killed run leaves, and what is not its own.
            ceph = ["ceph", "-c", self.dir / "peer/ceph.conf"]
            for pool in ("shoal-lab-left", "kept"):
                run([*ceph, "osd", "pool", "create", pool, "1"])
            self.assertEqual(self.lab("clean", "--conf", self.dir / "peer/ceph.conf").text, "removed pool shoal-lab-left\n")
            # A pool that is full: nothing can be written, and it is said and not waited for.
            for ratio, value in (("nearfull", 0.006), ("backfillfull", 0.007), ("full", 0.008)):
                run([*ceph, "osd", f"set-{ratio}-ratio", str(value)])
            # One that becomes full meanwhile ends the load.
            filling = self.matrix("iterations: 1\nworkloads: [{ tool: shoal, op: write, op_size: 1M, depth: 4, objects: 300,"
                                  " time: 60, pg_num: 8 }]\n")
            began = time.monotonic()
            full = self.lab("run", filling, "--conf", self.dir / "peer/ceph.conf", *self.results, check=False)
            self.assertIn("the cluster is full: free space", full.text)
            self.assertLess(time.monotonic() - began, 50)
            eventually(lambda: "OSD_FULL" not in run([*ceph, "health", "detail"]).text)
            large = self.dir / "large"
            large.write_bytes(bytes(100 << 20))
            run(["rados", "-c", self.dir / "peer/ceph.conf", "-p", "kept", "put", "x", large])
            eventually(lambda: "OSD_FULL" in run([*ceph, "health", "detail"]).text)
            full = self.lab("run", self.matrix("iterations: 1\nworkloads: [{ tool: shoal, time: 1 }]\n"), "--conf", self.dir / "peer/ceph.conf",
                            *self.results, check=False)
            self.assertEqual(full.code, 1)
            self.assertIn("the cluster is full: free space", full.text)
            self.assertIn("nothing of the lab's", self.lab("clean", "--conf", self.dir / "peer/ceph.conf").text)
        finally:
            self.lab("peer", "down", *peer)
        self.assertFalse((self.dir / "peer").exists())

    def test_the_study_of_three_releases(self):
        """CBT's own file with its cluster section replaced: a part of it, and with --long all of it."""
        self.needs_stock()
        text = (ROOT / "bench/lab/three-releases.yaml").read_text()
        self.assertIn("deploy: [stock, shoal]", text)
        if not harness.LONG:
            text = text.replace('["16.2", "20.2"]', '["16.2"]').replace("[memstore, bluestore]", "memstore")
            text = text.replace("[cephx, none]", "cephx").replace("pg_size: 1024\n      pgp_size: 1024", "pg_size: 32")
            text = text.replace("[1, 256]", "256").replace("write_only: False", "write_only: True")
        else:
            self.needs_stock("20.2")
        seconds = 3 if harness.LONG else 1
        self.lab("run", self.matrix(text), "--time", seconds, "--iterations", 1, *self.port, *self.results, timeout=3600)
        points = self.points()
        self.assertEqual(len(points), 12 * 4 if harness.LONG else 2)
        self.assertEqual({p["error"] for p in points}, {""})

    @long_only
    def test_stock_tools_are_of_the_clusters_release(self):
        self.needs_stock("20.2")
        self.lab("run", self.matrix(
            "iterations: 1\ncluster: { deploy: [stock, shoal], release: ['16.2', '20.2'], auth: [cephx, none] }\n"
            "defaults: { op_size: 4k, depth: 8, time: 1, pg_num: 8 }\nworkloads:\n  - { tool: rados-bench, op: [write, randread] }\n"
            "  - { tool: shoal, op: randwrite, objects: 64 }\n"), *self.port, *self.results, timeout=1200)
        self.assertEqual({p["error"] for p in self.points()}, {""})

    @long_only
    def test_every_example_measures(self):
        self.needs_stock()
        for file in sorted((ROOT / "bench/lab").glob("*.yaml")):
            if file.name in ("three-releases.yaml", "many-hosts.yaml", "faults.yaml"):
                continue
            text = file.read_text().replace("volume_size: 1G", "volume_size: 64M").replace("/var/tmp/", f"{self.dir}/")
            if "cluster:" not in text:
                text = text.replace("iterations: 3", "iterations: 3\ncluster: { deploy: shoal }")
            done = self.lab("run", self.matrix(text), "--name", file.stem, "--time", 1, "--iterations", 1, *self.port,
                            *self.results, timeout=3600)
            self.assertIn(" 0 failed", done.text, file.name)
