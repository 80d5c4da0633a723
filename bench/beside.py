"""Two clusters beside each other, shoal's and stock Ceph's, with stock's programs of one folder as the clients of both."""
import glob
import os
import resource
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHOAL = os.environ.get("SHOAL", f"{ROOT}/target/release/shoal")
TICKS = os.sysconf("SC_CLK_TCK")


def run(*command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=dict(os.environ, **(env or {})))
    if done.returncode:
        program = os.path.basename(sys.argv[0])
        sys.exit(f"{program}: {' '.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def medians(rounds):
    return [statistics.median(column) for column in zip(*rounds)]


def in_turns(clusters, rounds, measure):
    """Medians of what `measure` returns of each cluster, after a first time that does not count."""
    results = [[] for _ in clusters]
    for cluster in clusters:
        measure(cluster)
    for _ in range(rounds):
        for cluster, result in zip(clusters, results):
            result.append(measure(cluster))
    return [medians(result) for result in results]


class Cluster:
    """A running cluster in a folder, which `root` sees at the same path."""

    def __init__(self, name, path, root):
        self.name, self.path, self.enter = name, path, ["chroot", root]
        self.env = {"CEPH_CONF": f"{path}/ceph.conf", "LC_ALL": "C.UTF-8"}
        self.mounted = None
        if not os.path.ismount(root + path):
            os.makedirs(root + path, exist_ok=True)
            run("mount", "--rbind", path, root + path)
            self.mounted = root + path
        self.pids = [int(open(file).read()) for file in glob.glob(f"{path}/osd.*.pid")]

    def run(self, *command):
        return run(*self.enter, *command, env=self.env)

    def make_pool(self, pool, size):
        self.run("ceph", "osd", "pool", "create", pool, "64")
        self.run("ceph", "osd", "pool", "set", pool, "size", str(size), *["--yes-i-really-mean-it"] * (size == 1))

    def cpu(self):
        """Seconds of processor time of all OSDs."""
        total = 0
        for pid in self.pids:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def measure(self, *command):
        """Output of a client, and processor time of OSDs and of the client in us."""
        children = lambda: (lambda used: used.ru_utime + used.ru_stime)(resource.getrusage(resource.RUSAGE_CHILDREN))
        osds, client = self.cpu(), children()
        out = self.run(*command)
        return out, (self.cpu() - osds) * 1e6, (children() - client) * 1e6

    def end(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.mounted])
