"""A cluster of stock Ceph on loopback, for suites that compare shoal with it: the daemons of the installed packages, or of
another release in a folder that is entered with chroot.

    stock_cluster.py DIR [--root FOLDER] [--osds N] [--port N] [--store KIND] [--faults]
                                starts one; `--stop` ends its daemons
"""
import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import uuid
from pathlib import Path

from harness import Daemons, clean_environment, close_shells, eventually, free_port_base, is_alive, run

DAEMONS = ("ceph-mon", "ceph-mgr", "ceph-osd")

CONF = """\
[global]
fsid = {fsid}
mon host = {mon}
mon initial members = {names}
auth cluster required = {auth}
auth service required = {auth}
auth client required = {auth}
auth allow insecure global id reclaim = false
keyring = {dir}/keyring
log file = {dir}/$name.log
pid file = {dir}/$name.pid
run dir = {dir}
admin socket = {dir}/$name.asok
mon data = {dir}/mon.$id
mgr data = {dir}/mgr.$id
osd data = {dir}/osd.$id
osd objectstore = {store}
memstore device bytes = 8589934592
bluestore block size = 10737418240
bluestore block create = true
osd memory target = 939524096
osd crush chooseleaf type = 0
osd class load list = *
osd class default list = *
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
mgr pool = false
mon data avail warn = 1
"""


def missing(root=None):
    """The reason why no stock cluster can be started, or None."""
    for daemon in DAEMONS:
        found = Path(root, "usr/bin", daemon).exists() if root else shutil.which(daemon)
        if not found:
            return f"{daemon} is not in {root}" if root else f"{daemon} is not installed"
    return None


def require(root=None):
    """Skips a test where no stock cluster can be started."""
    reason = missing(root)
    return unittest.skipIf(reason, reason)


#: Settings of a cluster whose OSDs die and return: failures are reported by OSD, since all are on one host, and sooner than
#: stock's 20 s; statistics come each second; the log costs no CPU.
FAULTS = """\
osd pool default size = 3
osd pool default min size = 0
mon osd reporter subtree level = osd
osd heartbeat grace = 8
osd heartbeat interval = 2
mgr stats period = 1
debug ms = 0/0
debug osd = 1/1
debug bluestore = 1/1
debug bdev = 0/0
debug bluefs = 0/0
debug rocksdb = 0/0
[client]
admin socket =
"""


class StockCluster(Daemons):
    """One monitor, or those that `monitor_addrs` of a subclass names, one manager and some OSDs, whose objects are in memory or,
    with `store="bluestore"`, in files. `extra` is more lines of the `[global]` section; later lines win."""

    def __init__(self, directory=None, osds=1, auth="cephx", root=None, port=None, store="memstore", extra=""):
        self.dir = Path(directory or tempfile.mkdtemp(prefix="shoal-interop-stock-")).resolve()
        self.dir.mkdir(exist_ok=True)
        self.conf, self.root, self.osds = self.dir / "ceph.conf", root, osds
        self.store, self.extra = store, extra
        self.enter = ["chroot", root] if root else []
        port = port or free_port_base()
        try:
            if root:
                self.show_inside()
            self.monitors_by_name = self.monitor_addrs(port)
            self.start(osds, auth)
        except BaseException:
            self.close()
            raise

    def monitor_addrs(self, port):
        """Addresses of each monitor, by its name."""
        return {"a": f"[v2:127.0.0.1:{port},v1:127.0.0.1:{port + 1}]"}

    def prefix_of(self, _name):
        """The command that runs a daemon's command."""
        return []

    @property
    def monitors(self):
        return list(self.monitors_by_name)

    def start(self, osds, auth):
        fsid, mons = str(uuid.uuid4()), self.monitors_by_name
        self.conf.write_text(CONF.format(fsid=fsid, mon=",".join(mons.values()), names=",".join(mons), auth=auth, dir=self.dir,
                                         store=self.store) + self.extra)
        keyring, monmap = self.dir / "keyring", self.dir / "monmap"
        tool = self.tool
        tool("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        everything = [word for service in ("mon", "osd", "mds", "mgr") for word in ("--cap", service, "allow *")]
        tool("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        named = [word for name, addrs in mons.items() for word in ("--addv", name, addrs)]
        tool("monmaptool", "--create", *named, "--fsid", fsid, monmap)
        for name in mons:
            tool("ceph-mon", "-c", self.conf, "--mkfs", "-i", name, "--monmap", monmap, "--keyring", keyring)
            self.start_daemon(f"mon.{name}")
        self.add_key("mgr.a", "mon", "allow *", "osd", "allow *", "mds", "allow *")
        self.start_daemon("mgr.a")
        for number in range(osds):
            self.start_osd(number)
        eventually(lambda: self.ceph("osd", "stat", "-f", "json").json["num_up_osds"] == osds, 60)
        eventually(lambda: self.ceph("mgr", "stat", "-f", "json").json["available"], 60)

    def start_osd(self, number):
        made = str(uuid.uuid4())
        (self.dir / f"osd.{number}").mkdir()
        self.ceph("osd", "new", made, number)
        self.add_key(f"osd.{number}", "mon", "allow profile osd", "osd", "allow *", "mgr", "allow profile osd")
        base = ["ceph-osd", "-c", self.conf, "-i", number]
        self.tool(*base, "--mkfs", "--osd-uuid", made, "--no-mon-config")
        self.start_daemon(f"osd.{number}")

    def start_daemon(self, name):
        kind, number = name.split(".")
        run([*self.prefix_of(name), *self.enter, f"ceph-{kind}", "-c", str(self.conf), "-i", number], env=clean_environment())

    def add_osd(self):
        """Adds an OSD to the cluster and starts it. Returns its number."""
        number, self.osds = self.osds, self.osds + 1
        self.start_osd(number)
        return number

    def replace_osd(self, number):
        """The disk of a down OSD is lost: an empty one takes its place under the same number."""
        shutil.rmtree(self.dir / f"osd.{number}")
        self.ceph("osd", "destroy", number, "--yes-i-really-mean-it")
        self.start_osd(number)

    def unexpected(self):
        """Stock's logs are not judged."""
        return []

    def show_logs(self):
        for path in sorted(self.dir.glob("*.log")):
            print(f"--- {path.name}")
            print("\n".join(path.read_text(errors="replace").splitlines()[-25:]))

    def add_key(self, name, *caps):
        self.ceph("auth", "get-or-create", name, *caps)
        key = self.ceph("auth", "get-key", name).text
        self.tool("ceph-authtool", self.dir / "keyring", "-n", name, "--add-key", key)

    def tool(self, *argv, check=True):
        return run([*self.enter, *map(str, argv)], check=check, env=clean_environment())

    def ceph(self, *args, check=True):
        return self.tool("ceph", "-c", self.conf, "--connect-timeout", "30", *args, check=check)

    def rados(self, *args, check=True):
        return self.tool("rados", "-c", self.conf, *args, check=check)

    def show_inside(self):
        """The folder of another release sees the cluster's directory at the same path."""
        inside = Path(f"{self.root}{self.dir}")
        inside.mkdir(parents=True, exist_ok=True)
        run(["mount", "--bind", self.dir, inside])
        for system in ("proc", "sys", "dev"):
            at = Path(self.root, system)
            if not os.path.ismount(at):
                run(["mount", "--rbind", f"/{system}", at])

    def stop(self):
        """Ends the daemons, each by its own pid file."""
        pids = [int(path.read_text()) for path in self.dir.glob("*.pid") if path.read_text().strip()]
        for pid in pids:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, sign)
                    deadline = time.monotonic() + 5
                    while is_alive(pid) and time.monotonic() < deadline:
                        time.sleep(0.05)
                except ProcessLookupError:
                    break

    def close(self):
        close_shells(self)
        self.stop()
        if self.root:
            subprocess.run(["umount", f"{self.root}{self.dir}"], check=False, stderr=subprocess.DEVNULL)
        if not os.environ.get("SHOAL_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir")
    parser.add_argument("--root")
    parser.add_argument("--osds", type=int, default=1)
    parser.add_argument("--auth", default="cephx")
    parser.add_argument("--port", type=int, default=13300)
    parser.add_argument("--store", choices=["memstore", "bluestore"], default="memstore")
    parser.add_argument("--faults", action="store_true", help="OSDs that die and return: failures are reported by OSD")
    parser.add_argument("--stop", action="store_true")
    asked = parser.parse_args()
    if asked.stop:
        cluster = StockCluster.__new__(StockCluster)
        cluster.dir, cluster.root = Path(asked.dir).resolve(), asked.root
        cluster.stop()
        if asked.root:
            subprocess.run(["umount", f"{asked.root}{cluster.dir}"], check=False)
        return
    cluster = StockCluster(asked.dir, asked.osds, asked.auth, asked.root, asked.port, asked.store,
                           FAULTS if asked.faults else "")
    print(cluster.conf)


if __name__ == "__main__":
    main()
