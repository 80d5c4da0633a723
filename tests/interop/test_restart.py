"""Daemons that die or restart under load: clients resume by themselves, and nothing acknowledged is missing."""
import hashlib
import os
import signal
import socket
import threading
import time

from harness import SHOAL, ClusterTest, eventually, is_alive, run


class Load:
    """Writers that remember what was acknowledged."""

    def __init__(self, test, pool, writers=2):
        import rados
        self.pool, self.rados = pool, rados
        self.r = rados.Rados(conffile=str(test.cluster.conf), name="client.admin")
        self.r.connect(timeout=30)
        self.acknowledged, self.problems, self.stop = {}, [], threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(n,), daemon=True) for n in range(writers)]
        for thread in self.threads:
            thread.start()

    def write(self, n):
        io, index = self.r.open_ioctx(self.pool), 0
        while not self.stop.is_set():
            name, data = f"w{n}-{index}", os.urandom(2000)
            try:
                io.write_full(name, data)
                self.acknowledged[name] = hashlib.sha1(data).digest()
            except Exception as error:
                self.problems.append(f"{name}: {error!r}")
                return
            index += 1
        io.close()

    def count(self):
        return len(self.acknowledged)

    def finish(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        stuck = [t for t in self.threads if t.is_alive()]
        io = self.r.open_ioctx(self.pool)
        missing = []
        for name, digest in self.acknowledged.items():
            try:
                if hashlib.sha1(io.read(name, 4000)).digest() != digest:
                    missing.append(name)
            except self.rados.Error:
                missing.append(name)
        io.close()
        self.r.shutdown()
        return self.problems + [f"{name} is not as acknowledged" for name in missing] + ["a writer hangs"] * len(stuck)


class Restart(ClusterTest):
    OSDS = 2
    QUIET = False

    def test_kill_of_the_monitor_under_load(self):
        ceph, ask = self.client.ceph, self.client.json
        pool = self.pool("kill-mon")
        ceph("auth", "get-or-create", "client.kept", "mon", "allow r")
        ceph("config", "set", "osd", "osd_max_backfills", 7)
        ceph("config-key", "set", "kept", "value")
        before = ask("osd", "dump"), ceph("auth", "get-key", "client.kept").text
        load = Load(self, pool)
        eventually(lambda: load.count() > 50)
        for _ in range(3):
            self.cluster.kill("mon.a")
            time.sleep(0.5)
            self.cluster.up()
            acknowledged = load.count()
            eventually(lambda: load.count() > acknowledged + 50, 60)
        self.assertEqual(load.finish(), [])
        after = ask("osd", "dump"), ceph("auth", "get-key", "client.kept").text
        self.assertGreaterEqual(after[0]["epoch"], before[0]["epoch"])
        self.assertEqual(after[0]["pools"][0]["pool_name"], before[0]["pools"][0]["pool_name"])
        self.assertEqual(after[0]["fsid"], before[0]["fsid"])
        self.assertEqual(after[1], before[1])
        self.assertEqual(ceph("config", "get", "osd.0", "osd_max_backfills").text.strip(), "7")
        self.assertEqual(ceph("config-key", "get", "kept").text, "value")

    def test_a_change_that_was_acknowledged_survives_sigkill_at_once(self):
        for index in range(5):
            self.client.ceph("config-key", "set", f"durable/{index}", str(index))
            self.cluster.kill("mon.a")
            self.cluster.up()
            self.assertEqual(self.client.ceph("config-key", "get", f"durable/{index}").text, str(index))

    def test_clean_restart_of_osds_under_load(self):
        pool = self.pool("restart-osd")
        load = Load(self, pool)
        eventually(lambda: load.count() > 50)
        for name in ("osd.0", "osd.1", "osd.0"):
            pid = self.cluster.pid(name)
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: not is_alive(pid), 30)
            self.cluster.up()
            acknowledged = load.count()
            eventually(lambda: load.count() > acknowledged + 50, 60)
        self.assertEqual(load.finish(), [])

    def test_up_starts_only_what_does_not_run(self):
        pids = {name: self.cluster.pid(name) for name in ("mon.a", "osd.0", "osd.1")}
        self.cluster.up()
        self.assertEqual(pids, {name: self.cluster.pid(name) for name in pids})
        # A stale pid file that names somebody else must not save or hurt anybody.
        self.cluster.kill("mon.a")
        (self.cluster.dir / "mon.a.pid").write_text(f"{os.getpid()}\n")
        self.cluster.up()
        self.assertNotEqual(self.cluster.pid("mon.a"), os.getpid())

    def test_two_processes_cannot_open_one_store(self):
        second = run([SHOAL, "osd", "--conf", self.cluster.conf, "--id", "0"], check=False, timeout=30)
        self.assertNotEqual(second.code, 0)
        self.assertIn("in use by another process", second.errors)


class DownAndUp(ClusterTest):
    OSDS = 2

    def test_everything_is_there_after_down_and_up(self):
        pool = self.pool("kept")
        data = {f"o{i}": os.urandom(5000 * i) for i in range(30)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        self.client.rados("-p", pool, "setxattr", "o1", "a", "1")
        self.client.rados("-p", pool, "setomapval", "o2", "k", "v")
        stopped = run([SHOAL, "down", "--dir", self.cluster.dir]).text
        for name in ("mon.a", "osd.0", "osd.1"):
            self.assertRegex(stopped, rf"{name}\s+stopped")
        self.assertFalse(list(self.cluster.dir.glob("*.pid")))
        self.cluster.up()
        for name, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value)
        self.assertEqual(self.client.rados("-p", pool, "getxattr", "o1", "a").text, "1")
        self.assertEqual(self.client.rados("-p", pool, "listomapkeys", "o2").text, "k\n")
