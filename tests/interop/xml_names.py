"""Names of XML elements that JSON does not have, derived from stock's answers in both formats.

    xml_names.py CEPH_CONF [FOLDER]    records the commands of stock/xml-commands.txt on a stock cluster (of another release
                                       in FOLDER), and writes stock/tentacle-xml.json and crates/command/src/xml_names.tsv

An answer is taken as JSON, as XML, as pretty XML, and as JSON again. Answers that have changed meanwhile are not kept.
"""
import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS = HERE / "stock/xml-commands.txt"
RECORDED = HERE / "stock/tentacle-xml.json"
TABLE = HERE.parent.parent / "crates/command/src/xml_names.tsv"

HEAD = """\
# Command, name of its document (- for none), KEY=ITEM for arrays. Written by tests/interop/xml_names.py from stock 20.2.4.
"""

#: Longer answers give names, and are not kept.
KEPT_BYTES_MAX = 6_000

#: Arrays that are empty in all recorded answers.
UNSEEN = {
    "*": {"choose_args/*": "choose_args", "pool_weights/*": "weight", "extra_probe_peers": "peer", "outside_quorum": "mon", "pool_snaps": "pool_snap_info", "tiers": "pool_id"},
    # Groups of counters have items without a name.
    "counter dump": {"*": ""},
    "counter schema": {"*": ""},
    "node ls": {"mds/*": "mds", "mgr/*": "mgr", "mon/*": "mon", "osd/*": "osd"},
    "dump_blocklist": {"blocklist": "entry", "range_blocklist": "entry"},
}

#: Names on the cluster that was recorded.
OF_RECORDED_CLUSTER = {"xml", "vm", "one"}

#: Documents whose JSON is none: two lists, one after the other.
ROOTS = {"dump_blocklist": "-"}


def parse(text):
    """`[(tag, children or text), ...]`. Stock's XML has no attributes, and its tags need not be names."""
    stack = [("", [])]
    for close, tag, data in re.findall(r"<(/?)([^<>]*)>([^<]*)", text):
        if close:
            name, inner = stack.pop()
            assert name == tag, f"</{tag}> ends <{name}>"
            stack[-1][1].append((name, inner))
        else:
            stack.append((tag, [] if not data.strip() else data))
    assert len(stack) == 1, f"<{stack[-1][0]}> does not end"
    return stack[0][1]


class Names:
    def __init__(self):
        self.roots = {}
        self.items = defaultdict(lambda: defaultdict(set))

    def learn(self, command, answer, text):
        document = parse(text)
        if len(document) == 1 and not (isinstance(answer, dict) and list(answer) == [document[0][0]]
                                       and not isinstance(document[0][1], list)):
            (root, inner), parent = document[0], ""
            self.roots[command] = root
            self.walk(command, parent, root, answer, inner)
        else:
            self.roots[command] = "-"
            self.walk(command, "", "", answer, document)

    def walk(self, command, parent, name, value, inner):
        if isinstance(value, dict) and value:
            for (key, one), (_, below) in zip(value.items(), inner):
                self.walk(command, name, key, one, below)
        elif isinstance(value, list) and value:
            tags = {tag for tag, _ in inner}
            if len(tags) == 1:
                self.items[command][(parent, name)] |= tags
                for one, (tag, below) in zip(value, inner):
                    self.walk(command, name, tag, one, below)

    def rows(self):
        """Pairs that hold for every command that has the key, and the others by command."""
        of_key = defaultdict(set)
        for found in self.items.values():
            for (_, key), tags in found.items():
                of_key[key] |= tags
        named = {root for root in self.roots.values()}
        common = {key: next(iter(tags)) for key, tags in of_key.items()
                  if len(tags) == 1 and key not in named and tags != {"item"} and is_fixed(key)}
        unseen = UNSEEN["*"]
        yield "*", "-", {**{key: item for key, item in unseen.items() if key not in of_key}, **common}
        self.roots.update(ROOTS)
        for command in sorted(self.roots):
            own = {}
            for (parent, key), tags in sorted(self.items[command].items()):
                if key in common or tags == {"item"} or not is_fixed(key):
                    continue
                same = {tag for (_, other), more in self.items[command].items() if other == key for tag in more}
                own[key if len(same) == 1 else f"{parent}/{key}"] = next(iter(tags))
            own.update(UNSEEN.get(command, {}))
            yield command, self.roots[command], own


def is_fixed(key):
    """False for keys that are data: pools' names and numbers."""
    return re.fullmatch(r"[a-z][a-z_-]*", key) and key not in OF_RECORDED_CLUSTER


def write(recorded):
    names = Names()
    for row in recorded:
        names.learn(row["row"], json.loads(row["json"]), row["xml"])
    lines = []
    for command, root, own in names.rows():
        pairs = " ".join(f"{key}={item}" for key, item in sorted(own.items()))
        lines.append(f"{command}\t{root}\t{pairs}" if pairs else f"{command}\t{root}")
    TABLE.write_text(HEAD + "\n".join(lines) + "\n")


def row_of(command):
    """The row of the table of a line of xml-commands.txt: `COMMAND`, `COMMAND | words of arguments`, or that with the row behind
    `=>`."""
    words, _, row = command.partition("=>")
    return row.strip() or re.sub(r"^tell \S+ ", "", words.split("|")[0].strip())


def kept(command, answers):
    """One row of tentacle-xml.json, or None."""
    first, compact, pretty, again = answers
    try:
        json.loads(first)
    except json.JSONDecodeError:
        return None
    if first != again or not compact.strip().startswith("<"):
        return None
    return {"row": row_of(command), "command": command.split("=>")[0].strip(), "json": first, "xml": compact, "xml_pretty": pretty}


def main():
    conf = sys.argv[1]
    enter = ["chroot", sys.argv[2]] if len(sys.argv) > 2 else []
    recorded = []
    for command in COMMANDS.read_text().splitlines():
        if not command or command.startswith("#"):
            continue
        words = shlex.split(command.partition("=>")[0].replace("|", " "))
        answers = []
        for form in ("json", "xml", "xml-pretty", "json"):
            done = subprocess.run([*enter, "ceph", "-c", conf, *words, "-f", form], capture_output=True, check=False)
            # The `ceph` program adds a line break to an answer that has none.
            answers.append(done.stdout.decode(errors="replace"))
        row = kept(command, answers)
        if row:
            recorded.append(row)
    write(recorded)
    short = [row for row in recorded if len(row["json"]) <= KEPT_BYTES_MAX]
    RECORDED.write_text(json.dumps(short, indent=1) + "\n")
    print(f"{len(short)} answers in {RECORDED}")


if __name__ == "__main__":
    main()
