"""Block images by the Linux kernel's client and as a disk of a QEMU guest: stock Debian's kernel 6.1 and its `rbd`, in a guest. Three OSDs
and pools of three copies."""
import json
import signal
import subprocess
import textwrap
import unittest

import harness
from guest import Guest
from harness import Cluster
from replicated import FAULTS, ReplicatedTest, configure

MIB = 1 << 20
#: The study's own command.
FIO = ("fio --randrepeat=1 --ioengine=libaio --direct=1 --gtod_reduce=1 --name=test --filename=test --bs=4k --iodepth=64 --size=64M "
       "--readwrite=randrw --rwmixread=75")


class Kernel(ReplicatedTest):
    """The cluster listens on the guest's link."""

    @classmethod
    def make_cluster(cls):
        if harness.STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        cls.guest = Guest()
        try:
            cluster = Cluster("--store", "disk", "--size", "4G", "--addr", cls.guest.host, osds=cls.OSDS)
        except Exception:
            cls.guest.close()
            raise
        cls.addClassCleanup(cls.guest.close)
        configure(cluster, *FAULTS)
        return cluster

    def setUp(self):
        super().setUp()
        self.addCleanup(self.guest.kill)
        self.make_pool("rbd")

    def rbd(self, *args, **how):
        return self.client.run("rbd", *args, **how)

    def boot(self, script, *options):
        """A guest with a script, in which $R is `rbd` with its session."""
        prelude = f"""\
            R="rbd -c {self.cluster.conf}"
            map() {{ $R map -o "noudev${{2:+,$2}}" "$1"; }}
            unmap() {{ $R unmap -o noudev "$1"; }}
        """
        self.guest.start(textwrap.dedent(prelude) + textwrap.dedent(script), *options)

    def test_file_system_in_both_modes(self):
        self.rbd("create", "--size", "256M", "image")
        self.boot("""
            device=$(map image)
            grep -q ms_mode=prefer-crc /sys/bus/rbd/devices/0/config_info
            [ "$(blockdev --getsize64 $device)" = 268435456 ]
            mkfs.ext4 -q $device
            mount $device /mnt/fs
            dd if=/dev/urandom of=/mnt/fs/file bs=1M count=32 2> /dev/null
            sum=$(sha256sum < /mnt/fs/file)
            umount /mnt/fs
            unmap $device
            device=$(map image ms_mode=secure)
            fsck.ext4 -fn $device > /dev/null
            mount $device /mnt/fs
            [ "$(sha256sum < /mnt/fs/file)" = "$sum" ]
            dd if=/dev/urandom of=/mnt/fs/other bs=1M count=8 2> /dev/null
            rm /mnt/fs/file
            sync
            fstrim /mnt/fs
            umount /mnt/fs
            fsck.ext4 -fn $device > /dev/null
            unmap $device
        """)
        self.guest.finish()
        # What was trimmed is gone: of 40 MiB of files 8 are left, beside the file system's own.
        [image] = json.loads(self.rbd("du", "--exact", "image", "--format", "json").text)["images"]
        self.assertLess(image["used_size"], 32 * MIB)
        self.assertEqual(self.rbd("status", "image").text, "Watchers: none\n")

    @harness.long_only
    def test_image_changes_under_the_kernel(self):
        """Another client resizes the image, takes its lock and gives it back, and makes a snapshot, while the kernel has it mapped."""
        self.rbd("create", "--size", "64M", "image")
        self.boot("""
            device=$(map image)
            dd if=/dev/urandom of=first bs=1M count=4 2> /dev/null
            dd if=first of=$device bs=1M oflag=direct 2> /dev/null
            say written
            await resized
            [ "$(blockdev --getsize64 $device)" = 100663296 ]
            await snapped
            dd if=$device of=other bs=1M count=1 skip=80 iflag=direct 2> /dev/null
            tr -d '\\252' < other | cmp - /dev/null
            dd if=/dev/zero of=$device bs=1M count=4 oflag=direct 2> /dev/null
            snapshot=$(map image@before)
            dd if=$snapshot bs=1M count=4 iflag=direct 2> /dev/null | cmp - first
            fails dd if=/dev/zero of=$snapshot bs=4096 count=1 oflag=direct
            unmap $snapshot
            clone=$(map clone)
            dd if=$clone bs=1M count=4 iflag=direct 2> /dev/null | cmp - first
            dd if=/dev/urandom of=$clone bs=4096 count=1 oflag=direct 2> /dev/null
            unmap $clone
            unmap $device
        """)
        self.guest.wait_for("written")
        watchers = json.loads(self.rbd("status", "image", "--format", "json").text)["watchers"]
        self.assertEqual([watcher["address"].split(":")[0] for watcher in watchers], [self.guest.addr])
        self.rbd("resize", "--size", "96M", "image", "--no-progress")
        self.guest.say("resized")
        # It asks the kernel for the exclusive lock.
        writer = ("import rados, rbd, sys\nwith rados.Rados(conffile=sys.argv[1], name='client.admin') as session, "
                  "session.open_ioctx('rbd') as io, rbd.Image(io, 'image') as image: image.write(b'\\xaa' * (1 << 20), 80 << 20)")
        subprocess.run(["/usr/bin/python3", "-c", writer, self.cluster.conf], check=True, timeout=60)
        self.rbd("snap", "create", "image@before", "--no-progress")
        self.rbd("clone", "--rbd-default-clone-format", "2", "image@before", "clone")
        self.guest.say("snapped")
        self.guest.finish()

    @harness.long_only
    def test_file_system_lives_on_while_an_osd_dies(self):
        self.rbd("create", "--size", "256M", "image")
        self.boot(f"""
            device=$(map image)
            mkfs.ext4 -q $device
            mount $device /mnt/fs
            cd /mnt/fs
            say /mnt/share/mounted
            await /mnt/share/killed
            {FIO}
            fio --name=verified --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --size=16M --iodepth=16 --verify=crc32c
            say /mnt/share/worked
            await /mnt/share/back
            fio --name=verified --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --size=16M --iodepth=16 --verify=crc32c --verify_only
            sha256sum test > /mnt/share/sums
            cd /
            umount /mnt/fs
            unmap $device
            device=$(map image ms_mode=crc)
            fsck.ext4 -fn $device > /dev/null
            mount -o ro $device /mnt/fs
            cd /mnt/fs
            sha256sum -c /mnt/share/sums
            cd /
            umount /mnt/fs
            unmap $device
        """)
        self.guest.wait_for("mounted")
        self.cluster.signal("osd.1", signal.SIGKILL)
        self.guest.say("killed")
        self.guest.wait_for("worked", 240)
        self.start(1)
        self.wait_up(1)
        self.pgs.wait_clean()
        self.guest.say("back")
        said = self.guest.finish()
        print("\n".join(line for line in said.splitlines() if "IOPS" in line))

    @harness.long_only
    def test_mapping_without_a_way_is_refused(self):
        """The errors that the guide names."""
        self.rbd("create", "--size", "16M", "image")
        self.client.ceph("auth", "get-or-create", "client.poor", "mon", "allow r", "-o", self.cluster.dir / "poor.keyring")
        self.boot(f"""
            fails $R map -o noudev nothing 2> nothing
            fails $R --id poor -k {self.cluster.dir}/poor.keyring map -o noudev image 2> poor
            fails timeout 100 $R map -o noudev,ms_mode=legacy,mount_timeout=5 image 2> legacy
            dmesg | grep libceph | tail -5
        """)
        self.guest.finish()
        said = lambda name: (self.guest.share / name).read_text()
        self.assertIn("(2) No such file or directory", said("nothing"))
        self.assertIn("(1) Operation not permitted", said("poor"))
        self.assertIn("map failed", said("legacy"))

    def test_image_is_a_disk_of_a_guest(self):
        """By QEMU's driver, with librbd on the host."""
        self.rbd("create", "--size", "256M", "image")
        drive = f"format=raw,file=rbd:rbd/image:conf={self.cluster.conf},if=virtio,cache=writeback,discard=unmap"
        self.boot(f"""
            mkfs.ext4 -q /dev/vda
            mount /dev/vda /mnt/fs
            cd /mnt/fs
            {FIO}
            sha256sum test > /mnt/share/sums
            cat /mnt/share/sums
            cd /
            umount /mnt/fs
        """, "-drive", drive)
        said = self.guest.finish()
        print("\n".join(line for line in said.splitlines() if "IOPS" in line))
        [sums] = [line for line in said.splitlines() if line.endswith("  test")]
        # The kernel's client reads what QEMU's wrote.
        self.boot(f"""
            device=$(map image)
            fsck.ext4 -fn $device > /dev/null
            mount -o ro $device /mnt/fs
            cd /mnt/fs
            echo '{sums}' | sha256sum -c
            cd /
            umount /mnt/fs
            unmap $device
        """)
        self.guest.finish()
