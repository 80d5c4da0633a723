"""The lab's report, of a real run, in headless Chromium: nothing is fetched, nothing complained of, everything drawn."""
import os
import tempfile
import unittest
from pathlib import Path

import browser
from harness import SHOAL, ClusterTest, run

#: Every kind of chart: several depths, several numbers of clients and of PGs, seconds enough for a line.
MATRIX = """\
name: every kind of chart
iterations: 2
cool_down: 0
workloads:
  - { tool: shoal, op: randread, op_size: 4k, depth: [1, 8], time: 2, objects: 64, pg_num: 8 }
  - { tool: shoal, op: randread, op_size: 4k, depth: 8, clients: 2, time: 2, objects: 64, pg_num: 8 }
  - { tool: shoal, op: randread, op_size: 4k, depth: 8, time: 2, objects: 64, pg_num: 16 }
  - { tool: nothing, time: 1 }
"""

#: Of each chart: its title, and whether something with an extent was drawn in it, apart from grid and axes.
DRAWN = """[...document.querySelectorAll('figure')].map(figure => {
  const grey = c => !c || c === 'none' || ['#000000', '#888888'].includes(c.toLowerCase());
  const marks = [...figure.querySelectorAll('polyline, circle, rect, path')].filter(mark => {
    const box = mark.getBBox();
    const coloured = !grey(mark.getAttribute('stroke')) || !grey(mark.getAttribute('fill'));
    return coloured && box.width + box.height > 2;
  });
  return [figure.querySelector('figcaption').textContent, marks.length];
})"""

#: Of the worst text on the page: the contrast between its colour and the paper's, as WCAG counts it.
CONTRAST = """(() => {
  const light = c => {
    const [r, g, b] = c.match(/[0-9.]+/g).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const of = e => {
    const style = getComputedStyle(e), ink = light(e.closest('svg') ? style.fill : style.color);
    return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  };
  return Math.min(...[...document.querySelectorAll('p, td, th, a, figcaption, svg text, pre')].map(of));
})()"""

#: Pairs of texts in one chart that lie on each other.
OVERLAPS = """[...document.querySelectorAll('figure')].flatMap(figure => {
  const texts = [...figure.querySelectorAll('svg text')].filter(t => t.textContent.trim());
  const boxes = texts.map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
  return boxes.flatMap(([a, x], n) => boxes.slice(n + 1)
    .filter(([, y]) => x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 3 && y.top < x.bottom - 3)
    .map(([b]) => figure.querySelector('figcaption').textContent + ': ' + a + ' / ' + b));
})"""


@unittest.skipUnless(browser.PROGRAM, "chromium is not installed")
class Report(ClusterTest):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)
        # For a person who wants to look: SHOAL_SHOTS keeps the pictures.
        self.shots = Path(os.environ.get("SHOAL_SHOTS", self.dir))
        self.shots.mkdir(exist_ok=True)

    def test_the_page_is_whole_on_screen_and_on_paper(self):
        matrix, page, results = self.dir / "matrix.yaml", self.dir / "page.html", ["--results", self.dir / "results"]
        matrix.write_text(MATRIX)
        run([SHOAL, "lab", "run", matrix, "--conf", self.cluster.conf, *results])
        run([SHOAL, "lab", "report", "--out", page, *results])
        chromium = browser.Browser()
        self.addCleanup(chromium.close)
        for name, size, scheme in [("laptop", (1280, 800), "light"), ("dark", (1280, 800), "dark"),
                                   ("phone", (390, 800), "light")]:
            with self.subTest(name):
                chromium.open(page, *size, scheme=scheme)
                self.assertEqual(chromium.requested(), ([], [page.resolve().as_uri()]), "it asks for nothing but itself")
                self.assertEqual(chromium.complaints(), [])
                drawn = chromium.ask(DRAWN)
                titles = " ".join(title for title, _ in drawn)
                for kind in ("Rate:", "Latency:", "Rate against depth", "Latency against depth", "Scaling with clients",
                             "Efficiency with PGs", "Processor time", "Rate over time", "Histogram", "Distribution"):
                    self.assertIn(kind, titles)
                self.assertEqual([title for title, marks in drawn if marks == 0], [], "charts without a mark")
                self.assertEqual(chromium.ask(OVERLAPS), [], "texts on each other")
                self.assertGreaterEqual(chromium.ask(CONTRAST), 4.5)
                dark = chromium.ask("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
                self.assertEqual(dark, scheme == "dark")
                wide = chromium.ask("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, size[0], "the page scrolls sideways")
                chromium.screenshot(self.shots / f"{name}.png")
        downloads = chromium.ask("[...document.querySelectorAll('a[download]')].map(a => [a.download, a.href.length])")
        self.assertIn("points.csv", [name for name, _ in downloads])
        self.assertGreaterEqual(sum(name.endswith(".svg") for name, _ in downloads), 10)
        chromium.open(page, scheme="dark", media="print")
        self.assertEqual(chromium.ask("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)",
                         "paper is white, whatever the screen is")
        chromium.pdf(self.shots / "print.pdf")
        pdf = (self.shots / "print.pdf").read_bytes()
        self.assertTrue(pdf.startswith(b"%PDF-") and len(pdf) > 20_000)
