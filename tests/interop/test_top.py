"""`shoal top` on shoal's cluster and on Ceph's: its figures are those of `ceph`, on text and in a terminal."""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

import stock_cluster
from harness import SHOAL, Client, ClusterTest, eventually, run

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def argv(conf, *args):
    return [SHOAL, "top", "--conf", str(conf), *map(str, args)]


def once(conf):
    return run(argv(conf, "--once")).text


def rows(text, first_word):
    """Rows of the panel whose headings begin with this word, as lists of words."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(first_word)) + 1
    panel = lines[start:]
    end = panel.index("") if "" in panel else len(panel)
    return [line.split() for line in panel[:end]]


def figures_agree(test, conf, client):
    """Waits until the text agrees with `ceph -s`, `ceph osd df` and `ceph df`: a cluster's figures settle. Returns the text."""
    return eventually(lambda: compared(test, conf, client), 60)


def compared(test, conf, client):
    text, status = once(conf), client.json("-s")
    osds, health = status["osdmap"], status["health"]
    head = re.search(r"osds (\d+): (\d+) up, (\d+) in", text)
    test.assertEqual(list(map(int, head.groups())), [osds["num_osds"], osds["num_up_osds"], osds["num_in_osds"]])
    test.assertIn(health["status"], text)
    test.assertIn(status["fsid"], text)
    states = {name: int(count) for count, name in re.findall(r"[█▓░] (\d+) ([a-z+_]+)", text)}
    test.assertEqual(states, {row["state_name"]: row["count"] for row in status["pgmap"]["pgs_by_state"]})
    for code, check in health["checks"].items():
        test.assertIn(f"{code}: {check['summary']['message']}"[:60], text)
    shown = {row[0]: row for row in rows(text, "NAME") if row[0].startswith("osd.")}
    nodes = client.json("osd", "df")["nodes"]
    test.assertEqual(set(shown), {node["name"] for node in nodes})
    for node in nodes:
        row = shown[node["name"]]
        test.assertEqual(row[1], f"{node['status']}/{'in' if node['reweight'] else 'out'}")
        used = next(n for n, word in enumerate(row) if word.endswith("%"))
        test.assertAlmostEqual(float(row[used].rstrip("%")), node["utilization"], delta=1)
        test.assertEqual(int(row[used + 2]), node["pgs"], "after the bar")
    test.assertEqual({row[0] for row in rows(text, "POOL")}, {pool["name"] for pool in client.json("df")["pools"]})
    return text


class Screen:
    """`shoal top` in a pseudo-terminal, and the text that its bytes have left on the screen."""

    #: A control sequence, or one character.
    PIECE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)
    UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*)?\Z")

    def __init__(self, test, conf, *args, lines=40, columns=100, env=None):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.grid = [[" "] * columns for _ in range(lines)]
        self.at, self.seen, self.decode = (0, 0), b"", codecs.getincrementaldecoder("utf-8")().decode
        self.rest = ""
        self.process = subprocess.Popen(argv(conf, "--interval", "0.5", *args), stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, env={**os.environ, "TERM": "xterm-256color", **(env or {})},
                                        start_new_session=True)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    def read(self, seconds=0.2):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                got = os.read(self.master, 65536)
            except OSError:
                break
            if not got:
                break
            self.seen += got
            self.draw(self.rest + self.decode(got))

    def draw(self, text):
        # The last sequence may not be whole yet.
        whole = self.UNFINISHED.sub("", text)
        self.rest = text[len(whole):]
        for numbers, kind, character in self.PIECE.findall(whole):
            row, column = self.at
            if kind == "H":
                row, column = [int(number or 1) - 1 for number in (numbers or "1;1").split(";")]
            elif kind == "J":
                self.grid = [[" "] * len(line) for line in self.grid]
            elif character >= " " and row < len(self.grid) and column < len(self.grid[row]):
                self.grid[row][column] = character
                column += 1
            self.at = (row, column)

    @property
    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.grid)

    def wait_for(self, *texts, seconds=30):
        """Until all of these stand on the screen."""
        end = time.monotonic() + seconds
        while not all(text in self.text for text in texts):
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"{texts} are not all on the screen:\n{self.text}")
            self.read()

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """The exit code, the bytes written, and whether the terminal is as it was."""
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.process.kill()
        code, restored = self.process.wait(), termios.tcgetattr(self.slave) == self.before
        self.read()
        os.close(self.master)
        os.close(self.slave)
        return code, self.seen, restored


def keys_work(test, conf):
    screen = Screen(test, conf)
    screen.wait_for("NAME", "osd.0", "OSDs by tree")
    test.assertIn(ENTER, screen.seen)
    test.assertNotIn("STORED", screen.text)
    screen.press(b"\t")
    screen.wait_for("STORED", "figures")
    screen.press(b"?")
    screen.wait_for(" Keys ", "Any key closes this help")
    screen.press(b"x")
    screen.press(b"p")
    screen.wait_for("PAUSED")
    test.assertNotIn("Any key closes", screen.text)
    screen.press(b"p")
    screen.press(b"\x1b[Z")
    for key, order in (("u", "usage"), ("l", "latency"), ("c", "cpu"), ("n", "name"), ("t", "tree")):
        screen.press(key.encode())
        screen.wait_for(f"OSDs by {order}", f"sort: {order}")
    test.assertNotIn("PAUSED", screen.text)
    screen.press(b"\x1b[B\x1b[A")
    screen.press(b"q")
    code, seen, restored = screen.end()
    test.assertEqual((code, restored), (0, True))
    test.assertTrue(seen.rindex(LEAVE) > seen.rindex(ENTER), "the screen was left")


class OnShoal(ClusterTest):
    OSDS = 3

    def test_figures_agree(self):
        self.pool("figures")
        self.client.rados("-p", "figures", "put", "object", "-", stdin=b"x" * 100000)
        text = figures_agree(self, self.cluster.conf, self.client)
        osds = [row for row in rows(text, "NAME") if row[0].startswith("osd.")]
        self.assertEqual(len(osds), 3)
        # The last column is processor time, which shoal's OSDs tell once they have run for some seconds.
        def cpu():
            last = [row[-1] for row in rows(once(self.cluster.conf), "NAME") if row[0].startswith("osd.")]
            return all(word.endswith("%") for word in last)
        eventually(cpu, 60)

    def test_clients_are_shown(self):
        pool = self.pool("load")
        load = subprocess.Popen([SHOAL, "bench", "--conf", str(self.cluster.conf), "--pool", pool, "--seconds", "30",
                                 "--work", "write", "--connections", "2", "--depth", "64"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            def clients():
                names = [row[0] for row in rows(once(self.cluster.conf), "CLIENT")]
                return len([name for name in names if name.startswith("client.")]) == 2
            eventually(clients, 25)
        finally:
            load.terminate()
            load.wait()

    def test_remedy_of_flag_and_down_osd(self):
        self.client.ceph("osd", "set", "noout")
        self.cluster.kill("osd.2")
        try:
            eventually(lambda: "OSD_DOWN" in self.client.json("health")["checks"], 30)
            text = figures_agree(self, self.cluster.conf, self.client)
            self.assertIn("→ ceph osd unset noout", text)
            self.assertRegex(text, r"→ ceph osd tree down +\(start osd\.2 on ")
            row = next(row for row in rows(text, "NAME") if row[0] == "osd.2")
            self.assertEqual((row[1], row[-1]), ("down/in", "-"))
        finally:
            self.cluster.up()
            self.client.ceph("osd", "unset", "noout")

    def test_keys(self):
        self.pool("figures")
        keys_work(self, self.cluster.conf)

    def test_signal_restores_the_terminal(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            screen = Screen(self, self.cluster.conf)
            screen.wait_for("NAME")
            screen.process.send_signal(number)
            code, seen, restored = screen.end()
            self.assertEqual((code, restored), (128 + number, True))
            self.assertIn(LEAVE, seen)

    def test_no_color(self):
        colour = re.compile(rb"\x1b\[[0-9;]*(?:3[1-7]|38;5;[1-9][0-9]*)[;m]")
        for env, wanted in (({"NO_COLOR": "1"}, False), ({}, True)):
            screen = Screen(self, self.cluster.conf, env=env)
            screen.wait_for("HEALTH_", "osd.0")
            screen.press(b"q")
            code, seen, _ = screen.end()
            self.assertEqual(code, 0)
            self.assertEqual(bool(colour.search(seen)), wanted, seen[-2000:])

    def test_small_terminal(self):
        screen = Screen(self, self.cluster.conf, lines=24, columns=80)
        screen.wait_for("HEALTH_", "pgs", "osd.0", "osd.1", "osd.2", "q quit")
        screen.press(b"\x03")
        self.assertEqual(screen.end()[0], 0)

    def test_text_without_a_terminal(self):
        text = run(argv(self.cluster.conf)).text
        self.assertIn("HEALTH_", text)
        self.assertNotIn("\x1b", text)

    def test_reader_without_caps_sees_the_rest(self):
        keyring = self.cluster.dir / "watcher.keyring"
        keyring.write_text(self.client.ceph("auth", "get-or-create", "client.watcher", "mon", "allow r", "mgr", "allow r").text)
        text = run(argv(self.cluster.conf, "--once", "--name", "client.watcher", "--keyring", keyring)).text
        self.assertIn("osd.0", text)
        self.assertEqual(rows(text, "CLIENT"), [["-"]])

    def test_unreachable_cluster_is_an_error(self):
        conf = self.cluster.dir / "nobody.conf"
        conf.write_text("[global]\nmon host = v2:127.0.0.1:9\nauth client required = none\n")
        done = run(argv(conf, "--once"), check=False)
        self.assertNotEqual(done.code, 0)
        self.assertIn("cannot be reached", done.errors)


@stock_cluster.require()
class OnStock(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = stock_cluster.StockCluster(osds=2)
        cls.addClassCleanup(cls.cluster.close)
        cls.client = Client(cls.cluster)
        cls.client.ceph("osd", "pool", "create", "figures", "8")
        cls.client.rados("-p", "figures", "put", "object", "-", stdin=b"x" * 100000)

    def test_figures_agree(self):
        text = figures_agree(self, self.cluster.conf, self.client)
        osds = [row for row in rows(text, "NAME") if row[0].startswith("osd.")]
        self.assertEqual([row[-1] for row in osds], ["-", "-"], "stock's OSDs do not tell their processor time")
        # Operations in flight are known: there are none now.
        self.assertNotEqual(rows(text, "CLIENT"), [["-"]])

    def test_remedy_of_a_flag(self):
        self.client.ceph("osd", "set", "noscrub")
        try:
            eventually(lambda: "→ ceph osd unset noscrub" in once(self.cluster.conf), 30)
        finally:
            self.client.ceph("osd", "unset", "noscrub")

    def test_keys(self):
        keys_work(self, self.cluster.conf)
