"""A store on several devices: log and index on a faster device, moved there and back, and devices that are missing or
exchanged. The devices are files."""
import os
import sys

import harness
from harness import SHOAL, ClusterTest, eventually, run
from test_restart import Load

MIB = 1 << 20
OBJECTS = 12


class Devices(ClusterTest):
    """Data, and the figures of an OSD's devices."""
    OSDS = 1

    def put(self, pool):
        data = {f"o{n}": os.urandom(n * 30_000) for n in range(OBJECTS)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        self.client.rados("-p", pool, "setomapval", "o1", "k", "v")
        return data

    def check(self, pool, data):
        for name, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)
        self.assertEqual(self.client.rados("-p", pool, "listomapkeys", "o1").text, "k\n")

    def bluefs(self, osd="osd.0"):
        return run(["ceph", "daemon", self.cluster.dir / f"{osd}.asok", "perf", "dump", "bluefs"]).json["bluefs"]

    def metadata(self, osd=0):
        return self.client.json("osd", "metadata", osd)

    def directory(self, osd="osd.0"):
        return self.cluster.dir / osd

    def start_refused(self, osd="osd.0"):
        """Starts an OSD, which must end. Returns what it says."""
        done = run([SHOAL, "osd", "--conf", self.cluster.conf, "--id", osd.partition(".")[2]], check=False, timeout=60)
        self.assertNotEqual(done.code, 0)
        return done.errors + done.text + self.cluster.log(osd)

    #: Words of lines that a test makes an OSD write.
    EXPECTED = ("block.db", "block.wal", "BLUEFS_SPILLOVER")

    @classmethod
    def tearDownClass(cls):
        unexpected = [line for line in cls.cluster.unexpected() if not any(word in line for word in cls.EXPECTED)]
        if unexpected:
            raise harness.Failed("unexpected lines in the logs:\n" + "\n".join(unexpected[:20]))


class FromTheStart(Devices):
    OPTIONS = ("--store", "disk", "--size", "2G", "--db-size", "512M", "--wal-size", "128M")
    OSDS = 2

    def test_devices_are_told_as_stock_tells_them(self):
        metadata = self.metadata()
        for name, value in {"bluefs": "1", "bluefs_dedicated_db": "1", "bluefs_dedicated_wal": "1",
                            "bluefs_single_shared_device": "0", "bluefs_db_size": str(512 * MIB),
                            "bluefs_wal_size": str(128 * MIB), "bluestore_bdev_size": str(2 << 30)}.items():
            self.assertEqual(metadata[name], value, name)
        figures = self.bluefs()
        self.assertEqual(figures["db_total_bytes"], 512 * MIB)
        self.assertEqual(figures["wal_total_bytes"], 128 * MIB)
        self.assertEqual(figures["slow_total_bytes"], 2 << 30)
        self.assertEqual(figures["slow_used_bytes"], 0)
        self.assertGreater(figures["wal_used_bytes"], 0)

    def test_objects_survive_kill_9_and_restart(self):
        pool = self.pool("kept")
        data = self.put(pool)
        for osd in ("osd.0", "osd.1"):
            self.cluster.kill(osd)
        self.cluster.up()
        self.check(pool, data)
        self.cluster.down()
        self.cluster.up()
        self.check(pool, data)

    def test_kill_9_under_load(self):
        load = Load(self, self.pool("kill-osd"))
        eventually(lambda: load.count() > 50)
        for osd in ("osd.0", "osd.1", "osd.0"):
            self.cluster.kill(osd)
            self.cluster.up()
            acknowledged = load.count()
            eventually(lambda: load.count() > acknowledged + 50, 60)
        self.assertEqual(load.finish(), [])

    def test_missing_and_exchanged_devices_are_refused(self):
        pool = self.pool("refused")
        data = self.put(pool)
        self.cluster.down()
        db, other = (self.directory(osd) / "block.db" for osd in ("osd.0", "osd.1"))
        away = db.with_suffix(".away")
        db.rename(away)
        self.cluster.start_daemon("mon.a")
        said = self.start_refused()
        self.assertIn("has its db device at", said)
        self.assertIn("does not open without it", said)
        db.symlink_to(other)
        self.assertIn("it is another device: the db device of osd.1", self.start_refused())
        db.unlink()
        done = run([SHOAL, "store", "fsck", self.directory()], check=False)
        self.assertIn("does not open without it", done.errors)
        away.rename(db)
        self.cluster.up()
        self.check(pool, data)
        self.cluster.down()
        done = run([SHOAL, "store", "fsck", "--deep", self.directory()])
        self.assertIn("sound", done.text)
        self.cluster.up()


class Moved(Devices):
    OPTIONS = ("--store", "disk", "--size", "2G")

    def move(self, *options, check=True):
        return run([SHOAL, "store", "move", self.directory(), *options], check=check)

    def test_log_and_index_move_there_and_back(self):
        pool = self.pool("moved")
        data = self.put(pool)
        self.assertEqual(self.metadata()["bluefs_single_shared_device"], "1")
        db, wal = self.cluster.dir / "fast.db", self.cluster.dir / "fast.wal"

        self.cluster.down()
        # A device that is in use, or not blank.
        self.assertIn("is a device of this store", self.move("--db", self.directory() / "block", check=False).errors)
        db.write_bytes(b"x" * (256 * MIB))
        self.assertIn("is not blank", self.move("--db", db, check=False).errors)
        db.unlink()
        self.assertIn("--size", self.move("--db", db, check=False).errors)
        self.assertIn("logs and index are on", self.move("--db", db, "--size", "256M").text)
        self.assertEqual(os.readlink(self.directory() / "block.db"), str(db))
        # Once more: nothing to do. To another one: not before it is back.
        self.move("--db", db)
        self.assertIn("has a db device already", self.move("--db", wal, "--size", "64M", check=False).errors)
        wal.unlink(missing_ok=True)
        self.cluster.up()
        self.check(pool, data)
        self.assertEqual(self.bluefs()["slow_used_bytes"], 0)
        self.assertEqual(self.metadata()["bluefs_dedicated_db"], "1")
        data.update(self.put(pool))
        self.cluster.kill("osd.0")
        self.cluster.up()
        self.check(pool, data)

        self.cluster.down()
        self.move("--wal", wal, "--size", "128M")
        self.cluster.up()
        self.check(pool, data)
        self.assertGreater(self.bluefs()["wal_used_bytes"], 0)

        self.cluster.down()
        self.assertIn(f"{wal} is not in use any more", self.move("--back", "wal").text)
        self.assertFalse((self.directory() / "block.wal").is_symlink())
        self.cluster.up()
        self.check(pool, data)
        self.assertEqual(self.bluefs()["wal_total_bytes"], 0)

        self.cluster.down()
        self.assertIn(f"{db} is not in use any more", self.move("--back").text)
        self.assertIn("nothing done", self.move("--back").text)
        db.unlink()
        self.assertIn("sound", run([SHOAL, "store", "fsck", "--deep", self.directory()]).text)
        self.cluster.up()
        self.check(pool, data)
        self.assertEqual(self.metadata()["bluefs_dedicated_db"], "0")


class Encrypted(Moved):
    """The same with a store whose key a file has."""
    OPTIONS = ("--store", "disk", "--size", "2G", "--encrypt")

    def move(self, *options, check=True):
        if not hasattr(self, "key"):
            uuid = run([SHOAL, "store", "stats", self.directory()], check=False).errors
            path = next(word for word in uuid.split() if word.startswith("dm-crypt/osd/"))
            self.cluster.up()
            self.key = self.cluster.dir / "key"
            self.key.write_bytes(self.client.ceph("config-key", "get", path).out)
            self.cluster.down()
        done = run([SHOAL, "store", "move", self.directory(), *options, "--key-file", self.key], check=check)
        return done

    def test_log_and_index_move_there_and_back(self):
        pool = self.pool("moved")
        data = self.put(pool)
        db = self.cluster.dir / "fast.db"
        self.cluster.down()
        self.move("--db", db, "--size", "256M")
        self.cluster.up()
        self.check(pool, data)
        self.assertEqual(self.metadata()["shoal_store_encrypted"], "1")
        self.cluster.down()
        self.move("--back")
        self.cluster.up()
        self.check(pool, data)


class Spilled(Devices):
    """A db device that is too small for the index."""
    OPTIONS = ("--store", "disk", "--size", "2G", "--db-size", "96M")

    def test_spilled_index_is_a_warning_in_stock_words(self):
        pool = self.pool("spilled")
        script = self.cluster.dir / "fill.py"
        script.write_text(FILL)
        run([sys.executable, script, self.cluster.conf, pool], timeout=200)
        checks = eventually(lambda: (lambda c: c if "BLUEFS_SPILLOVER" in c else None)(
            self.client.json("health", "detail")["checks"]), 60)
        check = checks["BLUEFS_SPILLOVER"]
        self.assertEqual(check["summary"]["message"], "1 OSD(s) experiencing BlueFS spillover")
        self.assertRegex(check["detail"][0]["message"],
                         r"^ osd.0 spilled over [0-9.]+ [KM]iB metadata from 'db' device \([0-9.]+ MiB used of 96 MiB\) to slow device$")
        self.assertGreater(self.bluefs()["slow_used_bytes"], 0)
        # A larger device takes it all.
        self.cluster.down()
        run([SHOAL, "store", "move", self.directory(), "--back"])
        os.truncate(self.directory() / "block.db", 1 << 30)
        run([SHOAL, "store", "move", self.directory(), "--db", self.directory() / "block.db"])
        self.cluster.up()
        self.assertEqual(self.bluefs()["slow_used_bytes"], 0)
        eventually(lambda: "BLUEFS_SPILLOVER" not in self.client.json("health", "detail")["checks"], 60)


#: Omap keys with random values, by the library: a command for each would take too long.
FILL = """
import os, sys
import rados
with rados.Rados(conffile=sys.argv[1]) as cluster, cluster.open_ioctx(sys.argv[2]) as pool:
    for n in range(600):
        with rados.WriteOpCtx() as op:
            keys = tuple(f"k{i}" for i in range(60))
            pool.set_omap(op, keys, tuple(os.urandom(4000) for _ in keys))
            pool.operate_write_op(op, f"omap{n}")
"""

