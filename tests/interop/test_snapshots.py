"""Snapshots of pools and of clients, with the stock `rados` tool and python3-rados: contents, rollbacks, and the end of removed ones."""
import json
import unittest

from harness import ClusterTest, eventually


class Snapshots(ClusterTest):
    OSDS = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import rados
        cls.rados_module = rados
        cls.r = rados.Rados(conffile=str(cls.cluster.conf), name="client.admin")
        cls.r.connect(timeout=30)

    @classmethod
    def tearDownClass(cls):
        cls.r.shutdown()
        super().tearDownClass()

    def rados(self, pool, *args, **how):
        return self.client.rados("-p", pool, *args, **how)

    def row(self, pool):
        rows = json.loads(self.client.ceph("osd", "dump", "-f", "json").text)
        row = next(row for row in rows["pools"] if row["pool_name"] == pool)
        queued = [queue for queue in rows["removed_snaps_queue"] if queue["pool"] == row["pool"]]
        return row, queued

    def until_purged(self, pool):
        eventually(lambda: self.row(pool)[1] == [], 60)

    def at(self, pool, snap, name):
        # The tool says first which snapshot it reads.
        said, contents = self.rados(pool, "-s", snap, "get", name, "-").out.split(b"\n", 1)
        self.assertIn(snap.encode(), said)
        return contents

    def test_pool_snapshot_keeps_contents(self):
        self.pool("pool-snaps")
        self.rados("pool-snaps", "put", "a", "-", stdin=b"one")
        self.rados("pool-snaps", "mksnap", "s1")
        self.rados("pool-snaps", "put", "a", "-", stdin=b"second")
        self.assertEqual(self.at("pool-snaps", "s1", "a"), b"one")
        self.assertEqual(self.rados("pool-snaps", "get", "a", "-").out, b"second")
        self.assertIn("s1", self.rados("pool-snaps", "lssnap").text)
        listed = json.loads(self.rados("pool-snaps", "listsnaps", "a", "--format=json").text)
        self.assertEqual([clone["id"] for clone in listed["clones"]], [1, "head"])
        self.rados("pool-snaps", "rm", "a")
        self.assertNotEqual(self.rados("pool-snaps", "get", "a", "-", check=False).code, 0)
        self.assertEqual(self.at("pool-snaps", "s1", "a"), b"one")
        self.rados("pool-snaps", "rollback", "a", "s1")
        self.assertEqual(self.rados("pool-snaps", "get", "a", "-").out, b"one")
        again = self.client.ceph("osd", "pool", "mksnap", "pool-snaps", "s1")
        self.assertIn("already exists", again.errors)
        self.rados("pool-snaps", "rmsnap", "s1")
        self.until_purged("pool-snaps")
        eventually(lambda: self.clones("pool-snaps", "a") == ["head"], 30)

    def clones(self, pool, name):
        listed = json.loads(self.rados(pool, "listsnaps", name, "--format=json").text)
        return [clone["id"] for clone in listed["clones"]]

    def test_clients_snapshot_is_written_read_and_trimmed(self):
        self.pool("own-snaps")
        with self.r.open_ioctx("own-snaps") as io:
            names = [f"o{i}" for i in range(40)]
            for name in names:
                io.write_full(name, b"old " + name.encode())
            snap = io.create_self_managed_snap()
            io.set_self_managed_snap_write([snap])
            for name in names:
                io.write_full(name, b"new")
            io.remove_object("o7")
            io.set_read(snap)
            for name in names:
                self.assertEqual(io.read(name), b"old " + name.encode())
            io.set_read(self.rados_module.LIBRADOS_SNAP_HEAD)
            self.assertEqual(io.read("o3"), b"new")
            with self.assertRaises(self.rados_module.ObjectNotFound):
                io.read("o7")
            io.rollback_self_managed_snap("o3", snap)
            self.assertEqual(io.read("o3"), b"old o3")
            row, _ = self.row("own-snaps")
            self.assertIn("selfmanaged_snaps", row["flags_names"])
            io.remove_self_managed_snap(snap)
            io.set_self_managed_snap_write([])
            self.until_purged("own-snaps")
            self.assertEqual(self.clones("own-snaps", "o1"), ["head"])
            # The deleted head went with its last clone.
            self.assertNotEqual(self.rados("own-snaps", "listsnaps", "o7", check=False).code, 0)
            self.assertEqual(sorted(o.key for o in io.list_objects()), sorted(set(names) - {"o7"}))

    def test_removed_snapshot_stays_removed(self):
        self.pool("purged")
        with self.r.open_ioctx("purged") as io:
            io.write_full("o", b"old")
            gone, kept = io.create_self_managed_snap(), io.create_self_managed_snap()
            io.set_self_managed_snap_write([kept, gone])
            io.write_full("o", b"new")
            io.remove_self_managed_snap(gone)
            self.until_purged("purged")
            before = self.row("purged")[0]
            # Again: the monitor remembers it.
            io.remove_self_managed_snap(gone)
            self.assertEqual(self.row("purged"), (before, []))
            # An operator has removed ones trimmed anew, and none that is alive.
            force = lambda *more: self.client.ceph("osd", "pool", "force-remove-snap", "purged", *more)
            said = force("--dry_run").errors
            self.assertIn(f"removed snapids: [{gone}~1,", said)
            self.assertEqual(self.row("purged"), (before, []))
            force()
            self.until_purged("purged")
            io.set_read(kept)
            self.assertEqual(io.read("o"), b"old")
            refused = self.client.ceph("osd", "pool", "force-remove-snap", "purged", 1, 9999, check=False)
            self.assertEqual(refused.code, 22)

    def test_objects_are_copied(self):
        for pool in ("copies", "other"):
            self.pool(pool)
        contents = bytes(range(256)) * 40_000
        self.rados("copies", "put", "a", "-", stdin=contents)
        self.rados("copies", "setxattr", "a", "x", "one")
        self.rados("copies", "setomapval", "a", "key", "value")
        self.rados("copies", "cp", "a", "b")
        self.rados("copies", "cp", "a", "c", "--target-pool=other")
        self.rados("copies", "-N", "space", "put", "n", "-", stdin=b"in a namespace")
        for pool, name in (("copies", "b"), ("other", "c")):
            self.assertEqual(self.rados(pool, "get", name, "-").out, contents)
            self.assertEqual(self.rados(pool, "getxattr", name, "x").out, b"one")
            self.assertIn("value", self.rados(pool, "getomapval", name, "key").text)
        self.pool("all")
        self.client.rados("cppool", "copies", "all", "--yes-i-really-mean-it")
        self.assertEqual(self.rados("all", "get", "b", "-").out, contents)
        self.assertEqual(self.rados("all", "-N", "space", "get", "n", "-").out, b"in a namespace")
        absent = self.rados("copies", "cp", "absent", "d", check=False)
        self.assertNotEqual(absent.code, 0)
        self.assertIn("No such file", absent.text + absent.errors)

    def test_kinds_of_snapshots_exclude_each_other(self):
        self.pool("either")
        self.client.ceph("osd", "pool", "mksnap", "either", "s")
        with self.r.open_ioctx("either") as io:
            with self.assertRaises(self.rados_module.Error):
                io.create_self_managed_snap()


if __name__ == "__main__":
    unittest.main()
