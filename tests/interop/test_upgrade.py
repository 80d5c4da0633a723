"""Directories that earlier releases made: today's binary starts them, and clients read what was written then."""
import json
import os
import shutil
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from harness import ROOT, SHOAL, Client, eventually, is_alive, run

RELEASES = ROOT / "tests/releases"
sys.path.insert(0, str(RELEASES))
import record  # noqa: E402


class Recorded:
    """One recorded cluster, unpacked to a directory of its own."""

    def __init__(self, release, kind):
        self.top = Path(tempfile.mkdtemp(prefix="shoal-upgrade-"))
        with tarfile.open(RELEASES / f"{release}.tar.xz") as archive:
            archive.extractall(self.top)
        self.dir, self.conf = self.top / kind, self.top / kind / "ceph.conf"
        self.expected = json.loads((self.top / f"{kind}.json").read_text())
        recorded_dir = next(line.split(" = ")[1] for line in self.conf.read_text().splitlines()
                            if line.startswith("run dir"))
        self.conf.write_text(self.conf.read_text().replace(recorded_dir, str(self.dir)))

    def up(self):
        # Another checkout's run may have the recorded ports for a minute.
        eventually(lambda: run([SHOAL, "up", "--dir", self.dir], check=False).code == 0, 120, 2)

    def kill(self, name):
        pid = int((self.dir / f"{name}.pid").read_text())
        os.kill(pid, 9)
        eventually(lambda: not is_alive(pid), 10, 0.02)

    def objects(self):
        import rados
        with rados.Rados(conffile=str(self.conf), name="client.admin") as cluster:
            return record.expected(cluster)

    def errors(self):
        return [line for path in self.dir.glob("*.log") for line in path.read_text(errors="replace").splitlines()
                if " ERROR " in line or "panic" in line]

    def close(self):
        run([SHOAL, "down", "--dir", self.dir, "--grace", "10"], check=False)
        if not os.environ.get("SHOAL_KEEP"):
            shutil.rmtree(self.top, ignore_errors=True)


class Directories:
    """The tests of one release's directories."""

    def start(self, kind):
        cluster = Recorded(self.RELEASE, kind)
        self.addCleanup(cluster.close)
        cluster.up()
        return cluster

    def assert_settings_kept(self, client):
        self.assertEqual(client.ceph("config", "get", "osd.0", "osd_max_backfills").text.strip(), "7")
        self.assertEqual(client.ceph("config-key", "get", "kept").text, "value")
        self.assertIn("allow r", client.ceph("auth", "get", "client.kept").text)

    def test_disk_cluster_serves_its_objects(self):
        cluster = self.start("disk")
        client = Client(cluster)
        self.assert_settings_kept(client)
        self.assertEqual(cluster.objects(), cluster.expected)
        client.rados("-p", "bytes", "put", "new", "-", stdin=b"written since")
        client.rados("-p", "bytes", "setomapval", "index-1", "key-99999", "v")
        for osd in ("osd.0", "osd.1"):
            cluster.kill(osd)
        cluster.up()
        self.assertEqual(client.rados("-p", "bytes", "get", "new", "-").out, b"written since")
        changed = [entry for entry in cluster.objects() if entry["name"] in ("new", "index-1")]
        self.assertEqual([entry["omap_keys"] for entry in changed], [1201, 0])
        unchanged = [entry for entry in cluster.objects() if entry not in changed]
        self.assertEqual(unchanged, [entry for entry in cluster.expected if entry["name"] != "index-1"])
        self.assertEqual(cluster.errors(), [])

    def test_memory_cluster_serves_its_objects(self):
        cluster = self.start("memory")
        self.assert_settings_kept(Client(cluster))
        self.assertEqual(cluster.objects(), cluster.expected)
        self.assertEqual(cluster.errors(), [])


class Release010(Directories, unittest.TestCase):
    RELEASE = "0.1.0"


class Release020(Directories, unittest.TestCase):
    """The first version of the second store format."""

    RELEASE = "0.2.0"
