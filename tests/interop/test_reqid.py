"""An operation whose reply is lost is sent again and must not be carried out again.

A proxy stands where the OSD says it is (`public addr`), the OSD listens elsewhere (`bind addr`). The proxy lets a
request through, waits until the OSD has had time to commit it, and cuts the connection instead of passing the reply
on. The client connects anew and repeats the request. Appends show a repetition: the object would be too long.
"""
import os
import select
import signal
import socket
import threading
import time

from harness import ClusterTest, eventually, is_alive


class Proxy:
    """Passes bytes between whoever connects and the OSD. `cut_after(seconds)`: once, hold replies back from the next
    request on for so long, then cut every connection."""

    def __init__(self, listen, target):
        self.target, self.hold, self.cuts = target, None, 0
        self.listener = socket.create_server(("127.0.0.1", listen), reuse_port=True)
        self.closing = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closing:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            client.close()
            return
        cut_at = None
        try:
            while cut_at is None or time.monotonic() < cut_at:
                readers = [client] if cut_at else [client, server]
                ready, _, _ = select.select(readers, [], [], 0.05)
                for s in ready:
                    data = s.recv(1 << 18)
                    if not data:
                        return
                    if s is client:
                        server.sendall(data)
                        # A keepalive is small; an operation is not.
                        if self.hold and len(data) > 150:
                            cut_at, self.hold = time.monotonic() + self.hold, None
                    else:
                        client.sendall(data)
            self.cuts += 1
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def cut_after(self, seconds):
        self.hold = seconds

    def close(self):
        self.closing = True
        self.listener.close()


class Reqid(ClusterTest):
    QUIET = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        port = cls.cluster.port
        cls.cluster.down()
        conf = cls.cluster.conf.read_text()
        cls.cluster.conf.write_text(conf.replace("[osd.0]\n", f"[osd.0]\nbind addr = 127.0.0.1:{port + 30}\n"))
        cls.proxy = Proxy(port + 10, port + 30)
        cls.cluster.up()
        import rados
        cls.pool(cls, "once")
        cls.r = rados.Rados(conffile=str(cls.cluster.conf), name="client.admin")
        cls.r.connect(timeout=30)
        cls.io = cls.r.open_ioctx("once")

    @classmethod
    def tearDownClass(cls):
        cls.io.close()
        cls.r.shutdown()
        cls.proxy.close()
        super().tearDownClass()

    def append_cut(self, name, data, meanwhile=lambda: None):
        cuts = self.proxy.cuts
        self.proxy.cut_after(0.5)
        append = self.io.aio_append(name, data)
        eventually(lambda: self.proxy.cuts > cuts, 10, 0.02)
        meanwhile()
        append.wait_for_complete_and_cb()
        self.assertEqual(append.get_return_value(), 0)

    def test_a_repeated_append_is_carried_out_once(self):
        want = b""
        for index in range(10):
            data = b"%05d" % index + os.urandom(200)
            self.append_cut("once", data)
            want += data
        self.assertEqual(self.proxy.cuts >= 10, True)
        self.assertEqual(self.io.read("once", 1 << 20), want)

    def test_a_repetition_after_a_restart_of_the_osd_is_known_too(self):
        self.io.write_full("restarted", b"")

        def restart():
            os.kill(self.cluster.pid("osd.0"), signal.SIGTERM)
            eventually(lambda: not alive(self.cluster), 30)
            self.cluster.up()

        self.append_cut("restarted", b"x" * 300, restart)
        self.assertEqual(self.io.read("restarted", 1000), b"x" * 300)


def alive(cluster):
    try:
        return is_alive(cluster.pid("osd.0"))
    except (OSError, ValueError):
        return False
