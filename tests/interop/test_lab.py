"""`shoal lab`: from nothing to a report, on a cluster of shoal's, with stock tools and with the lab's own load."""
import signal
import subprocess
import tempfile
from pathlib import Path

from harness import ROOT, SHOAL, ClusterTest, run

MATRIX = """\
name: tiny
iterations: {iterations}
cool_down: 0
workloads:
  - {{ tool: rados-bench, op: [write, randread], op_size: 4k, depth: 8, time: 1, pg_num: 8 }}
  - {{ tool: shoal, op: mixed, op_size: 4k, depth: 8, time: 1, ramp: 0.2, objects: 64, verify: true, pg_num: 8 }}
  - {{ tool: shoal, op: randread, rate: 200, time: 1, objects: 64, pg_num: 8 }}
"""


class Lab(ClusterTest):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)
        self.results = ["--results", self.dir / "results"]

    def lab(self, *args, check=True):
        return run([SHOAL, "lab", *map(str, args)], check=check)

    def matrix(self, text):
        path = self.dir / "matrix.yaml"
        path.write_text(text)
        return path

    def runs(self):
        return self.lab("list", "--json", *self.results).json

    def test_from_nothing_to_a_verdict(self):
        file = self.matrix(MATRIX.format(iterations=2))
        for _ in range(2):
            self.lab("run", file, "--conf", self.cluster.conf, *self.results)
        first, second = (r["id"] for r in self.runs())
        self.assertEqual([r["state"] for r in self.runs()], ["complete"] * 2)
        page, table = self.dir / "page.html", self.dir / "points.csv"
        self.lab("report", "--out", page, "--csv", table, "--plots", self.dir / "plots", *self.results)
        text = page.read_text()
        for words in ("<svg", "Results", "what holds it back", "rados-bench · write · 4 KiB"):
            self.assertIn(words, text)
        self.assertNotIn("<script", text)
        self.assertTrue(list((self.dir / "plots").glob("*.svg")))
        lines = table.read_text().splitlines()
        self.assertEqual(len(lines), 1 + 4 * 2)
        verdict = self.lab("compare", first, second, "--json", *self.results).json
        self.assertEqual(len(verdict["points"]), 4)
        # Half of the rate is far more than any noise: the gate must let this pass.
        self.assertIn(self.lab("gate", first, second, "--threshold", 60, *self.results, check=False).code, (0, 2))
        self.lab("export", "--to", self.dir / "all.sqlite", *self.results)
        self.lab("import", self.dir / "all.sqlite", "--results", self.dir / "elsewhere")
        self.assertEqual(self.lab("list", "--json", "--results", self.dir / "elsewhere").json, self.runs())
        self.assertEqual([p for p in self.client.json("osd", "pool", "ls") if p.startswith("shoal-lab-")], [])

    def test_ctrl_c_leaves_what_is_complete(self):
        file = self.matrix(MATRIX.format(iterations=50))
        argv = [SHOAL, "lab", "run", file, "--conf", self.cluster.conf, *self.results]
        process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("points", process.stdout.readline())
        self.assertIn("op/s", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual([r["state"] for r in self.runs()], ["interrupted"])
        self.lab("report", "--out", self.dir / "partial.html", *self.results)
        self.assertIn("interrupted", (self.dir / "partial.html").read_text())
        self.assertEqual([p for p in self.client.json("osd", "pool", "ls") if p.startswith("shoal-lab-")], [])

    def test_what_is_wrong_is_said(self):
        wrong = self.lab("run", self.matrix("workloads:\n  - tool: rados-bench\n    deepness: 3\n"), check=False)
        self.assertNotEqual(wrong.code, 0)
        self.assertIn("line 3, column 5: deepness is not known", wrong.errors)
        dead = self.dir / "dead.conf"
        dead.write_text("[global]\nmon host = 127.0.0.1:1\nauth client required = none\n")
        lost = self.lab("run", self.matrix(MATRIX.format(iterations=1)), "--conf", dead, *self.results, check=False)
        self.assertNotEqual(lost.code, 0)
        self.assertIn("cannot be reached", lost.errors)
        self.assertEqual(self.runs(), [])

    def test_doctor_reads_this_host_and_the_cluster(self):
        found = self.lab("doctor", "--conf", self.cluster.conf, "--json", check=False).json
        by_id = {f["id"]: f for f in found}
        for name in ("governor", "iommu", "health", "pgs", "background"):
            self.assertIn(name, by_id)
        self.assertTrue(by_id["health"]["measured"].startswith("HEALTH_"))

    def test_examples_are_matrices(self):
        for file in sorted((ROOT / "bench/lab").glob("*.yaml")):
            done = self.lab("run", file, "--dry-run")
            self.assertIn("points on", done.text, file.name)
