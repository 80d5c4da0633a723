"""Answers of `ceph` commands reduced to their shape, so that shoal's can be compared with stock's.

A shape is JSON with every value replaced by its kind. A table with free keys (pools by name, daemons by id) becomes
one entry, `*`; a list becomes the merged shape of its elements. `shapes.py CEPH_CONF OUT.json [CHROOT]` populates a
*stock* cluster and records them; test_commands.py populates ours in the same way and compares.
"""
import json
import re
import subprocess
import sys

# Commands that change something, run before the shapes are taken. `{out}` is a scratch file.
POPULATE = [
    "osd pool create shape 8 8 replicated",
    "osd pool create second 4 4 replicated",
    "osd pool application enable shape rbd",
    "config set osd osd_max_backfills 2",
    "config set global osd_client_op_priority 62",
    "auth get-or-create client.shape mon 'allow r' osd 'allow rw pool=shape'",
    "config-key set shape/key value",
    "osd set noout",
    "osd unset noout",
    "osd reweight 2 0.9",
    "log 'a line of the log'",
]

# Commands whose JSON is compared. The last word may be `plain`: then the text's layout is compared.
COMPARE = [
    "status", "health", "health detail", "versions", "features", "fsid", "mon dump", "mon stat", "quorum_status",
    "osd dump", "osd stat", "osd tree", "osd ls", "osd df", "osd df tree", "osd map shape anobject", "osd find 0",
    "osd metadata 0", "osd metadata", "osd getmaxosd", "osd blocklist ls", "osd pool ls", "osd pool ls detail",
    "osd pool get shape all", "osd pool get shape pg_num", "osd pool stats", "osd pool stats shape",
    "osd pool application get shape", "osd crush dump", "osd crush tree", "osd crush rule ls", "osd crush rule dump",
    "osd crush class ls", "osd crush show-tunables", "osd perf", "osd utilization",
    "pg stat", "pg dump", "pg dump pgs_brief", "pg ls", "pg map {pg}", "pg dump_stuck",
    "auth ls", "auth get client.shape", "auth get-key client.shape", "config dump", "config get osd.0",
    "config log", "config-key ls", "config-key dump", "config-key get shape/key", "df", "df detail", "log last 5",
    "mgr dump", "mgr stat", "mgr services", "mon metadata", "node ls", "time-sync-status", "osd numa-status",
]

# Objects whose keys are names of things, by the path that leads to them.
FREE_KEYS = [r"checks$", r"^versions", r"\.caps$", r"addrs_map", r"application_metadata", r"num_objects_by",
             r"^config-key dump", r"progress_events$", r"^mgr services", r"options$", r"device_class", r"stats_by_class$",
             r"^osd metadata", r"^mon metadata", r"servicemap\.services", r"^node ls", r"read_balance", r"^features",
             r"available_modules", r"modules$", r"always_on_modules", r"stretch_mode", r"disallowed_leaders"]


def kind(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string"


def merge(a, b):
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, dict) and isinstance(b, dict):
        return {k: merge(a.get(k), b.get(k)) for k in sorted(set(a) | set(b))}
    if isinstance(a, list) and isinstance(b, list):
        return [merge((a or [None])[0], (b or [None])[0])] if a or b else []
    return "any"


def shape(value, path=""):
    if isinstance(value, dict):
        inner = {k: shape(v, f"{path}.{k}") for k, v in value.items()}
        if any(re.search(free, path) for free in FREE_KEYS):
            merged = None
            for one in inner.values():
                merged = merge(merged, one)
            return {"*": merged} if inner else {}
        return dict(sorted(inner.items()))
    if isinstance(value, list):
        merged = None
        for one in value:
            merged = merge(merged, shape(one, path))
        return [] if merged is None else [merged]
    return kind(value)


def differences(theirs, ours, path=""):
    """Keys of stock's answer that ours lacks, keys that only ours has, and values of another kind."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if "*" in theirs or "*" in ours or not theirs:
            if "*" in theirs and "*" in ours:
                yield from differences(theirs["*"], ours["*"], path + ".*")
            return
        for key in theirs:
            if key not in ours:
                yield f"{path}.{key} is missing"
            else:
                yield from differences(theirs[key], ours[key], f"{path}.{key}")
        for key in ours:
            if key not in theirs:
                yield f"{path}.{key} is not in stock's"
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from differences(theirs[0], ours[0], path + "[]")
    elif theirs != ours and "any" not in (theirs, ours):
        yield f"{path} is {ours if isinstance(ours, str) else type(ours).__name__}, stock has " \
              f"{theirs if isinstance(theirs, str) else type(theirs).__name__}"


def take(ceph, pg):
    """`ceph(words...)` runs a command and returns an object with `.code`, `.text`."""
    shapes = {}
    for command in COMPARE:
        done = ceph(*command.format(pg=pg).split(), "-f", "json")
        if done.code != 0:
            shapes[command] = {"exit": done.code}
            continue
        try:
            shapes[command] = shape(json.loads(done.text), command)
        except json.JSONDecodeError:
            shapes[command] = {"text": True}
    return shapes


def main():
    import shlex
    conf, out = sys.argv[1:3]
    enter = ["chroot", sys.argv[3]] if len(sys.argv) > 3 else []

    class Done:
        def __init__(self, p):
            self.code, self.text = p.returncode, p.stdout.decode(errors="replace")

    def ceph(*words):
        return Done(subprocess.run([*enter, "ceph", "-c", conf, *words], capture_output=True))

    for command in POPULATE:
        done = ceph(*shlex.split(command))
        if done.code:
            print(f"populating: {command}: exit code {done.code}", file=sys.stderr)
    import time
    time.sleep(8)
    pools = json.loads(ceph("osd", "pool", "ls", "detail", "-f", "json").text)
    pool = next(p.get("pool", p.get("pool_id")) for p in pools if p["pool_name"] == "shape")
    shapes = take(ceph, f"{pool}.0")
    with open(out, "w") as f:
        json.dump(shapes, f, indent=1, sort_keys=True)
        f.write("\n")
    print(f"{len(shapes)} shapes in {out}")


if __name__ == "__main__":
    main()
