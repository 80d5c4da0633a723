"""Figures of single images: `rbd perf image stats` and `counters` of the manager, `iostat` and `iotop` of `rbd`, compared with what
`rbd bench` did. One story; with --stock on stock's daemons of 16.2. With --long the figures also expire."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
import unittest

import harness
import stock_cluster
from harness import Client, ClusterTest, clean_environment, eventually

POOL, DATA_POOL = "images", "images-data"
COUNTERS = ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"]
#: Two windows of mgr_stats_period, and a report that comes late.
WINDOWS_SECONDS = 15
SECONDS_MAX = 40
#: A request ends a minute after it was last made.
EXPIRY_SECONDS = 60
#: `iostat` and `bench` look at different seconds of a load that varies.
FACTOR_MAX = 2.5

#: Command, exit code, and the errors that stock 16.2.15 prints.
REFUSALS = [
    ("rbd perf image stats nopool", 2, "[errno 2] RADOS object not found (Pool 'nopool' not found)"),
    ("rbd perf image counters nopool", 2, "[errno 2] RADOS object not found (Pool 'nopool' not found)"),
    ("rbd perf image stats images/a/b", 22, "Invalid pool spec: images/a/b"),
    ("rbd perf image stats images/", 22, "Invalid pool spec: images/"),
]


class Figures(ClusterTest):
    @classmethod
    def make_cluster(cls):
        return stock_cluster.StockCluster() if harness.STOCK else super().make_cluster()

    def rbd(self, *args, **how):
        return self.client.run("rbd", *args, **how)

    def ask(self, *args, client=None, check=True):
        """A command of the module, which is not ready for a moment after the manager's start."""
        def answer():
            told = (client or self.client).ceph(*args, check=False)
            return told if told.code != 11 else None
        told = eventually(answer, 60)
        if check:
            self.assertEqual(told.code, 0, told.errors)
        return told

    def figures(self, kind, *spec):
        """Values by pool, namespace and image."""
        told = self.ask("rbd", "perf", "image", kind, *spec).json
        word = kind.removesuffix("s")
        self.assertEqual(set(told), {"timestamp", f"{word}_descriptors", "pool_descriptors", kind})
        self.assertEqual(told[f"{word}_descriptors"], COUNTERS)
        self.assertLess(abs(told["timestamp"] - time.time()), 60)
        shown = {}
        for row in told[kind]:
            [(name, values)] = row.items()
            place, image = name.split("/", 1)
            shown[f"{told['pool_descriptors'][place]}/{image}"] = values
        return shown

    def bench(self, spec, kind, total, pattern="rand"):
        self.rbd("bench", "--rbd-cache=false", "--io-type", kind, "--io-size", "4K", "--io-threads", "1", "--io-total", total,
                 "--io-pattern", pattern, spec)

    def counts_each_operation(self):
        """The totals are those of the bench, to the operation."""
        specs = {f"{POOL}/busy": 1024, f"{POOL}/ns/spaced": 256, f"{POOL}/apart": 128}
        for kind in ("counters", "stats"):
            self.assertEqual(self.figures(kind), {}, "no image is in use")
        # The OSDs count from now on.
        time.sleep(2)
        for spec, operations in specs.items():
            self.bench(spec, "write", operations * 4096, "seq")
        self.bench(f"{POOL}/busy", "read", 512 * 4096)
        written = {spec: [n, 0, n * 4096, 0] for spec, n in specs.items()}
        written[f"{POOL}/busy"] = [1024, 512, 1024 * 4096, 512 * 4096]
        shown = {}

        def all_are_there():
            shown.update(self.figures("counters"))
            return {spec: row[:4] for spec, row in shown.items()} == written
        try:
            eventually(all_are_there, SECONDS_MAX, every=1)
        except harness.Failed as failed:
            raise harness.Failed(f"{shown} are not {written}") from failed
        writes_ns, reads_ns = shown[f"{POOL}/busy"][4:]
        self.assertTrue(1024 * 1000 < writes_ns < 120e9 and 512 * 1000 < reads_ns < 120e9, (writes_ns, reads_ns))
        self.assertEqual(shown[f"{POOL}/apart"][5], 0)

    def counts_after_a_restart(self):
        before = self.figures("counters")[f"{POOL}/busy"][0]
        self.cluster.kill("osd.0")
        self.cluster.start_daemon("osd.0")

        def counts():
            self.bench(f"{POOL}/busy", "write", 64 * 4096)
            return self.figures("counters")[f"{POOL}/busy"][0] > before
        eventually(counts, 90, every=1)

    def rates_are_those_of_the_load(self):
        bench = self.client.spawn("rbd", "bench", "--rbd-cache=false", "--io-type", "write", "--io-size", "4K", "--io-threads", "1",
                                  "--io-total", "100G", "--io-pattern", "rand", f"{POOL}/busy")
        try:
            # The rates are those of the load alone.
            time.sleep(WINDOWS_SECONDS)
            rows = eventually(lambda: [row for row in self.iostat() if row["image"] == "busy"], 60)
            self.shows_in_iostat(f"{POOL}/busy")
            self.shows_in_iotop(f"{POOL}/busy")
            by_pool = eventually(lambda: self.figures("stats", POOL), SECONDS_MAX, every=1)
            self.assertEqual(list(by_pool), [f"{POOL}/busy"])
            self.assertEqual(self.figures("stats", f"{POOL}/ns"), {})
            all_pools = self.ask("rbd", "perf", "image", "stats").json
            self.assertEqual(all_pools["pool_descriptors"]["0"], POOL, "the busiest comes first")
        finally:
            bench.kill()
            lines = bench.communicate()[0].decode().splitlines()
        seconds, operations = [line.split()[:2] for line in lines if line.split()[:1] and line.split()[0].isdigit()][-1]
        done = int(operations) / int(seconds)
        [row] = rows
        self.assertEqual((row["pool"], row["pool_namespace"]), (POOL, ""))
        self.assertTrue(done / FACTOR_MAX < row["write_ops"] < done * FACTOR_MAX, f"{row}; bench did {done} a second")
        self.assertAlmostEqual(row["write_bytes"], row["write_ops"] * 4096, delta=row["write_bytes"] / 100)
        self.assertEqual((row["read_ops"], row["read_bytes"], row["read_latency"]), (0, 0, 0))
        # One operation at a time: they take no more than all the time there is.
        self.assertTrue(1000 < row["write_latency"] < FACTOR_MAX * 1e9 / row["write_ops"], row)
        self.assertTrue(0.5 * row["write_ops"] < by_pool[f"{POOL}/busy"][0] * FACTOR_MAX, by_pool)

    def iostat(self, *options):
        """The rows of JSON, which is written once."""
        return self.rbd("perf", "image", "iostat", "--format", "json", *options).json

    def shows_in_iostat(self, spec):
        lines = self.rbd("perf", "image", "iostat", "--iterations", "2", "--sort-by", "write-bytes").text.splitlines()
        rows = [line.split() for line in lines]
        self.assertEqual(rows[0], ["NAME", "WR", "RD", "WR_BYTES", "RD_BYTES", "WR_LAT", "RD_LAT"])
        shown = [row for row in rows if row[:1] == [spec]]
        self.assertEqual(len(shown), 2, lines)
        self.assertTrue(all(row[1].endswith("/s") and row[1] != "0/s" for row in shown), lines)

    def shows_in_iotop(self, spec):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        shown = b""
        iotop = subprocess.Popen(self.client.argv("rbd", "perf", "image", "iotop"), stdin=theirs, stdout=theirs,
                                 stderr=subprocess.STDOUT, env={**clean_environment(), "TERM": "xterm"})
        try:
            deadline = time.monotonic() + SECONDS_MAX
            while spec.encode() not in shown and time.monotonic() < deadline:
                if select.select([ours], [], [], 1)[0]:
                    shown += os.read(ours, 65536)
            self.assertIn(spec.encode(), shown)
            self.assertIn(b"WRITES OPS", shown)
            os.write(ours, b"q")
            # It looks at the keyboard after its next question.
            self.assertEqual(iotop.wait(30), 0)
        finally:
            iotop.kill()
            iotop.wait()
            os.close(ours), os.close(theirs)

    def asks_capabilities(self):
        keyring = self.cluster.dir / "reader.keyring"
        keyring.write_text(self.client.ceph("auth", "get-or-create", "client.reader", "mon", "profile rbd", "mgr",
                                            f"profile rbd-read-only pool={POOL}").text)
        reader = Client(self.cluster, options=("--keyring", keyring), name="client.reader")
        self.assertIn("stats", self.ask("rbd", "perf", "image", "stats", POOL, client=reader).json)
        for spec, shown in [((), ("None", "None")), ((DATA_POOL,), (DATA_POOL, ""))]:
            told = self.ask("rbd", "perf", "image", "stats", *spec, client=reader, check=False)
            self.assertEqual(told.code, 13)
            self.assertIn("not authorized on pool={}, namespace={}".format(*shown), told.errors)

    def expires(self):
        self.assertIn(f"{POOL}/busy", self.figures("counters"))
        time.sleep(EXPIRY_SECONDS + 10)
        self.assertEqual(self.figures("counters"), {}, "the totals begin again")

    def test_figures_are_those_of_the_bench(self):
        for name in (POOL, DATA_POOL):
            self.client.ceph("osd", "pool", "create", name, "8")
            self.rbd("pool", "init", name)
        self.rbd("namespace", "create", f"{POOL}/ns")
        for options in (["busy"], ["ns/spaced"], ["apart", "--data-pool", DATA_POOL]):
            self.rbd("create", "--size", "4M", f"{POOL}/{options[0]}", *options[1:])
        for command, code, errors in REFUSALS:
            with self.subTest(command):
                told = self.ask(*command.split(), check=False)
                self.assertEqual((told.code, told.errors.strip().partition(": ")[2]), (code, errors))
        told = self.ask("rbd", "perf", "image", "stats", POOL, "sizes", check=False)
        self.assertEqual(told.code, 22)
        # The first request of stock's for all pools knows no pool.
        self.figures("stats")
        self.counts_each_operation()
        # Stock counts in the pool of the object, and leaves out images whose data are elsewhere.
        self.figures("counters", POOL)
        time.sleep(2)
        for spec in ("busy", "apart"):
            self.bench(f"{POOL}/{spec}", "write", 64 * 4096)
        expected = {f"{POOL}/busy": 64} if harness.STOCK else {f"{POOL}/busy": 64, f"{POOL}/apart": 64}
        eventually(lambda: {spec: row[0] for spec, row in self.figures("counters", POOL).items()} == expected, SECONDS_MAX, every=1)
        self.rates_are_those_of_the_load()
        # The stock cluster's OSD keeps its objects in memory, and after a restart the bench waits for ever.
        if not harness.STOCK:
            self.counts_after_a_restart()
        self.asks_capabilities()
        if harness.LONG:
            self.expires()


if __name__ == "__main__":
    unittest.main()
