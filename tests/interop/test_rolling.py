"""`shoal restart`: all daemons of a cluster restart while verifying clients work and commands are given. No operation and no command
fails, nothing acknowledged is lost, and every daemon runs anew in its process. The longest waits of clients are printed."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import harness
from harness import SHOAL, Client, Cluster, ClusterTest, Failed, eventually, run
from hosts import HostsTest
from replicated import FAULTS, Pgs, ReplicatedTest, configure
from watched import Watched

#: A clean stop hands over at once; a busy machine takes its time.
OP_SECONDS_MAX = COMMAND_SECONDS_MAX = 10
ROLLING_SECONDS_MAX = 240
#: A daemon says at once that its new program does not run.
REFUSAL_SECONDS_MAX = 10


def assert_right(test, watched, what):
    """Ends the clients and prints how long they waited."""
    seen = watched.finish()
    print(f"{what}: slowest operation {seen['operation']:.2f} s, slowest command {seen['command']:.2f} s; {seen['summary']}")
    test.assertEqual((seen["problems"], seen["undecided"]), ([], 0))
    test.assertLess(seen["operation"], OP_SECONDS_MAX)
    test.assertLess(seen["command"], COMMAND_SECONDS_MAX)


def starts(client):
    """The time of each daemon's start, by its name."""
    found = {f"{kind}.{row['name']}": row["started_at"] for kind in ("mon", "mgr") for row in client.json(kind, "metadata")}
    return {**found, **{f"osd.{row['id']}": row["started_at"] for row in client.json("osd", "metadata")}}


def assert_nothing_left(test, client):
    test.assertNotIn("shoal/rolling-restart", client.json("config-key", "ls"))
    test.assertEqual([osd["osd"] for osd in client.json("osd", "dump")["osds"] if "noout" in osd["state"]], [])


class OneHost(ReplicatedTest):
    OSDS = 4

    @classmethod
    def make_cluster(cls):
        if harness.STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        cluster = Cluster("--store", "disk", "--size", "4G", "--mons", "3", osds=cls.OSDS)
        configure(cluster, *FAULTS)
        return cluster

    def restart(self, *args, **how):
        return run([SHOAL, "restart", *args, "--dir", self.cluster.dir], timeout=ROLLING_SECONDS_MAX, **how)

    def names(self):
        return [*(f"mon.{name}" for name in "abc"), *(f"osd.{osd}" for osd in self.osds())]

    def pids(self):
        return {name: self.cluster.pid(name) for name in self.names()}

    def test_rolling_restart_harms_no_client(self):
        for label, root in harness.releases():
            with self.subTest(clients=label):
                self.restart_under_load(root)

    def restart_under_load(self, root):
        pool = self.make_pool("rolling")
        watched = Watched(self.client, self.cluster.conf, pool, root)
        self.addCleanup(watched.end)
        before, pids = starts(self.client), self.pids()
        plan = self.restart("--rolling", "--dry-run").text
        self.assertEqual(plan.count("\n"), 4, plan)
        leader = self.client.json("quorum_status")["quorum_leader_name"]
        self.assertTrue(plan.splitlines()[2].startswith(f"mon.{leader} "), plan)
        self.assertEqual(starts(self.client), before, "a plan restarts nothing")

        said = self.restart("--rolling").text
        print(said)
        release = harness.Client(self.cluster, root).tool("ceph", "--version").text.split()[2]
        assert_right(self, watched, f"three monitors and four OSDs restarted, clients of {release}")
        for name in self.names():
            self.assertRegex(said, rf"{name}\b.* restarted")
        after = starts(self.client)
        self.assertEqual([name for name in before if after[name] == before[name]], [])
        self.assertEqual(self.pids(), pids)
        assert_nothing_left(self, self.client)
        self.assert_healthy()

    def test_one_daemon_restarts(self):
        self.make_pool("one")
        before = starts(self.client)
        self.restart("osd.2", "mon.b")
        after = starts(self.client)
        self.assertEqual(sorted(name for name in before if after[name] != before[name]), ["mgr.b", "mon.b", "osd.2"])

    def test_daemon_restarts_by_tell_and_admin_socket(self):
        before = starts(self.client)
        self.client.ceph("tell", "osd.1", "restart")
        self.client.tool("ceph", "daemon", self.cluster.dir / "mon.c.asok", "restart")
        eventually(lambda: all(starts(self.client)[name] != before[name] for name in ("osd.1", "mon.c", "mgr.c")))
        refused = self.client.ceph("tell", "osd.1", "restart", before["osd.1"], check=False)
        self.assertIn("ESTALE", refused.errors)

    def test_clean_stop_hands_the_manager_over(self):
        active = lambda: self.client.json("mgr", "dump")["active_name"]
        name = active()
        began = time.monotonic()
        self.cluster.stop_daemon(f"mon.{name}")
        self.addCleanup(lambda: self.cluster.is_running(f"mon.{name}") or self.cluster.start_daemon(f"mon.{name}"))
        managers = self.client.json("mgr", "dump")
        self.assertNotIn(name, [managers["active_name"], *(standby["name"] for standby in managers["standbys"])], managers)
        self.client.ceph("pg", "stat")
        print(f"another manager answers after {time.monotonic() - began:.2f} s")
        self.cluster.start_daemon(f"mon.{name}")
        eventually(lambda: len(self.client.json("quorum_status")["quorum"]) == 3)
        eventually(lambda: name in [standby["name"] for standby in self.client.json("mgr", "dump")["standbys"]])

    def test_interrupted_restart_goes_on_where_it_stopped(self):
        self.make_pool("interrupted")
        before = starts(self.client)
        argv = [SHOAL, "restart", "--rolling", "--only", "osd", "--dir", self.cluster.dir]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("interrupted", errors)
        self.assertIn("--resume", errors)
        done = {name for name in before if f"{name} of" in first + rest}
        self.assertTrue(0 < len(done) < 4, first + rest)
        middle = starts(self.client)

        again = self.restart("--rolling", check=False)
        self.assertIn("a rolling restart began on", again.errors)
        self.restart("--rolling", "--only", "osd", "--resume")
        after = starts(self.client)
        for name in before:
            self.assertEqual(after[name] != middle[name], name.startswith("osd.") and name not in done, name)
        assert_nothing_left(self, self.client)
        none = self.restart("--rolling", "--resume", check=False)
        self.assertIn("no rolling restart is unfinished", none.errors)

    def refused(self, said, *args):
        done = self.restart(*args, check=False)
        self.assertNotEqual(done.code, 0, args)
        self.assertIn(said, done.errors)

    def test_restarts_that_would_harm_are_refused(self):
        before = starts(self.client)
        self.refused("mgr.a runs in the process of mon.a", "mgr.a")
        self.refused("osd.9 is none of the cluster's OSDs", "osd.9")
        self.refused("no daemon runs on a host nowhere", "--rolling", "--host", "nowhere")
        self.stop(3)
        self.refused("osd.3 is down", "--rolling")
        self.start(3)
        self.wait_up(3)
        self.cluster.stop_daemon("mon.c")
        self.addCleanup(lambda: self.cluster.is_running("mon.c") or self.cluster.start_daemon("mon.c"))
        self.assertNotIn("c", self.client.json("quorum_status")["quorum_names"], "a clean stop is told")
        self.refused("mon.c is out of the quorum", "--rolling", "--only", "mon")
        self.cluster.start_daemon("mon.c")
        eventually(lambda: len(self.client.json("quorum_status")["quorum"]) == 3)
        self.make_pool("single", size=1, min_size=1)
        # Its PGs peer once more after the pool's size has changed, and until then another sentence refuses.
        once = lambda: self.restart("osd.0", "--timeout", "2", check=False).errors
        eventually(lambda: "unsafe to stop osd(s) at this time" in once())
        after = starts(self.client)
        self.assertEqual([name for name in before if before[name] != after[name]], ["mon.c", "mgr.c", "osd.3"])
        self.restart("osd.0", "--force")
        self.assertNotEqual(starts(self.client)["osd.0"], after["osd.0"])
        assert_nothing_left(self, self.client)


class OtherProgram(ClusterTest):
    """The program is a link, as a package manager or an operator flips it."""

    QUIET = False

    @classmethod
    def make_cluster(cls):
        if harness.STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        folder = Path(tempfile.mkdtemp(prefix="shoal-program-"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.program = folder / "shoal"
        cls.install(SHOAL)
        program = cls.program

        class Linked(Cluster):
            def up(self):
                run([program, "up", "--dir", self.dir, *self.options])

        return Linked(osds=1)

    @classmethod
    def install(cls, target):
        new = cls.program.with_suffix(".new")
        new.symlink_to(target)
        os.replace(new, cls.program)

    def test_program_that_is_installed_now_runs(self):
        copy = self.program.with_name("next")
        shutil.copy(SHOAL, copy)
        self.install(copy)
        run([SHOAL, "restart", "--rolling", "--dir", self.cluster.dir])
        for name in ("mon.a", "osd.0"):
            self.assertEqual(os.readlink(f"/proc/{self.cluster.pid(name)}/exe"), str(copy))

    def test_program_that_does_not_run_is_not_started(self):
        before = starts(self.client)
        self.install("/bin/false")
        why = f"no restart: {self.program} --version fails"
        for name in ("osd.0", "mon.a"):
            began = time.monotonic()
            done = run([SHOAL, "restart", name, "--force", "--dir", self.cluster.dir], check=False)
            self.assertLess(time.monotonic() - began, REFUSAL_SECONDS_MAX)
            self.assertNotEqual(done.code, 0)
            self.assertIn(name, done.errors)
            self.assertIn(why, done.errors)
            self.assertIn(why, self.cluster.log(name))
        told = self.client.ceph("tell", "osd.0", "restart", check=False)
        self.assertIn(f"Error ENOEXEC: {why}", told.errors)
        self.install(SHOAL)
        self.assertEqual(starts(self.client), before)
        assert_nothing_left(self, self.client)


class SeveralHosts(HostsTest):
    def test_hosts_restart_one_after_the_other(self):
        hosts = self.cluster
        disks = ["--osds", "2", "--size", "4G"]
        said = hosts["h1"].shoal("init", "--addr", hosts["h1"].addr, *disks).text
        token = next(word for word in said.split() if word.startswith("shoal1-"))
        for name in ("h2", "h3"):
            hosts[name].shoal("join", token, *disks)
        client = Client(hosts)
        client.ceph("osd", "pool", "create", "data", "32")
        client.ceph("osd", "pool", "application", "enable", "data", "rados")
        Pgs(client).wait_clean()
        watched = Watched(client, hosts.conf, "data")
        self.addCleanup(watched.end)
        before = starts(client)
        try:
            said = hosts["h2"].shoal("restart", "--rolling", timeout=ROLLING_SECONDS_MAX).text
        except Failed:
            hosts.show_logs()
            raise
        print(said)
        assert_right(self, watched, "three hosts with a monitor and two OSDs each restarted")
        after = starts(client)
        self.assertEqual([name for name in before if after[name] == before[name]], [])
        # OSDs of a host share no PG of a pool that is spread over hosts.
        for name, osds in (("h1", "osd.0, osd.1"), ("h2", "osd.2, osd.3"), ("h3", "osd.4, osd.5")):
            self.assertIn(f"{osds} of {name} restarted", said)
        assert_nothing_left(self, client)

        one = hosts["h1"].shoal("restart", "--rolling", "--host", "h3", timeout=ROLLING_SECONDS_MAX)
        self.assertEqual(sorted(name for name, at in starts(client).items() if at != after[name]), ["mgr.h3", "mon.h3", "osd.4", "osd.5"], one.text)


if __name__ == "__main__":
    unittest.main()
