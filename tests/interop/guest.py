"""A Linux guest in QEMU, for clients that are a part of the kernel. Debian's kernel boots with the host's file system as its own, so every
program of the host runs there unmodified; what it writes there is lost. The processor is emulated: it works everywhere, and a guest
boots in some ten seconds.

Host and guest share a folder, in which they also leave each other words: `say` and `wait_for` here, `say` and `await` there.
"""
import os
import shutil
import subprocess
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from harness import Failed, run
from networks import ip

KERNEL = Path(__file__).resolve().parents[2] / "target/tools/guest-kernel"
PROGRAMS = ("setpriv", "qemu-system-x86_64", "busybox", "cpio", "modprobe", "depmod")
#: A guest without autoloading needs all that its clients use: encrypted connections need the three modules behind the disks'.
MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32c_generic", "rbd", "ext4", "gcm", "ctr",
           "ghash_generic")
MEMORY_MIB = 1024
BOOT_SECONDS_MAX = 120

#: The first process: mounts the host's file system below one in memory, and runs `run` of the shared folder on it.
INIT = """\
    #!/bin/busybox sh
    b=/bin/busybox
    $b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
    for module in {modules}; do $b modprobe $module; done
    how=trans=virtio,version=9p2000.L,msize=524288
    $b mount -t 9p -o $how,ro,cache=loose root /lower
    $b mount -t tmpfs tmpfs /upper; $b mkdir /upper/changes /upper/work
    $b mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /new
    for folder in proc sys dev; do $b mount --move /$folder /new/$folder; done
    $b mount -t tmpfs tmpfs /new/run
    $b mkdir -p /new/mnt/share /new/mnt/fs; $b mount -t 9p -o $how,access=any share /new/mnt/share
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
    $b chroot /new /bin/bash /mnt/share/run > /new/mnt/share/output 2>&1
    echo $? > /new/mnt/share/code.new; $b mv /new/mnt/share/code.new /new/mnt/share/code
    $b sync; $b poweroff -f
"""
#: What precedes each script.
PRELUDE = """\
    set -euo pipefail
    cd /mnt/share
    say() {{ touch "$1"; }}
    await() {{ for _ in $(seq {patience}0); do [ ! -e "$1" ] || return 0; sleep 0.1; done; echo "the host does not say $1"; exit 70; }}
    fails() {{ if "$@"; then echo "this works: $*"; exit 71; fi; }}
    ip link set lo up; ip addr add {addr}/30 dev eth0; ip link set eth0 up
"""


def why_not():
    """Why no guest can run here; empty where one can."""
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        return f"guests need {', '.join(missing)}"
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.W_OK):
        return "guests need root and /dev/net/tun"
    return "" if (KERNEL / "lib/modules").is_dir() else f"no kernel for guests: tests/guest-kernel {KERNEL}"


class Guest:
    """One guest at a time, on a link of its own between `host` and `addr`. A cluster that listens on `host` is within its reach."""

    def __init__(self):
        if problem := why_not():
            raise unittest.SkipTest(problem)
        self.dir = Path(tempfile.mkdtemp(prefix="shoal-guest-"))
        self.share = self.dir / "share"
        self.share.mkdir()
        number = os.getpid() % 16384 * 4
        self.host, self.addr = (f"10.91.{number // 256}.{number % 256 + end}" for end in (1, 2))
        self.link = f"sg{os.getpid()}"
        self.process = None
        [self.version] = os.listdir(KERNEL / "lib/modules")
        try:
            self.make_first_files()
            ip("tuntap", "add", self.link, "mode", "tap")
            ip("addr", "add", f"{self.host}/30", "dev", self.link)
            ip("link", "set", self.link, "up")
        except Exception:
            self.close()
            raise

    def make_first_files(self):
        """The kernel's first file system: busybox, and the modules with all that they need."""
        root = self.dir / "first"
        for folder in ("bin", "sbin", "proc", "sys", "dev", "lower", "upper", "new", "share"):
            (root / folder).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        (root / "sbin/modprobe").symlink_to("/bin/busybox")
        for module in MODULES:
            shown = run(["modprobe", "-d", KERNEL, "-S", self.version, "--show-depends", module]).text
            for words in (line.split() for line in shown.splitlines()):
                if words[0] == "insmod":
                    to = root / Path(words[1]).resolve().relative_to(KERNEL.resolve())
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(words[1], to)
        run(["depmod", "-b", root, self.version])
        (root / "init").write_text(textwrap.dedent(INIT).replace("{modules}", " ".join(MODULES)))
        (root / "init").chmod(0o755)
        with open(self.dir / "first.gz", "wb") as out:
            subprocess.run("find . | cpio --quiet -o -H newc | gzip -1", shell=True, cwd=root, stdout=out, check=True)

    def start(self, script, *options, patience=60):
        """Boots the guest, which runs a script of bash and ends. `options` go to QEMU; `patience`: seconds of its `await`."""
        for path in self.share.iterdir():
            path.unlink()
        prelude = textwrap.dedent(PRELUDE).format(patience=patience, addr=self.addr)
        (self.share / "run").write_text(prelude + textwrap.dedent(script))
        share = lambda path, tag, more="": ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}"]
        # It ends with its test.
        argv = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB), "-nographic",
                "-no-reboot", "-kernel", KERNEL / f"boot/vmlinuz-{self.version}", "-initrd", self.dir / "first.gz",
                "-append", "console=ttyS0 panic=-1 quiet", *share("/", "root", ",readonly=on"), *share(self.share, "share"),
                "-netdev", f"tap,id=net,ifname={self.link},script=no,downscript=no", "-device", "virtio-net-pci,netdev=net", *options]
        self.console = open(self.dir / "console", "wb")
        self.process = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=self.console,
                                        stderr=subprocess.STDOUT)

    def say(self, word):
        (self.share / word).touch()

    def output(self):
        path = self.share / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, word, seconds=BOOT_SECONDS_MAX):
        """Waits until the guest says a word."""
        deadline = time.monotonic() + seconds
        while not (self.share / word).exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the guest does not say {word}:\n{self.told()}")
            time.sleep(0.05)

    def finish(self, seconds=300):
        """Waits until the script has ended; its output. Its failure is an error."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"the guest does not end:\n{self.told()}") from None
        code = self.share / "code"
        if not code.exists() or code.read_text().strip() != "0":
            raise Failed(f"the guest's script failed:\n{self.told()}")
        return self.output()

    def told(self):
        return f"{self.output()[-4000:]}\n---- console\n{(self.dir / 'console').read_text(errors='replace')[-3000:]}"

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def close(self):
        self.kill()
        ip("tuntap", "del", self.link, "mode", "tap", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
