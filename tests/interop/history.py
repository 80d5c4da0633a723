#!/usr/bin/python3
"""A verifying client: python-rados threads that change objects, read them back, and compare every answer with the set of
states that RADOS may answer with.

    history.py --conf FILE --pool NAME [--seconds N] [--seed N] [--writers N] [--readers N] [--op-timeout N]

Each object has one writer, so its states form a sequence: state k is the object after its k-th change. Changes of an object
are submitted in order and take effect in order. A read that began when change `a` was acknowledged and ended when change `s`
was submitted may answer with any state from a to s, and with none that is older than a state that some read has seen already:
no acknowledged change is lost, and no read is taken back. Readers have sessions of their own.

A change whose result is unknown (it timed out) leaves its object undecided. Its writer never changes that object again, and
`verify` accepts either state; `undecided` counts them, and a run that has any is no proof.
"""
import argparse
import collections
import contextlib
import random
import sys
import threading
import time

import rados

#: An object's content. An object that does not exist is None.
State = collections.namedtuple("State", "data xattrs omap")
EMPTY = State(b"", {}, {})
BYTES_MAX = 256 << 10
#: The largest write at an offset, append or whole object, each with its weight.
SIZES = ((100, 6), (4096, 6), (20_000, 3), (100_000, 1))

#: Changes and their weights. Each is a method of `Change`. Zeroing is absent: the binding of 16.2 swaps offset and length,
#: and a length of 0 kills a stock OSD.
CHANGES = {"write_full": 4, "write": 4, "append": 4, "truncate": 1, "omap_set": 3, "omap_remove": 1,
           "omap_clear": 0.3, "xattr_set": 2, "xattr_remove": 0.5, "compound": 2, "remove": 1}


class Change:
    """One change: the operations of a librados WriteOp, and the state of the object after it. Every method draws its
    arguments, adds operations, and returns the next state, or None when the change has no meaning for this state."""

    def __init__(self, dice, io, op):
        self.dice, self.io, self.op = dice, io, op

    def bytes(self):
        most = self.dice.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])[0]
        return self.dice.randbytes(self.dice.randrange(1, most + 1))

    def write_full(self, old):
        data = self.bytes()
        self.op.write_full(data)
        return (old or EMPTY)._replace(data=data)

    def write(self, old):
        old, data = old or EMPTY, self.bytes()
        offset = self.dice.randrange(min(len(old.data) + 5000, BYTES_MAX))
        self.op.write(data, offset)
        before = old.data.ljust(offset, b"\0")
        return old._replace(data=before[:offset] + data + before[offset + len(data):])

    def append(self, old):
        old, data = old or EMPTY, self.bytes()
        if len(old.data) + len(data) > BYTES_MAX:
            return self.write_full(old)
        self.op.append(data)
        return old._replace(data=old.data + data)

    def truncate(self, old):
        if old is None:
            return None
        size = self.dice.randrange(len(old.data) + 2000)
        self.op.truncate(size)
        return old._replace(data=old.data[:size].ljust(size, b"\0"))

    def omap_set(self, old):
        old = old or EMPTY
        entries = {f"k{self.dice.randrange(40):02}": self.dice.randbytes(self.dice.randrange(1, 300))
                   for _ in range(self.dice.randrange(1, 8))}
        # An operation on omap alone does not say that the object is created; this one does.
        self.op.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
        self.io.set_omap(self.op, tuple(entries), tuple(entries.values()))
        return old._replace(omap={**old.omap, **entries})

    def omap_remove(self, old):
        if old is None or not old.omap:
            return None
        keys = self.dice.sample(sorted(old.omap), self.dice.randrange(1, len(old.omap) + 1))
        self.io.remove_omap_keys(self.op, tuple(keys))
        return old._replace(omap={key: value for key, value in old.omap.items() if key not in keys})

    def omap_clear(self, old):
        if old is None:
            return None
        self.io.clear_omap(self.op)
        return old._replace(omap={})

    def xattr_set(self, old):
        old = old or EMPTY
        name, value = f"a{self.dice.randrange(6)}", self.dice.randbytes(self.dice.randrange(1, 200))
        self.op.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
        self.op.set_xattr(name, value)
        return old._replace(xattrs={**old.xattrs, name: value})

    def xattr_remove(self, old):
        if old is None or not old.xattrs:
            return None
        name = self.dice.choice(sorted(old.xattrs))
        self.op.rm_xattr(name)
        return old._replace(xattrs={key: value for key, value in old.xattrs.items() if key != name})

    def compound(self, old):
        return self.omap_set(self.xattr_set(self.append(old)))

    def remove(self, old):
        if old is None:
            return None
        self.op.remove()
        return GONE


#: The next state after `remove`: None would say that the change has no meaning.
GONE = object()


class Object:
    """An object's states from the oldest that a read may still answer with to the newest that was submitted."""

    def __init__(self, name):
        self.name, self.lock = name, threading.Lock()
        self.first, self.states = 0, [None]
        self.acknowledged = self.seen = 0
        self.undecided = False
        self.lows = collections.Counter()

    @property
    def newest(self):
        return self.states[-1]

    def submitted(self, state):
        with self.lock:
            self.states.append(state)
            return self.first + len(self.states) - 1

    def is_acknowledged(self, index):
        with self.lock:
            self.acknowledged = max(self.acknowledged, index)
            self.forget()

    def begin_read(self):
        with self.lock:
            low = max(self.acknowledged, self.seen)
            self.lows[low] += 1
            return low

    def end_read(self, low, pick, found):
        """None if the answer is permitted, or else a sentence."""
        with self.lock:
            self.lows[low] -= 1
            if not self.lows[low]:
                del self.lows[low]
            permitted = self.states[low - self.first:]
            for number, state in enumerate(permitted):
                if pick(state) == found:
                    self.seen = max(self.seen, low + number)
                    self.forget()
                    return None
            older = [self.first + n for n, state in enumerate(self.states[:low - self.first]) if pick(state) == found]
            wanted = " or ".join(dict.fromkeys(describe(pick(state)) for state in permitted[:4]))
            stale = f"; state {older[-1]} was so" if older else ""
            return (f"{self.name}: answered {describe(found)}, which is none of the states {low} to "
                    f"{low + len(permitted) - 1}: {wanted}{difference(found, pick(permitted[-1]))}{stale}")

    def forget(self):
        """Drops the states that no read may answer with. A few stay: they tell a stale answer from a wrong one."""
        oldest = min([max(self.acknowledged, self.seen), *self.lows]) - 3
        if oldest > self.first:
            del self.states[:oldest - self.first]
            self.first = oldest


def describe(part):
    if part is None:
        return "nothing"
    if isinstance(part, bytes):
        return f"{len(part)} bytes"
    return "{" + ", ".join(f"{key}: {len(value)} bytes" for key, value in sorted(part.items())) + "}"


def difference(found, wanted):
    if not isinstance(found, bytes) or not isinstance(wanted, bytes):
        return ""
    at = next((n for n, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
    return f" (differs from the newest at byte {at})"


def part_of(name):
    return lambda state: None if state is None else getattr(state, name)


class History:
    """The clients and what they know. `start`, some faults, then `finish`, which returns the list of problems."""

    def __init__(self, conf, pool, seed=1, writers=3, readers=1, objects=12, pause=0.002, op_timeout=None, prefix="h",
                 client="client.admin", mon_host=None):
        self.conf, self.pool, self.client, self.op_timeout, self.pause = str(conf), pool, client, op_timeout, pause
        self.mon_host = mon_host
        # No other history has objects of these names: every object begins as one that does not exist.
        self.prefix = f"{prefix}{seed}-{time.time_ns() // 1000:x}-"
        self.objects = [[Object(f"{self.prefix}{w}-{n}") for n in range(objects)] for w in range(writers)]
        self.problems, self.slow, self.undecided, self.counts = [], [], 0, collections.Counter()
        self.rates = collections.Counter()
        self.flying, self.lock, self.ending = {}, threading.Lock(), threading.Event()
        self.running = threading.Event()
        self.running.set()
        self.began = time.monotonic()
        self.sessions = [self.connect(), self.connect()]
        dice = random.Random(seed)
        loops = [self.write_loop] * writers + [self.read_loop] * readers
        self.threads = [threading.Thread(target=self.guard, args=(loop, n, random.Random(dice.random())), daemon=True)
                        for n, loop in enumerate(loops)]

    def connect(self):
        options = {"rados_osd_op_timeout": str(self.op_timeout)} if self.op_timeout else {}
        if self.mon_host:
            options["mon_host_override"] = self.mon_host
        session = rados.Rados(conffile=self.conf, name=self.client, conf=options)
        session.connect(timeout=60)
        return session

    def start(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    @property
    def all(self):
        return [one for mine in self.objects for one in mine]

    def count(self):
        """Operations that have ended."""
        return sum(self.counts.values())

    def writes(self):
        """Changes that were acknowledged."""
        return sum(count for kind, count in self.counts.items() if not kind.startswith("read"))

    @contextlib.contextmanager
    def timed(self, kind, name):
        began, token = time.monotonic(), object()
        with self.lock:
            self.flying[token] = (began, kind, name)
        try:
            yield
        finally:
            now = time.monotonic()
            with self.lock:
                del self.flying[token]
                self.counts[kind] += 1
                self.rates[int(now - self.began)] += 1
                self.slow = sorted([*self.slow, (now - began, kind, name, began - self.began)], reverse=True)[:5]

    def slowest(self):
        """The slowest operation since the last `forget_slow`: seconds, kind, object, and when it began. One that has not
        ended counts with its age."""
        now = time.monotonic()
        with self.lock:
            waiting = [(now - began, f"{kind} (unanswered)", name, began - self.began)
                       for began, kind, name in self.flying.values()]
            return max([*self.slow, *waiting], default=(0.0, "none", "", 0.0))

    def forget_slow(self):
        with self.lock:
            self.slow = []

    def summary(self):
        took, kind, name, at = self.slowest()
        return (f"{self.count()} operations, {self.writes()} changes acknowledged, {self.undecided} undecided; slowest: "
                f"{kind} of {name}, {took:.2f} s, begun at {at:.1f} s")

    def guard(self, loop, number, dice):
        try:
            loop(number, dice)
        except Exception as error:  # noqa: whatever it is, the run has failed with it
            self.problems.append(f"client {number}: {error!r}")

    def write_loop(self, number, dice):
        io = self.sessions[0].open_ioctx(self.pool)
        while not self.ending.is_set():
            self.running.wait()
            mine = [one for one in self.objects[number] if not one.undecided]
            if not mine:
                return
            one = dice.choice(mine)
            if dice.random() < 0.25:
                self.read(io, one)
            else:
                self.burst(io, one, dice, dice.choice((1, 1, 1, 2, 4)))
            if self.pause:
                time.sleep(dice.uniform(0, 2 * self.pause))
        io.close()

    def burst(self, io, one, dice, count):
        """Submits changes of one object without a wait between them: they must take effect in this order."""
        waiting = []
        with contextlib.ExitStack() as timing:
            for _ in range(count):
                kind = dice.choices(list(CHANGES), list(CHANGES.values()))[0]
                with rados.WriteOpCtx() as op:
                    state = getattr(Change(dice, io, op), kind)(one.newest)
                    if state is None:
                        continue
                    index = one.submitted(None if state is GONE else state)
                    timing.enter_context(self.timed(kind, one.name))
                    waiting.append((kind, index, io.operate_aio_write_op(op, one.name)))
            failed = False
            for kind, index, completion in waiting:
                completion.wait_for_complete()
                result = completion.get_return_value()
                if result == 0 and not failed:
                    one.is_acknowledged(index)
                elif result == 0 or result == -110:
                    # After one that is unknown, no later state is known either.
                    failed = one.undecided = True
                else:
                    failed = one.undecided = True
                    self.problems.append(f"{one.name}: {kind} (change {index}) failed with {result}")
        if failed:
            self.undecided += 1

    def read_loop(self, _number, dice):
        io = self.sessions[1].open_ioctx(self.pool)
        while not self.ending.is_set():
            self.running.wait()
            self.read(io, dice.choice(self.all))
            if self.pause:
                time.sleep(dice.uniform(0, 2 * self.pause))
        io.close()

    def read(self, io, one):
        """Reads data, xattrs and omap, each of which must be that of a permitted state."""
        for kind, ask in (("data", self.ask_data), ("xattrs", self.ask_xattrs), ("omap", self.ask_omap)):
            low = one.begin_read()
            try:
                with self.timed(f"read {kind}", one.name):
                    found = ask(io, one.name)
            except rados.ObjectNotFound:
                found = None
            except rados.TimedOut:
                self.undecided += 1
                return
            problem = one.end_read(low, part_of(kind), found)
            if problem:
                self.problems.append(f"{kind} of {problem}, at {time.monotonic() - self.began:.1f} s")

    @staticmethod
    def ask_data(io, name):
        return io.read(name, 4 * BYTES_MAX)

    @staticmethod
    def ask_xattrs(io, name):
        return dict(io.get_xattrs(name))

    @staticmethod
    def ask_omap(io, name):
        with rados.ReadOpCtx() as op:
            entries, _ = io.get_omap_vals(op, "", "", 1000)
            io.operate_read_op(op, name)
            return dict(entries)

    def hold(self):
        """Stops new operations, and waits until none is in flight."""
        self.running.clear()
        deadline = time.monotonic() + 120
        while self.flying and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.flying:
            self.problems.append(f"operations without an answer: {self.slowest()}")

    def go_on(self):
        self.running.set()

    def stop(self, seconds=120):
        """Ends the clients. A client that does not end is a problem."""
        self.ending.set()
        self.running.set()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hung = sum(thread.is_alive() for thread in self.threads)
        if hung:
            self.problems.append(f"{hung} clients hang: {self.slowest()}")

    def verify(self, listing=True):
        """Reads every object of a history at rest, in a session of its own, and compares it with its newest state. Returns
        the problems of this look."""
        problems, session = [], self.connect()
        with session.open_ioctx(self.pool) as io:
            for one in self.all:
                permitted = [one.newest] if not one.undecided else one.states[one.acknowledged - one.first:]
                found = self.whole(io, one.name)
                if found not in permitted:
                    fields = [field for field in State._fields
                              if found is None or permitted[-1] is None or getattr(found, field) != getattr(permitted[-1], field)]
                    shown = [describe(part_of(field)(state)) for field in fields[:1] for state in (found, permitted[-1])]
                    problems.append(f"{one.name}: {', '.join(fields)} not as acknowledged: {' instead of '.join(shown)}"
                                    f"{difference(part_of('data')(found), part_of('data')(permitted[-1]))}")
            if listing and not any(one.undecided for one in self.all):
                listed = sorted(o.key for o in io.list_objects() if o.key.startswith(self.prefix))
                wanted = sorted(one.name for one in self.all if one.newest is not None)
                if listed != wanted:
                    problems.append(f"listed {len(listed)} objects instead of {len(wanted)}: "
                                    f"{sorted(set(listed) ^ set(wanted))[:5]}")
        session.shutdown()
        return problems

    def whole(self, io, name):
        try:
            return State(self.ask_data(io, name), self.ask_xattrs(io, name), self.ask_omap(io, name))
        except rados.ObjectNotFound:
            return None

    def finish(self):
        """Ends the clients, verifies every object, and returns all problems of the run."""
        if not self.ending.is_set():
            self.stop()
        if any(thread.is_alive() for thread in self.threads):
            return self.problems
        self.problems += self.verify()
        self.close()
        return self.problems

    def close(self):
        for session in self.sessions:
            session.shutdown()
        self.sessions = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--op-timeout", type=float, help="seconds after which an operation's result is unknown (never)")
    asked = parser.parse_args()
    load = History(asked.conf, asked.pool, asked.seed, asked.writers, asked.readers, op_timeout=asked.op_timeout).start()
    ends = time.monotonic() + asked.seconds
    while time.monotonic() < ends and not load.problems:
        time.sleep(0.2)
    problems = load.finish()
    print(load.summary())
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems or load.undecided else 0)


if __name__ == "__main__":
    main()
