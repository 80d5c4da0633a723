"""One `ceph` that stays. Suites ask a few questions again and again until the answer is right, and a new process costs a
quarter of a second of processor time for each; stock's `ceph` without a command reads commands from its standard input.
"""
import contextlib
import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import threading
import time

#: A question that gets no answer in this time is asked by a process of its own, whose errors say more.
ANSWER_SECONDS_MAX = 10
#: Room for an answer, in bytes; the second where a user may have no more. `ceph` writes an answer in one call, and drops what a pipe
#: has no room for.
PIPE_BYTES = (16 << 20, 1 << 20)
#: What is asked again and again. Everything else has a process of its own, as people call it.
REPEATED = [words.split() for words in (
    "config dump", "config show", "df", "health", "mgr dump", "mgr module ls", "mon dump", "osd df", "osd dump", "osd lspools",
    "osd map", "osd perf", "osd pool get", "osd pool ls", "osd stat", "osd tree", "pg dump", "pg dump_stuck", "pg ls", "pg stat",
    "quorum_status", "status")]


def is_repeated(args):
    return any(list(map(str, args[:len(words)])) == words for words in REPEATED)


class NoAnswer(Exception):
    pass


class Shell:
    """`argv` is a `ceph` without a command."""

    def __init__(self, argv, env):
        # Without buffers of its own: an answer is seen when it is there.
        self.process = subprocess.Popen([*argv, "-f", "json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=dict(env, PYTHONUNBUFFERED="1"), process_group=0)
        self.give_room()
        self.unread = b""
        self.lock = threading.Lock()

    def give_room(self):
        for size in PIPE_BYTES:
            with contextlib.suppress(PermissionError):
                return fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, size)

    def ask(self, args):
        """The answer to a command that answers in JSON; `NoAnswer` whatever else happens."""
        with self.lock:
            return self.ask_alone(args)

    def ask_alone(self, args):
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        try:
            self.process.stdin.write(shlex.join(map(str, args)).encode() + b"\n")
            self.process.stdin.flush()
            while True:
                line = self.line(deadline)
                if line.startswith((b"{", b"[")):
                    return json.loads(line)
                if line.startswith(b"Error "):
                    raise NoAnswer(line.decode(errors="replace"))
        except (OSError, ValueError) as problem:
            raise NoAnswer(str(problem)) from problem

    def line(self, deadline):
        while b"\n" not in self.unread:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise NoAnswer(f"no answer within {ANSWER_SECONDS_MAX} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise NoAnswer("it has ended")
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        # A command that was not sent is lost with the process.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
