"""Peers that mean harm or talk nonsense: a bounded buffer, a deadline, one log line, and everyone else is served."""
import os
import resource
import socket
import struct
import time

from harness import Client, ClusterTest, Path, eventually, run

BANNER = b"ceph v2\n" + struct.pack("<H", 16) + struct.pack("<QQ", 3, 0)


def rss_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])


class Hostile(ClusterTest):
    QUIET = False

    def ports(self):
        return {"mon.a": self.cluster.port, "osd.0": self.cluster.port + 10}

    def still_works(self):
        pool = self.pool("calm")
        self.client.rados("-p", pool, "put", "o", "-", stdin=b"data")
        self.assertEqual(self.client.rados("-p", pool, "get", "o", "-").out, b"data")

    def closes(self, port, sent, within=30):
        """True when the daemon ends the connection by itself."""
        with socket.create_connection(("127.0.0.1", port), timeout=within) as s:
            try:
                s.sendall(sent)
                while s.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass
            except socket.timeout:
                return False
            return True

    def test_garbage_and_lies_about_length(self):
        lies = {
            "noise": os.urandom(100_000),
            "v1 banner": b"ceph v027" + bytes(300),
            "banner with a huge payload": b"ceph v2\n" + struct.pack("<H", 65535) + bytes(65535),
            "frame of noise": BANNER + os.urandom(4096),
            "frame of four huge segments": BANNER + bytes([1, 4]) + struct.pack("<IH", 0xFFFFFFFF, 8) * 4 + bytes(8),
        }
        for daemon, port in self.ports().items():
            pid = self.cluster.pid(daemon)
            before = rss_kib(pid)
            for name, sent in lies.items():
                with self.subTest(daemon=daemon, sent=name):
                    self.assertTrue(self.closes(port, sent))
            self.assertLess(rss_kib(pid) - before, 20_000)
        self.still_works()

    def test_silence_and_half_a_handshake_meet_a_deadline(self):
        for daemon, port in self.ports().items():
            for sent in (b"", BANNER[:9], BANNER):
                with self.subTest(daemon=daemon, sent=len(sent)):
                    self.assertTrue(self.closes(port, sent, within=40))
        self.still_works()

    def test_half_open_connections_by_the_thousand(self):
        count = 10_000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < count + 200:
            self.skipTest(f"this process may open only {hard} files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        open_sockets = []
        try:
            for index in range(count):
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", list(self.ports().values())[index % 2]))
                open_sockets.append(s)
            self.still_works()
        finally:
            for s in open_sockets:
                s.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.still_works()

    def test_a_wrong_key_is_denied_and_costs_one_line(self):
        key = run(["ceph-authtool", "--gen-print-key"]).text.strip()
        keyring = self.cluster.dir / "wrong.keyring"
        keyring.write_text(f"[client.admin]\n\tkey = {key}\n")
        before = len(self.cluster.log("mon.a").splitlines())
        denied = self.client.ceph("-s", "--keyring", keyring, check=False)
        self.assertNotEqual(denied.code, 0)
        self.assertRegex(denied.errors, "denied|Permission|PermissionError")
        self.assertNotIn(key, self.cluster.log("mon.a"))
        self.assertLess(len(self.cluster.log("mon.a").splitlines()) - before, 20)
        unknown = Client(self.cluster, name="client.nobody").ceph("-s", "--keyring", keyring, check=False)
        self.assertNotEqual(unknown.code, 0)
        self.still_works()
