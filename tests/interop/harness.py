"""Shared parts of the interop suites: a cluster of shoal's, a stock client, and waits with a limit.

A `Cluster` lives in a temporary directory on its own ports. A `Client` is one release's tools: those on PATH, or
those in a folder that is entered with chroot (another release cannot run on this system's libraries).
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid
from pathlib import Path

import loaded_ceph
import shell

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHOAL = os.environ.get("SHOAL", str(ROOT / "target/release/shoal"))
LONG = False
#: With `--stock`, the suites that can run on stock Ceph's daemons: it shows that they ask for what stock does.
STOCK = False
#: What `--store` says: every cluster that does not choose for itself has its objects there.
STORE = None
#: What `--mons` says: every cluster that does not choose for itself has so many monitors.
MONS = 1
SECONDS_MAX = 120
#: The longest test of the gate takes some 160 s here, and twice as long beside builds.
TEST_SECONDS_MAX, LONG_FACTOR = 420, 24
PORTS_PER_CLUSTER = 40
CEPH = loaded_ceph.Loaded()
_next_port = int(os.environ.get("SHOAL_TEST_PORT", "24300"))


def free_port_base():
    """The first of a run of ports that nobody listens on."""
    global _next_port
    while True:
        base, _next_port = _next_port, _next_port + PORTS_PER_CLUSTER
        try:
            for port in range(base, base + 20):
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue


class Failed(AssertionError):
    """A command that should have worked did not."""


class TookTooLong(Exception):
    """A test's time is over. Not a failed assertion: those are what `eventually` waits out."""


def test_seconds_max():
    return TEST_SECONDS_MAX * (LONG_FACTOR if LONG else 1)


def give_time(seconds=None):
    """Gives a test, its preparation or its clean-up the full time from now on, and half a minute for each step of the
    clean-up after that."""
    signal.setitimer(signal.ITIMER_REAL, seconds or test_seconds_max(), 30)


class Done:
    """The result of a command: exit code, standard output, standard error."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def errors(self):
        return self.err.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.out)


def run(argv, stdin=b"", check=True, env=None, timeout=SECONDS_MAX):
    """Runs a command. Its output goes to files, since a pipe would keep us waiting for a grandchild that lives on; when its
    time is over the whole process group is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = None
        if argv[0] == "ceph":
            process = CEPH.start([str(arg) for arg in argv[1:]], env, given.fileno(), out.fileno(), err.fileno())
        if process is None:
            process = subprocess.Popen(argv, stdin=given, stdout=out, stderr=err, env=env, process_group=0)
        try:
            process.wait(timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        out.seek(0), err.seek(0)
        done = Done(process.returncode, out.read(), err.read())
    if check and done.code != 0:
        shown = " ".join(map(str, argv))
        raise Failed(f"{shown}\nexit code {done.code}\n{done.text[-2000:]}\n{done.errors[-4000:]}")
    return done


def ask_admin_socket(path, command, timeout=10):
    """A daemon's answer over its admin socket; `ValueError` where there is none. Waits ask again and again, and a `ceph daemon`
    each time would take more processor time than what it waits for."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(timeout)
            asked.connect(str(path))
            asked.sendall(json.dumps({"prefix": command, "format": "json"}).encode() + b"\0")
            answer = b""
            while more := asked.recv(1 << 16):
                answer += more
    except OSError as problem:
        raise ValueError(f"{path} does not answer: {problem}") from problem
    # The length comes first.
    return json.loads(answer[4:])


def eventually(what, seconds=30, every=0.2):
    """Calls `what` until it returns a true value or the time is over; an assertion error counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = what()
            if value:
                return value
            problem = None
        except (AssertionError, KeyError, IndexError, ValueError, subprocess.TimeoutExpired) as error:
            problem = error
        if time.monotonic() > deadline:
            raise Failed(f"did not become true within {seconds} s") from problem
        time.sleep(every)


class Daemons:
    """Signals for the daemons of a cluster directory. Each is named by its pid file, in `self.dir`."""

    def pid(self, name):
        return int((self.dir / f"{name}.pid").read_text())

    def is_running(self, name):
        try:
            return is_alive(self.pid(name))
        except (OSError, ValueError):
            return False

    def signal(self, name, number):
        os.kill(self.pid(name), number)

    def kill(self, name):
        """SIGKILL, and wait until the process is gone: its parent is init or this test, and a zombie is gone too."""
        self.end(name, signal.SIGKILL, 10)

    def stop_daemon(self, name):
        """SIGTERM, and wait until the process is gone."""
        self.end(name, signal.SIGTERM, 60)

    def end(self, name, number, seconds):
        pid = self.pid(name)
        os.kill(pid, number)
        eventually(lambda: not is_alive(pid), seconds, 0.02)

    def pause(self, name):
        self.signal(name, signal.SIGSTOP)

    def resume(self, name):
        self.signal(name, signal.SIGCONT)


class Cluster(Daemons):
    """A cluster of ours for one suite. `options` go to `shoal up`."""

    def __init__(self, *options, osds=1):
        self.dir = Path(tempfile.mkdtemp(prefix="shoal-interop-"))
        self.port = free_port_base()
        if STORE and "--store" not in options:
            options = (*options, "--store", STORE)
        if MONS > 1 and "--mons" not in options:
            options = (*options, "--mons", str(MONS))
        count = int(options[options.index("--mons") + 1]) if "--mons" in options else 1
        #: Names of the monitors.
        self.monitors = list("abcde")[:count]
        if "mem" not in options and "--size" not in options:
            options = (*options, "--size", "4G")
        self.options = ["--osds", str(osds), "--port", str(self.port), *options]
        # What a cluster was made with is not said again.
        self.again = ["--osds", str(osds), "--port", str(self.port)]
        self.osds = osds
        self.conf = self.dir / "ceph.conf"
        try:
            self.up()
        except Exception:
            self.show_logs()
            self.close()
            raise

    def up(self):
        options = self.again if self.conf.exists() else self.options
        self.said = run([SHOAL, "up", "--dir", self.dir, *options]).text

    def down(self):
        run([SHOAL, "down", "--dir", self.dir])

    def start_daemon(self, name):
        """Starts one daemon alone, as an init system does, and waits until its admin socket answers."""
        kind, number = name.split(".")
        with open(self.dir / f"{name}.log", "ab") as log:
            subprocess.run([*self.prefix_of(name), "setsid", "--fork", SHOAL, kind, "--conf", self.conf, "--id", number],
                           check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(lambda: self.is_running(name) and ask_admin_socket(self.dir / f"{name}.asok", "version"), 30)

    def prefix_of(self, _name):
        """The command that runs a daemon's command."""
        return []

    def add_osd(self):
        """Adds an OSD to the cluster and starts it. Returns its number. PGs that are not clean yet are no failure."""
        number, self.osds = self.osds, self.osds + 1
        self.again[1] = str(self.osds)
        run([SHOAL, "up", "--dir", self.dir, *self.again, "--timeout", "5"], check=False)
        eventually(lambda: self.is_running(f"osd.{number}"), 10)
        return number

    def replace_osd(self, number):
        """The disk of a down OSD is lost: an empty one takes its place under the same number, as an operator does it with
        `ceph osd destroy` and `ceph osd new`."""
        name, made, client = f"osd.{number}", str(uuid.uuid4()), Client(self)
        shutil.rmtree(self.dir / name)
        client.ceph("osd", "destroy", number, "--yes-i-really-mean-it")
        section, conf = None, []
        for line in self.conf.read_text().splitlines():
            section = line.strip(" []") if line.startswith("[") else section
            is_identity = section == name and re.match(r"\s*osd[ _]uuid\s*=", line)
            conf.append(f"osd uuid = {made}" if is_identity else line)
        self.conf.write_text("\n".join(conf) + "\n")
        secret = client.tool("ceph-authtool", self.dir / "keyring", "-n", name, "--print-key").text.strip()
        client.ceph("osd", "new", made, number, "-i", "-", stdin=json.dumps({"cephx_secret": secret}).encode())
        run([SHOAL, "osd", "--conf", self.conf, "--id", str(number), "--mkfs"])
        self.start_daemon(name)

    def log(self, name):
        path = self.dir / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def show_logs(self):
        for path in sorted(self.dir.glob("*.log")):
            print(f"--- {path.name}")
            print("\n".join(path.read_text(errors="replace").splitlines()[-25:]))

    def unexpected(self):
        """Log lines that no test of a healthy cluster should cause. First those that say where and, in the line that follows, why
        there was a panic: a report may show the beginning alone."""
        panics, others = [], []
        for path in sorted(self.dir.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()
            for line, following in zip(lines, [*lines[1:], ""]):
                if "panicked at" in line:
                    panics.append(f"{path.name}: {line} {following}")
                elif " ERROR " in line or "panic" in line:
                    others.append(f"{path.name}: {line}")
        return panics + others

    def close(self):
        close_shells(self)
        run([SHOAL, "down", "--dir", self.dir, "--grace", "10"], check=False)
        if not os.environ.get("SHOAL_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)


def is_alive(pid):
    """A process whose first thread has ended lives as long as another of its threads does."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def clean_environment():
    """The tools find settings in CEPH_ARGS and the like; ours come from the command line alone."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CEPH_")}


def close_shells(cluster):
    for one in cluster.__dict__.pop("shells", {}).values():
        one.close()


class Client:
    """One release's command line tools on one cluster. `options` are Ceph options: `--ms_client_mode=secure`."""

    def __init__(self, cluster, root=None, options=(), name="client.admin"):
        self.cluster, self.root, self.options, self.name = cluster, root, list(options), name
        self.enter = ["chroot", root] if root else []
        if root:
            inside = Path(f"{root}{cluster.dir}")
            inside.mkdir(parents=True, exist_ok=True)
            for file in ("ceph.conf", "keyring"):
                shutil.copy(cluster.dir / file, inside / file)

    def tool(self, tool, *args, **how):
        """A tool of this release that asks no cluster."""
        return run([*self.enter, tool, *map(str, args)], **how)

    def argv(self, tool, *args):
        return [*self.enter, tool, "-c", str(self.cluster.conf), "-n", self.name, *self.options, *map(str, args)]

    def run(self, tool, *args, stdin=b"", check=True, timeout=SECONDS_MAX):
        return run(self.argv(tool, *args), stdin, check, clean_environment(), timeout)

    def ceph(self, *args, **how):
        return self.run("ceph", "--connect-timeout", "30", *args, **how)

    def json(self, *args, **how):
        if not how and shell.is_repeated(args):
            try:
                return self.shell().ask(args)
            except shell.NoAnswer:
                self.close_shell()
        return self.ceph(*args, "-f", "json", **how).json

    def shell(self):
        """A `ceph` that the clients of this cluster with these options share."""
        shells, argv = self.cluster.__dict__.setdefault("shells", {}), self.shell_argv()
        if argv not in shells:
            shells[argv] = shell.Shell(argv, clean_environment())
        return shells[argv]

    def shell_argv(self):
        return tuple(self.argv("ceph", "--connect-timeout", "10"))

    def close_shell(self):
        one = self.cluster.__dict__.get("shells", {}).pop(self.shell_argv(), None)
        if one:
            one.close()

    def mon_status(self, name):
        """A monitor's word on itself, over its admin socket."""
        return ask_admin_socket(self.cluster.dir / f"mon.{name}.asok", "mon_status")

    def rados(self, *args, **how):
        return self.run("rados", *args, **how)

    def spawn(self, tool, *args):
        # An end of input would tell `rados watch` to stop.
        return subprocess.Popen(self.argv(tool, *args), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)


def programs_root(release):
    """The folder with Ceph's own test programs of a release, or None."""
    root = {"18.2": ROOT / "target/tools/ceph-18.2", "20.2": os.environ.get("SHOAL_CEPH20")}[release]
    return str(root) if root and Path(root, "usr/bin/ceph_test_rados").exists() else None


def no_programs(release):
    return {"18.2": "tests/ceph-programs did not unpack Ceph's test programs",
            "20.2": "SHOAL_CEPH20 names no folder with Ceph 20.2"}[release]


def program_of(root, name):
    """The command that runs a program of the release in the folder `root`, or of the one on PATH. It runs with the libraries
    of its release, which needs no chroot."""
    if not root:
        return [name]
    loader = next(Path(root).glob("usr/lib/*/ld-linux*.so.*"))
    return [str(loader), "--library-path", f"{loader.parent}:{loader.parent}/ceph", str(Path(root, "usr/bin", name))]


def releases():
    """`(label, root)` of each release whose clients are here."""
    found = [("path", None)]
    for label in ("18", "20"):
        root = os.environ.get(f"SHOAL_CEPH{label}")
        if root and Path(root, "usr/bin/rados").exists():
            found.append((label, root))
    return found


class ClusterTest(unittest.TestCase):
    """A suite on one cluster, started once. Subclasses say how in `OPTIONS` and `OSDS`."""

    OPTIONS = ()
    OSDS = 1
    #: Log lines with ERROR fail the suite, unless it provokes them.
    QUIET = True

    @classmethod
    def make_cluster(cls):
        if STOCK:
            raise unittest.SkipTest("it needs a cluster of shoal's")
        return Cluster(*cls.OPTIONS, osds=cls.OSDS)

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.make_cluster()
        # Also when a subclass's own preparations fail.
        cls.addClassCleanup(cls.cluster.close)
        cls.client = Client(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        unexpected = cls.cluster.unexpected() if cls.QUIET else []
        if unexpected:
            raise Failed("unexpected lines in the logs:\n" + "\n".join(unexpected[:20]))

    def pool(self, name, pgs=8):
        """A pool of this name, made if it is not there."""
        if name not in self.client.json("osd", "pool", "ls"):
            self.client.ceph("osd", "pool", "create", name, pgs, pgs, "replicated", "--size", "1",
                             "--yes-i-really-mean-it", check=False)
            if name not in self.client.json("osd", "pool", "ls"):
                self.client.ceph("osd", "pool", "create", name, pgs)
        return name


class CephPrograms:
    """Beside `ClusterTest`: cases that run Ceph's own test programs of one release, from their folder."""

    RELEASE = None

    @classmethod
    def setUpClass(cls):
        cls.root = programs_root(cls.RELEASE)
        if not cls.root:
            raise unittest.SkipTest(no_programs(cls.RELEASE))
        super().setUpClass()
        # Each program removes the pools that it makes.
        cls.client.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
        # Two cases change a pool to 11 PGs: from 8 that is a split. From the default of 32 it would be a merge.
        cls.client.ceph("config", "set", "mon", "osd_pool_default_pg_num", "8")


def long_only(test):
    return unittest.skipUnless(LONG, "only with --long")(test)
