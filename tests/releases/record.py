#!/usr/bin/python3
"""Record the directories of small clusters made by one release, for the upgrade tests.

    tests/releases/record.py path/to/shoal-0.1.0 0.1.0

Writes tests/releases/0.1.0.tar.xz:

    disk/       a cluster with two OSDs on disk. osd.0 was stopped cleanly; osd.1 and mon.a were killed, so that
                osd.1 has a log to replay.
    memory/     a cluster with one OSD in memory, stopped cleanly, so that its store image is there.
    osd.N.export   what the release's own `shoal store export` wrote for each OSD of disk/.
    disk.json, memory.json
                the expected objects: pool, namespace, name, locator key, sha256 of the data, attributes, omap header
                and omap.

Needs python3-rados, ceph-common and xz-utils. A monitor's address is part of its map, so the clusters keep the ports
that they were recorded with (PORTS). `crates/shoal/tests/releases.rs` and `tests/interop/test_upgrade.py` read the archive.
"""
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rados

HERE = Path(__file__).resolve().parent
PORTS = {"disk": 23300, "memory": 23360}
#: Makes every line of the contents another one, and every recording the same.
LINES = itertools.count()


def run(*argv, check=True):
    done = subprocess.run([str(arg) for arg in argv], capture_output=True, timeout=120)
    if check and done.returncode != 0:
        sys.exit(f"{argv}: exit code {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}")
    return done.stdout


def text(length):
    """Compresses well, and no two places are alike."""
    lines = (f"{next(LINES):07d} the quick brown fox\n" for _ in range(length // 28 + 1))
    return "".join(lines)[:length].encode()


class Cluster:
    def __init__(self, shoal, directory, *options):
        self.shoal, self.dir = shoal, directory
        run(shoal, "up", "--dir", directory, *options)
        self.rados = rados.Rados(conffile=str(directory / "ceph.conf"), name="client.admin")
        self.rados.connect(timeout=30)

    def ceph(self, *args):
        return run("ceph", "-c", self.dir / "ceph.conf", *args)

    def pool(self, name, pgs=8):
        self.ceph("osd", "pool", "create", name, pgs, pgs, "replicated")
        return self.rados.open_ioctx(name)

    def kill(self, name, how=signal.SIGKILL):
        pid = int((self.dir / f"{name}.pid").read_text())
        os.kill(pid, how)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)


def omap(io, name, entries, header=None):
    with rados.WriteOpCtx() as op:
        io.set_omap(op, tuple(entries), tuple(entries.values()))
        io.operate_write_op(op, name)


def write_objects(cluster):
    io = cluster.pool("bytes")
    for n in range(40):
        io.write_full(f"small-{n}", text(100 * n))
    io.write_full("large", text(300_000))
    io.write("large", text(5_000), 131_000)
    io.write("sparse", b"far away", 2_000_000)
    io.write_full("cut", text(70_000))
    io.trunc("cut", 4_097)
    for n in range(10):
        io.append("grown", text(1_000 + n))
    io.write_full("removed", b"x" * 10_000)
    io.remove_object("removed")
    io.write_full("pätzold/\u2603 name", b"not only ASCII")
    io.set_namespace("a-namespace")
    io.write_full("small-1", b"in a namespace")
    io.set_namespace("")
    io.set_locator_key("a-locator")
    io.write_full("located", b"placed by its locator")
    io.set_locator_key("")
    for n in range(5):
        io.set_xattr("small-3", f"attr-{n}", text(10 * n))
    io.set_xattr("small-3", "attr-2", b"")
    io.rm_xattr("small-3", "attr-4")
    for index in ("index-0", "index-1", "index-2"):
        omap(io, index, {f"key-{n:05d}": text(n % 40) for n in range(1_500)})
        with rados.WriteOpCtx() as op:
            io.remove_omap_keys(op, tuple(f"key-{n:05d}" for n in range(100, 400)))
            io.operate_write_op(op, index)
    omap(io, "emptied", {f"key-{n:05d}": b"" for n in range(500)})
    with rados.WriteOpCtx() as op:
        io.clear_omap(op)
        io.operate_write_op(op, "emptied")
    omap(io, "doomed", {f"key-{n:05d}": text(30) for n in range(5_000)})
    io.lock_exclusive("small-4", "a-lock", "a-cookie", "who holds it")

    packed = cluster.pool("packed")
    for option, value in (("compression_mode", "force"), ("compression_algorithm", "zstd")):
        cluster.ceph("osd", "pool", "set", "packed", option, value)
    time.sleep(2)
    for n in range(8):
        packed.write_full(f"text-{n}", text(100_000))
    packed.write("text-1", text(3_000), 20_000)

    split = cluster.pool("split", 4)
    for n in range(12):
        split.write_full(f"o{n}", text(2_000))
    cluster.ceph("osd", "pool", "set", "split", "pg_num", "8")
    cluster.ceph("auth", "get-or-create", "client.kept", "mon", "allow r")
    cluster.ceph("config", "set", "osd", "osd_max_backfills", "7")
    cluster.ceph("config-key", "set", "kept", "value")
    time.sleep(5)


def all_omap(io, name):
    entries, after = {}, ""
    while True:
        with rados.ReadOpCtx() as op:
            pairs, _ = io.get_omap_vals(op, after, "", 500)
            io.operate_read_op(op, name)
            page = {key: (value or b"").hex() for key, value in pairs}
        if not page:
            return entries
        entries.update(page)
        after = max(page)


def expected(client):
    """Contents of every object as a client reads them; `client` is a connected `rados.Rados`."""
    out = []
    for pool in sorted(client.list_pools()):
        io = client.open_ioctx(pool)
        io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
        for found in io.list_objects():
            one = client.open_ioctx(pool)
            one.set_namespace(found.nspace)
            one.set_locator_key(found.locator_key or "")
            keys = all_omap(one, found.key)
            out.append({
                "pool": pool, "namespace": found.nspace, "name": found.key, "locator": found.locator_key or "",
                "sha256": hashlib.sha256(one.read(found.key, 4 << 20)).hexdigest(),
                "attrs": {key: (value or b"").hex() for key, value in one.get_xattrs(found.key)},
                "omap": hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest(),
                "omap_keys": len(keys),
            })
    out.sort(key=lambda o: (o["pool"], o["namespace"], o["name"]))
    return out


def record_disk(shoal, directory):
    cluster = Cluster(shoal, directory / "disk", "--osds", 2, "--store", "disk", "--size", "64M", "--port", PORTS["disk"])
    write_objects(cluster)
    # osd.0 ends cleanly: its store is a checkpoint. osd.1 goes on, and its log holds what comes now.
    cluster.kill("osd.0", signal.SIGTERM)
    run(shoal, "up", "--dir", cluster.dir)
    io = cluster.rados.open_ioctx("bytes")
    for n in range(30):
        io.write_full(f"late-{n}", text(50 * n))
    io.remove_object("doomed")
    (directory / "disk.json").write_text(json.dumps(expected(cluster.rados), indent=0))
    cluster.rados.shutdown()
    cluster.kill("osd.0", signal.SIGTERM)
    cluster.kill("osd.1")
    cluster.kill("mon.a")
    for osd in (0, 1):
        copy = directory / "copy"
        run("cp", "--sparse=always", cluster.dir / f"osd.{osd}" / "block", copy)
        run(shoal, "store", "export", copy, directory / f"osd.{osd}.export")
        copy.unlink()


def record_memory(shoal, directory):
    cluster = Cluster(shoal, directory / "memory", "--store", "mem", "--size", "1G", "--port", PORTS["memory"])
    write_objects(cluster)
    cluster.rados.open_ioctx("bytes").remove_object("doomed")
    (directory / "memory.json").write_text(json.dumps(expected(cluster.rados), indent=0))
    cluster.rados.shutdown()
    run(shoal, "down", "--dir", cluster.dir)


def main():
    shoal, release = Path(sys.argv[1]).resolve(), sys.argv[2]
    directory = Path(tempfile.mkdtemp(prefix="shoal-release-"))
    try:
        record_disk(shoal, directory)
        record_memory(shoal, directory)
        for log in directory.glob("*/*.log"):
            log.unlink()
        archive = HERE / f"{release}.tar.xz"
        run("tar", "--create", "--sparse", "--owner=0", "--group=0", "--numeric-owner", "--sort=name",
            "--use-compress-program=xz -9e", "--file", archive, "--directory", directory, ".")
        print(f"{archive}: {archive.stat().st_size} bytes")
    finally:
        for cluster in ("disk", "memory"):
            run(shoal, "down", "--dir", directory / cluster, check=False)
        if not os.environ.get("SHOAL_KEEP"):
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
