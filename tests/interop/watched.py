#!/usr/bin/python3
"""Clients at work while a test does something to their cluster: verifying clients on a pool, and a client with commands whose session
begins at each monitor. They are a process of their own, so that clients of another release do the same work.

    watched.py --conf FILE --pool NAME [MONITOR=ADDRESS ...]

It prints `ready` when there is something to lose, works until its input ends, and prints what it saw as one line of JSON.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from command_client import CommandClient
from history import History

HERE = Path(__file__).resolve().parent
#: The modules that this program needs in another release's folder.
FILES = ("watched.py", "history.py", "command_client.py")
READY_SECONDS_MAX, END_SECONDS_MAX = 60, 240


class Watched:
    """The program, as a test sees it. `root`: the folder of the release whose clients work, entered with chroot."""

    def __init__(self, client, conf, pool, root=None):
        mons = client.json("mon", "dump")["mons"]
        sessions = [f"{mon['name']}=[v2:{mon['public_addrs']['addrvec'][0]['addr']}]" for mon in mons]
        folder, enter = HERE, []
        if root:
            enter, folder = ["chroot", root], conf.parent
            inside = Path(f"{root}{folder}")
            inside.mkdir(parents=True, exist_ok=True)
            for path in (conf, folder / "keyring", *(HERE / name for name in FILES)):
                shutil.copy(path, inside / path.name)
        argv = [*enter, "/usr/bin/python3", folder / "watched.py", "--conf", conf, "--pool", pool, *sessions]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.end()
            raise AssertionError(f"no clients: {argv}")

    def finish(self):
        """Ends the clients; the waits of the slowest operation and command in seconds, the problems, and a line for people."""
        said, _ = self.process.communicate(timeout=END_SECONDS_MAX)
        return json.loads(said)

    def end(self):
        """For a test that has failed."""
        self.process.kill()
        self.process.communicate()


class Session:
    """As much of `harness.Client` as a `CommandClient` asks at its end."""

    def __init__(self, session):
        self.session = session

    def json(self, prefix, verb, key):
        code, out, error = self.session.mon_command(json.dumps({"prefix": f"{prefix} {verb}", "key": key, "format": "json"}), b"")
        if code:
            raise RuntimeError(f"{prefix} {verb}: {error} ({code})")
        return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", required=True)
    parser.add_argument("--pool", required=True)
    parser.add_argument("monitors", nargs="*", metavar="MONITOR=ADDRESS")
    asked = parser.parse_args()
    commands = []
    for monitor in asked.monitors:
        name, _, addr = monitor.partition("=")
        commands.append(CommandClient(asked.conf, f"watched/{name}", addr).start())
    load = History(asked.conf, asked.pool).start()
    deadline = time.monotonic() + READY_SECONDS_MAX
    while load.writes() <= 200:
        if load.problems or time.monotonic() > deadline:
            sys.exit(f"not ready: {load.problems or load.summary()}")
        time.sleep(0.05)
    load.forget_slow()
    began = time.monotonic()
    print("ready", flush=True)
    sys.stdin.read()
    operation, command = load.slowest()[0], max((client.slowest(began) for client in commands), default=0.0)
    summary, asker = load.summary(), Session(load.sessions[0])
    problems = [line for client in commands for line in client.problems(asker)] + load.finish()
    print(json.dumps({"operation": operation, "command": command, "problems": problems, "undecided": load.undecided,
                      "summary": summary}), flush=True)
    # A thread in librados may still wait.
    os._exit(0)


if __name__ == "__main__":
    main()
