"""Runs the interop suites and prints one closing line, `N passed, N failed, N skipped`.

With `--jobs N` so many suites run at a time, each in a process of its own with ports of its own: they wait for clusters more
than they compute. What a suite says is printed when it has ended. Without names, those that gate a change run.
"""
import argparse
import concurrent.futures
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

import harness


#: What gates a change. `NAME:mem` is a suite on OSDs that keep their objects in memory. Those that take longest come first,
#: so that what runs beside each other ends together.
GATE = ["test_replication", "test_options", "test_disk", "test_lab", "test_rbd_mirror", "test_librados", "test_quorum", "test_commands",
        "test_move", "test_rados", "test_failures", "test_mon_rebuild", "test_devices", "test_lost", "test_thrash", "test_steps",
        "test_rolling", "test_store_pg", "test_quorum_cuts", "test_migration", "test_kills", "test_encryption",
        "test_scrub", "test_rbd", "test_librbd", "test_rbd_faults", "test_rbd_tasks", "test_rbd_figures", "test_kernel",
        "test_snapshots", "test_copy_reads", "test_hosts",
        "test_proxmox", "test_cinder", "test_ceph_csi", "test_go_ceph_rbd",
        "test_rados:mem", "test_caps", "test_cuts", "test_hangs", "test_shoal_client", "test_hostile", "test_death",
        "test_memory", "test_crash", "test_signals", "test_metrics", "test_restart",
        "test_restart:mem", "test_report", "test_top", "test_first_run", "test_modes", "test_reqid", "test_maps",
        "test_files", "test_names", "test_names:mem", "test_admin_socket", "test_mkfs", "test_upgrade",
        "test_python_rados", "test_go_ceph", "test_radosgw"]
#: What only `--long` runs: they download and build a client, build an earlier program, take more than two minutes
#: (test_rbd_commands), or an hour.
ONLY_LONG = ["test_rados_crate", "test_rbd_commands", "test_rolling_upgrade", "test_s3_tests"]
ALL = sorted(path.stem for path in harness.HERE.glob("test_*.py"))
assert {name.partition(":")[0] for name in GATE} | set(ONLY_LONG) == set(ALL), "a suite that nothing runs, or none of that name"


#: The longest suite of the gate takes ten minutes on a busy machine. What takes many times that hangs; it
#: fails and says where, and the gate comes to its end.
SUITE_SECONDS_MAX, ALL_SECONDS_MAX = 1200, 3300


def on_time_over(_number, _frame):
    print("---- time is over; what runs:")
    sys.stdout.flush()
    subprocess.run("ps -eo pid,ppid,stat,pcpu,etimes,wchan:20,args --sort=-pcpu | grep -v ' \\[' | cut -c1-200 | head -40",
                   shell=True, check=False)
    raise harness.TookTooLong(f"more than {harness.test_seconds_max()} s")


#: How a suite's last lines begin that say what failed. They are gathered, and said once more at the very end.
FAILED_LINE = "failed: "
REASON_CHARS_MAX = 300


class Result(unittest.TextTestResult):
    """A line a test, with its time; passes are counted too."""

    passed = 0

    def __init__(self, *how):
        super().__init__(*how)
        self.failed_lines = []

    def startTest(self, test):
        self.began = time.monotonic()
        harness.give_time()
        unittest.TestResult.startTest(self, test)

    def stopTest(self, test):
        unittest.TestResult.stopTest(self, test)
        harness.give_time()

    def line(self, word, test, why=""):
        took = time.monotonic() - getattr(self, "began", time.monotonic())
        name = name_of(test).replace(" ", "")
        self.stream.writeln(f"{word:<6} {took:5.1f}s  {name}{'  ' + why if why else ''}")
        self.stream.flush()

    def addSuccess(self, test):
        self.passed += 1
        self.line("ok", test)

    def failed(self, test, err):
        self.line("FAILED", test)
        self.failed_lines.append(f"{FAILED_LINE}{name_of(test)} {reason(err)}")

    def addFailure(self, test, err):
        unittest.TestResult.addFailure(self, test, err)
        self.failed(test, err)

    def addError(self, test, err):
        unittest.TestResult.addError(self, test, err)
        self.failed(test, err)

    def addSkip(self, test, reason):
        unittest.TestResult.addSkip(self, test, reason)
        self.line("skip", test, reason)

    def addSubTest(self, test, subtest, err):
        unittest.TestResult.addSubTest(self, test, subtest, err)
        if err is None:
            self.passed += 1
        else:
            self.failed(subtest, err)


def name_of(test):
    return test.id() if hasattr(test, "id") else str(test)


def reason(err):
    """Where a test failed and why, on one line: the last line of the test's own file, what was wrong, and what was
    wrong below that."""
    _class, problem, trace = err
    where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(trace)]
    ours = [place for place in where if place.startswith("test_")] or where
    whys = [f"{type(p).__name__}: {p}" for p in (problem, problem.__cause__) if p is not None]
    why = " | ".join(" ".join(why.split()) for why in whys)
    if len(why) > REASON_CHARS_MAX:
        why = f"{why[:REASON_CHARS_MAX // 2]} ... {why[-REASON_CHARS_MAX // 2:]}"
    return f"{ours[-1] if ours else ''} {why}"


def beside(names, jobs, options):
    """Each suite in a process of its own, `jobs` at a time: passed, failed, skipped, and a line for each that failed."""
    failed_lines = []
    factor = harness.LONG_FACTOR if harness.LONG else 1
    deadline = time.monotonic() + ALL_SECONDS_MAX * factor

    free_ports = queue.SimpleQueue()
    for first in range(PORT_FIRST, PORT_END - PORTS_PER_SUITE + 1, PORTS_PER_SUITE):
        if RECORDED_PORT not in range(first, first + PORTS_PER_SUITE):
            free_ports.put(first)

    def one(name):
        first = free_ports.get()
        try:
            return run_suite(name, dict(os.environ, SHOAL_TEST_PORT=str(first)))
        finally:
            free_ports.put(first)

    def run_suite(name, env):
        suite_name, _, store = name.partition(":")
        chosen = ["--store", store] if store else []
        began = time.monotonic()
        left = min(SUITE_SECONDS_MAX * factor, deadline - began)
        if left <= 0:
            print(f"---- {name}\nFAILED  not begun: the suites before it took all the time there is", flush=True)
            failed_lines.append(f"{FAILED_LINE}{name} was not begun")
            return [0, 1, 0]
        # Into a file: a pipe would be waited for as long as any daemon that a suite forgot has it.
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            suite = subprocess.Popen([sys.executable, __file__, *options, *chosen, suite_name], env=env, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=subprocess.STDOUT)
            try:
                suite.wait(left)
            except subprocess.TimeoutExpired:
                suite.kill()
                suite.wait()
                print(f"FAILED  {name} did not end in {left:.0f} s", file=log, flush=True)
            log.seek(0)
            *said, last = log.read().rstrip().splitlines() or [""]
        closing = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
        print(f"---- {name}, {time.monotonic() - began:.0f} s")
        print("\n".join(said if closing else [*said, last]), flush=True)
        failed_lines.extend(line for line in said if line.startswith(FAILED_LINE))
        # A suite that did not come to its end has failed, whatever it counted.
        if not closing:
            failed_lines.append(f"{FAILED_LINE}{name} did not come to its end: {last}")
        return [int(n) for n in closing.groups()] if closing else [0, 1, 0]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        counts = list(pool.map(one, names))
    return *(sum(column) for column in zip(*counts)), failed_lines


#: Ports of the suites that run beside each other, below those that the system gives to clients. A suite borrows a range while it
#: runs; the range that rested longest is lent next, so that connections of an ended suite have expired.
PORT_FIRST, PORTS_PER_SUITE, PORT_END = 7900, 540, 32768
#: The clusters that earlier releases made (`tests/releases`) have their ports in their directories; no suite borrows those.
RECORDED_PORT = 23300


def main():
    parser = argparse.ArgumentParser(prog="tests/interop/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="every suite, and every case of it")
    parser.add_argument("--store", choices=["disk", "mem"], help="what OSDs keep objects in (disk)")
    parser.add_argument("--mons", type=int, choices=[1, 3, 5], default=1,
                        help="monitors of each cluster of shoal's; with several, the leader dies wherever an OSD is killed at random")
    parser.add_argument("--stock", action="store_true", help="on stock Ceph's daemons, to check the suites that can")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many suites at a time")
    parser.add_argument("names", nargs="*", metavar="SUITE", help="test_rados, test_rados.Class.test_case, test_rados:mem")
    asked = parser.parse_args()
    options, names, jobs = [], asked.names, asked.jobs
    if asked.store:
        options += ["--store", asked.store]
        harness.STORE = asked.store
    harness.LONG = asked.long
    options += ["--long"] if asked.long else []
    harness.MONS = asked.mons
    options += ["--mons", str(asked.mons)] if asked.mons > 1 else []
    harness.STOCK = asked.stock
    options += ["--stock"] if asked.stock else []
    if not names:
        names = ALL if harness.LONG else GATE
    if jobs > 1 or any(":" in name for name in names):
        passed, failed, skipped, failed_lines = beside(names, jobs, options)
    else:
        signal.signal(signal.SIGALRM, on_time_over)
        harness.give_time()
        runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result)
        result = runner.run(unittest.TestLoader().loadTestsFromNames(names))
        passed, skipped = result.passed, len(result.skipped)
        failed, failed_lines = len(result.failures) + len(result.errors), result.failed_lines
    print("\n".join(failed_lines), end="\n" if failed_lines else "")
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    # Not by way of `sys.exit`: a failed test may have left a thread in librados that waits for a cluster that is gone.
    os._exit(1 if failed else 0)


main()
