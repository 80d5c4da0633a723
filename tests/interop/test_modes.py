"""`ms_*_mode`: a cluster that takes one kind of connection refuses the other, and what OSDs tell each other is encrypted or not."""
import os
import socket
import struct
import unittest

from harness import Client, ClusterTest, eventually

ALL_PROTOCOLS = 3
# Beyond the limit for users (socket(7)); Python has no name for it.
SO_RCVBUFFORCE = 33

SETTINGS = ("ms_service_mode", "ms_mon_service_mode", "ms_cluster_mode", "ms_mon_cluster_mode")


class Wire:
    """All that passes over loopback from now on."""

    def __enter__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.bind(("lo", 0))
        self.socket.setblocking(False)
        return self

    def __exit__(self, *why):
        self.socket.close()

    def ports_told(self, secret):
        """Ports that packets with `secret` went to."""
        ports = set()
        while True:
            try:
                packet = self.socket.recv(1 << 17)
            except BlockingIOError:
                return ports
            if secret in packet:
                words = 4 * (packet[14] & 15)
                ports.add(struct.unpack_from(">H", packet, 14 + words + 2)[0])


class Modes:
    OSDS = 3

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster.down()
        with open(cls.cluster.conf, "a") as conf:
            conf.write("\n[global]\n" + "".join(f"{name} = {cls.MODE}\n" for name in SETTINGS))
        cls.cluster.up()

    def on(self, mode):
        return Client(self.cluster, options=[f"--ms_client_mode={mode}", f"--ms_mon_client_mode={mode}"])

    def test_only_this_mode_is_taken(self):
        pool = self.pool("modes")
        self.on(self.MODE).rados("-p", pool, "put", "o", "-", stdin=b"data")
        self.assertEqual(self.on(self.MODE).rados("-p", pool, "get", "o", "-").out, b"data")
        other = {"crc": "secure", "secure": "crc"}[self.MODE]
        self.assertNotEqual(self.on(other).rados("lspools", check=False, timeout=30).code, 0)
        # Monitors take this client, OSDs do not: its request waits.
        half = Client(self.cluster, options=[f"--ms_client_mode={other}", "--rados_osd_op_timeout=3"])
        self.assertNotEqual(half.rados("-p", pool, "get", "o", "-", check=False, timeout=30).code, 0)


    @unittest.skipUnless(os.geteuid() == 0, "listening to packets needs root")
    def test_links_between_osds_are_of_this_mode(self):
        self.client.ceph("osd", "pool", "create", "copies", 8)
        eventually(lambda: self.client.json("pg", "stat")["pg_summary"]["num_pg_by_state"][0]["name"] == "active+clean", 30)
        # The client tells the primary, and the primary both others.
        wanted = 3 if self.MODE == "crc" else 0
        # The kernel drops what others send meanwhile and the socket has no room for.
        for _ in range(5):
            secret = os.urandom(24)
            with Wire() as wire:
                self.on(self.MODE).rados("-p", "copies", "put", "o", "-", stdin=secret * 10)
                told = wire.ports_told(secret)
            if len(told) >= wanted:
                break
        self.assertEqual(len(told), wanted, told)


class Secure(Modes, ClusterTest):
    MODE = "secure"


class Crc(Modes, ClusterTest):
    MODE = "crc"
