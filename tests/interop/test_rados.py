"""The `rados` tool of each release that is here, in crc and secure mode, with and without cephx, on one core and two."""
import os
import re
import time
import unittest

import harness
from harness import Client, ClusterTest, eventually, releases

MODES = {"crc": ["--ms_client_mode=crc", "--ms_mon_client_mode=crc"],
         "secure": ["--ms_client_mode=secure", "--ms_mon_client_mode=secure"]}


class RadosCases:
    """Every case runs with `self.on`: a client of one release in one mode."""

    def setUp(self):
        self.p = self.pool(f"p-{self.LABEL}")
        self.on = Client(self.cluster, self.ROOT, MODES[self.MODE])

    def rados(self, *args, **how):
        return self.on.rados("-p", self.p, *args, **how)

    def put(self, name, data, *options):
        self.rados(*options, "put", name, "-", stdin=data)

    def get(self, name, *options):
        return self.rados(*options, "get", name, "-").out

    def test_put_get_overwrite_remove(self):
        for size in (0, 1, 4095, 4096, 4097, 1 << 20, (4 << 20) + 1, 13 << 20):
            with self.subTest(size):
                data = os.urandom(size)
                self.put(f"o{size}", data)
                self.assertEqual(self.get(f"o{size}"), data)
        self.put("o4096", b"short")
        self.assertEqual(self.get("o4096"), b"short")
        self.rados("rm", "o4096")
        gone = self.rados("get", "o4096", "-", check=False)
        self.assertNotEqual(gone.code, 0)
        self.assertIn("No such file or directory", gone.errors)
        self.assertNotEqual(self.rados("rm", "o4096", check=False).code, 0)

    def test_append_truncate_stat(self):
        self.put("grow", b"one")
        self.rados("append", "grow", "-", stdin=b"two")
        self.assertEqual(self.get("grow"), b"onetwo")
        self.rados("truncate", "grow", 4)
        self.assertEqual(self.get("grow"), b"onet")
        self.rados("truncate", "grow", 6)
        self.assertEqual(self.get("grow"), b"onet\0\0")
        stat = self.rados("stat", "grow").text
        self.assertRegex(stat, rf"{self.p}/grow mtime \d{{4}}-\d\d-\d\d.*, size 6")
        self.rados("put", "grow", "-", "--offset", "8", stdin=b"end")
        self.assertEqual(self.get("grow"), b"onet\0\0\0\0end")

    def test_ls_with_namespaces(self):
        for namespace in ("", "n1", "n2"):
            for index in range(20):
                self.put(f"ls{namespace}-{index}", b"x", "-N", namespace)
        for namespace in ("n1", "n2"):
            names = self.rados("-N", namespace, "ls").text.split()
            self.assertEqual(sorted(names), sorted(f"ls{namespace}-{i}" for i in range(20)))
        everything = self.rados("--all", "ls").text.splitlines()
        self.assertEqual(sum(line.startswith("n1\t") for line in everything), 20)
        self.assertNotIn("lsn1-0", self.rados("ls").text.split())

    def test_xattrs(self):
        self.put("attrs", b"x")
        self.rados("setxattr", "attrs", "colour", "blue")
        self.rados("setxattr", "attrs", "empty", "")
        self.assertEqual(self.rados("getxattr", "attrs", "colour").text, "blue")
        self.assertEqual(sorted(self.rados("listxattr", "attrs").text.split()), ["colour", "empty"])
        self.rados("rmxattr", "attrs", "colour")
        self.assertEqual(self.rados("listxattr", "attrs").text.split(), ["empty"])
        self.assertNotEqual(self.rados("getxattr", "attrs", "colour", check=False).code, 0)

    def test_omap(self):
        self.rados("create", "map")
        for index in range(30):
            self.rados("setomapval", "map", f"key{index:02}", f"value{index}")
        keys = self.rados("listomapkeys", "map").text.split()
        self.assertEqual(keys, [f"key{i:02}" for i in range(30)])
        self.assertIn("value7", self.rados("getomapval", "map", "key07").text)
        self.rados("rmomapkey", "map", "key07")
        self.assertEqual(len(self.rados("listomapkeys", "map").text.split()), 29)
        self.rados("setomapheader", "map", "a header")
        self.assertIn("a header", self.rados("getomapheader", "map").text)
        self.rados("clearomap", "map")
        self.assertEqual(self.rados("listomapkeys", "map").text, "")

    def test_locks(self):
        self.put("locked", b"x")
        self.rados("lock", "get", "locked", "latch")
        self.assertEqual([l["name"] for l in self.rados("lock", "list", "locked").json["locks"]], ["latch"])
        info = self.rados("lock", "info", "locked", "latch").json
        self.assertEqual(info["type"], "exclusive")
        other = self.rados("lock", "get", "locked", "latch", check=False)
        self.assertNotEqual(other.code, 0, "a second client cannot take an exclusive lock")
        self.rados("lock", "break", "locked", "latch", info["lockers"][0]["name"])
        self.assertEqual(self.rados("lock", "info", "locked", "latch").json["lockers"], [])

    def test_watch_and_notify(self):
        self.put("bell", b"x")
        watcher = self.on.spawn("rados", "-p", self.p, "watch", "bell")
        try:
            eventually(lambda: "watcher=" in self.rados("listwatchers", "bell").text)
            notified = self.rados("notify", "bell", "ding")
            self.assertIn("reply client.", (notified.text + notified.errors).lower())
        finally:
            watcher.kill()
            out, _ = watcher.communicate(timeout=20)
        self.assertIn("ding", notified.text + notified.errors)
        self.assertIn(b"NOTIFY", out)

    def test_export_import(self):
        source, target = self.pool(f"from-{self.LABEL}"), self.pool(f"to-{self.LABEL}")
        data = os.urandom(300_000)
        on = self.on
        on.rados("-p", source, "put", "a", "-", stdin=data)
        on.rados("-p", source, "-N", "inner", "put", "b", "-", stdin=b"inner")
        on.rados("-p", source, "setxattr", "a", "x", "1")
        on.rados("-p", source, "setomapval", "a", "k", "v")
        dump = on.rados("-p", source, "export", "-").out
        on.rados("-p", target, "import", "-", stdin=dump)
        self.assertEqual(on.rados("-p", target, "get", "a", "-").out, data)
        self.assertEqual(on.rados("-p", target, "-N", "inner", "get", "b", "-").out, b"inner")
        self.assertEqual(on.rados("-p", target, "getxattr", "a", "x").text, "1")
        self.assertEqual(on.rados("-p", target, "listomapkeys", "a").text.split(), ["k"])

    def test_bench(self):
        written = self.rados("bench", 2, "write", "-b", 65536, "-t", 16, "--no-cleanup", "--run-name", "b")
        self.assertGreater(float(re.search(r"Bandwidth \(MB/sec\):\s+([\d.]+)", written.text)[1]), 0)
        for mode in ("seq", "rand"):
            read = self.rados("bench", 2, mode, "-t", 16, "--run-name", "b")
            self.assertRegex(read.text, r"Total reads made:\s+[1-9]")
        self.rados("cleanup", "--run-name", "b")
        left = [name for name in self.rados("ls").text.split() if name.startswith("benchmark_data")]
        self.assertEqual(left, [])

    def test_load_gen(self):
        done = self.rados("load-gen", "--num-objects", 20, "--min-object-size", 4096, "--max-object-size", 65536,
                          "--min-op-len", 512, "--max-op-len", 4096, "--max-ops", 16, "--target-throughput", 5,
                          "--run-length", 3)
        self.assertNotIn("error", done.text.lower())

    def test_wrong_pool_and_wrong_key(self):
        missing = self.on.rados("-p", "no-such-pool", "ls", check=False)
        self.assertIn("No such file or directory", missing.errors)


def make_suites():
    """A class for each cluster kind, release and mode; the default run keeps those that differ most."""
    suites = {}
    clusters = {"cephx": ("--auth", "cephx"), "none": ("--auth", "none"), "cores2": ("--cores", "2")}
    for kind, options in clusters.items():
        for label, root in releases():
            for mode in MODES:
                if kind == "none" and mode == "secure":
                    continue  # secure mode needs a key
                short = label == "path" and (kind == "cephx" or mode == "crc")
                if not short and not harness.LONG:
                    continue
                name = f"Rados_{kind}_{label}_{mode}"
                suites[name] = type(name, (RadosCases, ClusterTest), {
                    "OPTIONS": options, "OSDS": 3 if kind == "cephx" else 1, "LABEL": label + mode, "ROOT": root,
                    "MODE": mode, "__module__": __name__})
    return suites


globals().update(make_suites())
