"""One story of failures (steps.py), step by step beside stock 16.2.15: states, health and its lines, `pg dump`, `pg query`.
Differences beyond those of meant.json fail. The gate compares with stock's recorded answers (stock/steps-pacific.json);
--long performs the story on stock's daemons, too."""
import concurrent.futures
import json
import unittest

import harness
import stock_cluster
import steps
import values
from harness import HERE
from test_commands import MEANT, Known

RECORDED = HERE / "stock/steps-pacific.json"


def differences(theirs, ours):
    """`{(command, difference): [step, ...]}`"""
    found = {}
    for step in ours:
        for command, answer in ours[step].items():
            for difference in values.differences(theirs[step][command], answer, command):
                found.setdefault((command, difference), []).append(step)
    return found


class Steps(unittest.TestCase):
    def setUp(self):
        if harness.STOCK:
            self.skipTest("it compares shoal with stock")
        harness.give_time(1500)

    def test_each_step_looks_as_on_stock(self):
        self.compare(json.loads(RECORDED.read_text()), steps.take(stock=False))

    @harness.long_only
    @stock_cluster.require()
    def test_each_step_looks_as_on_stock_beside_it(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            theirs, ours = pool.map(steps.take, (True, False))
        self.compare(theirs, ours)

    def compare(self, theirs, ours):
        self.assertEqual(set(ours), set(theirs))
        known = Known(MEANT["steps"])
        for (command, difference), where in differences(theirs, ours).items():
            with self.subTest(difference):
                self.assertEqual(known.unknown(command, [difference]), [], f"at: {', '.join(where)}")
        self.assertEqual(known.unused(), [], "entries of meant.json that match no difference")
