"""Changes of a cluster's layout by `shoal migrate`, under verifying clients: new OSDs and another failure domain. Misplaced copies are
held back and move a few PGs at a time; no PG ever has fewer copies than it should, and an interrupted migration goes on."""
import signal
import subprocess
import threading
import time

from harness import SHOAL, eventually, run
from replicated import CLEAN_SECONDS_MAX, ReplicatedTest

KEY = "shoal/migration"


class Watch(threading.Thread):
    """Samples of PG states while a migration is under way: the most PGs that moved at a time, and every state seen."""

    def __init__(self, pgs):
        super().__init__(daemon=True)
        self.pgs, self.ending, self.moving_max, self.states = pgs, threading.Event(), 0, set()

    def run(self):
        while not self.ending.wait(0.3):
            states = [row["state"] for row in self.pgs.all()]
            self.states.update(states)
            self.moving_max = max(self.moving_max, sum("backfilling" in state for state in states))

    def end(self):
        self.ending.set()
        self.join()


class Migration(ReplicatedTest):
    OSDS = 3

    def migrate(self, *args, check=True):
        return run([SHOAL, "migrate", "--dir", self.cluster.dir, "--timeout", "120", *args], check=check, timeout=240)

    def upmaps(self):
        return self.client.json("osd", "dump")["pg_upmap_items"]

    def begun(self, *args):
        """A migration in the background, once it has begun to release PGs."""
        words = [SHOAL, "migrate", "--dir", self.cluster.dir, "--timeout", "120", *args]
        process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        eventually(lambda: self.upmaps() and "norebalance" not in self.client.json("osd", "dump")["flags"], 90, 0.1)
        return process

    def assert_ended(self):
        self.pgs.wait_clean()
        self.assertEqual(self.upmaps(), [])
        self.assertFalse([key for key in self.client.json("config-key", "ls") if key.startswith(KEY)])
        self.assertNotIn("norebalance", self.client.json("osd", "dump")["flags"])

    def test_new_osds_fill_a_few_pgs_at_a_time(self):
        pool = self.make_pool("data", pgs=32)
        load = self.load(pool)
        # The first PGs have not moved when a slow client looks.
        self.client.ceph("osd", "set", "nobackfill")
        watch = Watch(self.pgs)
        watch.start()
        self.cluster.osds, self.cluster.again[1] = 5, "5"
        process = self.begun("--pgs", "2", "--", SHOAL, "up", "--dir", self.cluster.dir, "--osds", "5", "--timeout", "90")
        # Two at a time: some are held for long.
        self.assertGreater(len(self.upmaps()), 4)
        refused = self.migrate(check=False)
        self.assertEqual(refused.code, 1)
        self.assertIn("shoal migrate --resume", refused.errors)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("--resume", said)
        self.assertIn("copies are held back in", said)
        left = self.upmaps()
        self.assertTrue(left, "the rest is held")
        time.sleep(3)
        self.assertEqual(self.upmaps(), left)
        self.assertIn("placement groups began", self.migrate("--dry-run").text)
        self.client.ceph("osd", "unset", "nobackfill")
        self.goes_on(load)
        done = self.migrate("--resume", "--pgs", "2").text
        self.assertRegex(done, r"migrated \d+ placement groups in \d+ s")
        watch.end()
        self.assert_ended()
        self.assertLessEqual(watch.moving_max, 2, watch.states)
        self.assertFalse([state for state in watch.states if "undersized" in state or "down" in state], watch.states)
        used = {osd for row in self.pgs.all(pool) for osd in row["acting"]}
        self.assertEqual(used, {0, 1, 2, 3, 4})
        self.goes_on(load)
        self.assert_right(load)
        self.assertIn("leave --resume out", self.migrate("--resume", check=False).errors)
        self.failing_command_changes_nothing()
        self.another_failure_domain()

    def failing_command_changes_nothing(self):
        failed = self.migrate("--", "false", check=False)
        self.assertEqual(failed.code, 1)
        self.assertIn("`false` failed", failed.errors)
        self.assert_ended()

    def another_failure_domain(self):
        for osd, host in enumerate(["h1", "h1", "h2", "h2", "h3"]):
            self.client.ceph("osd", "crush", "set", f"osd.{osd}", "1.0", "root=default", f"host={host}")
        self.client.ceph("osd", "crush", "rule", "create-replicated", "by-host", "default", "host")
        self.pgs.wait_clean()
        load = self.load("data")
        said = self.migrate("--", "ceph", "osd", "pool", "set", "data", "crush_rule", "by-host").text
        self.assertRegex(said, r"copies move at once")
        self.pgs.wait_clean(CLEAN_SECONDS_MAX)
        self.assert_ended()
        host = {0: 1, 1: 1, 2: 2, 3: 2, 4: 3}
        for row in self.pgs.all("data"):
            self.assertEqual(len({host[osd] for osd in row["acting"]}), 3, row["acting"])
        self.goes_on(load)
        self.assert_right(load)
