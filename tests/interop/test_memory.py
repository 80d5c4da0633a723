"""An OSD stays within its memory target, whatever clients ask of it; and the target is changed as operators change it."""
import threading

from harness import SHOAL, ClusterTest, eventually, run

MIB = 1 << 20


class Target(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "6G")

    def memory(self):
        return self.client.json("daemon", self.cluster.dir / "osd.0.asok", "perf", "dump")["memory"]

    def resident(self, key):
        status = open(f"/proc/{self.cluster.pid('osd.0')}/status").read().splitlines()
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{key}:"))

    def bench(self, *options):
        return run([SHOAL, "bench", "--dir", self.cluster.dir, "--pool", "flood", "--create-pool", "--json", *options])

    def test_a_flood_of_requests_fits_the_target(self):
        default = self.memory()["target"]
        self.assertEqual(default, 4096 * MIB)
        target = 896 * MIB
        self.client.ceph("config", "set", "osd", "osd_memory_target", target)
        eventually(lambda: self.memory()["target"] == target)
        # 2 GiB of writes under way at once; and reads of as much. They end together: a busy machine needs seconds for the first.
        for work in ("write", "read"):
            done = self.bench("--work", work, "--size", "4M", "--objects", "64", "--connections", "16", "--depth", "32",
                              "--seconds", "20").json
            self.assertEqual(done["errors"], 0, done)
            self.assertGreater(done["ops"], 0)
            self.assertLess(self.resident("VmHWM"), target * 1.1, work)
        # Many clients at once, each with many small ones.
        clients = [threading.Thread(target=self.bench, daemon=True, args=("--work", "write", "--size", size, "--objects", "64",
                                                             "--connections", "8", "--depth", "64", "--seconds", "3"))
                   for size in ("4k", "64k", "1M")]
        [client.start() for client in clients]
        [client.join() for client in clients]
        self.assertLess(self.resident("VmHWM"), target * 1.1)
        # Set for this process alone, by way of the cluster; then what the monitor says holds again.
        self.client.ceph("tell", "osd.0", "config", "set", "osd_memory_target", 1024 * MIB)
        eventually(lambda: self.memory()["target"] == 1024 * MIB)
        self.client.ceph("tell", "osd.0", "config", "unset", "osd_memory_target")
        eventually(lambda: self.memory()["target"] == target)
        self.client.ceph("config", "rm", "osd", "osd_memory_target")
        eventually(lambda: self.memory()["target"] == default)
