#!/usr/bin/python3
"""Measures how long clients wait for monitors and for OSDs while one of three monitors dies, freezes or is cut off: shoal's, and those
of the stock Ceph that is installed, in turn.

    mon_failover.py [--runs N] [--only shoal|stock] [--role leader|follower] [--fault FAULT] [--osds-at N] [--json FILE]
    mon_failover.py --table FILE

Each monitor is in a network namespace of its own, with three OSDs on the host; needs root, and SHOAL names the program. A client
begins at each monitor and gives `config-key set` again and again over python3-rados; verifying clients change and read
objects of a pool of size 3. Their sessions, and those of `--osds-at` of the OSDs (1), begin at the monitor that is to fail. Faults of
the leader, or of a follower:

    kill9      it dies, and is started again
    with_osd   it dies together with an OSD
    sigstop    it freezes, and goes on
    out        the other monitors do not hear it
    in         it does not hear the other monitors
    both       it and the other monitors do not hear each other
    unplugged  nobody hears it, and it hears nobody

A fault lasts for at least 10 s, until each client has given another command and has its answer and operations are answered within
1 s, and at most for 90 s. Then it is mended, and clients go on until all three monitors are in quorum and 5 s more. Seconds, each the largest from the fault to the end:

    service    no client at all had an answer
    at it      a command of the client that began at the monitor that failed
    elsewhere  a command of the clients that began at the others
    operation  a change or a read of an object

The last table has the median of the runs. `--json` appends a line for each fault to a file, and `--table` prints the table of one.
"""
import argparse
import json
import os
import statistics
import time

import harness
import monitor_networks
import replicated
from command_client import CommandClient
from harness import Client, eventually
from history import History

FAULTS = ("kill9", "with_osd", "sigstop", *monitor_networks.WAYS, "unplugged")
ROLES = ("leader", "follower")
FIGURES = ("service", "at_it", "elsewhere", "operation")
FAULT_SECONDS_MIN, FAULT_SECONDS_MAX = 10, 90
#: Until all are in quorum again, and after that.
RETURN_SECONDS_MAX, REST_SECONDS = 120, 5
POOL = "mon-failover"


def make_cluster(kind):
    if kind == "shoal":
        cluster = monitor_networks.QuorumCluster()
        replicated.configure(cluster, *replicated.FAULTS)
    else:
        cluster = monitor_networks.StockQuorumCluster()
    client = Client(cluster)
    client.ceph("osd", "pool", "create", POOL, 16, 16, "replicated")
    client.ceph("osd", "pool", "set", POOL, "size", 3)
    client.ceph("osd", "pool", "application", "enable", POOL, "rados")
    replicated.Pgs(client).wait_clean()
    return cluster


def strike(cluster, fault, name):
    if fault in ("kill9", "with_osd"):
        cluster.kill(f"mon.{name}")
        if fault == "with_osd":
            cluster.kill("osd.0")
    elif fault == "sigstop":
        cluster.pause(f"mon.{name}")
    elif fault == "unplugged":
        cluster.networks.unplug(name)
    else:
        cluster.networks.cut_from_others(name, fault)


def mend(cluster, fault, name):
    if fault in ("kill9", "with_osd"):
        cluster.start_daemon(f"mon.{name}")
        if fault == "with_osd":
            cluster.start_daemon("osd.0")
    elif fault == "sigstop":
        cluster.resume(f"mon.{name}")
    else:
        cluster.networks.heal()


def longest_silence(clients, since):
    """The longest time without an answer to anybody."""
    ends = sorted(ended for client in clients for _, ended in list(client.answered) if ended > since - 1)
    return max((after - before for before, after in zip(ends, ends[1:])), default=FAULT_SECONDS_MAX)


def is_served(load):
    """True if no operation waits for longer than a second."""
    now = time.monotonic()
    with load.lock:
        return all(now - began < 1 for began, _, _ in load.flying.values())


def measure(cluster, role, fault, osds_at=1):
    tool = Client(cluster)

    def quorum():
        return tool.json("quorum_status")

    eventually(lambda: len(quorum()["quorum_names"]) == 3, RETURN_SECONDS_MAX)
    leader = quorum()["quorum_leader_name"]
    name = leader if role == "leader" else [other for other in cluster.networks.names if other != leader][-1]
    for osd in range(osds_at):
        cluster.restart_osd_at(osd, name)
    eventually(lambda: tool.json("osd", "stat")["num_up_osds"] == cluster.osds, 60)
    replicated.Pgs(tool).wait_clean()
    clients = {at: CommandClient(cluster.conf, f"{POOL}/{at}", cluster.mon_host(at)).start()
               for at in cluster.networks.names}
    load = History(cluster.conf, POOL, writers=2, readers=1, pause=0.005, mon_host=cluster.mon_host(name)).start()
    eventually(lambda: load.writes() > 200 and all(len(client.answered) > 20 for client in clients.values()), 60, 0.05)
    load.forget_slow()
    struck_at = time.monotonic()
    strike(cluster, fault, name)
    time.sleep(FAULT_SECONDS_MIN)
    while (time.monotonic() < struck_at + FAULT_SECONDS_MAX
           and not (is_served(load) and all(client.begun_and_answered(struck_at + 1) for client in clients.values()))):
        time.sleep(0.05)
    mend(cluster, fault, name)
    mended_at = time.monotonic()
    eventually(lambda: len(quorum()["quorum_names"]) == 3, RETURN_SECONDS_MAX)
    whole_at = time.monotonic()
    time.sleep(REST_SECONDS)
    figures = {"service": longest_silence(clients.values(), struck_at), "at_it": clients[name].slowest(struck_at),
               "elsewhere": max(client.slowest(struck_at) for at, client in clients.items() if at != name),
               "operation": load.slowest()[0]}
    problems = [problem for client in clients.values() for problem in client.problems(tool)] + load.finish()
    return {"role": role, "fault": fault, "monitor": name, **{key: round(value, 3) for key, value in figures.items()},
            "fault_seconds": round(mended_at - struck_at, 1), "return_seconds": round(whole_at - mended_at, 1),
            "commands": sum(len(client.answered) for client in clients.values()), "changes": load.writes(), "problems": problems}


def line(kind, row):
    figures = "  ".join(f"{name.replace('_', ' ')} {row[name]:6.2f}" for name in FIGURES)
    return (f"{kind:6} {row['role']:8} {row['fault']:9} mon.{row['monitor']}: {figures}  (fault {row['fault_seconds']} s, whole after "
            f"{row['return_seconds']} s){'  PROBLEMS ' + str(row['problems']) if row['problems'] else ''}")


def show(rows):
    """A table of medians, a row for each fault."""
    kinds = list(dict.fromkeys(kind for kind, _ in rows))
    print("| fault | " + " | ".join(f"{kind}: {name.replace('_', ' ')}" for kind in kinds for name in FIGURES) + " |")
    print("|---" * (1 + len(kinds) * len(FIGURES)) + "|")
    for role, fault in dict.fromkeys((row["role"], row["fault"]) for _, row in rows):
        cells = []
        for kind in kinds:
            mine = [row for of, row in rows if of == kind and (row["role"], row["fault"]) == (role, fault)]
            cells += [f"{statistics.median(row[name] for row in mine):.2f}" if mine else "" for name in FIGURES]
        print(f"| {role}, {fault} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["shoal", "stock"])
    parser.add_argument("--role", choices=ROLES, action="append")
    parser.add_argument("--fault", choices=FAULTS, action="append")
    parser.add_argument("--osds-at", type=int, choices=range(4), default=1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--table", metavar="FILE")
    asked = parser.parse_args()
    if asked.table:
        with open(asked.table) as file:
            return show([(row["kind"], row) for row in map(json.loads, file)])
    release = harness.run(["ceph", "--version"]).text.split()[2]
    clusters, rows = {}, []
    try:
        for kind in [asked.only] if asked.only else ["shoal", "stock"]:
            clusters[kind] = make_cluster(kind)
        print(f"clients of {release}", flush=True)
        for _ in range(asked.runs):
            for role in asked.role or ROLES:
                for fault in asked.fault or FAULTS:
                    for kind, cluster in clusters.items():
                        row = measure(cluster, role, fault, asked.osds_at)
                        rows.append((kind, row))
                        print(line(kind, row), flush=True)
                        if asked.json:
                            with open(asked.json, "a") as file:
                                file.write(json.dumps({"kind": kind, "release": release, **row}) + "\n")
        show(rows)
    finally:
        for cluster in clusters.values():
            cluster.close()
    # Without shutting sessions down that a failed run left.
    os._exit(0)


if __name__ == "__main__":
    main()
