"""PGs move between the cores of their OSD while stock clients write, read, watch and hold locks, and while the OSD is killed
with -9 in the middle. Nothing acknowledged is lost, nothing is served wrong, nothing is there twice."""
import json
import os
import random
import socket
import time

import harness
import replicated
from harness import SHOAL, ClusterTest, eventually, run
from replicated import ReplicatedTest
from test_death import SEED, Librados, StockTool, Worker, get_further


def kills():
    return int(os.environ.get("SHOAL_KILLS", "40" if harness.LONG else "5"))


class Watcher(Librados):
    """Watches an object of each PG or so, and rings each of them, one after the other: every ring is heard."""

    def begin(self):
        super().begin()
        self.heard, self.watches = {}, {}
        for n in range(8):
            name = f"{self.label}-{n}"
            self.io.write_full(name, b"bell")
            self.objects[name] = b"bell"
            self.watches[name] = self.io.watch(name, lambda *told, name=name: self.hear(name, *told))

    def hear(self, name, notify_id, notifier, watch_id, data):
        self.heard.setdefault(name, []).append(data)
        return b"heard"

    def step(self):
        name = self.random.choice(list(self.watches))
        ring = str(self.done).encode()
        self.io.notify(name, ring.decode(), 20_000)
        deadline = time.monotonic() + 20
        while ring not in self.heard.get(name, []):
            if time.monotonic() > deadline:
                raise harness.Failed(f"{name}: the ring {ring} was not heard")
            time.sleep(0.01)

    def end(self):
        for watch in self.watches.values():
            watch.close()
        super().end()


def ask(path, prefix, **args):
    """Asks an admin socket without starting a tool, which takes longer than a move: the answer, `None` from a daemon that
    is not there."""
    command = json.dumps({"prefix": prefix, "format": "json", **args}).encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        try:
            s.connect(str(path))
            s.sendall(command + b"\0")
            said = b""
            while part := s.recv(1 << 16):
                said += part
        except OSError:
            return None
    try:
        return json.loads(said[4:])
    except ValueError:
        return None


class Mover(Worker):
    """Moves one PG after the other, to and fro."""

    def __init__(self, seed, path):
        super().__init__("mover", seed)
        self.path = path

    def step(self):
        now = ask(self.path, "pg cores")
        if not now or now["moving"] or not now["pgs"]:
            return time.sleep(0.01)
        pg = self.random.choice(now["pgs"])
        ask(self.path, "pg move", pgid=pg["pgid"], core=1 - pg["core"])


class Moves(ClusterTest):
    #: Three shards for two cores: one core has two of them.
    OPTIONS = ("--store", "disk", "--size", "6G", "--cores", "3")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster.down()
        cls.cluster.again += ["--cores", "2"]
        cls.cluster.up()

    def osd(self, *words, check=True):
        return run(["ceph", "daemon", self.cluster.dir / "osd.0.asok", *words], check=check)

    @property
    def path(self):
        return self.cluster.dir / "osd.0.asok"

    def cores(self):
        return ask(self.path, "pg cores")

    def fill(self, pool):
        """So much that a move takes a while."""
        data = {f"big{n}": os.urandom(2 << 20) for n in range(60)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        return data

    def must_have(self, pool, workers, data):
        expected = sorted([*(name for worker in workers for name in worker.objects), *data])
        self.assertEqual(sorted(self.client.rados("-p", pool, "ls").text.split()), expected)
        for name, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)

    def at_rest(self):
        now = self.cores()
        return now and not now["moving"] and now

    def move(self, pgid, to):
        self.osd("pg", "move", pgid, str(to))
        wanted = {"pgid": pgid, "core": to}
        eventually(lambda: wanted in (self.at_rest() or {"pgs": []})["pgs"], 60)

    def end(self, workers):
        for worker in workers:
            worker.stop.set()
        for worker in workers:
            worker.join(240)
        self.assertEqual([worker.problem for worker in workers if worker.problem], [])
        self.assertFalse([worker.label for worker in workers if worker.is_alive()], "a client hangs")

    def fsck(self):
        self.cluster.down()
        try:
            run([SHOAL, "store", "fsck", "--deep", self.cluster.dir / "osd.0"], timeout=300)
        finally:
            self.cluster.up()

    def test_1_the_command_says_what_it_does(self):
        self.osd("config", "set", "shoal_balance_pgs", "false")
        self.pool("said", 4)
        first = eventually(self.at_rest)["pgs"][0]
        self.move(first["pgid"], 1 - first["core"])
        self.assertIn("already", self.osd("pg", "move", first["pgid"], str(1 - first["core"]), check=False).text)
        self.assertIn("ERROR", self.osd("pg", "move", first["pgid"], "7", check=False).text)
        self.assertIn("ERROR", self.osd("pg", "move", "77.0", "1", check=False).text)
        self.assertIn("pg move", self.osd("help").text)
        self.assertGreaterEqual(self.osd("perf", "dump").json["osd"]["pg_moves"], 1)

    def test_2_clients_notice_nothing(self):
        self.osd("config", "set", "shoal_balance_pgs", "false")
        pool = self.pool("moving", 8)
        data = {**self.fill(pool), "held": b"x"}
        self.client.rados("-p", pool, "put", "held", "-", stdin=b"x")
        self.client.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        doomed = [self.pool(f"doomed{n}", 8) for n in range(3)]
        for name in doomed:
            self.client.rados("-p", name, "bench", 1, "write", "-b", 65536, "--no-cleanup")
        self.client.rados("-p", pool, "lock", "get", "held", "mine", "--lock-cookie", "c")
        workers = [Librados(f"lib{n}", SEED + n, self.cluster, pool) for n in range(2)]
        workers.append(StockTool("tool", SEED + 10, self.client, pool))
        workers.append(Watcher("bell", SEED + 20, self.cluster, pool))
        mover = Mover(SEED, self.path)
        began = eventually(self.at_rest)["moved"]
        for worker in [*workers, mover]:
            worker.start()
        try:
            def has_moved(count):
                return any(w.problem for w in [*workers, mover]) or self.cores()["moved"] >= began + count

            # Maps that mean something for PGs come in the middle of it.
            for n, pg_num in enumerate((12, 16, 32)):
                eventually(lambda: has_moved(5 + 5 * n), 120)
                self.client.ceph("osd", "pool", "set", pool, "pg_num", pg_num)
                self.client.ceph("osd", "pool", "delete", doomed[n], doomed[n], "--yes-i-really-really-mean-it")
            eventually(lambda: has_moved(25), 120)
        finally:
            self.end([*workers, mover])
        now = eventually(self.at_rest)
        print(f"{now['moved']} moves, {now['given_up']} given up; {[w.done for w in workers]} operations meanwhile")
        self.assertGreaterEqual(now["moved"], began + 25)
        held = self.client.rados("-p", pool, "lock", "info", "held", "mine").text
        self.assertIn("c", held)
        self.assertIn("client", held)
        self.must_have(pool, workers, data)
        self.fsck()

    def test_3_kill_9_in_the_middle(self):
        harness.give_time(300 + 20 * kills())
        self.osd("config", "set", "shoal_balance_pgs", "false")
        pool = self.pool("killed", 4)
        data = self.fill(pool)
        workers = [Librados(f"lib{n}", SEED + n, self.cluster, pool) for n in range(2)]
        workers.append(StockTool("tool", SEED + 10, self.client, pool))
        dice = random.Random(SEED)
        for worker in workers:
            worker.start()
        in_the_middle = 0
        mover = None
        try:
            for n in range(kills()):
                eventually(lambda: any(w.problem for w in workers) or all(w.done > 20 for w in workers), 60)
                mover = Mover(SEED + n, self.path)
                mover.start()
                time.sleep(dice.uniform(0.2, 2.5))
                in_the_middle += bool((self.cores() or {}).get("moving"))
                self.cluster.kill("osd.0")
                mover.stop.set()
                mover.join(60)
                self.cluster.up()
                if not get_further(workers):
                    break
        finally:
            self.end(workers)
        pgs = [p["pgid"] for p in eventually(self.at_rest)["pgs"]]
        self.assertEqual(len(pgs), len(set(pgs)))
        self.must_have(pool, workers, data)
        print(f"{kills()} kills, {in_the_middle} with a PG seen between two cores just before; "
              f"{[w.done for w in workers]} operations; "
              f"{self.cluster.log('osd.0').count('removed what a move has left')} leftovers removed by starts")
        self.fsck()

    def test_4_pgs_even_out_by_themselves(self):
        self.osd("config", "set", "shoal_balance_pgs", "false")
        pool = self.pool("even", 4)
        self.client.rados("-p", pool, "put", "o", "-", stdin=b"there")
        for pg in eventually(self.at_rest)["pgs"]:
            if pg["core"] == 1:
                self.move(pg["pgid"], 0)
        self.assertEqual(self.cores()["pgs_by_core"][1], 0)
        self.osd("config", "set", "shoal_balance_pgs", "true")

        def is_even():
            few, many = sorted(self.cores()["pgs_by_core"])
            return 4 * many <= 5 * few or many < few + 2

        eventually(is_even, 90)
        self.assertEqual(self.client.rados("-p", pool, "get", "o", "-").out, b"there")


class MovesInMemory(ClusterTest):
    OPTIONS = ("--store", "mem", "--cores", "2")

    def test_a_clean_stop_in_the_middle_leaves_each_pg_once(self):
        path = self.cluster.dir / "osd.0.asok"
        pool = self.pool("mem", 4)
        data = {f"o{n}": os.urandom(1 << 20) for n in range(40)}
        for name, value in data.items():
            self.client.rados("-p", pool, "put", name, "-", stdin=value)
        for n in range(4):
            mover = Mover(SEED + n, path)
            mover.start()
            time.sleep(0.5 + n / 3)
            self.cluster.down()
            mover.stop.set()
            mover.join(60)
            self.cluster.up()
            pgs = [p["pgid"] for p in eventually(lambda: ask(path, "pg cores"))["pgs"]]
            self.assertEqual(len(pgs), len(set(pgs)))
            for name, value in data.items():
                self.assertEqual(self.client.rados("-p", pool, "get", name, "-").out, value, name)


class ReplicatedMoves(ReplicatedTest):
    """Primaries and replicas of a pool of size 3 move on all OSDs at once."""

    @classmethod
    def make_cluster(cls):
        return replicated.make_cluster(cls.OSDS, "--cores", "2")

    def socket(self, osd):
        return self.cluster.dir / f"osd.{osd}.asok"

    def moved(self, osd):
        """Moves since the OSD's start."""
        return (ask(self.socket(osd), "pg cores") or {"moved": 0})["moved"]

    def test_copies_move_under_load_and_when_an_osd_dies(self):
        pool = self.make_pool("copies", pgs=8)
        load = self.load(pool)
        movers = [Mover(SEED + osd, self.socket(osd)) for osd in self.osds()]
        for mover in movers:
            mover.start()
        try:
            eventually(lambda: all(self.moved(osd) >= 8 for osd in self.osds()), 180)
            self.goes_on(load)
            for osd in (2, 0):
                self.kill(osd)
                self.goes_on(load)
                self.start(osd)
                self.wait_up(osd)
                self.goes_on(load)
            self.pgs.wait_clean()
            began = [self.moved(osd) for osd in self.osds()]
            eventually(lambda: all(self.moved(osd) >= began[osd] + 3 for osd in self.osds()), 180)
        finally:
            for mover in movers:
                mover.stop.set()
            for mover in movers:
                mover.join(60)
        self.assertEqual([mover.problem for mover in movers if mover.problem], [])
        for osd in self.osds():
            now = eventually(lambda: (now := ask(self.socket(osd), "pg cores")) and not now["moving"] and now)
            pgs = [pg["pgid"] for pg in now["pgs"]]
            self.assertEqual(len(pgs), len(set(pgs)))
            print(f"osd.{osd}: {now['moved']} moves and {now['given_up']} given up since its start")
        self.goes_on(load)
        load.stop()
        self.pgs.wait_clean()
        self.verify_each_copy(load, pool)
        self.assert_right(load)
