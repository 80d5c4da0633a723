"""Nothing that a cluster keeps on disk can be read by another user of the host, whatever the umask is."""
import os
import stat

from harness import ClusterTest, eventually

OTHERS = 0o077


def readable_by_others(directory):
    """As `find DIR -perm /077` shows it: everything with a permission for somebody else. Links have none of their own."""
    found = []
    for path in [directory, *sorted(directory.rglob("*"))]:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & OTHERS:
            found.append(f"{stat.filemode(mode)} {path.relative_to(directory)}")
    return found


class Files:
    OSDS = 2

    @classmethod
    def setUpClass(cls):
        # Children inherit it: nothing is private unless it is made so.
        before = os.umask(0)
        cls.addClassCleanup(os.umask, before)
        super().setUpClass()

    def test_a_fresh_cluster_is_private(self):
        self.pool("files")
        self.client.rados("-p", "files", "put", "o", "-", stdin=b"data")
        made = {path.relative_to(self.cluster.dir).as_posix() for path in self.cluster.dir.rglob("*")}
        for name in ("ceph.conf", "keyring", "lock", "mon.a/log.redb", "mon.a.asok", "mon.a.log", "mon.a.pid", "osd.0",
                     "osd.0.asok", "osd.0.log", *self.MADE):
            self.assertIn(name, made)
        self.assertEqual(readable_by_others(self.cluster.dir), [])

    def test_what_is_wider_is_narrowed_once_with_advice(self):
        advice = "ceph auth rotate mon.a"
        data = self.cluster.dir / "mon.a"
        self.cluster.down()
        self.assertNotIn(advice, self.cluster.log("mon.a"))
        data.chmod(0o755)
        (data / "log.redb").chmod(0o644)
        (self.cluster.dir / "mon.a.log").chmod(0o666)
        (self.cluster.dir / "osd.0").chmod(0o777)
        self.cluster.up()
        self.assertEqual(readable_by_others(self.cluster.dir), [])
        self.assertEqual(self.cluster.log("mon.a").count(advice), 1)
        self.assertIn("ceph auth rotate osd.0", self.cluster.log("osd.0"))
        self.assertNotIn("ceph auth rotate", self.cluster.log("osd.1"))
        self.cluster.down()
        self.cluster.up()
        self.assertEqual(self.cluster.log("mon.a").count(advice), 1, "once, not at each start")

    def test_a_new_log_after_rotation_is_private(self):
        log = self.cluster.dir / "osd.0.log"
        log.rename(self.cluster.dir / "osd.0.log.1")
        os.kill(self.cluster.pid("osd.0"), 1)
        eventually(log.exists, 10)
        self.assertEqual(readable_by_others(self.cluster.dir), [])


class OnDisk(Files, ClusterTest):
    OPTIONS = ("--store", "disk")
    MADE = ("osd.0/block", "osd.1/block")


class InMemory(Files, ClusterTest):
    OPTIONS = ("--store", "mem")
    MADE = ()

    def test_saved_objects_are_private(self):
        self.pool("saved")
        self.client.rados("-p", "saved", "put", "o", "-", stdin=b"data")
        self.cluster.down()
        self.assertTrue([path for path in (self.cluster.dir / "osd.0").iterdir() if path.name != "lock"])
        self.assertEqual(readable_by_others(self.cluster.dir), [])
        self.cluster.up()
