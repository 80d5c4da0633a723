"""Monitors in network namespaces of their own on this host, so that a test can cut them off: from one another, in one direction or in
both, or from everybody. Needs root.

OSDs, stock's manager and clients stay in the host's namespace. The host routes every packet between two monitors, and a cut between
them is a black hole in its routing table. A monitor that is unplugged loses all packets in the queues at both ends of its link. No
sender is told that packets are gone, as with a cable that is pulled.
"""
import itertools
import os
import re

import harness
import stock_cluster
from harness import eventually, run
from networks import ip

#: Cuts between one monitor and the others: of all that it sends, of all that it is sent, of both.
WAYS = ("out", "in", "both")
#: The monitors' ports are the same in each namespace.
STOCK_PORT = 3300


class MonitorNetworks:
    """A namespace for each monitor, by name."""

    made = itertools.count()

    def __init__(self, names="abc"):
        self.names, self.rules, self.unplugged = names, [], []
        # Another suite may run beside this one. OSDs' namespaces have other addresses of a block.
        self.number = next(self.made)
        self.block = f"10.{(os.getpid() + self.number) % 200 + 40}"
        self.host = f"{self.block}.254.1"
        ip("addr", "add", f"{self.host}/32", "dev", "lo")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
            forward.write("1")
        for name in names:
            space, link, gateway = self.space(name), self.link(name), self.addr(name).rsplit(".", 1)[0] + ".1"
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("link", "add", link, "type", "veth", "peer", "name", "net0", "netns", space)
            ip("addr", "add", f"{gateway}/30", "dev", link)
            ip("link", "set", link, "up")
            ip("-n", space, "addr", "add", f"{self.addr(name)}/30", "dev", "net0")
            ip("-n", space, "link", "set", "net0", "up")
            ip("-n", space, "route", "add", "default", "via", gateway)

    def space(self, name):
        return f"shoal-{os.getpid()}-{self.number}-mon-{name}"

    def link(self, name):
        return f"sh{os.getpid() % 100000}-{self.number}{name}"

    def addr(self, name):
        return f"{self.block}.{240 + self.names.index(name)}.2"

    def inside(self, name):
        """The command that runs a command in a monitor's namespace."""
        return ["ip", "netns", "exec", self.space(name)]

    def cut(self, *pairs):
        """Loses all packets of each pair's first monitor to its second."""
        for source, target in pairs:
            rule = ("pref", 1, "from", self.addr(source), "to", self.addr(target), "blackhole")
            ip("rule", "add", *rule)
            self.rules.append(rule)

    def cut_from_others(self, name, how):
        """Cuts one monitor off from the other monitors. Clients and OSDs reach it still."""
        others = [other for other in self.names if other != name]
        out, into = [(name, other) for other in others], [(other, name) for other in others]
        self.cut(*(out if how != "in" else []), *(into if how != "out" else []))

    def cut_between(self, one, other):
        """Cuts two monitors off from each other, both ways."""
        self.cut((one, other), (other, one))

    def unplug(self, name):
        """Cuts one monitor off from everybody, both ways."""
        self.unplugged.append(name)
        for space, device in self.ends(name):
            run(["tc", *space, "qdisc", "replace", "dev", device, "root", "blackhole"])

    def ends(self, name):
        return ((), self.link(name)), (("-n", self.space(name)), "net0")

    def heal(self):
        while self.rules:
            ip("rule", "del", *self.rules.pop())
        while self.unplugged:
            for space, device in self.ends(self.unplugged.pop()):
                run(["tc", *space, "qdisc", "del", "dev", device, "root"])

    def close(self):
        for rule in self.rules:
            ip("rule", "del", *rule, check=False)
        for name in self.names:
            ip("netns", "del", self.space(name), check=False)
            ip("link", "del", self.link(name), check=False)
        ip("addr", "del", f"{self.host}/32", "dev", "lo", check=False)


class Placed:
    """A mixin: OSDs whose sessions begin at monitors that a test chooses."""

    #: The option that names the monitors where a session begins.
    BEGIN_OPTION = "mon host"

    def restart_osd_at(self, osd, name):
        """Restarts an OSD, whose session with the monitors then begins at this one."""
        head, line = f"[osd.{osd}]\n", f"{self.BEGIN_OPTION} = {self.mon_host(name)}\n"
        text = re.sub(rf"(?m)^{re.escape(head)}{self.BEGIN_OPTION} = .*\n", head, self.conf.read_text())
        text = text.replace(head, head + line) if head in text else f"{text}\n{head}{line}"
        self.conf.write_text(text)
        self.stop_daemon(f"osd.{osd}")
        self.start_daemon(f"osd.{osd}")


class QuorumCluster(Placed, harness.Cluster):
    """A cluster of ours whose monitors are in namespaces."""

    def __init__(self, osds=3, names="abc"):
        self.networks = MonitorNetworks(names)
        self.first = names[0]
        try:
            super().__init__("--store", "disk", "--size", "4G", "--mons", "1", "--addr", self.networks.addr(self.first), osds=osds)
            self.down()
            self.monitors = list(names)
            self.spread()
            self.start_daemon(f"mon.{self.first}")
            for name in names[1:]:
                self.add_manager_key(name)
                self.start_daemon(f"mon.{name}")
            client = harness.Client(self)
            eventually(lambda: sorted(client.json("quorum_status")["quorum_names"]) == sorted(names), 60)
            for osd in range(osds):
                self.start_daemon(f"osd.{osd}")
        except BaseException:
            self.close()
            raise

    def up(self):
        # It is made in the namespace of the first monitor, which has the address that goes into the first monitors' map.
        run([*self.networks.inside(self.first), harness.SHOAL, "up", "--dir", self.dir, *self.options])

    def spread(self):
        """Gives the OSDs the host's address, and each further monitor a section with the address of its namespace."""
        first = self.networks.addr(self.first)
        sections = re.split(r"(?m)^(?=\[)", self.conf.read_text())
        own = next(section for section in sections if section.startswith(f"[mon.{self.first}]"))
        named = re.search(r"(?m)^\s*mon host = (.*)$", "".join(sections))[1]
        hosts = ",".join(named.replace(first, self.networks.addr(name)) for name in self.monitors)
        spread = [section.replace(first, self.networks.host) if section.startswith("[osd.") else section.replace(named, hosts)
                  for section in sections]
        more = [own.replace(f"[mon.{self.first}]", f"[mon.{name}]").replace(first, self.networks.addr(name))
                for name in self.monitors[1:]]
        self.conf.write_text("\n".join([*spread, *more]))

    def add_manager_key(self, name):
        client = harness.Client(self)
        client.ceph("auth", "get-or-create", f"mgr.{name}", "mds", "allow *", "mon", "profile mgr", "osd", "allow *")
        key = client.ceph("auth", "get-key", f"mgr.{name}").text.strip()
        client.tool("ceph-authtool", self.dir / "keyring", "-n", f"mgr.{name}", "--add-key", key)

    def prefix_of(self, name):
        kind, _, number = name.partition(".")
        return self.networks.inside(number) if kind == "mon" else []

    def mon_host(self, name):
        """The value of `mon host` for a client that is to begin at this monitor."""
        return f"[v2:{self.networks.addr(name)}:{self.port}]"

    def close(self):
        super().close()
        self.networks.close()


class StockQuorumCluster(Placed, stock_cluster.StockCluster):
    """A cluster of stock Ceph on bluestore whose monitors are in namespaces."""

    BEGIN_OPTION = "mon host override"

    def __init__(self, osds=3, names="abc"):
        self.networks = MonitorNetworks(names)
        public = "".join(f"[{kind}]\npublic addr = {self.networks.host}\n" for kind in ("osd", "mgr"))
        try:
            super().__init__(osds=osds, store="bluestore", extra=stock_cluster.FAULTS + public)
        except BaseException:
            self.networks.close()
            raise

    def monitor_addrs(self, _port):
        return {name: f"[v2:{self.networks.addr(name)}:{STOCK_PORT},v1:{self.networks.addr(name)}:{STOCK_PORT + 1}]"
                for name in self.networks.names}

    prefix_of = QuorumCluster.prefix_of

    def mon_host(self, name):
        return self.monitors_by_name[name]

    def close(self):
        super().close()
        self.networks.close()


