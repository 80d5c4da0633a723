"""A client that gives a state-changing command again and again in one session with the monitors, and keeps the time of each.

It stores growing numbers under a few config-keys in turn, over python3-rados in this process, so that no start of a tool counts. At
the end each key must have the last number that was acknowledged: a smaller one was lost, or an old command was carried out again.
"""
import json
import threading
import time

import rados

#: Between an answer and the next command.
PAUSE_SECONDS = 0.02
KEYS = 16
#: A command that is not answered by then has failed.
COMMAND_SECONDS_MAX = 120


class CommandClient:
    """`mon_host` names the monitors among which the session begins: one of them is where the session is until it breaks."""

    def __init__(self, conf, name, mon_host):
        self.name, self.answered, self.failed, self.stored = name, [], [], {}
        self.flying, self.ending = None, threading.Event()
        self.session = rados.Rados(conffile=str(conf), name="client.admin", conf={"mon_host_override": mon_host})
        self.session.connect(timeout=60)
        self.thread = threading.Thread(target=self.work, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def work(self):
        number = 0
        while not self.ending.is_set():
            number += 1
            key, began = f"{self.name}/{number % KEYS}", time.monotonic()
            self.flying = began
            asked = {"prefix": "config-key set", "key": key, "val": str(number)}
            try:
                code, _, error = self.session.mon_command(json.dumps(asked), b"", timeout=COMMAND_SECONDS_MAX)
            except rados.Error as problem:
                code, error = -1, repr(problem)
            now, self.flying = time.monotonic(), None
            if code:
                self.failed.append(f"{key} = {number}: {code} {error}")
            else:
                self.stored[key] = str(number)
                self.answered.append((began, now))
            self.ending.wait(PAUSE_SECONDS)

    def problems(self, client):
        """Ends the loop. The commands that failed or have no answer, and those whose effect is not there, as `client` sees it."""
        self.ending.set()
        self.thread.join(COMMAND_SECONDS_MAX + 10)
        if self.thread.is_alive():
            return [f"{self.name}: a command has no answer after {time.monotonic() - self.flying:.0f} s"]
        self.session.shutdown()
        found = client.json("config-key", "dump", self.name)
        wrong = {key: (found.get(key), number) for key, number in self.stored.items() if found.get(key) != number}
        return [*self.failed, *(f"{key} is {now} instead of {number}" for key, (now, number) in wrong.items())]

    def slowest(self, since=0.0):
        """The seconds of the slowest command that ended after `since`, or is not answered yet."""
        took = [ended - began for began, ended in list(self.answered) if ended >= since]
        flying = self.flying
        return max([*took, time.monotonic() - flying if flying else 0.0], default=0.0)

    def begun_and_answered(self, since):
        """The number of commands that were given after `since` and answered."""
        return sum(began >= since for began, _ in list(self.answered))
