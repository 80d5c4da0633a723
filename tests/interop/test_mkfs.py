"""`shoal osd --mkfs` formats a blank device, and anything else only with --force.

The devices are sparse files that real tools have written to. A tool that is not installed is a skip.
"""
import hashlib
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from harness import SHOAL, run

SIZE = 256 << 20
#: The copies of the superblock.
SUPERBLOCKS = (0, 4096, SIZE - 4096)
#: What mkfs must not have touched when it refuses.
END = 1 << 20


class Mkfs(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="shoal-mkfs-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.device = self.dir / "device"
        self.blank()
        self.conf = self.dir / "ceph.conf"
        self.conf.write_text(
            "[global]\nfsid = 7aefc863-f19f-4ca7-bfc3-6bc62d6338e4\n"
            f"[osd]\nosd data = {self.dir}/$name\nosd objectstore = disk\nlog file = {self.dir}/$name.log\n"
            "[osd.0]\nosd uuid = c1e2dd08-c437-4f77-b8fc-357a9183d212\n"
            "[osd.1]\nosd uuid = 51fdac93-90b6-4850-b756-e826259102fb\n")

    def blank(self):
        self.device.write_bytes(b"")
        os.truncate(self.device, SIZE)

    def write(self, offset, data):
        with open(self.device, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def tool(self, *argv, stdin=b""):
        if not shutil.which(argv[0]):
            self.skipTest(f"{argv[0]} is not installed")
        run([*map(str, argv)], stdin)

    def digest(self):
        with open(self.device, "rb") as file:
            first = file.read(END)
            file.seek(-END, os.SEEK_END)
            return hashlib.sha256(first + file.read()).hexdigest()

    def mkfs(self, *options, osd=0, device=None):
        return run([SHOAL, "osd", "--conf", self.conf, "--id", str(osd), "--mkfs",
                    "--device", device or self.device, *options], check=False)

    def assert_refused(self, *named, osd=0):
        before = self.digest()
        done = self.mkfs(osd=osd)
        self.assertNotEqual(done.code, 0, done.text + done.errors)
        for words in ("is not blank", "--force", *named):
            self.assertIn(words, done.errors)
        self.assertEqual(self.digest(), before, "a refused mkfs wrote to the device")

    def assert_forced(self, osd=0):
        forced = self.mkfs("--force", osd=osd)
        self.assertEqual(forced.code, 0, forced.errors)
        again = self.mkfs(osd=osd)
        self.assertEqual(again.code, 0, again.errors)
        self.assertIn("already", again.errors + again.text + (self.dir / f"osd.{osd}.log").read_text())

    def test_blank_device_is_formatted(self):
        self.assertEqual(self.mkfs().code, 0)
        self.assertEqual(self.mkfs().code, 0, "a second time finds the store")

    def test_store_of_another_osd_is_refused(self):
        self.assertEqual(self.mkfs(osd=1).code, 0)
        self.assert_refused("osd.1", "51fdac93")
        self.assert_forced()

    def test_store_of_a_newer_version_is_refused(self):
        self.assertEqual(self.mkfs().code, 0)
        for copy in SUPERBLOCKS:
            self.write(copy + 8, bytes([9]))
        self.assert_refused("shoal store", "version field is 9")
        self.assert_forced()

    def test_shrunk_device_is_refused(self):
        self.assertEqual(self.mkfs().code, 0)
        os.truncate(self.device, SIZE // 2)
        self.assert_refused("shoal store", f"made for {SIZE} bytes", f"has {SIZE // 2}")
        self.assert_forced()

    def test_store_with_zeroed_superblock_is_refused(self):
        self.assertEqual(self.mkfs().code, 0)
        for copy in SUPERBLOCKS:
            self.write(copy, bytes(4096))
        self.assert_refused("shoal store whose superblocks are gone")
        self.assert_forced()

    def test_data_without_signature_is_refused(self):
        self.write(SIZE - 77, b"x")
        self.assert_refused("data without a known signature", str(SIZE - 77))
        self.assert_forced()

    def test_signature_behind_the_last_block_is_refused(self):
        for sectors in (1, 7):
            with self.subTest(sectors):
                self.blank()
                os.truncate(self.device, SIZE + sectors * 512)
                self.write(SIZE + sectors * 512 - 512, b"EFI PART")
                self.assert_refused("backup of a GPT partition table", str(SIZE + sectors * 512 - 512))
                self.assert_forced()
                with open(self.device, "rb") as file:
                    file.seek(SIZE)
                    self.assertEqual(file.read(), bytes(sectors * 512))

    def test_bluestore_label_is_refused(self):
        self.write(0, b"bluestore block device\n51fdac93-90b6-4850-b756-e826259102fb\n")
        self.assert_refused("BlueStore")
        self.assert_forced()

    def test_ext4_file_system_is_refused(self):
        self.tool("mkfs.ext4", "-q", "-F", self.device)
        self.assert_refused("ext4 file system")
        self.assert_forced()

    def test_ext4_with_zeroed_first_mib_is_refused(self):
        self.tool("mkfs.ext4", "-q", "-F", "-b", "4096", self.device)
        self.write(0, bytes(1 << 20))
        self.assert_refused("backup superblock of an ext2, ext3 or ext4 file system")

    def test_xfs_file_system_is_refused(self):
        os.truncate(self.device, 512 << 20)
        self.tool("mkfs.xfs", "-q", self.device)
        self.assert_refused("XFS file system")
        self.assert_forced()

    def test_btrfs_file_system_is_refused(self):
        self.tool("mkfs.btrfs", "-q", self.device)
        self.assert_refused("Btrfs file system")
        self.assert_forced()

    def test_fat_file_system_is_refused(self):
        self.tool("mkfs.vfat", self.device)
        self.assert_refused("FAT file system")

    def test_swap_space_is_refused(self):
        self.tool("mkswap", self.device)
        self.assert_refused("swap space")
        self.assert_forced()

    def test_gpt_is_refused_also_when_only_its_backup_is_left(self):
        self.tool("sgdisk", "--new=1:2048:0", self.device)
        self.assert_refused("GPT partition table (byte 512)", "backup of a GPT partition table")
        self.write(0, bytes(1 << 20))
        self.assert_refused("backup of a GPT partition table")
        self.assert_forced()

    def test_mbr_is_refused(self):
        self.tool("sfdisk", "--quiet", "--label", "dos", self.device, stdin=b"2048,,L\n")
        self.assert_refused("MBR partition table")

    def test_luks_header_is_refused(self):
        self.tool("cryptsetup", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
                  "--batch-mode", self.device, "-", stdin=b"secret")
        self.assert_refused("LUKS encryption header", "second LUKS2 encryption header")
        self.assert_forced()

    def test_lvm_physical_volume_is_refused(self):
        self.tool("losetup", "--version")
        made = run(["losetup", "--find", "--show", str(self.device)], check=False)
        if made.code != 0:
            self.skipTest(f"no loop device: {made.errors.strip()}")
        loop = made.text.strip()
        self.addCleanup(run, ["losetup", "--detach", loop])
        self.tool("pvcreate", "--quiet", "--yes", "--devices", loop, loop)
        done = self.mkfs(device=loop)
        self.assertNotEqual(done.code, 0)
        self.assertIn("LVM physical volume", done.errors)

    def test_md_member_with_metadata_at_the_end_is_refused(self):
        self.tool("mdadm", "--version")
        made = run(["losetup", "--find", "--show", str(self.device)], check=False)
        if made.code != 0:
            self.skipTest(f"no loop device: {made.errors.strip()}")
        loop = made.text.strip()
        self.addCleanup(run, ["losetup", "--detach", loop])
        created = run(["mdadm", "--create", "/dev/md/shoal-test", "--run", "--metadata=1.0", "--level=1",
                       "--raid-devices=2", loop, "missing"], check=False)
        if created.code != 0:
            self.skipTest(f"no md here: {created.errors.strip()}")
        run(["mdadm", "--stop", "/dev/md/shoal-test"])
        done = self.mkfs(device=loop)
        self.assertNotEqual(done.code, 0)
        self.assertIn("md RAID member (metadata 1.0)", done.errors)
