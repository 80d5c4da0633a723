"""Three monitors: the leader and others are killed, frozen, lose their disks and return, while verifying clients work and
commands are given. Nothing that was acknowledged is lost, and clients and commands go on."""
import json
import shutil
import time

from harness import SHOAL, Cluster, ClusterTest, eventually, run
from replicated import FAULTS, ReplicatedTest, configure

#: A command waits for the next leader for a second or two; a busy machine starts `ceph` slowly.
COMMAND_SECONDS_MAX = 30


class WithMonitors:
    def quorum(self):
        return self.client.json("quorum_status")

    def leader(self):
        return eventually(lambda: self.quorum()["quorum_leader_name"])

    def followers(self):
        return [name for name in self.quorum()["quorum_names"] if name != self.leader()]

    def wait_quorum(self, *names):
        """The leader counts them, and each says itself that it takes part."""
        def is_whole():
            parts = [self.client.mon_status(name)["state"] for name in names]
            return set(parts) <= {"leader", "peon"} and sorted(self.quorum()["quorum_names"]) == sorted(names)
        eventually(is_whole, 60)

    def set_key(self, key):
        """Stores a key with `ceph`; it must be done in time."""
        began = time.monotonic()
        self.client.ceph("config-key", "set", key, "1")
        self.assertLess(time.monotonic() - began, COMMAND_SECONDS_MAX)
        return key

    def stored(self):
        return set(self.client.json("config-key", "ls"))

    def states(self):
        """Each monitor's own word on the cluster."""
        return {name: self.client.mon_status(name) for name in "abc" if self.cluster.is_running(f"mon.{name}")}


class ThreeMonitors(WithMonitors, ReplicatedTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        cluster = Cluster("--store", "disk", "--size", "4G", "--mons", "3", osds=cls.OSDS)
        configure(cluster, *FAULTS)
        return cluster

    def setUp(self):
        for name in "abc":
            if not self.cluster.is_running(f"mon.{name}"):
                self.cluster.start_daemon(f"mon.{name}")
        self.wait_quorum(*"abc")
        super().setUp()

    def test_quorum_is_told_as_stock_tells_it(self):
        quorum = self.quorum()
        # Ranks are in the order in which the monitors came.
        names = [mon["name"] for mon in sorted(quorum["monmap"]["mons"], key=lambda mon: mon["rank"])]
        self.assertEqual(sorted(names), ["a", "b", "c"])
        self.assertEqual((quorum["quorum"], quorum["quorum_names"]), ([0, 1, 2], names))
        leader = quorum["quorum_leader_name"]
        self.assertIn(f"leader {names.index(leader)} {leader}, quorum 0,1,2 {','.join(names)}", self.client.ceph("mon", "stat").text)
        states = self.states()
        self.assertEqual({name for name, state in states.items() if state["state"] == "leader"}, {leader})
        self.assertEqual({state["state"] for name, state in states.items() if name != leader}, {"peon"})
        for name in "abc":
            told = self.client.json("tell", f"mon.{name}", "mon_status")
            self.assertEqual((told["name"], told["rank"]), (name, names.index(name)))
        skews = eventually(lambda: self.client.json("time-sync-status").get("time_skew_status"))
        self.assertEqual({row["health"] for row in skews.values()}, {"HEALTH_OK"})
        self.assertEqual(len(self.client.json("mon", "metadata")), 3)

    def test_leader_is_killed_under_load(self):
        load = self.load(self.make_pool("leader"))
        keys = {self.set_key("before-kill")}
        for turn in range(2):
            leader = self.leader()
            self.cluster.kill(f"mon.{leader}")
            keys.add(self.set_key(f"at-kill-{turn}"))
            self.goes_on(load)
            self.assertIn("MON_DOWN", eventually(lambda: self.checks() if "MON_DOWN" in self.checks() else None))
            self.assertNotEqual(self.leader(), leader)
            self.cluster.start_daemon(f"mon.{leader}")
            self.wait_quorum(*"abc")
        self.assertLessEqual(keys, self.stored())
        self.assert_right(load)
        self.assert_healthy()

    def test_leader_is_frozen_and_returns(self):
        load = self.load(self.make_pool("frozen"))
        leader = self.leader()
        self.cluster.pause(f"mon.{leader}")
        try:
            key = self.set_key("while-frozen")
            self.goes_on(load)
        finally:
            self.cluster.resume(f"mon.{leader}")
        self.wait_quorum(*"abc")
        self.assertIn(key, self.stored())
        self.assert_right(load)

    def test_leader_and_a_primary_die_together(self):
        pool = self.make_pool("together")
        load = self.load(pool)
        leader, osd = self.leader(), self.primary(pool, "some")
        self.cluster.kill(f"mon.{leader}")
        self.kill(osd)
        self.goes_on(load)
        self.wait_down(osd)
        self.goes_on(load)
        self.start(osd)
        self.cluster.start_daemon(f"mon.{leader}")
        self.wait_up(osd)
        self.wait_quorum(*"abc")
        self.pgs.wait_clean()
        self.assert_right(load)

    def test_all_monitors_die_at_once(self):
        load = self.load(self.make_pool("all"))
        keys = {self.set_key(f"before-{n}") for n in range(3)}
        for name in "abc":
            self.cluster.kill(f"mon.{name}")
        # Clients need no monitor while nothing changes.
        self.goes_on(load)
        for name in "cab":
            self.cluster.start_daemon(f"mon.{name}")
        self.wait_quorum(*"abc")
        self.assertLessEqual(keys, self.stored())
        self.assert_right(load)

    def test_no_command_is_carried_out_without_a_majority(self):
        leader, others = self.leader(), self.followers()
        for name in others:
            self.cluster.pause(f"mon.{name}")
        try:
            # Then it lets nobody in: a command would wait for ever, as on stock.
            eventually(lambda: self.client.mon_status(leader)["state"] == "electing")
            time.sleep(5)
            done = self.client.ceph("--connect-timeout", "5", "config-key", "set", "alone", "1", check=False)
            self.assertNotEqual(done.code, 0)
            self.assertNotEqual(self.client.mon_status(leader)["state"], "leader")
        finally:
            for name in others:
                self.cluster.resume(f"mon.{name}")
        self.wait_quorum(*"abc")
        self.assertNotIn("alone", self.stored())

    def test_monitor_that_lost_its_disk_joins_anew(self):
        load = self.load(self.make_pool("lost"))
        lost = self.followers()[0]
        self.cluster.kill(f"mon.{lost}")
        shutil.rmtree(self.cluster.dir / f"mon.{lost}")
        key = self.set_key("while-lost")
        self.cluster.start_daemon(f"mon.{lost}")
        self.wait_quorum(*"abc")
        # The new disk counts: with another monitor away, it makes the majority.
        other = next(name for name in "abc" if name != lost)
        self.cluster.kill(f"mon.{other}")
        self.assertIn(key, self.stored())
        self.set_key("with-the-new-disk")
        self.cluster.start_daemon(f"mon.{other}")
        self.assert_right(load)

    def test_manager_fails_over(self):
        def managers():
            dump = self.client.json("mgr", "dump")
            return dump["active_name"], sorted(standby["name"] for standby in dump["standbys"])
        active, _ = eventually(lambda: managers() if len(managers()[1]) == 2 else None)
        self.client.ceph("mgr", "fail")
        eventually(lambda: managers()[0] not in ("", active) and len(managers()[1]) == 2)
        eventually(lambda: self.client.json("mgr", "stat")["available"])
        # The tool finds the new one.
        self.assertIn("pg_stats", json.dumps(self.client.json("pg", "dump")))


class Growing(WithMonitors, ReplicatedTest):
    """One monitor becomes three and five and three again, while clients work, and nothing is lost."""

    OSDS = 3

    def test_one_monitor_becomes_three_and_five_and_three_again(self):
        load = self.load(self.make_pool("growing"))
        keys = {self.set_key(f"alone-{n}") for n in range(3)}
        run([SHOAL, "up", "--dir", self.cluster.dir, "--mons", "3"])
        self.wait_quorum(*"abc")
        self.assertLessEqual(keys, self.stored())
        leader = self.leader()
        self.cluster.kill(f"mon.{leader}")
        keys.add(self.set_key("without-a-leader"))
        self.cluster.start_daemon(f"mon.{leader}")
        self.wait_quorum(*"abc")
        self.goes_on(load)

        run([SHOAL, "up", "--dir", self.cluster.dir, "--mons", "5"])
        self.wait_quorum(*"abcde")
        # Any two may die now.
        dead = self.followers()[:2]
        for name in dead:
            self.cluster.kill(f"mon.{name}")
        keys.add(self.set_key("three-of-five"))
        self.goes_on(load)
        # Those that are gone leave, and the leader is the last that may not: it hands over before it goes.
        for name in dead:
            self.client.ceph("mon", "rm", name)
        keys.add(self.set_key("three"))
        leader = self.leader()
        self.client.ceph("mon", "rm", leader)
        left = sorted(set("abcde") - set(dead) - {leader})
        self.wait_quorum(*left)
        keys.add(self.set_key("two"))
        eventually(lambda: self.client.mon_status(leader)["state"] == "shutdown")

        # One that was taken out joins again when its directory is empty.
        self.cluster.kill(f"mon.{leader}")
        shutil.rmtree(self.cluster.dir / f"mon.{leader}")
        self.cluster.start_daemon(f"mon.{leader}")
        self.wait_quorum(leader, *left)
        self.assertLessEqual(keys, self.stored())
        refused = self.client.ceph("mon", "rm", "nobody", check=False)
        self.assertEqual((refused.code, refused.errors.strip()), (0, "mon.nobody does not exist or has already been removed"))
        self.assert_right(load)
        self.assert_healthy()


class TakenOut(WithMonitors, ClusterTest):
    """`shoal up` on a directory whose `ceph.conf` names a monitor that `ceph mon rm` took out."""

    OPTIONS = ("--mons", "3", "--store", "disk", "--size", "4G")
    QUIET = False

    def up(self, *more):
        return run([SHOAL, "up", "--dir", self.cluster.dir, *more], check=False)

    def mon_host(self):
        return self.client.tool("ceph-conf", "-c", self.cluster.conf, "--lookup", "mon_host").text.strip()

    def test_up_leaves_removed_monitors_out(self):
        self.wait_quorum(*"abc")
        conf_of_three = self.mon_host()
        # The one whose address all ports follow from.
        self.client.ceph("mon", "rm", "a")
        self.wait_quorum("b", "c")
        self.cluster.kill("mon.a")
        said = ("mon.a was taken out (`ceph mon rm`): it is not started, and ceph.conf names it no more. It may join again when "
                f"{self.cluster.dir}/mon.a is removed")
        done = self.up()
        self.assertEqual((done.code, done.text.splitlines()[0]), (0, said))
        self.assertFalse(self.cluster.is_running("mon.a"))
        self.assertEqual(self.mon_host(), ",".join(conf_of_three.split(",")[1:]))
        self.assertNotIn(said, self.up().text)
        # The disks tell it, too, where no monitor runs.
        self.client.ceph("mon", "rm", "c")
        self.wait_quorum("b")
        run([SHOAL, "down", "--dir", self.cluster.dir])
        self.assertIn("mon.c was taken out", self.up().text)
        self.wait_quorum("b")

        old = self.up("--mons", "3")
        self.assertEqual(old.code, 1)
        self.assertIn(f"{self.cluster.dir}/mon.a is the directory of a monitor that was taken out: remove it, and repeat this: mon.a "
                      "then joins anew", old.errors)
        for name in "ac":
            shutil.rmtree(self.cluster.dir / f"mon.{name}")
        self.assertEqual(self.up("--mons", "3").code, 0)
        self.wait_quorum(*"abc")
        self.assertEqual(self.mon_host(), conf_of_three)
