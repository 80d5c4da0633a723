"""OSDs in network namespaces of their own on this host, so that a test can cut one off: from everybody or from other OSDs, in
one direction or in both. Needs root.

The monitor and the clients stay in the host's namespace. Each OSD has two links: one to them, and one of the cluster network, over
which it meets other OSDs. Every packet between two parties is routed by the host. A cut is a black hole in a routing table:
nobody is told that the packets are gone, as with a cable that is pulled.
"""
import os
import re
import subprocess

import harness

#: Of what an OSD sends, of what it is sent, of both, or of both in the cluster network alone.
CUTS = ("out", "in", "both", "cluster")


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if check and done.returncode:
        raise harness.Failed(f"ip {' '.join(map(str, words))}: {done.stderr}")


def why_not():
    """The reason why namespaces cannot be made here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"shoal-try-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
    except (OSError, harness.Failed) as error:
        return f"no network namespaces here: {error}"
    return ""


class Networks:
    """A namespace for each OSD."""

    def __init__(self, osds):
        self.osds, self.cuts = osds, []
        # Another suite may run beside this one.
        self.block = f"10.{os.getpid() % 200 + 40}"
        self.monitor = f"{self.block}.255.1"
        ip("addr", "add", f"{self.monitor}/32", "dev", "lo")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
            forward.write("1")
        for osd in range(osds):
            space = self.space(osd)
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            self.join(osd, "net0", self.addr(osd), "default")
            self.join(osd, "net1", self.cluster_addr(osd), self.cluster_network)

    def join(self, osd, device, addr, targets):
        """Connects an OSD's namespace with the host, which is its way to `targets`."""
        space, link = self.space(osd), f"sh{os.getpid() % 100000}-{osd}-{device[-1]}"
        gateway = addr.rsplit(".", 1)[0] + ".1"
        ip("link", "add", link, "type", "veth", "peer", "name", device, "netns", space)
        ip("addr", "add", f"{gateway}/30", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", space, "addr", "add", f"{addr}/30", "dev", device)
        ip("-n", space, "link", "set", device, "up")
        ip("-n", space, "route", "add", targets, "via", gateway)

    def space(self, osd):
        return f"shoal-{os.getpid()}-{osd}"

    def addr(self, osd):
        return f"{self.block}.{osd}.2"

    def cluster_addr(self, osd):
        return f"{self.block}.{osd + 128}.2"

    @property
    def cluster_network(self):
        return f"{self.block}.128.0/18"

    def cut(self, osd, how):
        addr, ways = self.addr(osd), {"out": ["from"], "in": ["to"]}.get(how, ["from", "to"])
        rules = [(way, self.cluster_addr(osd)) for way in ways]
        if how != "cluster" and "to" in ways:
            rules.append(("to", addr))
        for rule in rules:
            ip("rule", "add", "pref", 1, *rule, "blackhole")
            self.cuts.append(("rule", "del", "pref", 1, *rule, "blackhole"))
        if how != "cluster" and "from" in ways:
            # A rule of the host comes too late: its table of local addresses, where the monitor is, is asked first.
            ip("-n", self.space(osd), "route", "replace", "blackhole", "default")
            self.cuts.append(("-n", self.space(osd), "route", "replace", "default", "via", f"{self.block}.{osd}.1"))

    def heal(self):
        for undo in self.cuts:
            ip(*undo)
        self.cuts = []

    def close(self):
        for undo in self.cuts:
            ip(*undo, check=False)
        for osd in range(self.osds):
            ip("netns", "del", self.space(osd), check=False)
        ip("addr", "del", f"{self.monitor}/32", "dev", "lo", check=False)


class CutCluster(harness.Cluster):
    """A cluster of ours whose OSDs are in namespaces."""

    def __init__(self, osds):
        self.networks = Networks(osds)
        try:
            # The host has the other end of each OSD's link to the cluster network.
            super().__init__("--store", "disk", "--size", "4G", "--addr", self.networks.monitor, "--cluster-network",
                             self.networks.cluster_network, osds=osds)
            self.down()
            self.move_osds()
            for name in self.monitors:
                self.start_daemon(f"mon.{name}")
            for osd in range(osds):
                self.start_daemon(f"osd.{osd}")
        except BaseException:
            self.close()
            raise

    def move_osds(self):
        """Gives each OSD the address of its namespace."""
        lines, section = [], ""
        for line in self.conf.read_text().splitlines():
            section = line if line.startswith("[") else section
            osd = re.fullmatch(r"\[osd\.(\d+)\]", section)
            if osd and line.startswith("public addr"):
                line = line.replace(self.networks.monitor, self.networks.addr(int(osd[1])))
            if osd and line.startswith("metrics addr"):
                line = line.replace(self.networks.monitor, "127.0.0.1")
            lines.append(line)
        self.conf.write_text("\n".join(lines) + "\n")

    def prefix_of(self, name):
        kind, _, number = name.partition(".")
        return ["ip", "netns", "exec", self.networks.space(int(number))] if kind == "osd" else []

    def close(self):
        super().close()
        self.networks.close()
