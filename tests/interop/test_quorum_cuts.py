"""Three monitors in network namespaces: the leader and a follower are cut off from the other monitors, one way and both ways, two
monitors from each other, and one monitor from everybody, or it freezes. Most OSDs and the verifying clients have their sessions there,
and commands are given over a session with each monitor all the time. Clients and commands go on, nothing acknowledged is lost, and
the quorum is whole again after the network is."""
import time
import unittest

import monitor_networks
import networks
from command_client import CommandClient
from harness import eventually, long_only
from replicated import FAULTS, ReplicatedTest, configure
from test_quorum import WithMonitors

#: A fault lasts longer than an election, and than a monitor without a leader keeps its clients.
FAULT_SECONDS = 4
#: A monitor that knows no leader sends its clients away within this time, and lets none in.
SENT_AWAY_SECONDS = 3
#: A command that takes longer hangs. Stock clients notice a monitor that went silent after 30 s alone, and hunt from then on.
COMMAND_SECONDS_MAX = 60
#: An operation that takes longer waits for somebody's timeout of 30 s.
PAUSE_SECONDS_MAX = 20
#: Two of three OSDs have their sessions at the monitor that fails: without them, PGs serve nobody.
OSDS_AT_IT = (0, 1)


class QuorumCuts(WithMonitors, ReplicatedTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        why = networks.why_not()
        if why:
            raise unittest.SkipTest(why)
        cluster = monitor_networks.QuorumCluster(cls.OSDS)
        configure(cluster, *FAULTS)
        return cluster

    def setUp(self):
        self.wait_quorum(*"abc")
        super().setUp()

    def commands(self):
        """A client at each monitor, by its name."""
        clients = {name: CommandClient(self.cluster.conf, f"cuts/{name}", self.cluster.mon_host(name)).start() for name in "abc"}
        eventually(lambda: all(client.answered for client in clients.values()))
        return clients

    def endure(self, label, strike, heal, at, serves=True):
        """One fault of one monitor, or between two, under load, with most sessions at the last of `at`. `serves`: clients that
        began there get answers while it lasts."""
        pool = self.make_pool("cuts")
        for osd in OSDS_AT_IT:
            self.cluster.restart_osd_at(osd, at[-1])
        self.wait_up(*OSDS_AT_IT)
        self.pgs.wait_clean()
        load, clients = self.load(pool, mon_host=self.cluster.mon_host(at[-1])), self.commands()

        def everybody_is_answered(since, names):
            return all(clients[name].begun_and_answered(since) for name in names)

        load.forget_slow()
        struck_at = time.monotonic()
        strike()
        self.addCleanup(heal)
        time.sleep(FAULT_SECONDS)
        served = [name for name in clients if serves or name not in at]
        eventually(lambda: everybody_is_answered(struck_at + 1, served), COMMAND_SECONDS_MAX)
        self.goes_on(load)
        heal()
        healed_at = time.monotonic()
        self.wait_quorum(*"abc")
        whole_at = time.monotonic()
        eventually(lambda: everybody_is_answered(whole_at, clients), COMMAND_SECONDS_MAX)
        self.goes_on(load)
        self.assertEqual([problem for client in clients.values() for problem in client.problems(self.client)], [], label)
        slowest = {name: client.slowest(struck_at) for name, client in clients.items()}
        away, pause = max(took for name, took in slowest.items() if name not in at), load.slowest()[0]
        print(f"{label}: slowest command {max(slowest[name] for name in at):.2f} s at mon.{' and mon.'.join(at)}, {away:.2f} s elsewhere; "
              f"slowest operation {pause:.2f} s; whole {whole_at - healed_at:.2f} s later", flush=True)
        self.assertLess(max(slowest.values()), COMMAND_SECONDS_MAX, label)
        self.assertLess(pause, PAUSE_SECONDS_MAX, label)
        self.assert_right(load)
        self.assert_healthy()

    def cut_off(self, role, how):
        name, network = self.leader() if role == "leader" else self.followers()[-1], self.cluster.networks
        self.endure(f"{role}, {how}", lambda: network.cut_from_others(name, how), network.heal, [name])

    def cut_between(self, *pair):
        """The third monitor reaches both. One of the three leads, and keeps on doing it."""
        network = self.cluster.networks
        self.endure(f"mon.{' and mon.'.join(pair)}", lambda: network.cut_between(*pair), network.heal, pair)

    def unplug(self, role):
        name, network = self.leader() if role == "leader" else self.followers()[-1], self.cluster.networks
        self.endure(f"{role}, unplugged", lambda: network.unplug(name), network.heal, [name], serves=False)

    @long_only
    def test_leader_that_nobody_hears(self):
        self.cut_off("leader", "out")

    @long_only
    def test_leader_that_hears_nobody(self):
        self.cut_off("leader", "in")

    def test_leader_that_is_cut_off(self):
        self.cut_off("leader", "both")

    @long_only
    def test_follower_that_is_cut_off(self):
        self.cut_off("follower", "both")

    @long_only
    def test_follower_that_nobody_hears(self):
        self.cut_off("follower", "out")

    @long_only
    def test_follower_that_hears_nobody(self):
        self.cut_off("follower", "in")

    def test_follower_that_freezes(self):
        name = self.followers()[-1]
        self.endure("follower, frozen", lambda: self.cluster.pause(f"mon.{name}"), lambda: self.cluster.resume(f"mon.{name}"), [name],
                    serves=False)

    def test_monitor_without_quorum_answers_on_its_host_alone(self):
        """As stock's of 16.2.15, with this error after 7 s: it lets no session in."""
        name, network = self.followers()[-1], self.cluster.networks
        self.assertEqual(self.client.json("tell", f"mon.{name}", "mon_status")["state"], "peon")
        network.cut_from_others(name, "both")
        self.addCleanup(network.heal)
        eventually(lambda: self.client.mon_status(name)["state"] == "electing")
        time.sleep(SENT_AWAY_SECONDS)
        told = self.client.ceph("tell", f"mon.{name}", "mon_status", check=False)
        self.assertEqual((told.code, told.errors.strip()), (6, f"Error ENXIO: problem getting command descriptions from mon.{name}"))
        for command in ("mon_status", "version", "sessions", ("config", "get", "mon_lease"), ("perf", "dump")):
            words = [command] if isinstance(command, str) else command
            self.client.tool("ceph", "daemon", self.cluster.dir / f"mon.{name}.asok", *words)

    @long_only
    def test_leader_that_is_unplugged(self):
        self.unplug("leader")

    @long_only
    def test_follower_that_is_unplugged(self):
        self.unplug("follower")

    def test_leader_and_follower_cut_off_from_each_other(self):
        self.cut_between(self.leader(), self.followers()[0])

    @long_only
    def test_followers_cut_off_from_each_other(self):
        self.cut_between(*self.followers())
