"""Block images by stock clients of 16.2 on three OSDs and pools of three copies: `rbd`, python3-rbd, fio, QEMU. Every
subcommand of `rbd` beside stock's answer is test_rbd_commands."""
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import harness
from harness import ClusterTest, eventually

MIB = 1 << 20
#: OSDs forget a watcher that is silent for so long; the default, 30 s, is a long time for a test.
WATCH_SECONDS = 8

#: A client that takes the exclusive lock of an image, says so, and writes again when it gets a line.
HOLDER = textwrap.dedent("""
    import rados, rbd, sys
    with rados.Rados(conffile=sys.argv[1], name="client.admin") as session, session.open_ioctx(sys.argv[2]) as io:
        image = rbd.Image(io, sys.argv[3])
        image.write(b"first" * 100, 0)
        image.flush()
        print(session.get_addrs(), flush=True)
        sys.stdin.readline()
        try:
            image.write(b"stale" * 100, 0)
            image.flush()
            print("written", flush=True)
        except Exception as error:
            print(type(error).__name__, getattr(error, "errno", None), flush=True)
        import os
        os._exit(0)
""")


def contents(size, seed):
    """Random bytes with holes."""
    dice = random.Random(seed)
    return b"".join(bytes(MIB // 4) if dice.random() < 0.4 else dice.randbytes(MIB // 4) for _ in range(size // (MIB // 4)))


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Images(ClusterTest):
    OSDS = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import rados
        import rbd
        cls.rbd_module, cls.rados_module = rbd, rados
        cls.client.ceph("config", "set", "osd", "osd_client_watch_timeout", WATCH_SECONDS)
        cls.client.ceph("osd", "pool", "create", "images", "8")
        cls.client.run("rbd", "pool", "init", "images")
        cls.session = rados.Rados(conffile=str(cls.cluster.conf), name="client.admin")
        cls.session.connect(timeout=30)
        cls.io = cls.session.open_ioctx("images")
        cls.work = Path(tempfile.mkdtemp(prefix="images-", dir=cls.cluster.dir))
        cls.environment = {**harness.clean_environment(), "CEPH_CONF": str(cls.cluster.conf)}

    @classmethod
    def tearDownClass(cls):
        cls.io.close()
        cls.session.shutdown()
        super().tearDownClass()

    def rbd(self, *args, **how):
        return self.client.run("rbd", "-p", "images", *args, **how)

    def rbd_json(self, *args):
        return self.rbd(*args, "--format", "json").json

    def file(self, name, data):
        path = self.work / name
        path.write_bytes(data)
        return path

    def exported(self, spec):
        """The digest of an image's or a snapshot's contents."""
        path = self.work / "exported"
        path.unlink(missing_ok=True)
        self.rbd("export", spec, path)
        return digest(path.read_bytes())

    def test_first_image_by_the_words_of_up(self):
        """The three lines that `shoal up` prints are run as they are."""
        said = self.cluster.said.partition("docs/guide/images.md")[2].partition("\n")[2]
        lines = [line[2:] for line in said.splitlines() if line.startswith("  ")][:3]
        self.assertEqual(len(lines), 3, self.cluster.said)
        done = harness.run(["sh", "-ec", "\n".join(lines)], env=harness.clean_environment())
        self.assertIn("elapsed", done.text)
        self.assertIn("disk", self.client.run("rbd", "ls").text)

    def test_life_of_an_image(self):
        first, second = contents(12 * MIB, 1), contents(12 * MIB, 2)
        self.rbd("import", "--image", "a", self.file("first", first))
        self.assertEqual(self.exported("a"), digest(first))
        self.rbd("snap", "create", "a@one")
        with self.rbd_module.Image(self.io, "a") as image:
            image.write(second[:4 * MIB], 0)
            image.discard(8 * MIB, 4 * MIB)
        changed = second[:4 * MIB] + first[4 * MIB:8 * MIB] + bytes(4 * MIB)
        self.assertEqual(self.exported("a"), digest(changed))
        self.assertEqual(self.exported("a@one"), digest(first))
        # Differences restore the same bytes elsewhere.
        self.rbd("snap", "create", "a@two")
        whole, later = self.work / "whole.diff", self.work / "later.diff"
        self.rbd("export-diff", "a@one", whole)
        self.rbd("export-diff", "--from-snap", "one", "a@two", later)
        self.rbd("create", "restored", "--size", "12M")
        self.rbd("import-diff", whole, "restored")
        self.rbd("import-diff", later, "restored")
        self.assertEqual([self.exported("restored@one"), self.exported("restored")], [digest(first), digest(changed)])
        # Clones of both formats read through to the parent, until they are flattened.
        self.rbd("snap", "protect", "a@one")
        for number in (1, 2):
            clone = f"clone{number}"
            self.rbd("clone", f"--rbd-default-clone-format={number}", "images/a@one", f"images/{clone}")
            self.assertEqual(self.exported(clone), digest(first))
            with self.rbd_module.Image(self.io, clone) as image:
                image.write(b"child", 5 * MIB)
            child = first[:5 * MIB] + b"child" + first[5 * MIB + 5:]
            self.assertEqual(self.exported(clone), digest(child))
            self.assertEqual([one["image"] for one in self.rbd_json("children", "a@one")], [clone])
            self.rbd("flatten", clone)
            self.assertEqual(self.rbd_json("children", "a@one"), [])
            self.assertEqual(self.exported(clone), digest(child))
        self.rbd("snap", "unprotect", "a@one")
        # Rollback, copies with snapshots, resize.
        self.rbd("snap", "rollback", "a@one")
        self.assertEqual(self.exported("a"), digest(first))
        self.rbd("deep", "copy", "images/a", "images/deep")
        self.assertEqual([self.exported("deep@two"), self.exported("deep")], [digest(changed), digest(first)])
        self.rbd("resize", "deep", "--size", "5M", "--allow-shrink")
        self.rbd("resize", "deep", "--size", "12M")
        self.assertEqual(self.exported("deep"), digest(first[:5 * MIB] + bytes(7 * MIB)))
        # The trash keeps an image, and gives it back.
        self.rbd("trash", "mv", "clone1")
        (trashed,) = self.rbd_json("trash", "ls")
        self.rbd("trash", "restore", trashed["id"])
        self.assertEqual(self.exported("clone1"), digest(child))
        self.rbd("trash", "mv", "clone1")
        self.rbd("trash", "purge")
        # A group's snapshot holds all its images at one moment.
        self.rbd("group", "create", "images/g")
        for name in ("clone2", "restored"):
            self.rbd("group", "image", "add", "images/g", f"images/{name}")
        self.rbd("group", "snap", "create", "images/g@s")
        for name in ("clone2", "restored"):
            with self.rbd_module.Image(self.io, name) as image:
                image.write(b"later", 0)
        self.rbd("group", "snap", "rollback", "images/g@s")
        self.assertEqual([self.exported("clone2"), self.exported("restored")], [digest(child), digest(changed)])
        self.rbd("group", "snap", "rm", "images/g@s")
        self.rbd("group", "rm", "images/g")
        for name in ("a", "deep", "restored", "clone2"):
            self.rbd("snap", "purge", name)
            self.rbd("rm", name)
        self.assertEqual({"a", "deep", "restored", "clone1", "clone2"} & set(self.rbd_json("ls")), set())
        # Nothing of them stays in the pool but the directories of images.
        eventually(lambda: not [name for name in self.client.rados("-p", "images", "ls").text.split() if "rbd_data" in name
                                and not self.is_of_an_image(name)], 30)

    def is_of_an_image(self, name):
        """True for a data object whose image another test has."""
        ids = [self.rbd_json("info", image)["id"] for image in self.rbd_json("ls")]
        return name.split(".")[1] in ids

    def test_python_rbd(self):
        rbd = self.rbd_module
        rbd.RBD().create(self.io, "py", 8 * MIB, order=20)
        data = contents(4 * MIB, 3)
        with rbd.Image(self.io, "py") as image:
            self.assertEqual(image.write(data, MIB), len(data))
            self.assertEqual(image.read(0, MIB), bytes(MIB))
            self.assertEqual(image.read(MIB, len(data)), data)
            image.create_snap("s")
            image.write_zeroes(MIB, 100)
            image.discard(2 * MIB, MIB)
            extents = []
            image.diff_iterate(0, image.size(), "s", lambda at, size, there: extents.append((at, size, there)))
            self.assertEqual([(at, there) for at, _, there in extents], [(MIB, True), (2 * MIB, False)])
            done = []
            completions = [image.aio_write(bytes([n]) * 4096, n * 4096, lambda c: done.append(c.get_return_value()))
                           for n in range(64)]
            for one in completions:
                one.wait_for_complete_and_cb()
            self.assertEqual(done, [0] * 64)
            self.assertEqual(image.read(63 * 4096, 4096), b"?" * 4096)
            image.metadata_set("k", "v")
            self.assertEqual(list(image.metadata_list()), [("k", "v")])
            with rbd.Image(self.io, "py", snapshot="s", read_only=True) as at_snapshot:
                self.assertEqual(at_snapshot.read(MIB, len(data)), data)
            image.remove_snap("s")
        rbd.RBD().remove(self.io, "py")

    def test_exclusive_lock_goes_from_writer_to_writer(self):
        rbd = self.rbd_module
        rbd.RBD().create(self.io, "handed", 8 * MIB)
        with self.rados_module.Rados(conffile=str(self.cluster.conf), name="client.admin") as other, \
                other.open_ioctx("images") as other_io, \
                rbd.Image(self.io, "handed") as mine, rbd.Image(other_io, "handed") as theirs:
            for turn in range(6):
                writer, reader = (mine, theirs) if turn % 2 else (theirs, mine)
                writer.write(bytes([turn]) * 4096, 0)
                self.assertTrue(writer.is_exclusive_lock_owner())
                self.assertFalse(reader.is_exclusive_lock_owner())
                writer.flush()
                reader.invalidate_cache()
                self.assertEqual(reader.read(0, 4096), bytes([turn]) * 4096)
            self.assertEqual(len(list(mine.watchers_list())), 2)
        rbd.RBD().remove(self.io, "handed")

    def test_frozen_lock_owner_is_fenced(self):
        """The lock of a client that freezes is broken when its watch has timed out, and the client is on the blocklist: the
        write that it sends when it awakes is refused."""
        rbd = self.rbd_module
        rbd.RBD().create(self.io, "fenced", 8 * MIB)
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(self.cluster.conf), "images", "fenced"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(holder.kill)
        address = holder.stdout.readline().strip()
        self.assertTrue(address)
        holder.send_signal(signal.SIGSTOP)
        with rbd.Image(self.io, "fenced") as image:
            # It waits until the owner's watch is gone.
            image.write(b"after" * 100, 0)
            image.flush()
            blocked = [one["addr"] for one in self.client.json("osd", "blocklist", "ls")]
            self.assertTrue(any(one in address for one in blocked), f"{address} is not in {blocked}")
            holder.send_signal(signal.SIGCONT)
            said, _ = holder.communicate("go on\n", timeout=60)
            self.assertNotIn("written", said)
            image.invalidate_cache()
            self.assertEqual(image.read(0, 500), b"after" * 100)
        rbd.RBD().remove(self.io, "fenced")

    @unittest.skipUnless(shutil.which("rbd-fuse") and shutil.which("mkfs.ext4"), "rbd-fuse or e2fsprogs is not installed")
    def test_file_system_by_the_words_of_the_guide(self):
        """ext4 on an image that rbd-fuse shows as a file: written, unmounted, checked, mounted again."""
        self.rbd("create", "disk", "--size", "64M")
        images, at = self.work / "fuse", self.work / "mounted"
        images.mkdir(), at.mkdir()
        fuse = ["rbd-fuse", "-c", str(self.cluster.conf), "-p", "images", str(images)]
        if harness.run(fuse, check=False).code:
            self.skipTest("no FUSE here")
        mounted = []
        try:
            harness.run(["mkfs.ext4", "-q", "-F", images / "disk"])
            if harness.run(["mount", "-o", "loop", images / "disk", at], check=False).code:
                self.skipTest("no loop devices here")
            mounted.append(at)
            data = contents(4 * MIB, 5)
            (at / "file").write_bytes(data)
            harness.run(["umount", mounted.pop()])
            harness.run(["fsck.ext4", "-f", "-n", images / "disk"])
            harness.run(["umount", images])
            harness.run(fuse)
            harness.run(["mount", "-o", "loop", images / "disk", at])
            mounted.append(at)
            self.assertEqual(digest((at / "file").read_bytes()), digest(data))
        finally:
            for path in (*mounted, images):
                harness.run(["umount", path], check=False)
        self.rbd("rm", "disk")

    def fio(self, image, *options, seconds=None):
        timed = [f"--runtime={seconds}", "--time_based"] if seconds else []
        done = harness.run(["fio", "--ioengine=rbd", "--pool=images", f"--rbdname={image}", "--direct=1", "--output-format=json",
                            *options, *timed], env=self.environment, check=False)
        self.assertEqual(done.code, 0, done.text[-1000:] + done.errors[-1000:])
        (job,) = json.loads(done.text[done.text.index("{"):])["jobs"]
        self.assertEqual(job["error"], 0)
        return job

    @unittest.skipUnless(shutil.which("fio"), "fio is not installed")
    def test_fio(self):
        self.rbd("create", "rbd0", "--size", "64M")
        job = self.fio("rbd0", "--fsync=1", "--rw=write", "--bs=4k", "--numjobs=1", "--iodepth=1", "--group_reporting",
                       "--name=4k-sync-write-1", seconds=2)
        self.assertGreater(job["write"]["total_ios"], 0)
        job = self.fio("rbd0", "--rw=randwrite", "--bs=16k", "--iodepth=16", "--size=8M", "--verify=crc32c", "--verify_fatal=1",
                       "--verify_state_save=0", "--name=verify")
        self.assertGreaterEqual(job["read"]["io_bytes"], 8 * MIB)
        self.rbd("rm", "rbd0")

    @unittest.skipUnless(shutil.which("qemu-img") and shutil.which("qemu-io"), "qemu-utils is not installed")
    def test_qemu(self):
        def run(*argv):
            return harness.run([str(word) for word in argv], env=self.environment, check=False)

        target, raw = "rbd:images/q", self.file("disk.raw", contents(8 * MIB, 4))
        done = run("qemu-img", "create", "-f", "raw", target, "8M")
        if done.code and "Unknown protocol" in done.text + done.errors:
            self.skipTest("qemu-block-extra is not installed")
        self.assertEqual(done.code, 0, done.errors)
        for argv in (("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", raw, target),
                     ("qemu-img", "compare", "-f", "raw", "-F", "raw", raw, target),
                     ("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, "rbd:images/qcow"),
                     ("qemu-img", "check", "-f", "qcow2", "rbd:images/qcow"),
                     ("qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, "rbd:images/qcow"),
                     ("qemu-img", "snapshot", "-c", "s", target),
                     ("qemu-img", "bench", "-f", "raw", "-w", "-c", "200", "-d", "16", target),
                     ("qemu-img", "bench", "-f", "raw", "-c", "200", "-d", "16", target),
                     ("qemu-img", "resize", "-f", "raw", target, "16M"),
                     ("qemu-io", "-f", "raw", "-c", "write -P 0x5a 3M 1M", "-c", "read -P 0x5a 3M 1M", "-c", "discard 3M 1M",
                      "-c", "read -P 0 3M 1M", "-c", "write -z 4M 64k", "-c", "read -P 0 4M 64k", "-c", "flush", target),
                     ("qemu-img", "snapshot", "-a", "s", target), ("qemu-img", "snapshot", "-d", "s", target)):
            with self.subTest(" ".join(map(str, argv[:3]))):
                done = run(*argv)
                self.assertEqual(done.code, 0, done.text + done.errors)
                self.assertNotIn("Pattern verification failed", done.text)
        self.assertEqual(self.rbd_json("info", "q")["size"], 8 * MIB)
        for name in ("q", "qcow"):
            self.rbd("rm", name)


if __name__ == "__main__":
    unittest.main()
