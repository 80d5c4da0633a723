#!/usr/bin/python3
"""A story of block images that uses every subcommand of `rbd` (rbd/commands.txt): the answer to each of its commands.

    rbd_commands.py [--stock] [--conf CEPH_CONF] [--root FOLDER] OUT.json
        on a cluster of shoal's, or with --stock on stock's daemons: rbd/answers-pacific.json. With --conf on a cluster that
        runs; with --root by the `rbd` of another release, from the folder that has it

An answer is `[exit code, output, errors]`, with everything removed that differs from one run to the next: identifiers, times,
addresses and speeds.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
import stock_cluster

STORY = harness.HERE / "rbd/commands.txt"
COMMAND_SECONDS_MAX = 120

REPLACED = [
    # A progress line shows its last state alone.
    (r"[^\n]*\r(?=[^\n])", ""), (r"(?m)^.*\d% complete\.\.\.$", ""),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b(Sun|Mon|Tue|Wed|Thu|Fri|Sat) \w{3} +\d+ \d\d:\d\d:\d\d \d{4}", "TIME"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:?\d\d)?", "TIME"),
    (r"\d+\.\d+\.\d+\.\d+:\d+/\d+", "ADDR"), (r"client\.\d+", "client.N"), (r"(cookie=|auto )\d+", r"\1N"),
    # Of an image: the number of the client that made it, and a random number.
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{10,}\b", "ID"), (r"0x[0-9a-f]{8,}", "0xN"),
    # Speeds.
    (r"(elapsed|ops|ops/sec|bytes/sec|read_ops|write_ops|read_ops/sec|write_ops/sec): *([\d.]+|inf|-?nan)( ([KMGT]i)?B/s)?", r"\1: N"),
    # What librados says of a connection that ends while it opens it.
    (r"(?m)^.*monclient: get_auth_request but no auth handler is set up$", ""),
    (r"(?m)^ +\d+ +\d+ +[\d.e+]+ +[\d.e+]+( \S+)?$", "BENCH"),
    (r"\S*/story-\w+", "DIR"), (r"\b(rbd_data|rbd_header|journal_data|rb)\.\d+\b", r"\1.N"),
    (r"\.group\.\d+_[0-9a-f]+_[0-9a-f]+", ".group.ID"),
]
#: A record of the client's log.
LOGGED = re.compile(r"\d{4}-\d\d-\d\dT\S+ [0-9a-f]+ +-?\d+ ([^\n]*\n)")


def plain_errors(text):
    """The lines in order of their text: the log and the command itself write to the same place, one into the other's lines."""
    lines = [*plain(LOGGED.sub("", text)).splitlines(), *plain("".join(LOGGED.findall(text))).splitlines()]
    return "\n".join(sorted(lines))


def plain(text):
    for pattern, word in REPLACED:
        text = re.sub(pattern, word, text)
    lines = [" ".join(line.split()) for line in text.replace("\r", "\n").splitlines()]
    # A bench that takes longer tells more often.
    return "\n".join(line for line in lines if line and line not in ("BENCH", "SEC OPS OPS/SEC BYTES/SEC"))


def commands():
    """`(line, is compared)` of each command of the story."""
    for line in STORY.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.removeprefix("? "), not line.startswith("? ")


def subcommand(line, known):
    """The subcommand of `rbd` that a line uses, of those in `known`: the longest one that the line begins with."""
    words = shlex.split(line)
    words = words[2:] if words[0] == "timeout" else words
    words = words[1:] if words[0] == "rbd" else []
    found = [name for name in known if words[:len(name.split())] == name.split()]
    return max(found, key=len, default=None)


def known_subcommands():
    """`{name: [name and aliases]}` of the subcommands that this release's `rbd help` lists."""
    out = {}
    text = harness.run(["rbd", "help"]).text
    for line in text.partition("<command>\n")[2].partition("\nOptional")[0].splitlines():
        listed = re.match(r"^    (\S[a-z -]*?)(?: \((.*?)\))?(?: +[A-Z].*|$)", line)
        if listed:
            name, alias = listed[1].strip(), listed[2]
            names = [name]
            if alias:
                names.append(alias if not alias.startswith("... ") else " ".join([*name.split()[:-1], alias[4:]]))
            out[name] = names
    return out


class Story:
    """Runs the commands of the story on a cluster, by the tools of one release."""

    def __init__(self, conf, root=None):
        self.conf = conf
        self.work = Path(tempfile.mkdtemp(prefix="story-", dir=Path(conf).parent))
        #: Of another release `rbd` alone; `ceph` of the one on PATH makes pools.
        self.rbd = harness.program_of(root, "rbd")

    def tell(self, progress=lambda _line, _answer: None):
        """The answers of the story: `{"N line": [code, output, errors]}`, of the compared lines alone."""
        answers = {}
        for number, (line, compared) in enumerate(commands()):
            answer = self.answer(line)
            progress(line, answer)
            if compared:
                answers[f"{number} {line}"] = answer
        return answers

    def dir(self):
        return str(self.work)

    def locker(self):
        """The client that holds the first lock of `p/a`."""
        return self.asked("lock", "ls", "p/a")[0]["locker"]

    def peer(self):
        """The first mirroring peer of the pool `p`."""
        return self.asked("mirror", "pool", "info", "p")["peers"][0]["uuid"]

    def asked(self, *words):
        return harness.run([*self.rbd, "-c", str(self.conf), *words, "--format", "json"]).json

    def answer(self, line):
        words = shlex.split(re.sub(r"\$(\w+)", lambda found: getattr(self, found[1].lower())(), line))
        if words[0] == "passphrase":
            Path(words[1]).write_text("secret")
            return [0, "", ""]
        if "rbd" in words[:3]:
            at = words.index("rbd")
            words[at:at + 1] = self.rbd
        environment = {**harness.clean_environment(), "CEPH_CONF": str(self.conf), "TZ": "UTC"}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment,
                                       process_group=0)
            try:
                code = process.wait(COMMAND_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                code = "no end"
            out.seek(0), errors.seek(0)
            return [code, plain(out.read().decode(errors="replace")), plain_errors(errors.read().decode(errors="replace"))]


def check(test, theirs, ours, known, table):
    """Checks that each answer of a story is stock's, but for those of the commands in `known`, the rows of the file `table`."""
    test.assertEqual(list(ours), list(theirs), "the story has changed: record stock's answers again")
    different = set()
    for line, stock, answer in differences(theirs, ours):
        command = line.partition(" ")[2]
        different.add(command)
        with test.subTest(line):
            test.assertTrue(command in known, f"stock: {stock}\nshoal: {answer}")
    test.assertEqual(set(known) - different, set(), f"entries of {table} that match no difference")


def differences(theirs, ours):
    """`(line, stock's answer, ours)` of each command that was answered differently."""
    return [(line, theirs[line], answer) for line, answer in ours.items() if comparable(theirs[line]) != comparable(answer)]


def comparable(answer):
    """Errors as the words in them: a record of the log may part a line of the command anywhere."""
    code, out, errors = answer
    # A request for a snapshot's number that is sent again takes another number, on stock too.
    out = re.sub(r"(?m)^\d+ (?=\S)", "N ", out) if out.startswith("SNAPID") else re.sub(r'"id": ?\d+', '"id":N', out)
    return code, out, sorted(re.findall(r"\w+", errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--conf")
    parser.add_argument("--root")
    parser.add_argument("out")
    asked = parser.parse_args()
    cluster = None
    if not asked.conf:
        cluster = stock_cluster.StockCluster(osds=1) if asked.stock else harness.Cluster(osds=1)
    try:
        answers = Story(asked.conf or cluster.conf, asked.root).tell(
            lambda line, answer: print(line, "->", *answer, sep="\n  ", flush=True))
    finally:
        if cluster:
            cluster.close()
    # A line for each answer: short, and a change shows which.
    lines = [f"{json.dumps(line)}: {json.dumps(answer)}" for line, answer in answers.items()]
    Path(asked.out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
