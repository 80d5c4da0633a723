#!/usr/bin/python3
"""Measures a failover as stock clients see it: the slowest write and the slowest read while an OSD dies or freezes.

    failover.py DIR [--fault kill9|sigstop|core|none] [--seconds N] [--depth N] [--bytes N] [--pool NAME] [--size N] [--json]

DIR is the directory of a running cluster, shoal's or stock's: DIR/ceph.conf, and DIR/osd.N.pid. One python-rados session
writes objects of 4 KiB with 16 operations in flight, another reads with as many. After a quarter of the time the fault hits
the OSD that is primary of most PGs of the pool. A frozen OSD goes on when the time is over, and so does one whose second core
alone was stopped (`core`; needs root). A killed one stays dead: start it again before the next run. `hang_failover.py` and
`cut_failover.py` have faults of devices and networks. Seconds are counted from an operation's submission to its completion.
"""
import argparse
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import rados

import hangs

SIGNALS = {"kill9": signal.SIGKILL, "sigstop": signal.SIGSTOP, "core": None, "none": None}
OBJECTS = 256
#: An operation that is not answered by then counts with this.
DRAIN_SECONDS_MAX = 120


class Stream:
    """Operations of one kind, so many in flight, in a session of its own."""

    def __init__(self, conf, pool, kind, depth, size):
        self.session = rados.Rados(conffile=conf, name="client.admin")
        self.session.connect(timeout=30)
        self.io = self.session.open_ioctx(pool)
        self.kind, self.data, self.size = kind, os.urandom(size), size
        self.room, self.lock = threading.Semaphore(depth), threading.Lock()
        self.number, self.flying, self.done = 0, {}, []
        self.failed, self.ending = [], False

    def fill(self):
        for n in range(OBJECTS):
            self.io.write_full(f"failover-{n}", self.data)

    def run(self):
        dice = random.Random(self.kind)
        while not self.ending:
            if self.room.acquire(timeout=0.1):
                self.submit(f"failover-{dice.randrange(OBJECTS)}")

    def submit(self, name):
        with self.lock:
            self.number += 1
            number = self.number
            self.flying[number] = time.monotonic()
        if self.kind == "write":
            self.io.aio_write(name, self.data, 0, oncomplete=lambda c: self.end(number, c.get_return_value()))
        else:
            self.io.aio_read(name, self.size, 0, lambda c, _data: self.end(number, c.get_return_value()))

    def end(self, number, result):
        now = time.monotonic()
        with self.lock:
            began = self.flying.pop(number)
            self.done.append((began, now))
            if result < 0:
                self.failed.append(result)
        self.room.release()

    def summary(self, fault_at):
        now = time.monotonic()
        with self.lock:
            unanswered = list(self.flying.values())
            took = sorted(end - began for began, end in self.done) + [now - began for began in unanswered]
            ends = sorted(end for _, end in self.done if end > fault_at - 1)
            gaps = [b - a for a, b in zip(ends, ends[1:])]
            return {"operations": len(self.done), "unanswered": len(unanswered), "failed": len(self.failed),
                    "slowest_seconds": round(max(took, default=0), 3),
                    "p99_seconds": round(sorted(took)[len(took) * 99 // 100], 4) if took else 0,
                    "longest_gap_seconds": round(max(gaps, default=0), 3)}


def ask(session, **command):
    code, out, error = session.mon_command(json.dumps({**command, "format": "json"}), b"")
    if code:
        raise SystemExit(f"{command['prefix']}: {error}")
    return json.loads(out) if out else None


def mgr_ask(session, **command):
    code, out, error = session.mgr_command(json.dumps({**command, "format": "json"}), b"")
    if code:
        raise SystemExit(f"{command['prefix']}: {error}")
    return json.loads(out)


def rows_of(session, number):
    found = mgr_ask(session, prefix="pg dump", dumpcontents=["pgs"])
    rows = found.get("pg_stats", found) if isinstance(found, dict) else found
    return [row for row in rows if row["pgid"].startswith(f"{number}.")]


def prepare(session, pool, size):
    """The pool, made if it is not there, once all its PGs are active."""
    if pool not in [row["pool_name"] for row in ask(session, prefix="osd dump")["pools"]]:
        ask(session, prefix="osd pool create", pool=pool, pg_num=32, size=size)
        ask(session, prefix="osd pool application enable", pool=pool, app="rados")
    number = next(row["pool"] for row in ask(session, prefix="osd dump")["pools"] if row["pool_name"] == pool)
    deadline = time.monotonic() + 90
    while True:
        rows = rows_of(session, number)
        if rows and all("active+clean" in row["state"] for row in rows):
            return rows
        if time.monotonic() > deadline:
            raise SystemExit(f"the PGs of {pool} are not clean: {sorted({row['state'] for row in rows})}")
        time.sleep(0.5)


class Signals:
    """Faults of a process."""

    def __init__(self, directory, fault):
        self.directory, self.fault, self.pid, self.hang = directory, fault, None, None

    def strike(self, osd):
        self.pid = int((self.directory / f"osd.{osd}.pid").read_text())
        if SIGNALS[self.fault] is not None:
            os.kill(self.pid, SIGNALS[self.fault])
        elif self.fault == "core":
            self.hang = hangs.StoppedThread(self.pid, hangs.LAST_CORE)

    def heal(self):
        if self.fault == "sigstop":
            os.kill(self.pid, signal.SIGCONT)
        if self.hang:
            self.hang.go_on()


def measure(directory, fault, faults, seconds=40, depth=16, size=4096, pool="failover", copies=3, victim=None):
    """The figures of one failover. `faults` strikes an OSD, `victim` or the primary of most PGs, and heals it when the time is
    over."""
    conf = str(directory / "ceph.conf")
    with rados.Rados(conffile=conf, name="client.admin") as session:
        rows = prepare(session, pool, copies)
        primaries = [row["acting_primary"] for row in rows]
        victim = max(set(primaries), key=primaries.count) if victim is None else victim
        streams = [Stream(conf, pool, kind, depth, size) for kind in ("write", "read")]
        streams[0].fill()
        threads = [threading.Thread(target=stream.run, daemon=True) for stream in streams]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 4)
        fault_at, down_after = time.monotonic(), None
        faults.strike(victim)
        try:
            while time.monotonic() < fault_at + seconds * 3 / 4:
                if down_after is None and not next(
                        row for row in ask(session, prefix="osd dump")["osds"] if row["osd"] == victim)["up"]:
                    down_after = round(time.monotonic() - fault_at, 2)
                time.sleep(0.05)
        finally:
            for stream in streams:
                stream.ending = True
            faults.heal()
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while any(stream.flying for stream in streams) and time.monotonic() < deadline:
            time.sleep(0.05)
        return {"fault": fault, "osd": victim, "primary_of_pgs": primaries.count(victim), "pgs": len(rows),
                "marked_down_after_seconds": down_after,
                **{stream.kind: stream.summary(fault_at) for stream in streams}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--fault", choices=list(SIGNALS), default="kill9")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--pool", default="failover")
    parser.add_argument("--size", type=int, default=3, help="copies of a pool that is not there yet")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    faults = Signals(asked.dir, asked.fault)
    found = measure(asked.dir, asked.fault, faults, asked.seconds, asked.depth, asked.bytes, asked.pool, asked.size)
    if asked.json:
        print(json.dumps(found))
    else:
        show(found)
    # Without shutting the sessions down: an operation without an answer would keep one waiting.
    os._exit(0)


def show(found):
    print(f"{found['fault']} of osd.{found['osd']}, primary of {found['primary_of_pgs']} of {found['pgs']} PGs; "
          f"marked down after {found['marked_down_after_seconds']} s")
    print(f"{'':6} {'operations':>10} {'slowest s':>10} {'p99 s':>8} {'longest gap s':>14} {'failed':>7} {'unanswered':>11}")
    for kind in ("write", "read"):
        row = found[kind]
        print(f"{kind:6} {row['operations']:10} {row['slowest_seconds']:10.3f} {row['p99_seconds']:8.4f} "
              f"{row['longest_gap_seconds']:14.3f} {row['failed']:7} {row['unanswered']:11}")


if __name__ == "__main__":
    main()
