"""`ms_*_mode`: a cluster that takes one kind of connection refuses the other."""
from harness import Client, ClusterTest

SETTINGS = ("ms_service_mode", "ms_mon_service_mode", "ms_cluster_mode", "ms_mon_cluster_mode")


class Modes:
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


class Secure(Modes, ClusterTest):
    MODE = "secure"


class Crc(Modes, ClusterTest):
    MODE = "crc"
