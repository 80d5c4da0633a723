"""The thrasher against real daemons: three minutes gate a change, thirty with --long (or SHOAL_THRASH_MINUTES of them)."""
import os
import unittest

import harness
import thrash

SEED = int(os.environ.get("SHOAL_SEED", "1"))


def minutes():
    return float(os.environ.get("SHOAL_THRASH_MINUTES", "30" if harness.LONG else "3"))


class Thrash(unittest.TestCase):
    def test_thrashed_cluster_loses_no_acknowledged_write(self):
        # Each minute may end with a wait for clean PGs.
        harness.give_time(300 + 180 * minutes())
        cluster = thrash.make_cluster(6 if harness.LONG else 4)
        self.addCleanup(cluster.close)
        lines = []
        without = () if harness.LONG else thrash.ONLY_LONG
        thrasher, load, models, problems = thrash.thrash(cluster, minutes(), SEED, without, lines.append)
        if problems:
            print("\n".join(lines))
            cluster.show_logs()
        self.assertEqual(problems, [], f"seed {SEED}")
        self.assertGreater(load.writes(), 100)
        done = {model.pool: model.operations() for model in models if model.root}
        self.assertTrue(all(count > 100 for count in done.values()), f"a model checker did next to nothing: {done}")
        print(f"{load.summary()}; the model checkers finished {done} operations; {thrasher.actions}")
        self.assertGreater(len(thrasher.actions), 4, "it did next to nothing")
