"""OSDs with their objects on disk: what was acknowledged survives SIGKILL, whoever owns a store is checked, and a full
one says so, refuses, and works again when there is room."""
import mmap
import os
import subprocess
import time

import harness
from harness import SHOAL, ClusterTest, eventually, run
from test_restart import Load


class Killed(ClusterTest):
    OPTIONS = ("--store", "disk")
    OSDS = 2

    def test_objects_survive_kill_9_of_their_osd(self):
        pool = self.pool("kept")
        data = {f"o{n}": os.urandom(n * 40_000) for n in range(12)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        self.client.rados("-p", pool, "setxattr", "o1", "a", "1")
        self.client.rados("-p", pool, "setomapval", "o2", "k", "v")
        for osd in ("osd.0", "osd.1"):
            self.cluster.kill(osd)
        self.cluster.up()
        # The monitor may still believe in the ones that were killed: `up` asks the OSDs themselves.
        for osd in ("osd.0", "osd.1"):
            state = run(["ceph", "daemon", self.cluster.dir / f"{osd}.asok", "status"]).json["state"]
            self.assertEqual(state, "active", osd)
        for name, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)
        self.assertEqual(self.client.rados("-p", pool, "getxattr", "o1", "a").text, "1")
        self.assertEqual(self.client.rados("-p", pool, "listomapkeys", "o2").text, "k\n")

    def test_kill_9_of_osds_under_load(self):
        load = Load(self, self.pool("kill-osd"))
        eventually(lambda: load.count() > 50)
        for osd in ("osd.0", "osd.1", "osd.0", "osd.1"):
            self.cluster.kill(osd)
            self.cluster.up()
            acknowledged = load.count()
            eventually(lambda: load.count() > acknowledged + 50, 60)
        self.assertEqual(load.finish(), [])

    def test_a_store_is_made_once_and_is_its_owners(self):
        osd = [SHOAL, "osd", "--conf", self.cluster.conf, "--id"]
        self.cluster.kill("osd.0")
        block = self.cluster.dir / "osd.0" / "block"
        again = run([*osd, "0", "--mkfs"])
        self.assertIn("has its store already", again.text + again.errors + self.cluster.log("osd.0"))
        # Another OSD that is pointed at it: to make a store there, or to run from it.
        self.cluster.kill("osd.1")
        elsewhere = ["--set", f"bluestore_block_path={block}"]
        for how in (["--mkfs", *elsewhere], elsewhere):
            done = run([*osd, "1", *how], check=False, timeout=60)
            self.assertNotEqual(done.code, 0)
            said = done.errors + self.cluster.log("osd.1")
            self.assertRegex(said, "the store of osd.0")
        self.cluster.up()
        # And a running OSD's device belongs to its process.
        pid = self.cluster.pid("osd.0")
        done = run([SHOAL, "store", "stats", block], check=False, timeout=60)
        self.assertNotEqual(done.code, 0)
        self.assertIn(f"in use by process {pid}", done.errors)

    @classmethod
    def tearDownClass(cls):
        # Refusals are errors in the log of the OSD that was refused.
        unexpected = [line for line in cls.cluster.unexpected() if "the store of osd.0" not in line]
        if unexpected:
            raise harness.Failed("unexpected lines in the logs:\n" + "\n".join(unexpected[:20]))


class Rotten(ClusterTest):
    """A bit of an object flips on its disk: reads of it fail, health and the cluster's log say so, and it ends."""
    OPTIONS = ("--store", "disk")

    def flip(self, value):
        """Flips a bit in every copy of the value's second block, on the disk of a cluster that is down."""
        path, flipped = self.cluster.dir / "osd.0" / "block", 0
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as disk:
            at = disk.find(value[4096:8192])
            while at >= 0:
                disk[at + 100] ^= 4
                flipped += 1
                at = disk.find(value[4096:8192], at + 1)
        return flipped

    def checks(self):
        return self.client.json("health", "detail")["checks"]

    def test_flipped_bit_is_in_health_and_log_until_rewritten(self):
        pool = self.pool("rotten")
        value = os.urandom(50_000)
        for name in ("bad", "good"):
            self.client.rados("-p", pool, "put", name, "-", stdin=value if name == "bad" else b"sound")
        self.cluster.down()
        self.assertGreater(self.flip(value), 0)
        self.cluster.up()
        self.assertNotIn("PG_DAMAGED", self.checks(), "nobody has read it")
        for _ in range(2):
            done = self.client.rados("-p", pool, "get", "bad", "-", check=False)
            self.assertNotEqual(done.code, 0)
            self.assertIn("Input/output error", done.errors)
        self.assertEqual(self.client.rados("-p", pool, "get", "good", "-").out, b"sound")
        pg = self.client.json("osd", "map", pool, "bad")["pgid"]
        eventually(lambda: "PG_DAMAGED" in self.checks())
        checks = self.checks()
        self.assertEqual(checks["PG_DAMAGED"]["severity"], "HEALTH_ERR")
        self.assertEqual(checks["PG_DAMAGED"]["summary"]["message"], "Possible data damage: 1 pg inconsistent")
        self.assertEqual(checks["PG_DAMAGED"]["detail"][0]["message"],
                         f"pg {pg} is active+clean+inconsistent, acting [0]")
        self.assertEqual(checks["OSD_SCRUB_ERRORS"]["summary"]["message"], "1 scrub errors")
        self.assertEqual(self.client.rados("list-inconsistent-pg", pool).json, [pg])
        lines = [line for line in self.client.ceph("log", "last", "50", "error", "cluster").text.splitlines()
                 if ":bad:head" in line]
        self.assertEqual(len(lines), 1, "once, however often it is read")
        self.assertRegex(lines[0], rf"osd.0 .* cluster \[ERR\] {pg} .* is damaged")
        # It is known over a restart, though nobody reads it again.
        self.cluster.down()
        self.cluster.up()
        eventually(lambda: {"PG_DAMAGED", "OSD_SCRUB_ERRORS"} <= set(self.checks()))
        self.assertEqual(self.client.rados("list-inconsistent-pg", pool).json, [pg])
        self.client.rados("-p", pool, "put", "bad", "-", stdin=value)
        self.assertEqual(self.client.rados("-p", pool, "get", "bad", "-").out, value)
        eventually(lambda: not {"PG_DAMAGED", "OSD_SCRUB_ERRORS"} & set(self.checks()))
        self.cluster.down()
        self.cluster.up()
        eventually(lambda: pg in {p["pgid"] for p in self.client.json("pg", "ls", "active")["pg_stats"]})
        self.assertNotIn("PG_DAMAGED", self.checks(), "written anew, it is forgotten for good")

    @classmethod
    def tearDownClass(cls):
        unexpected = [line for line in cls.cluster.unexpected() if "damaged" not in line and "PG_DAMAGED" not in line
                      and "OSD_SCRUB_ERRORS" not in line]
        if unexpected:
            raise harness.Failed("unexpected lines in the logs:\n" + "\n".join(unexpected[:20]))


class Compressed(ClusterTest):
    """A pool that is compressed: the options as stock's tools set them, the data, the figures, and the store afterwards."""
    OPTIONS = ("--store", "disk", "--size", "1G")

    def figures(self, pool):
        pools = {p["name"]: p["stats"] for p in self.client.json("df", "detail")["pools"]}
        return pools[pool]

    def set(self, pool, option, value, check=True):
        return self.client.ceph("osd", "pool", "set", pool, option, value, check=check)

    def test_compressed_pool_takes_less_space_and_reads_back(self):
        pool, plain = self.pool("packed"), self.pool("plain")
        self.set(pool, "compression_mode", "force")
        text = b"".join(b"line %d of a log that says the same again and again\n" % n for n in range(80_000))
        values = {"text": text, "noise": os.urandom(300_000), "short": b"x"}
        for algorithm in ("lz4", "zstd", "zlib", "snappy"):
            self.set(pool, "compression_algorithm", algorithm)
            for name, value in values.items():
                self.client.rados("-p", pool, "put", f"{name}-{algorithm}", "-", stdin=value)
        self.client.rados("-p", plain, "put", "text", "-", stdin=text)

        def compressed():
            found = self.figures(pool)
            return found["compress_under_bytes"] > len(text) and 0 < found["compress_bytes_used"] < len(text)
        eventually(compressed, 60)
        found = self.figures(pool)
        self.assertLess(found["bytes_used"], found["stored"])
        self.assertEqual(self.figures(plain)["compress_under_bytes"], 0)
        counters = run(["ceph", "daemon", self.cluster.dir / "osd.0.asok", "perf", "dump"]).json["store"]
        self.assertGreater(counters["compressed_original_bytes"], 2 * counters["compressed_bytes"])

        # Written over here and there.
        for n, offset in enumerate((5, 70_000, 131_072, 1_000_000)):
            patch = bytes([n]) * 5000
            text = text[:offset] + patch + text[offset + len(patch):]
            self.client.rados("-p", pool, "put", "text-zstd", "-", "--offset", offset, stdin=patch)
        values["text"], before = text, values["text"]
        for _ in range(2):
            self.assertEqual(self.client.rados("-p", pool, "get", "text-zstd", "-").out, text)
            for algorithm in ("lz4", "zlib", "snappy"):
                self.assertEqual(self.client.rados("-p", pool, "get", f"text-{algorithm}", "-").out, before)
            self.assertEqual(self.client.rados("-p", pool, "get", "noise-lz4", "-").out, values["noise"])
            self.assertEqual(self.client.rados("-p", pool, "get", "short-zstd", "-").out, b"x")
            self.cluster.kill("osd.0")
            self.cluster.up()
        self.cluster.down()
        block = self.cluster.dir / "osd.0" / "block"
        self.assertEqual(run([SHOAL, "store", "fsck", "--deep", block]).code, 0)
        stats = run([SHOAL, "store", "stats", block, "--format", "json"]).json["shards"]
        self.assertGreater(sum(s["compressed_original"] for s in stats), len(text))
        self.cluster.up()

    def test_values_are_refused_as_stock_s_are(self):
        pool = self.pool("options")
        for option, value in (("compression_mode", "strong"), ("compression_algorithm", "gzip"),
                              ("compression_algorithm", "brotli"), ("compression_required_ratio", "1.5"),
                              ("compression_required_ratio", "half"), ("compression_min_blob_size", "many")):
            done = self.set(pool, option, value, check=False)
            self.assertEqual(done.code, 22, f"{option} {value}")
            self.assertIn("EINVAL", done.errors)
        for option, value, shown in (("compression_mode", "aggressive", "aggressive"),
                                     ("compression_algorithm", "zstd", "zstd"),
                                     ("compression_required_ratio", "0.5", "0.5"),
                                     ("compression_max_blob_size", "32K", "32768")):
            self.set(pool, option, value)
            self.assertEqual(self.client.ceph("osd", "pool", "get", pool, option).text.split()[-1], shown)
            self.set(pool, option, "unset" if option.endswith(("mode", "algorithm")) else "0")
            self.assertNotEqual(self.client.ceph("osd", "pool", "get", pool, option, check=False).code, 0)


class Discards(ClusterTest):
    """With `bdev_enable_discard`, what is removed becomes a hole in the file; by default it does not."""
    OPTIONS = ("--store", "disk", "--size", "1G")

    def counter(self):
        dump = run(["ceph", "daemon", self.cluster.dir / "osd.0.asok", "perf", "dump"]).json
        return dump["store"]["discarded_bytes"]

    def test_removed_data_becomes_a_hole_with_discards_on(self):
        pool = self.pool("holes")
        value, kept = os.urandom(1 << 20), os.urandom(3 << 20)
        self.client.rados("-p", pool, "put", "kept", "-", stdin=kept)
        path = self.cluster.dir / "osd.0" / "block"

        def write_and_remove():
            names = [f"o{n}" for n in range(24)]
            for name in names:
                self.client.rados("-p", pool, "put", name, "-", stdin=value)
            written = os.stat(path).st_blocks * 512
            self.client.rados("-p", pool, "rm", *names)
            return written

        write_and_remove()
        self.assertEqual(self.counter(), 0)
        self.cluster.kill("osd.0")
        with open(self.cluster.conf, "a") as conf:
            conf.write("\n[osd]\nbdev_enable_discard = true\n")
        self.cluster.up()
        written = write_and_remove()
        eventually(lambda: self.counter() > 16 << 20, 30)
        eventually(lambda: os.stat(path).st_blocks * 512 < written - (16 << 20), 30)
        for _ in range(2):
            self.assertEqual(self.client.rados("-p", pool, "get", "kept", "-").out, kept)
            self.cluster.kill("osd.0")
            self.cluster.up()
        self.cluster.down()
        self.assertEqual(run([SHOAL, "store", "fsck", "--deep", path]).code, 0)
        self.cluster.up()


class Cores(ClusterTest):
    OPTIONS = ("--store", "disk", "--cores", "2")

    def test_store_for_two_cores_runs_on_one_two_and_four(self):
        pool = self.pool("cores", 16)
        expected = {}

        def write(label):
            for n in range(20):
                expected[f"{label}{n}"] = os.urandom(3000)
                self.client.rados("-p", pool, "put", f"{label}{n}", "-", stdin=expected[f"{label}{n}"])

        write("two")
        for cores in (1, 2, 4):
            self.cluster.down()
            run([SHOAL, "up", "--dir", self.cluster.dir, "--cores", str(cores)])
            pool_new = self.pool(f"made-on-{cores}", 8)
            self.client.rados("-p", pool_new, "put", "o", "-", stdin=b"x")
            write(f"on-{cores}-")
            self.client.ceph("osd", "pool", "set", pool, "pg_num", 16 * cores)
            for name, value in expected.items():
                self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)
        self.assertIn("the store had 2 shard(s) and has 4 now", self.cluster.log("osd.0"))
        self.assertIn("4 core(s)", self.cluster.log("osd.0"))
        socket = self.cluster.dir / "osd.0.asok"
        busy = lambda: all(run(["ceph", "daemon", socket, "pg", "cores"]).json["pgs_by_core"])
        eventually(busy, 60)
        self.cluster.down()
        self.assertEqual(run([SHOAL, "store", "fsck", "--deep", self.cluster.dir / "osd.0"]).code, 0)
        self.cluster.up()


class MoreShards(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "6G", "--cores", "1")

    def test_kill_9_while_shards_are_added_loses_nothing(self):
        pool = self.pool("kept", 16)
        kept = {f"o{n}": os.urandom(50_000) for n in range(30)}
        for name, value in kept.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        self.cluster.kill("osd.0")
        path, counts = self.cluster.dir / "osd.0", []
        opened = lambda: self.cluster.log("osd.0").count("its write cache is")
        for cores, delay in zip(range(2, 10), (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)):
            before = opened()
            start = [SHOAL, "osd", "--conf", self.cluster.conf, "--id", "0", "--no-mon-config", "--cores", str(cores)]
            osd = subprocess.Popen(list(map(str, start)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # The last line of the log before shards are added.
            eventually(lambda: opened() > before, 60)
            time.sleep(delay)
            osd.kill()
            osd.wait()
            self.assertEqual(run([SHOAL, "store", "fsck", "--deep", path]).code, 0)
            counts.append(len(run([SHOAL, "store", "stats", path, "--format", "json"]).json["shards"]))
        print(f"shards after each kill: {counts}")
        self.assertEqual(counts, sorted(counts))
        self.cluster.down()
        run([SHOAL, "up", "--dir", self.cluster.dir, "--cores", "10"])
        self.assertRegex(self.cluster.log("osd.0"), r"the store had \d+ shard\(s\) and has 10 now")
        for name, value in kept.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)


class WithoutRing(ClusterTest):
    OPTIONS = ("--store", "disk")

    @classmethod
    def setUpClass(cls):
        os.environ["SHOAL_NO_IO_URING"] = "1"
        cls.addClassCleanup(lambda: os.environ.pop("SHOAL_NO_IO_URING", None))
        super().setUpClass()

    def test_threads_do_what_the_ring_does(self):
        self.assertIn("through Threads", self.cluster.log("osd.0"))
        pool = self.pool("threads")
        self.client.rados("-p", pool, "bench", 2, "write", "-b", 65536, "--no-cleanup")
        self.cluster.kill("osd.0")
        self.cluster.up()
        self.client.rados("-p", pool, "bench", 2, "seq")


class Rot(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "1G")
    QUIET = False

    def test_a_flipped_bit_is_an_error_and_never_data(self):
        pool = self.pool("rot")
        data = {f"o{n}": os.urandom(100_000) for n in range(3)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        self.cluster.down()
        block = self.cluster.dir / "osd.0" / "block"
        self.assertEqual(run([SHOAL, "store", "fsck", "--deep", block]).code, 0)
        # A place where the object's bytes are, past the log (which has them too, and is done with them).
        wanted = data["o1"][50_000:50_100]
        with open(block, "r+b") as device:
            contents = device.read(600 << 20)
            at = contents.rfind(wanted)
            self.assertGreater(at, 0)
            device.seek(at)
            device.write(bytes([contents[at] ^ 0x10]))
        found = run([SHOAL, "store", "fsck", "--deep", block, "--format", "json"], check=False)
        self.assertEqual(found.code, 4, found.errors)
        findings = [line for shard in found.json["shards"] for line in shard["findings"]]
        self.assertEqual(len(findings), 1)
        self.assertIn("o1", findings[0])
        copied = run([SHOAL, "store", "export", block, self.cluster.dir / "copy"], check=False)
        self.assertEqual(copied.code, 4)
        self.assertIn("o1", copied.errors)

        self.cluster.up()
        for _ in range(3):
            got = self.client.rados("-p", pool, "get", "o1", "-", check=False, timeout=30)
            self.assertNotEqual(got.code, 0)
            self.assertIn("Input/output error", got.errors)
        for name in ("o0", "o2"):
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, data[name])
        told = [line for line in self.cluster.log("osd.0").splitlines() if "is damaged at byte" in line]
        self.assertEqual(len(told), 1, told)
        # Written whole, it is well again.
        self.client.rados("-p", pool, "put", "o1", "-", stdin=data["o1"])
        self.assertEqual(self.client.rados("-p", pool, "get", "o1", "-").out, data["o1"])


class Full(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "1G")
    QUIET = False

    def health(self):
        return self.client.ceph("health", "detail").text

    def test_a_full_store_refuses_and_comes_back(self):
        pool = self.pool("full")
        # Nobody asks these to stop: they fill the store until it takes no more, and then they wait.
        writers = [self.client.spawn("rados", "-p", pool, "bench", 600, "write", "-b", 1 << 20, "-t", 8,
                                     "--no-cleanup", "--run-name", f"w{n}") for n in range(3)]
        try:
            eventually(lambda: "OSD_NEARFULL" in self.health() or "OSD_FULL" in self.health(), 120)
            eventually(lambda: "OSD_FULL" in self.health() and "POOL_FULL" in self.health(), 120)
            # Keep pushing.
            time.sleep(5)
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        self.assertIn("HEALTH_ERR", self.health())
        stuck = self.client.rados("-p", pool, "put", "o2", "-", "--rados_osd_op_timeout=3", stdin=b"x", check=False)
        self.assertNotEqual(stuck.code, 0, "writes wait while the pool is full")
        bench = run([SHOAL, "bench", "--dir", self.cluster.dir, "--pool", pool, "--work", "write", "--seconds", "3"], check=False)
        self.assertEqual(bench.code, 1)
        self.assertIn("is full", bench.errors)
        kept = self.client.rados("-p", pool, "ls").text.split()
        self.assertGreater(len(kept), 300)
        sample = [name for name in kept if name.startswith("benchmark_data")][::50]
        before = {name: self.client.rados("-p", pool, "get", name, "-").out for name in sample}
        self.assertTrue(all(len(value) == 1 << 20 for value in before.values()))

        # A dead OSD with a full store comes back.
        self.cluster.kill("osd.0")
        run([SHOAL, "up", "--dir", self.cluster.dir], check=False)
        eventually(lambda: self.client.json("osd", "stat")["num_up_osds"] == 1, 30)

        doomed = [name for name in kept if name not in before][: len(kept) * 2 // 3]
        for at in range(0, len(doomed), 50):
            self.client.rados("-p", pool, "rm", *doomed[at:at + 50], "--force-full")
        eventually(lambda: "FULL" not in self.health(), 60)
        # So much, and not for a time: what is quick would fill it again.
        for n in range(10):
            self.client.rados("-p", pool, "put", f"again{n}", "-", stdin=bytes([n]) * (1 << 20))
        for n in range(10):
            self.assertEqual(self.client.rados("-p", pool, "get", f"again{n}", "-").out, bytes([n]) * (1 << 20))
        for name, value in before.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)
        self.assertFalse([line for line in self.cluster.unexpected() if "takes no further" in line])

