"""shoal's own client (`shoal bench`) on shoal's cluster and on Ceph's: the same objects as stock tools see, and load
that survives restarts and changes of map without an error."""
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import stock_cluster
from harness import SHOAL, Client, ClusterTest, eventually, is_alive, run

BIG = 9_000_001


class Ours:
    """shoal's client of a cluster, one pool."""

    def __init__(self, conf, pool):
        self.conf, self.pool = conf, pool

    def argv(self, *args):
        return [SHOAL, "bench", "--conf", str(self.conf), "--pool", self.pool, *map(str, args)]

    def __call__(self, *args, check=True):
        return run(self.argv(*args), check=check)

    def load(self, seconds, *args):
        argv = self.argv("--json", "--seconds", seconds, "--work", "mixed", "--connections", 2, "--depth", 8, *args)
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def same_objects_as_stock(test, ours, rados):
    """Written by one, read by the other, and the other way round; sizes, names, absence."""
    with tempfile.TemporaryDirectory() as scratch:
        file, back = Path(scratch) / "file", Path(scratch) / "back"
        file.write_bytes(os.urandom(BIG))
        sha = hashlib.sha256(file.read_bytes()).digest()
        for mode in ("default", "crc", "secure"):
            ours("--mode", mode, "--put", f"ours-{mode}", file)
            rados("-p", ours.pool, "get", f"ours-{mode}", back)
            test.assertEqual(hashlib.sha256(back.read_bytes()).digest(), sha)
            rados("-p", ours.pool, "put", f"theirs-{mode}", file)
            ours("--mode", mode, "--get", f"theirs-{mode}", back)
            test.assertEqual(hashlib.sha256(back.read_bytes()).digest(), sha)
    test.assertEqual(int(ours("--stat", "theirs-crc").text), BIG)
    listed = sorted(ours("--list").text.split())
    test.assertEqual(listed, sorted(rados("-p", ours.pool, "ls").text.split()))
    test.assertEqual(len(listed), 6)
    absent = ours("--stat", "never written", check=False)
    test.assertNotEqual(absent.code, 0)
    test.assertIn("No such file", absent.errors)


def finished(test, load):
    out, err = load.communicate(timeout=120)
    test.assertEqual(load.returncode, 0, err.decode(errors="replace"))
    report = json.loads(out)
    test.assertEqual(report["errors"], 0)
    test.assertGreater(report["ops"], 0)
    return report


class OnShoal(ClusterTest):
    def test_same_objects_as_stock(self):
        same_objects_as_stock(self, Ours(self.cluster.conf, self.pool("client")), Client(self.cluster).rados)

    def test_load_survives_restarts(self):
        ours = Ours(self.cluster.conf, self.pool("restarts"))
        load = ours.load(12)
        time.sleep(3)
        pid = self.cluster.pid("osd.0")
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not is_alive(pid))
        self.cluster.up()
        self.cluster.kill("mon.a")
        self.cluster.up()
        finished(self, load)

    def test_a_full_pool_is_said(self):
        ours = Ours(self.cluster.conf, self.pool("full"))
        self.client.ceph("osd", "pool", "set-quota", "full", "max_objects", "1")
        self.client.rados("-p", "full", "put", "one", "-", stdin=b"one")
        eventually(lambda: "POOL_FULL" in self.client.ceph("health", "detail").text)
        for work in ("write", "read"):
            done = ours("--work", work, "--seconds", 5, "--connections", 1, check=False)
            self.assertEqual(done.code, 1)
            self.assertIn("full (ceph health detail, ceph df)", done.errors)

    def test_a_pool_that_is_not_there(self):
        missing = Ours(self.cluster.conf, "never made")("--stat", "x", check=False)
        self.assertNotEqual(missing.code, 0)
        self.assertIn("there is no pool", missing.errors)


@stock_cluster.require()
class OnStock(unittest.TestCase):
    AUTH = "cephx"

    @classmethod
    def setUpClass(cls):
        cls.cluster = stock_cluster.StockCluster(auth=cls.AUTH)
        cls.addClassCleanup(cls.cluster.close)
        cls.conf, cls.ceph, cls.rados = cls.cluster.conf, cls.cluster.ceph, cls.cluster.rados

    def test_same_objects_as_stock(self):
        self.ceph("osd", "pool", "create", "client", "8")
        same_objects_as_stock(self, Ours(self.conf, "client"), self.rados)

    def test_load_survives_changes_of_the_map(self):
        ours = Ours(self.conf, "changes")
        ours("--create-pool", "--put", "x", "/etc/hostname")
        load = ours.load(12)
        time.sleep(2)
        self.ceph("osd", "pool", "set", "changes", "pg_num", "16")
        self.ceph("osd", "set", "pause")
        time.sleep(1)
        self.ceph("osd", "unset", "pause")
        report = finished(self, load)
        self.assertGreater(report["latency_us"]["max"], 500_000, "the pause is seen, or this shows nothing")


class OnStockWithoutKeys(OnStock):
    """Without keys there is nothing to seal with: the modes all mean crc."""

    AUTH = "none"

    def test_same_objects_as_stock(self):
        self.ceph("osd", "pool", "create", "plain", "8")
        ours = Ours(self.conf, "plain")
        ours("--put", "x", "/etc/services")
        self.assertEqual(self.rados("-p", "plain", "get", "x", "-").out, Path("/etc/services").read_bytes())
        self.assertEqual(ours("--list").text.split(), ["x"])
