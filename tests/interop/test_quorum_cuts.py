"""Three monitors in network namespaces: the leader and a follower are cut off from the other monitors, one way and both ways, two
monitors from each other, and one monitor from everybody. Verifying clients write, and commands are given over a session with each
monitor, all the time. Clients and commands go on, nothing acknowledged is lost, and the quorum is whole again after the network is."""
import time
import unittest

import monitor_networks
import networks
from command_client import CommandClient
from harness import eventually, long_only
from replicated import FAULTS, ReplicatedTest, configure
from test_quorum import WithMonitors

#: A cut lasts longer than an election, and than a monitor without a leader keeps its clients.
CUT_SECONDS = 5
#: A command that takes longer hangs. Stock clients notice a monitor that went silent after 30 s alone, and hunt from then on.
COMMAND_SECONDS_MAX = 60


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
        self.addCleanup(self.cluster.networks.heal)

    def commands(self):
        """A client at each monitor, by its name."""
        clients = {name: CommandClient(self.cluster.conf, f"cuts/{name}", self.cluster.mon_host(name)).start() for name in "abc"}
        eventually(lambda: all(client.answered for client in clients.values()))
        return clients

    def endure(self, pool, label, cut, at):
        """One cut, `at` one or two monitors, under load. An OSD, the verifying clients and a client that gives commands have
        their sessions at the last of them."""
        self.cluster.restart_osd_at(0, at[-1])
        self.wait_up(0)
        self.pgs.wait_clean()
        load, clients = self.load(pool, mon_host=self.cluster.mon_host(at[-1])), self.commands()
        load.forget_slow()
        cut_at = time.monotonic()
        cut()
        time.sleep(CUT_SECONDS)
        # All is well for everybody while the cut lasts, whatever monitor a client began at.
        eventually(lambda: all(client.begun_and_answered(cut_at + 1) for client in clients.values()), COMMAND_SECONDS_MAX)
        self.goes_on(load)
        self.cluster.networks.heal()
        healed_at = time.monotonic()
        self.wait_quorum(*"abc")
        whole_at = time.monotonic()
        eventually(lambda: all(client.begun_and_answered(whole_at) for client in clients.values()), COMMAND_SECONDS_MAX)
        self.goes_on(load)
        self.assertEqual([problem for client in clients.values() for problem in client.problems(self.client)], [], label)
        slowest = {name: client.slowest(cut_at) for name, client in clients.items()}
        away = max(took for name, took in slowest.items() if name not in at)
        print(f"{label}: slowest command {max(slowest[name] for name in at):.2f} s at mon.{' and mon.'.join(at)}, {away:.2f} s elsewhere; "
              f"slowest operation {load.slowest()[0]:.2f} s; whole {whole_at - healed_at:.2f} s after the network", flush=True)
        self.assertLess(max(slowest.values()), COMMAND_SECONDS_MAX, label)
        self.assert_right(load)

    def cut_off(self, role, how):
        name = self.leader() if role == "leader" else self.followers()[-1]
        network = self.cluster.networks
        cut = (lambda: network.unplug(name)) if how == "unplugged" else (lambda: network.cut_from_others(name, how))
        self.endure(self.make_pool("cuts"), f"{role}, {how}", cut, [name])
        self.assert_healthy()

    def cut_between(self, *pair):
        """The third monitor reaches both. One of the three leads, and keeps on doing it."""
        self.endure(self.make_pool("chain"), f"mon.{' and mon.'.join(pair)}", lambda: self.cluster.networks.cut_between(*pair), pair)
        self.assert_healthy()

    def test_leader_that_nobody_hears(self):
        self.cut_off("leader", "out")

    def test_leader_that_hears_nobody(self):
        self.cut_off("leader", "in")

    def test_leader_that_is_cut_off(self):
        self.cut_off("leader", "both")

    def test_follower_that_is_cut_off(self):
        self.cut_off("follower", "both")

    @long_only
    def test_follower_that_nobody_hears(self):
        self.cut_off("follower", "out")

    @long_only
    def test_follower_that_hears_nobody(self):
        self.cut_off("follower", "in")

    @long_only
    def test_leader_that_is_unplugged(self):
        self.cut_off("leader", "unplugged")

    @long_only
    def test_follower_that_is_unplugged(self):
        self.cut_off("follower", "unplugged")

    def test_leader_and_follower_cut_off_from_each_other(self):
        self.cut_between(self.leader(), self.followers()[0])

    @long_only
    def test_followers_cut_off_from_each_other(self):
        self.cut_between(*self.followers())
