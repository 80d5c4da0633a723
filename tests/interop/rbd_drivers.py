#!/usr/bin/python3
"""Block images as Proxmox, OpenStack Cinder and ceph-csi use them: each driver's own calls as a story (rbd/DRIVER.txt), with the
answer to each of them.

    rbd_drivers.py [--stock] [--conf CEPH_CONF] OUT.json [DRIVER ...]
        writes the answers on a cluster of shoal's, or with --stock on stock's daemons: rbd/drivers-pacific.json. With --conf
        on a cluster that runs

A line `$ COMMAND` of a story runs a command, any other line a Python expression or statement. A line that begins with `?` is
run, and its answer is not compared. An answer is `[exit code, output, errors]`, of Python `[errno, value, exception]`, with
everything removed that differs from one run to the next.
"""
import argparse
import csv
import datetime
import json
import re
import sys

import harness
import rbd_commands
import stock_cluster

#: Each driver, and where its calls come from.
DRIVERS = {
    "proxmox": "pve-storage of 2026-07, src/PVE/Storage/RBDPlugin.pm: `rbd`, `df`, QEMU",
    "cinder": "OpenStack Cinder, cinder/volume/drivers/rbd.py and cinder/backup/drivers/ceph.py: python3-rbd, `rbd`",
    "ceph-csi": "ceph-csi of 2024-10, internal/rbd, internal/util, internal/csi-addons: go-ceph's calls, by python3-rbd",
}
ANSWERS = harness.HERE / "rbd/drivers-pacific.json"
MEANT = harness.HERE / "rbd/drivers-meant.tsv"


class Story(rbd_commands.Story):
    """Runs the story of one driver. Its Python lines share their names."""

    def __init__(self, conf, driver):
        super().__init__(conf)
        import rados
        import rbd
        self.path = harness.HERE / f"rbd/{driver}.txt"
        self.names = {"rados": rados, "rbd": rbd, "json": json, "datetime": datetime, "CONF": str(conf), "DIR": self.dir(),
                      "shape": shape, "eventually": harness.eventually}

    def mon(self):
        """The monitors' addresses as a driver's configuration has them."""
        return re.search(r"(?m)^\s*mon[ _]host\s*=\s*(\S+)", self.conf.read_text())[1]

    def config(self):
        return str(self.conf)

    def options(self):
        """Proxmox's options of each command."""
        return f"-c {self.conf} -m {self.mon()} --auth_supported cephx -n client.pve --keyring {self.work}/pve.keyring"

    def tell(self, progress=lambda _line, _answer: None):
        answers = {}
        for number, line in enumerate(self.path.read_text().splitlines()):
            if not line.strip() or line.startswith("#"):
                continue
            compared, line = not line.startswith("? "), line.removeprefix("? ")
            answer = self.answer(line[2:]) if line.startswith("$ ") else self.call(line)
            progress(line, answer)
            if compared:
                answers[f"{number} {line}"] = answer
        return answers

    def call(self, line):
        """The answer of a line of Python."""
        try:
            try:
                code = compile(line, "story", "eval")
            except SyntaxError:
                exec(compile(line, "story", "exec"), self.names)
                return [0, "", ""]
            return [0, shown(eval(code, self.names)), ""]
        except Exception as problem:
            return [getattr(problem, "errno", None), "", type(problem).__name__]


def shown(value):
    """A value of librbd's as text that is the same in each run."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = json.dumps(value, sort_keys=True, default=lambda one: str(one) if isinstance(one, datetime.datetime) else listed(one))
    # Numbers of snapshots depend on what was sent again; those of pools on what the manager made.
    return re.sub(r'"(id|snap_id|pool|pool_id)": ?\d+', r'"\1": N', rbd_commands.plain(text))


def listed(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else list(value)


def shape(value):
    """A value without its numbers: what a driver's parser must find."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in sorted(value.items())}
    return [shape(one) for one in value[:1]] if isinstance(value, list) else type(value).__name__


def meant(driver):
    """`{line: reason}` of the calls whose answer is another one than stock's."""
    with open(MEANT, newline="") as file:
        return {row["call"]: row["reason"] for row in csv.DictReader(file, delimiter="\t") if row["driver"] == driver}


def check(test, conf, driver):
    """Checks that each answer of a driver's story is stock's, but for those that are meant to differ."""
    ours = Story(conf, driver).tell()
    rbd_commands.check(test, json.loads(ANSWERS.read_text())[driver], ours, meant(driver), MEANT.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("out")
    parser.add_argument("drivers", nargs="*", metavar="DRIVER", default=list(DRIVERS))
    asked = parser.parse_args()
    cluster, answers = None, {}
    if not asked.conf:
        # Two clients of one name cannot have one socket.
        without_socket = "[client]\nadmin socket =\n"
        cluster = stock_cluster.StockCluster(osds=1, extra=without_socket) if asked.stock else harness.Cluster(osds=1)
    try:
        if cluster and asked.stock:
            client = harness.Client(cluster)
            # The manager loads its modules some seconds after its start.
            harness.eventually(lambda: client.ceph("rbd", "task", "list", check=False).code == 0, 60)
        for driver in asked.drivers:
            answers[driver] = Story(harness.Path(asked.conf) if asked.conf else cluster.conf, driver).tell(
                lambda line, answer: print(line, "->", *answer, sep="\n  ", flush=True))
    finally:
        if cluster:
            cluster.close()
    parts = []
    for driver, told in answers.items():
        lines = [f"{json.dumps(line)}: {json.dumps(answer)}" for line, answer in told.items()]
        parts.append(f"{json.dumps(driver)}: {{\n" + ",\n".join(lines) + "\n}")
    harness.Path(asked.out).write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
