#!/usr/bin/python3
"""One story of failures on a cluster of three OSDs, told step by step: what `ceph` says of its health and of its PGs.

    steps.py [--stock] OUT.json        with --stock on stock's daemons: stock/steps-pacific.json

`take` performs it on a cluster of shoal's or of stock Ceph's and returns the answers of each step, with everything removed that
differs from one run to the next: times, epochs, numbers of PGs and the order of OSDs.
"""
import json
import re
import sys
import time

import replicated
import shapes
from harness import Client, eventually

POOL, PGS, OBJECTS = "steps", 8, 200
#: PGs are told of as undersized or inactive when they have been so for this long.
STUCK_SECONDS = 3
#: Answers are taken when the health and the states have been the same for so long, and at the latest after the maximum.
SAME_SECONDS, SETTLE_SECONDS_MAX = 8, 90
#: States that end by themselves.
PASSING = re.compile(r"creating|peering|activating|unknown|stale|recover|backfill|scrub|snaptrim")

REPLACED = [
    (r"\bpg \d+\.[0-9a-f]+\b", "pg PG"), (r"(stuck \w+) for [^,]+,", r"\1 for TIME,"), (r"\[[\d,]*\]", lambda m: f"{m[0].count(',') + 1} OSDs"),
    (r"host=[\w-]+", "host=HOST"), (r"\bsince \S+", "since TIME"),
]


def plain(text):
    for pattern, word in REPLACED:
        text = re.sub(pattern, word, text)
    return text


def counts(texts):
    """`{text: how many times}`, as JSON has no sets."""
    return {text: texts.count(text) for text in sorted(set(texts))}


class Story:
    def __init__(self, cluster, progress=lambda: None):
        self.cluster, self.client = cluster, Client(cluster)
        self.pgs = replicated.Pgs(self.client)
        self.progress, self.answers = progress, {}

    def tell(self):
        """Performs every step. Returns `{step: {command: answer}}`."""
        ceph = self.client.ceph
        ceph("config", "set", "global", "mon_pg_stuck_threshold", STUCK_SECONDS)
        ceph("osd", "pool", "create", POOL, PGS, PGS, "replicated", "--size", 3)
        ceph("osd", "pool", "set", POOL, "min_size", 2)
        ceph("osd", "pool", "application", "enable", POOL, "rados")
        self.pgs.wait_clean()
        self.step("healthy")
        self.write(0, OBJECTS)
        self.step("written")
        self.kill(2)
        self.step("one killed")
        self.write(OBJECTS // 2, OBJECTS)
        self.step("one killed, written")
        ceph("osd", "out", 2)
        self.step("one out")
        ceph("osd", "in", 2)
        self.step("one in again")
        self.start(2)
        self.pgs.wait_clean()
        self.step("one returned")
        self.kill(1)
        self.kill(2)
        self.step("two killed")
        self.start(1, 2)
        self.pgs.wait_clean()
        self.step("two returned")
        for osd in range(3):
            self.cluster.kill(f"osd.{osd}")
        self.start(0, 1, up=False)
        if 2 in self.up():
            ceph("osd", "down", 2)
        eventually(lambda: self.up() == [0, 1], replicated.DOWN_SECONDS_MAX)
        self.step("all died, two returned")
        self.cluster.replace_osd(2)
        eventually(lambda: 2 in self.up(), replicated.DOWN_SECONDS_MAX)
        self.pgs.wait_clean()
        self.step("lost disk replaced")
        return self.answers

    def write(self, first, end):
        import rados
        with rados.Rados(conffile=str(self.cluster.conf), name="client.admin") as session, session.open_ioctx(POOL) as io:
            for number in range(first, end):
                io.write_full(f"o{number}", b"x" * 1000)

    def up(self):
        return [row["osd"] for row in self.client.json("osd", "dump")["osds"] if row["up"]]

    def kill(self, osd):
        self.cluster.kill(f"osd.{osd}")
        eventually(lambda: osd not in self.up(), replicated.DOWN_SECONDS_MAX)

    def start(self, *osds, up=True):
        for osd in osds:
            self.cluster.start_daemon(f"osd.{osd}")
        eventually(lambda: not up or set(osds) <= set(self.up()), replicated.DOWN_SECONDS_MAX)

    def step(self, name):
        self.progress()
        before, since, deadline = None, time.monotonic(), time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < min(since + SAME_SECONDS, deadline):
            now = self.summary()
            if now != before or any(PASSING.search(state) for state in now["states"]):
                before, since = now, time.monotonic()
            time.sleep(0.5)
        self.answers[name] = self.take()

    def summary(self):
        """The part of an answer that tells of a change."""
        health = self.client.json("health", "detail")
        return {"checks": {code: check["summary"]["message"] for code, check in health["checks"].items()},
                "states": counts([row["state"] for row in self.pgs.all(POOL)])}

    def take(self):
        status, health = self.client.json("-s"), self.client.json("health", "detail")
        rows = self.pgs.all(POOL)
        pgid = sorted(row["pgid"] for row in rows)[0]
        query = self.client.json("pg", pgid, "query")
        pgmap = status["pgmap"]
        figures = ("num_pgs", "num_pools", "num_objects", "degraded_objects", "degraded_total", "degraded_ratio",
                   "misplaced_objects", "misplaced_total", "misplaced_ratio", "inactive_pgs_ratio", "unknown_pgs_ratio")
        stuck = {kind: len(self.stuck(kind)) for kind in ("inactive", "unclean", "stale", "undersized", "degraded")}
        return {
            "status": {
                "health": status["health"]["status"],
                "checks": {code: [check["severity"], plain(check["summary"]["message"]), check["summary"].get("count")]
                           for code, check in status["health"]["checks"].items()},
                "states": {row["state_name"]: row["count"] for row in pgmap["pgs_by_state"]},
                "pgmap": {name: round(pgmap[name], 4) for name in figures if name in pgmap},
                "osdmap": {name: status["osdmap"][name] for name in ("num_osds", "num_up_osds", "num_in_osds")},
            },
            "health detail": {code: counts([plain(row["message"]) for row in check["detail"]])
                              for code, check in health["checks"].items()},
            "health text": counts([plain(line) for line in self.client.ceph("health", "detail").text.splitlines()]),
            "pg dump": {
                "states": counts([row["state"] for row in rows]),
                "up and acting": counts([f"{len(row['up'])} up, {len(row['acting'])} acting" for row in rows]),
                "row": shapes.shape(rows)[0],
                "sums": {name: sum(row["stat_sum"][name] for row in rows) for name in
                         ("num_objects", "num_object_copies", "num_objects_degraded", "num_objects_misplaced",
                          "num_objects_unfound", "num_objects_missing_on_primary")},
            },
            "pg dump_stuck": stuck,
            "pg query": {
                "state": query["state"],
                "sizes": [len(query["up"]), len(query["acting"]), len(query.get("acting_recovery_backfill", []))],
                "names": [one["name"] for one in query["recovery_state"]],
                "shape": shapes.shape({key: value for key, value in query.items() if key != "recovery_state"}, "query"),
                "recovery": {one["name"]: shapes.shape(one, "recovery") for one in query["recovery_state"]},
            },
        }

    def stuck(self, kind):
        rows = self.client.json("pg", "dump_stuck", kind)
        return rows.get("stuck_pg_stats", []) if isinstance(rows, dict) else rows


def take(stock, progress=lambda: None):
    """The answers of stock's cluster or of ours."""
    cluster = replicated.make_cluster(3, stock=stock)
    try:
        return Story(cluster, progress).tell()
    except BaseException:
        cluster.show_logs()
        raise
    finally:
        cluster.close()


def main():
    answers = take("--stock" in sys.argv[1:-1], lambda: print(".", end="", flush=True))
    # A line for each answer: short, and a change shows which.
    lines = [f"{json.dumps(step)}: {{\n" + ",\n".join(f" {json.dumps(command)}: {json.dumps(answer, sort_keys=True)}"
                                                    for command, answer in of.items()) + "\n}" for step, of in answers.items()]
    with open(sys.argv[-1], "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
