"""Answers of `ceph` commands by value, so that shoal's can be compared with stock's.

    values.py CEPH_CONF OUT.json [FOLDER]    records the commands of values.txt on a stock cluster

Of a JSON answer every value is compared whose key is not in `VOLATILE`; of a value under such a key only the shape. Of an
answer that is text, and of standard error, addresses, keys, times and identifiers are replaced before the comparison.
"""
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import shapes

HERE = Path(__file__).resolve().parent

#: Keys whose values differ from one run of stock to the next: times, epochs, identifiers, addresses, sizes, figures.
VOLATILE = re.compile(
    r"(^|_)(epoch|fsid|uuid|addr|addrs|addrvec|nonce|key|stamp|time|age|seq|gid|pid|host|hostname|seconds|bytes|kb|kbytes|"
    r"avail|used|latency|ns|ms|since|created|modified|changed|change|fragmentation|version|tid|devices|port)($|_)"
    r"|^(up_from|up_thru|down_at|lost_at|last_\w+|mapping_epoch|reported_\w+|utilization|var|stddev|average_utilization|min_var|"
    r"max_var|state|name_seq|features|features_mon|quorum_con|required_con|sync_provider|outside_quorum_since|"
    r"feature_map|quorum_mon|num_pgs|num_up_pgs|pgs|score\w*|read_balance|ceph_version\w*|whoami|global_id|"
    r"history|num_pg|num_pg_by_state|avg_pgs|min_osd|max_osd_pgs|min_osd_pgs|std_dev|\w+_std_dev|crush_version|"
    r"crush_weight|weights|total_weight|osd_fsid|entity_addr|metadata|osdmap_first_committed|osdmap_last_committed|"
    r"oldest_map|newest_map|maps|elapsed_sec|iops|kb used|kb available|\w+ rate|cluster_log|last_pg_scan|kb_\w+|total_\w+|services|digest|optimize_result|hit_set_params)$")

REPLACED = [
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d{2}:?\d{2})?", "TIME"),
    (r"\bA[QgAw][A-Za-z0-9+/]{34,}={0,2}", "KEY"),
    (r"\[?v[12]:[0-9.]+:\d+/\d+(,v1:[0-9.]+:\d+/\d+)?\]?", "ADDR"),
    (r"\b127\.0\.0\.1:\d+/\d+", "ADDR"),
    (r"\bepoch \d+", "epoch N"), (r"\be\d+\b", "eN"),
    (r"ceph version .*", "ceph version V"),
    (r"/\S*/(ceph\.conf|keyring)", "FILE"),
    # The help of a command: its own words.
    (r" +:  [^\n]*", ""),
    (r"(Invalid command: \S+ not in)[^$]*", r"\1"),
    (r"(no valid command found; \d+ closest matches:)[^$]*", r"\1"),
]


def commands():
    """The commands of values.txt, in order."""
    lines = (HERE / "values.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and line[0] not in "#@"]


def elsewhere():
    """`{test: [command, ...]}` that another test compares by value."""
    named = [line[1:].split(":") for line in (HERE / "values.txt").read_text().splitlines() if line.startswith("@")]
    return {test.strip(): [command.strip() for command in rest.split(",")] for test, rest in named}


def plain(text):
    for pattern, word in REPLACED:
        text = re.sub(pattern, word, text)
    return text.strip()


def fixed(value, key=""):
    """A JSON value with everything volatile reduced to its shape."""
    if VOLATILE.search(key):
        return {"shape": shapes.shape(value)}
    if isinstance(value, dict):
        return {plain(name): fixed(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        values = [fixed(inner, key) for inner in value]
        if values and all(isinstance(one, dict) and "entity" in one for one in values):
            return {one["entity"]: one for one in values}
        # Names come in the order of a table.
        return sorted(values) if all(isinstance(one, str) for one in values) else values
    return plain(value) if isinstance(value, str) else value


def answer_of(done):
    """`done` has `.code`, `.text` and `.errors`."""
    try:
        out = fixed(json.loads(done.text))
    except json.JSONDecodeError:
        out = plain(done.text)
    return {"code": done.code, "out": out, "err": plain(done.errors)}


def take(ceph, progress=lambda: None):
    """`ceph(words...)` runs a command. One answer per command of values.txt."""
    answers = []
    for command in commands():
        progress()
        if command == "! wait":
            settle(ceph)
            continue
        words = shlex.split(command)
        answers.append({"command": command, **answer_of(ceph(*words, "-f", "json"))})
    return answers


def differences(theirs, ours, path=""):
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(set(theirs) | set(ours)):
            if key not in ours:
                yield f"{path}.{key} is missing"
            elif key not in theirs:
                yield f"{path}.{key} is not in stock's"
            elif key == "shape":
                yield from shapes.differences(theirs[key], ours[key], path)
            else:
                yield from differences(theirs[key], ours[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield f"{path} has {len(ours)} entries, stock {len(theirs)}: {short(ours)} and {short(theirs)}"
        for number, (one, other) in enumerate(zip(theirs, ours)):
            yield from differences(one, other, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path} is {short(ours)}, stock has {short(theirs)}"


def short(value):
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:120]} ... {text[-70:]}"


def settle(ceph):
    """Waits until three OSDs are up and every PG is active, and then until the manager has told the monitor."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stat = json.loads(ceph("osd", "stat", "-f", "json").text)
        states = json.loads(ceph("status", "-f", "json").text)["pgmap"]["pgs_by_state"]
        if stat["num_up_osds"] == 3 and all(state["state_name"].startswith("active+") for state in states):
            time.sleep(3)
            return
        time.sleep(0.5)
    raise TimeoutError("the cluster does not come to rest")


def main():
    conf, out = sys.argv[1:3]
    enter = ["chroot", sys.argv[3]] if len(sys.argv) > 3 else []

    class Done:
        def __init__(self, process):
            self.code = process.returncode
            self.text, self.errors = (stream.decode(errors="replace") for stream in (process.stdout, process.stderr))

    def ceph(*words):
        return Done(subprocess.run([*enter, "ceph", "-c", conf, *words], capture_output=True, check=False))

    settle(ceph)
    answers = take(ceph)
    Path(out).write_text(json.dumps(answers, indent=1) + "\n")
    print(f"{len(answers)} answers in {out}")


if __name__ == "__main__":
    main()
