"""Hosts: network namespaces with an address, a hostname, a directory and a blank disk each, all on this machine. Needs root.

Every packet between two hosts is routed by this machine's own namespace, where the clients are.
"""
import os
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

import harness
import networks
from harness import SHOAL, ClusterTest, Failed, eventually, is_alive, run
from networks import ip

DISK_BYTES = 4 << 30


class Host:
    """One host. `number` 2 is h2 of the guide, at 10.0.0.2 there."""

    def __init__(self, number, block, root):
        self.number, self.name = number, f"h{number}"
        self.space = f"shoal-{os.getpid()}-h{number}"
        self.addr, gateway = f"{block}.{number}.2", f"{block}.{number}.1"
        self.dir = Path(root, self.name)
        self.disk = Path(root, f"{self.name}.disk")
        with open(self.disk, "wb") as disk:
            disk.truncate(DISK_BYTES)
        link = f"sh{os.getpid() % 100000}-{number}"
        ip("netns", "add", self.space)
        ip("-n", self.space, "link", "set", "lo", "up")
        ip("link", "add", link, "type", "veth", "peer", "name", "net0", "netns", self.space)
        ip("addr", "add", f"{gateway}/30", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", self.space, "addr", "add", f"{self.addr}/30", "dev", "net0")
        ip("-n", self.space, "link", "set", "net0", "up")
        ip("-n", self.space, "route", "add", "default", "via", gateway)

    def run(self, *argv, **how):
        """Runs a command on the host."""
        enter = ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "sh"]
        return run([*enter, *map(str, argv)], **how)

    def shoal(self, *args, **how):
        return self.run(SHOAL, *args, "--dir", self.dir, **how)

    def pids(self):
        files = self.dir.glob("*.pid")
        found = (int(text) for text in (file.read_text().strip() for file in files) if text)
        return [pid for pid in found if is_alive(pid)]

    def start_of_disk(self):
        """The disk's first MiB, which is zero on a blank one."""
        with open(self.disk, "rb") as disk:
            return disk.read(1 << 20)

    def kill(self):
        """The host loses power, as far as its daemons can tell."""
        pids = self.pids()
        if not pids:
            raise Failed(f"nothing runs on {self.name}")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.pids(), 20, 0.05)

    def close(self):
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        ip("netns", "del", self.space, check=False)


class Hosts:
    """As much of `harness.Cluster` as clients need: `conf` and `dir` are those of the first host."""

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="shoal-hosts-"))
        # Another suite may run beside this one.
        self.block = f"10.{os.getpid() % 200 + 40}"
        self.hosts = {}
        with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
            forward.write("1")

    def __getitem__(self, name):
        if name not in self.hosts:
            self.hosts[name] = Host(int(name[1:]), self.block, self.root)
        return self.hosts[name]

    @property
    def dir(self):
        return self["h1"].dir

    @property
    def conf(self):
        return self.dir / "ceph.conf"

    def logs(self):
        return sorted(self.root.glob("*/*.log"))

    def show_logs(self):
        for path in self.logs():
            print(f"--- {path.relative_to(self.root)}")
            print("\n".join(path.read_text(errors="replace").splitlines()[-12:]))

    def close(self):
        harness.close_shells(self)
        for host in self.hosts.values():
            host.close()
        if not os.environ.get("SHOAL_KEEP"):
            shutil.rmtree(self.root, ignore_errors=True)


class HostsTest(ClusterTest):
    """A suite on hosts of its own, which have no cluster yet."""

    QUIET = False

    @classmethod
    def make_cluster(cls):
        why = "it needs a cluster of shoal's" if harness.STOCK else networks.why_not()
        if why:
            raise unittest.SkipTest(why)
        return Hosts()

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.make_cluster()
        cls.addClassCleanup(cls.cluster.close)


class Page:
    """The commands of a guide's page, `h1# shoal ...`, performed on hosts in the page's order."""

    def __init__(self, name, hosts):
        self.hosts, self.token = hosts, None
        lines = (harness.ROOT / "docs/guide" / name).read_text().splitlines()
        # No command of the page may stay unread because it is written otherwise.
        self.commands = [tuple(line.split("# ", 1)) for line in lines if line[:1] == "h" and line[1:2].isdigit() and line[2:4] == "# "]
        self.done = 0

    def perform(self, command, **how):
        """Runs the page's next command, which must be this one. Returns its result."""
        if self.done == len(self.commands):
            raise Failed(f"the page ends before `{command}`")
        host, text = self.commands[self.done]
        if f"{host}# {text}" != command:
            raise Failed(f"the page has `{host}# {text}` next, and not `{command}`")
        self.done += 1
        host = self.hosts[host]
        words = [self.word(host, word) for word in text.split()]
        done = host.run(*words, **how) if words[0] == "ceph" else host.shoal(*words[1:], **how)
        for word in done.text.split():
            if word.startswith("shoal1-"):
                self.token = word
        return done

    def word(self, host, word):
        if word == "TOKEN":
            return self.token
        if word.startswith("10.0.0."):
            return self.hosts[f"h{word.rpartition('.')[2]}"].addr
        if word == "/dev/nvme0n1":
            return str(host.disk)
        return word.replace("/var/lib/shoal", str(host.dir))

    def ends(self):
        if self.done != len(self.commands):
            raise Failed(f"the page goes on with {self.commands[self.done:]}")
