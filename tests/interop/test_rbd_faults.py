"""Block images while OSDs are killed, on pools of three copies: fio writes at random and verifies every block (`--verify=crc32c`),
and beside it snapshots are taken, rolled back and trimmed, clones flattened, PGs split. Each OSD dies in its turn. No read is wrong,
no command fails, and a deep scrub finds nothing. Planted damage shows that fio and the scrub find it."""
import hashlib
import json
import shutil
import subprocess
import time
import unittest
from pathlib import Path

import harness
import kills
import replicated
from harness import ClusterTest, eventually

POOL = "images"
IMAGE_MIB = 32
#: So long the gate's and the long run are.
GATE_SECONDS, LONG_SECONDS = 30, 600
PGS_FIRST, PGS_MAX = 8, 32
#: Writes wait while the dead OSD is not marked down.
COMMAND_SECONDS_MAX = 300
SCRUB_SECONDS_MAX = 120
#: The image of the planted damage: one object.
SMALL_MIB = 1


class ImagesUnderFaults(ClusterTest):
    OSDS = 3
    #: Deaths leave errors in the logs of those that live.
    QUIET = False

    @classmethod
    def make_cluster(cls):
        return replicated.make_cluster(cls.OSDS)

    @classmethod
    def setUpClass(cls):
        if not shutil.which("fio"):
            raise unittest.SkipTest("fio is not installed")
        super().setUpClass()
        cls.pgs_wanted = PGS_FIRST
        cls.client.ceph("osd", "pool", "create", POOL, PGS_FIRST, PGS_FIRST, "replicated", "--size", "3")
        cls.client.ceph("osd", "pool", "set", POOL, "pg_autoscale_mode", "off", check=False)
        cls.client.run("rbd", "pool", "init", POOL)
        cls.pgs = replicated.Pgs(cls.client)
        cls.environment = {**harness.clean_environment(), "CEPH_CONF": str(cls.cluster.conf)}

    def rbd(self, *args):
        return self.client.run("rbd", "-p", POOL, *args, timeout=COMMAND_SECONDS_MAX)

    def digest(self, spec):
        """The digest of an image's or a snapshot's contents."""
        path = Path(self.cluster.dir) / "exported"
        path.unlink(missing_ok=True)
        self.rbd("export", "--no-progress", spec, path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def fio(self, image, seed, mib, *options):
        """Starts a random write of an image that reads every block back and verifies it."""
        argv = ["fio", "--ioengine=rbd", f"--pool={POOL}", f"--rbdname={image}", "--direct=1", "--rw=randwrite", "--bs=16k",
                "--iodepth=16", f"--size={mib}M", f"--randseed={seed}", "--verify=crc32c", "--verify_fatal=1",
                "--verify_state_save=0", "--name=verify", *options]
        return subprocess.Popen(argv, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, fio):
        out, _ = fio.communicate(timeout=COMMAND_SECONDS_MAX)
        self.assertEqual(fio.returncode, 0, out[-3000:])
        self.assertIn("err= 0", out)

    def split(self):
        """The pool gets more PGs, until it has many."""
        if self.pgs_wanted < PGS_MAX:
            self.pgs_wanted += 4
            self.client.ceph("osd", "pool", "set", POOL, "pg_num", self.pgs_wanted)

    def deep_scrub(self):
        """Scrubs all PGs of the pool, and returns those with inconsistent objects."""
        rows = self.pgs.all(POOL)
        before = {row["pgid"]: row["last_deep_scrub_stamp"] for row in rows}
        for pgid in before:
            self.client.ceph("pg", "deep-scrub", pgid)
        eventually(lambda: all(row["last_deep_scrub_stamp"] != before[row["pgid"]] for row in self.pgs.all(POOL)), SCRUB_SECONDS_MAX)
        return json.loads(self.client.rados("list-inconsistent-pg", POOL).text)

    def round(self, number):
        # fio holds the lock of the image; snapshots are taken by its librbd, for whoever asks. Those of the round before are
        # trimmed meanwhile.
        fio = self.fio("disk", number, IMAGE_MIB)
        try:
            for turn in range(2):
                self.rbd("snap", "create", "--no-progress", f"disk@during-{turn}")
            self.split()
            for turn in range(2):
                self.rbd("snap", "rm", "--no-progress", f"disk@during-{turn}")
        finally:
            self.end(fio)
        # A rollback brings back what was verified, and the snapshot holds it all the while.
        self.rbd("snap", "create", "--no-progress", "disk@kept")
        kept = self.digest("disk@kept")
        # A clone is written, and flattened while it is written.
        self.rbd("clone", "--rbd-default-clone-format", "2", f"{POOL}/disk@kept", f"{POOL}/child")
        fio = self.fio("child", number + 1000, IMAGE_MIB // 2)
        try:
            self.rbd("flatten", "--no-progress", "child")
        finally:
            self.end(fio)
        self.rbd("bench", "--io-type", "write", "--io-size", "64K", "--io-total", "8M", "--io-pattern", "rand", "disk")
        self.assertEqual(self.digest("disk@kept"), kept)
        self.rbd("snap", "rollback", "--no-progress", "disk@kept")
        self.assertEqual(self.digest("disk"), kept)
        self.rbd("rm", "--no-progress", "child")
        self.rbd("snap", "rm", "--no-progress", "disk@kept")

    def run_rounds(self, seconds):
        self.rbd("create", "disk", "--size", f"{IMAGE_MIB}M")
        deadline, rounds = time.monotonic() + seconds, 0
        with kills.Killer(self.cluster, in_turn=True) as killer:
            while time.monotonic() < deadline or len(set(killer.deaths)) < self.OSDS:
                self.round(rounds)
                rounds += 1
        self.pgs.wait_clean()
        self.assertEqual(self.deep_scrub(), [])
        self.rbd("rm", "--no-progress", "disk")
        # Nothing of the images stays.
        eventually(lambda: not [name for name in self.client.rados("-p", POOL, "ls").text.split() if "rbd_data" in name], 60)
        self.pgs.wait_clean()
        self.assertEqual(self.deep_scrub(), [])
        print(f"{rounds} rounds in {seconds} s, {self.pgs_wanted} PGs, deaths of OSDs {killer.deaths}", flush=True)

    def test_planted_damage_is_found(self):
        """A byte that another client writes fails fio's verification, and a byte in one copy fails the scrub."""
        self.rbd("create", "planted", "--size", f"{SMALL_MIB}M")
        self.end(self.fio("planted", 1, SMALL_MIB))
        name = self.rbd("info", "planted", "--format", "json").json["block_name_prefix"] + ".0000000000000000"
        self.client.rados("-p", POOL, "put", name, "-", "--offset", "70000", stdin=b"?")
        fio = self.fio("planted", 1, SMALL_MIB, "--verify_only")
        out, _ = fio.communicate(timeout=COMMAND_SECONDS_MAX)
        self.assertNotEqual(fio.returncode, 0, out)
        self.assertIn("crc32c: verify failed", out)
        self.pgs.wait_clean()
        row = self.client.json("osd", "map", POOL, name)
        osd = row["acting"][-1]
        tool = (harness.SHOAL, "store", "object")
        self.cluster.stop_daemon(f"osd.{osd}")
        where = (self.cluster.dir / f"osd.{osd}", row["pgid"], name)
        data = bytearray(harness.run([*tool, "get-bytes", *where]).out)
        data[5] ^= 1
        harness.run([*tool, "set-bytes", *where], stdin=bytes(data))
        self.cluster.start_daemon(f"osd.{osd}")
        eventually(lambda: self.client.json("osd", "dump")["osds"][osd]["up"], replicated.DOWN_SECONDS_MAX)
        self.pgs.wait_clean()
        self.assertEqual(self.deep_scrub(), [row["pgid"]])
        self.client.ceph("pg", "repair", row["pgid"])
        eventually(lambda: not self.deep_scrub(), SCRUB_SECONDS_MAX, every=1)
        self.rbd("rm", "--no-progress", "planted")

    def test_fio_verifies_while_osds_die(self):
        self.run_rounds(GATE_SECONDS)

    @harness.long_only
    def test_fio_verifies_for_ten_minutes(self):
        harness.give_time(LONG_SECONDS * 4)
        self.run_rounds(LONG_SECONDS)


if __name__ == "__main__":
    unittest.main()
