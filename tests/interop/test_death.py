"""Real death: OSDs on disk are killed with -9 at random while clients write and verify. Nothing acknowledged is lost,
nothing is served wrong. A short sample gates a change; with --long it is a hundred kills (or SHOAL_KILLS of them)."""
import os
import random
import threading
import time

import harness
from harness import SHOAL, ClusterTest, Failed, eventually, run

SEED = int(os.environ.get("SHOAL_SEED", "1"))


def kills():
    return int(os.environ.get("SHOAL_KILLS", "100" if harness.LONG else "6"))


class Worker(threading.Thread):
    """Changes its own objects one operation at a time, knows what each must be, and looks now and then. An operation
    that is on its way when an OSD dies is sent again by the client, and must take effect once."""

    def __init__(self, label, seed):
        super().__init__()
        self.label, self.random = label, random.Random(seed)
        self.objects, self.done, self.problem, self.stop = {}, 0, None, threading.Event()

    def run(self):
        try:
            self.begin()
            while not self.stop.is_set():
                self.step()
                self.done += 1
            for name in list(self.objects):
                self.verify(name)
            self.end()
        except Exception as error:  # noqa: whatever it is, the test fails with it
            self.problem = f"{self.label} after {self.done} operations: {error!r}"

    def begin(self):
        pass

    def end(self):
        pass

    def name(self):
        return f"{self.label}-{self.random.randrange(40)}"

    def must_be(self, name, found, wanted):
        if found != wanted:
            at = next((n for n, (a, b) in enumerate(zip(found or b"", wanted or b"")) if a != b), None)
            raise Failed(f"{name}: {len(found or b'')} bytes, not the {len(wanted or b'')} acknowledged; "
                         f"the first difference is at {at}")


class Librados(Worker):
    """Stock librados: small changes of every kind."""

    def __init__(self, label, seed, cluster, pool):
        super().__init__(label, seed)
        self.cluster, self.pool, self.maps = cluster, pool, {}

    def begin(self):
        import rados
        self.rados = rados
        self.r = rados.Rados(conffile=str(self.cluster.conf), name="client.admin")
        self.r.connect(timeout=30)
        self.io = self.r.open_ioctx(self.pool)

    def end(self):
        self.io.close()
        self.r.shutdown()

    def bytes(self, most):
        return self.random.randbytes(self.random.randrange(1, most))

    def step(self):
        name = self.name()
        old = self.objects.get(name, b"")
        kind = self.random.randrange(10)
        if kind < 3:
            data = self.bytes(self.random.choice((100, 5000, 70_000, 600_000)))
            self.io.write_full(name, data)
            self.objects[name] = data
        elif kind == 3:
            data = self.bytes(9000)
            self.io.append(name, data)
            self.objects[name] = old + data
        elif kind < 6:
            data, offset = self.bytes(20_000), self.random.randrange(100_000)
            self.io.write(name, data, offset)
            old = old.ljust(offset, b"\0")
            self.objects[name] = old[:offset] + data + old[offset + len(data):]
        elif kind == 6 and name in self.objects:
            size = self.random.randrange(200_000)
            self.io.trunc(name, size)
            self.objects[name] = old[:size].ljust(size, b"\0")
        elif kind == 7 and name in self.objects:
            self.io.remove_object(name)
            del self.objects[name]
            self.maps.pop(name, None)
        elif kind == 8:
            entries = {f"k{self.random.randrange(30)}": self.bytes(300) for _ in range(self.random.randrange(1, 10))}
            with self.rados.WriteOpCtx() as op:
                self.io.set_omap(op, tuple(entries), tuple(entries.values()))
                self.io.operate_write_op(op, name)
            self.objects.setdefault(name, b"")
            self.maps.setdefault(name, {}).update(entries)
        elif self.objects:
            self.verify(self.random.choice(list(self.objects)))

    def verify(self, name):
        wanted = self.objects[name]
        self.must_be(name, self.io.read(name, len(wanted) + 10), wanted)
        with self.rados.ReadOpCtx() as op:
            entries, result = self.io.get_omap_vals(op, "", "", 100)
            self.io.operate_read_op(op, name)
            found = dict(entries)
        if found != self.maps.get(name, {}):
            raise Failed(f"{name}: its omap is not as acknowledged")


class StockTool(Worker):
    """The stock `rados` tool: whole objects, up to some MiB."""

    def __init__(self, label, seed, client, pool):
        super().__init__(label, seed)
        self.client, self.pool = client, pool

    def step(self):
        name = self.name()
        if name in self.objects and self.random.random() < 0.4:
            return self.verify(name)
        data = self.random.randbytes(self.random.choice((10, 4096, 100_000, 3_000_000)))
        self.client.rados("-p", self.pool, "put", name, "-", stdin=data)
        self.objects[name] = data

    def verify(self, name):
        self.must_be(name, self.client.rados("-p", self.pool, "get", name, "-").out, self.objects[name])


class OwnClient(Worker):
    """shoal's own client: whole objects."""

    def __init__(self, label, seed, cluster, pool):
        super().__init__(label, seed)
        self.argv = [SHOAL, "bench", "--dir", cluster.dir, "--pool", pool]
        self.file = cluster.dir / f"{label}.file"

    def step(self):
        name = self.name()
        if name in self.objects and self.random.random() < 0.4:
            return self.verify(name)
        data = self.random.randbytes(self.random.choice((10, 4096, 100_000, 3_000_000)))
        self.file.write_bytes(data)
        run([*self.argv, "--put", name, self.file])
        self.objects[name] = data

    def verify(self, name):
        run([*self.argv, "--get", name, self.file])
        self.must_be(name, self.file.read_bytes(), self.objects[name])


def get_further(workers):
    """Waits until each of them has done something more. False: one has a problem."""
    before = [worker.done for worker in workers]
    eventually(lambda: any(w.problem for w in workers)
               or all(w.done > b for w, b in zip(workers, before)), 60, 0.05)
    return not any(worker.problem for worker in workers)


class Death(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "8G")
    OSDS = 3

    def test_kills_lose_no_acknowledged_write(self):
        # A kill takes some seconds; so does what comes after the last.
        harness.give_time(300 + 15 * kills())
        pool = self.pool("death", 16)
        workers = [Librados(f"lib{n}", SEED + n, self.cluster, pool) for n in range(3)]
        workers.append(StockTool("tool", SEED + 10, self.client, pool))
        workers.append(OwnClient("own", SEED + 20, self.cluster, pool))
        dice = random.Random(SEED)
        for worker in workers:
            worker.start()
        try:
            for _ in range(kills()):
                time.sleep(dice.uniform(0.1, 1.5))
                for osd in dice.sample(range(self.OSDS), dice.choice((1, 1, 1, 2, 3))):
                    self.cluster.kill(f"osd.{osd}")
                time.sleep(dice.choice((0, 0, 0.5)))
                self.cluster.up()
                if not get_further(workers):
                    break
        finally:
            for worker in workers:
                worker.stop.set()
            for worker in workers:
                worker.join(240)
        self.assertEqual([worker.problem for worker in workers if worker.problem], [])
        self.assertFalse([worker.label for worker in workers if worker.is_alive()], "a client hangs")
        expected = sorted(name for worker in workers for name in worker.objects)
        self.assertEqual(sorted(self.client.rados("-p", pool, "ls").text.split()), expected)
        done = sum(worker.done for worker in workers)
        print(f"{kills()} kills, {done} operations, {len(expected)} objects as acknowledged")
        # What the disks hold is whole, to the last block.
        self.cluster.down()
        for osd in range(self.OSDS):
            run([SHOAL, "store", "fsck", "--deep", self.cluster.dir / f"osd.{osd}"], timeout=300)
