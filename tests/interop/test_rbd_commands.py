"""Every subcommand of `rbd` 16.2 on block images of shoal: each answer of the story rbd/commands.txt is the one that stock 16.2.15
gave (rbd/answers-pacific.json, made by `rbd_commands.py --stock`), but for those that rbd/meant.tsv names with a reason."""
import csv
import json
import re
import unittest

import rbd_commands
from harness import HERE, ROOT, ClusterTest

ANSWERS = HERE / "rbd/answers-pacific.json"
MEANT = HERE / "rbd/meant.tsv"
TABLE = ROOT / "docs/compatibility.md"


def meant():
    """`{line: reason}` of the commands whose answer is another one than stock's."""
    with open(MEANT, newline="") as file:
        return {row["command"]: row["reason"] for row in csv.DictReader(file, delimiter="\t")}


class Commands(ClusterTest):
    def test_each_answer_is_stocks(self):
        ours = rbd_commands.Story(self.cluster.conf).tell()
        rbd_commands.check(self, json.loads(ANSWERS.read_text()), ours, meant(), MEANT.name)


class Table(unittest.TestCase):
    def test_story_and_table_have_every_subcommand(self):
        names = rbd_commands.known_subcommands()
        every = [name for row in names.values() for name in row]
        used = {rbd_commands.subcommand(line, every) for line, _ in rbd_commands.commands()}
        self.assertEqual([name for name, row in names.items() if not used & set(row)], [], "the story does not use them")
        documented = set(re.findall(r"^\| `rbd ([a-z -]+)`", TABLE.read_text(), re.MULTILINE))
        self.assertEqual(set(names) - documented, set(), "docs/compatibility.md has no row for them")


if __name__ == "__main__":
    unittest.main()
