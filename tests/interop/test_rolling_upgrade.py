"""A cluster of the program from before version 0.2.0's store format becomes one of today's program, daemon by daemon, while
verifying clients work: no operation fails, nothing acknowledged is lost. The earlier program refuses to go back, and says so."""
import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import harness
from harness import ROOT, SHOAL, Cluster, run
from replicated import FAULTS, Pgs, ReplicatedTest, configure
from test_rolling import assert_nothing_left, assert_right, starts
from watched import Watched

#: The last commit before the work on the store's second format.
BEFORE = "a91d97e"
ROLLING_SECONDS_MAX = 600


def program_before():
    """Set `SHOAL_BEFORE` to a program of that commit, to save building it."""
    given = os.environ.get("SHOAL_BEFORE")
    if given:
        return Path(given)
    built = subprocess.run([ROOT / "tests/releases/build", BEFORE], check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.strip())


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Upgrade(ReplicatedTest):
    OSDS = 4

    @classmethod
    def make_cluster(cls):
        if harness.STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        cls.before = program_before()
        folder = Path(tempfile.mkdtemp(prefix="shoal-upgrade-"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.program = folder / "shoal"
        cls.install(cls.before)
        program = cls.program

        class Linked(Cluster):
            def up(self):
                run([program, "up", "--dir", self.dir, *self.options])

        cluster = Linked("--store", "disk", "--size", "4G", "--mons", "3", osds=cls.OSDS)
        configure(cluster, *FAULTS)
        return cluster

    @classmethod
    def install(cls, target):
        new = cls.program.with_suffix(".new")
        new.symlink_to(Path(target).resolve())
        os.replace(new, cls.program)

    def runs(self, name):
        return os.readlink(f"/proc/{self.cluster.pid(name)}/exe")

    def restart(self, *args):
        return run([SHOAL, "restart", "--rolling", *args, "--dir", self.cluster.dir], timeout=ROLLING_SECONDS_MAX).text

    def test_rolling_upgrade_harms_no_client(self):
        pool = self.make_pool("upgraded")
        names = [*(f"mon.{name}" for name in "abc"), *(f"osd.{osd}" for osd in self.osds())]
        self.assertEqual({self.runs(name) for name in names}, {str(self.before.resolve())})
        watched = Watched(self.client, self.cluster.conf, pool)
        self.addCleanup(watched.end)
        before = starts(self.client)
        self.install(SHOAL)
        # Halfway, and work goes on: monitors and one OSD of today serve beside OSDs of before.
        self.restart("--only", "mon")
        run([SHOAL, "restart", "osd.1", "--dir", self.cluster.dir], timeout=ROLLING_SECONDS_MAX)
        self.assertEqual(self.runs("osd.1"), str(Path(SHOAL).resolve()))
        self.assertEqual(self.runs("osd.2"), str(self.before.resolve()))
        self.move_pgs_between_versions()
        said = self.restart("--only", "osd")
        print(said)
        assert_right(self, watched, f"three monitors and four OSDs went from {BEFORE} to today's program")
        self.assertEqual({self.runs(name) for name in names}, {str(Path(SHOAL).resolve())})
        self.assertEqual([name for name in before if starts(self.client)[name] == before[name]], [])
        assert_nothing_left(self, self.client)
        self.assert_healthy()
        self.assert_way_back_is_refused()

    def move_pgs_between_versions(self):
        """The OSD of today gives its PGs away, to OSDs of before, and takes them back."""
        self.client.ceph("osd", "out", "1")
        Pgs(self.client).wait_clean()
        self.client.ceph("osd", "in", "1")
        Pgs(self.client).wait_clean()

    def assert_way_back_is_refused(self):
        self.cluster.stop_daemon("osd.2")
        store = self.cluster.dir / "osd.2" / "block"
        contents = digest(store)
        done = run([self.before, "store", "fsck", store], check=False)
        self.assertNotEqual(done.code, 0)
        self.assertIn("format is version 2; this program reads version 1", done.errors)
        self.assertEqual(digest(store), contents, "a refused store is as it was")
        self.cluster.start_daemon("osd.2")
        self.wait_up(2)


if __name__ == "__main__":
    unittest.main()
