"""The boards and alerts of the ceph-mixin work on shoal's Prometheus pages.

`stock/mixin-tentacle.tsv` lists each metric that release 20.2.4's mixin asks for, with the type and labels that the page of stock's
`prometheus` module gives it, and the part of Ceph that it is of. Those of parts that shoal has are on its pages, of the same type and
with the same labels. Where Debian's `prometheus` and a mixin are there, a Prometheus scrapes a cluster and evaluates every expression.
"""
import csv
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import harness
from harness import HERE, ClusterTest, eventually, free_port_base

LIST = HERE / "stock/mixin-tentacle.tsv"
#: The part of each metric, and why shoal's pages lack it; "served" and "osd" are there.
PARTS = {
    "served": None,
    "osd": None,
    "file system": "shoal has no metadata server",
    "radosgw": "they are radosgw's own counters, which its admin socket and stock's ceph-exporter tell",
    "image counters": "no OSD counts by image, as stock's do on the manager's request",
    "rbd mirror": "rbd-mirror is not supported",
    "nvmeof": "the NVMe-oF gateway serves them itself",
    "cephadm": "shoal has no orchestrator",
    "bluestore": "shoal's store has neither onodes nor devices that compress",
    "stock": "stock's page has none of that name either",
}
#: Options of the boards, as a person chooses them: everything.
VARIABLES = {"__rate_interval": "10s", "__range": "10s", "topk": "10"}
SCRAPE_SECONDS = 1


def rows():
    with open(LIST, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def mixins():
    """The folder of each mixin, with `prometheus/ceph` and `grafana/dashboards`."""
    roots = [os.environ.get("SHOAL_CEPH20"), harness.ROOT / "target/tools/ceph-18.2"]
    return [Path(root, "etc") for root in roots if root and Path(root, "etc/prometheus/ceph/ceph_default_alerts.yml").exists()]


def expressions(folder):
    """Every expression of the boards, as `(board, expression)`."""
    found = set()

    def walk(board, value):
        if isinstance(value, dict):
            if isinstance(value.get("expr"), str):
                # A board has one without a query.
                found.update({(board, value["expr"])} if value["expr"].strip() else {})
            value = list(value.values())
        if isinstance(value, list):
            for part in value:
                walk(board, part)
    for board in sorted((folder / "grafana/dashboards/ceph-dashboard").glob("*.json")):
        walk(board.stem, json.loads(board.read_text()))
    return sorted(found)


def filled(expression):
    """The expression with each variable of the board replaced; `$1` is of `label_replace`."""
    return re.sub(r"\$\{?(__\w+|[A-Za-z]\w*)\}?", lambda found: VARIABLES.get(found[1], ".*"), expression)


def families(page):
    """The type of each metric of a page, and the label names of its samples."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    labels = {}
    for name, inside in re.findall(r"^([a-z]\w*)(?:\{(.*)\})? \S+$", page, re.M):
        labels.setdefault(name, set()).add(frozenset(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', inside)))
    return types, labels


class Metrics(ClusterTest):
    OSDS = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.ceph("osd", "pool", "create", "images", "8", "8", "replicated", "--size", "2")
        cls.client.ceph("osd", "pool", "application", "enable", "images", "rbd")
        for n in range(20):
            cls.client.rados("-p", "images", "put", f"o{n}", "-", stdin=b"data" * 1000)
        # So that there is a health code, and objects to copy.
        cls.client.ceph("osd", "set", "noscrub")
        cls.client.ceph("osd", "out", "2")

    def page(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            return page.read().decode()

    def ports(self):
        """Of the monitor's page, and of the OSDs'."""
        return self.cluster.port + 2, [self.cluster.port + 11 + osd for osd in range(self.OSDS)]

    def test_every_metric_of_the_mixin_is_served_or_has_a_reason(self):
        of_mixin = rows()
        self.assertEqual(len(of_mixin), 204)
        self.assertEqual({row["part"] for row in of_mixin}, set(PARTS))
        monitor, osds = self.ports()

        def has_samples():
            return families(self.page(monitor))[1].keys() >= {row["metric"] for row in of_mixin if row["part"] == "served"}
        # OSDs report with the manager's period. What lacks then fails below, by name.
        try:
            eventually(has_samples, 20)
        except harness.Failed:
            pass
        pages = {"served": families(self.page(monitor)), "osd": families(self.page(osds[0]))}
        for row in of_mixin:
            with self.subTest(row["metric"]):
                name, part = row["metric"], row["part"]
                if PARTS[part] is not None:
                    for types, labels in pages.values():
                        self.assertNotIn(name, types, f"{part}: the list is old")
                    continue
                types, labels = pages[part]
                self.assertEqual(types.get(name), row["type"])
                wanted = set() if row["labels"] == "-" else set(row["labels"].split(","))
                self.assertEqual(labels.get(name), {frozenset(wanted)})

    def test_recovered_objects_are_counted(self):
        def recovered():
            counters = [harness.ask_admin_socket(self.cluster.dir / f"osd.{osd}.asok", "perf dump")["osd"] for osd in range(self.OSDS)]
            return all(sum(osd[name] for osd in counters) > 0 for name in ("recovery_ops", "recovery_bytes"))
        eventually(recovered, 60)

    def test_every_expression_of_the_mixin_is_evaluated(self):
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not installed")
        if not mixins():
            self.skipTest("there is no mixin: tests/ceph-programs unpacks that of 18.2, and SHOAL_CEPH20 may have that of 20.2")
        served = {row["metric"] for row in rows() if PARTS[row["part"]] is None}
        for folder in mixins():
            with self.subTest(str(folder)), tempfile.TemporaryDirectory() as work:
                self.evaluate(folder, Path(work), served)

    def evaluate(self, folder, work, served):
        port = free_port_base()
        monitor, osds = self.ports()
        (work / "prometheus.yml").write_text(CONFIG.format(
            rules=folder / "prometheus/ceph/ceph_default_alerts.yml", monitor=monitor, seconds=SCRAPE_SECONDS,
            osds=", ".join(f"'127.0.0.1:{osd}'" for osd in osds)))
        with open(work / "log", "wb") as log:
            prometheus = subprocess.Popen(["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data",
                                           f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

        def ask(path, **words):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                return json.load(error)
            except OSError as error:
                raise ValueError(f"{error}: {(work / 'log').read_text()[-2000:]}") from error

        def results(expression):
            return ask("query", query=expression)
        try:
            # Rates need two samples.
            eventually(lambda: results("count_over_time(ceph_health_status[1m])")["data"]["result"][0]["value"][1] >= "3", 60)
            eventually(lambda: results("rate(ceph_osd_op_w[10s])")["data"]["result"], 60)
            evaluated = 0
            for board, expression in expressions(folder):
                with self.subTest(board, expression=expression):
                    answer = results(filled(expression))
                    self.assertEqual(answer["status"], "success", answer.get("error"))
                    if not is_of(expression, served):
                        continue
                    evaluated += 1
                    self.assertTrue(answer["data"]["result"], "no series")
            # 18.2's boards have some 70, 20.2's twice as many.
            self.assertGreater(evaluated, 60)

            def evaluated_rules():
                groups = ask("rules")["data"]["groups"]
                found = [rule for group in groups for rule in group["rules"]]
                return all(rule["health"] != "unknown" for rule in found) and found
            rules = eventually(evaluated_rules, 60)
            self.assertGreater(len(rules), 40)
            self.assertEqual([(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"], [])
        finally:
            prometheus.kill()
            prometheus.wait()


def is_of(expression, served):
    """True if every metric of an expression is one of `served`, and none is selected by value or absence: there must be an answer."""
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    names = set(re.findall(r"\b[a-z]+_\w+\b", without_labels)) - NOT_METRICS
    compares = re.search(r"[<>]|[!=]=", re.sub(r"==\s*bool", "", without_labels))
    # A variable after `=` is one host's name.
    chooses = re.search(r"""\babsent\(|!="none"|[^!]=\s*['"]\$""", expression)
    return bool(names) and names <= served and not compares and not chooses


#: Words of the query language, and labels that expressions group by.
NOT_METRICS = {"label_replace", "group_left", "group_right", "histogram_quantile", "ceph_daemon", "pool_id", "ceph_version",
               "device_class", "count_values", "__rate_interval"}

CONFIG = """
global:
  scrape_interval: {seconds}s
  evaluation_interval: {seconds}s
rule_files: ['{rules}']
scrape_configs:
  - job_name: ceph
    honor_labels: true
    static_configs: [{{targets: ['127.0.0.1:{monitor}']}}]
  - job_name: shoal
    honor_labels: true
    static_configs: [{{targets: [{osds}]}}]
    metric_relabel_configs:
      - {{source_labels: [__name__], regex: 'shoal_.*|ceph_bluefs_.*', action: keep}}
"""
