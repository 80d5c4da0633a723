"""python3-rados: a program written against librados, on our cluster."""
import os
import threading

from harness import ClusterTest


class PythonRados(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import rados
        cls.rados = rados
        cls.pool(cls, "py")
        cls.r = rados.Rados(conffile=str(cls.cluster.conf), name="client.admin")
        cls.r.connect(timeout=30)
        cls.io = cls.r.open_ioctx("py")

    @classmethod
    def tearDownClass(cls):
        cls.io.close()
        cls.r.shutdown()
        super().tearDownClass()

    def test_cluster_facts(self):
        self.assertEqual(len(self.r.get_fsid()), 36)
        self.assertIn("kb", self.r.get_cluster_stats())
        self.assertIn("py", self.r.list_pools())

    def test_asynchronous_writes_and_reads(self):
        blobs = {f"aio{i}": os.urandom(1000 + i) for i in range(200)}
        writes = [self.io.aio_write_full(name, data) for name, data in blobs.items()]
        for write in writes:
            write.wait_for_complete_and_cb()
            self.assertEqual(write.get_return_value(), 0)
        for name, data in blobs.items():
            self.assertEqual(self.io.read(name, 5000), data)
        listed = {o.key for o in self.io.list_objects()}
        self.assertLessEqual(set(blobs), listed)

    def test_operation_lists_are_all_or_nothing(self):
        with self.rados.WriteOpCtx() as op:
            op.new(self.rados.LIBRADOS_CREATE_EXCLUSIVE)
            op.write_full(b"body")
            self.io.set_omap(op, ("a", "b"), (b"1", b"2"))
            self.io.operate_write_op(op, "compound")
        with self.rados.WriteOpCtx() as op:
            op.write_full(b"changed")
            op.new(self.rados.LIBRADOS_CREATE_EXCLUSIVE)
            with self.assertRaises(self.rados.ObjectExists):
                self.io.operate_write_op(op, "compound")
        self.assertEqual(self.io.read("compound"), b"body")
        with self.rados.ReadOpCtx() as op:
            pairs, _ = self.io.get_omap_vals(op, "", "", 10)
            self.io.operate_read_op(op, "compound")
            self.assertEqual(dict(pairs), {"a": b"1", "b": b"2"})

    def test_object_class_call(self):
        self.io.write_full("hello", b"x")
        code, said = self.io.execute("hello", "hello", "say_hello", b"shoal")
        self.assertEqual(said, b"Hello, shoal!")

    def test_watch_hears_a_notify(self):
        self.io.write_full("bell", b"")
        heard, payloads = threading.Event(), []

        def on_notify(notify_id, notifier, watch_id, data):
            payloads.append(data)
            heard.set()
            return b"heard"

        with self.io.watch("bell", on_notify):
            self.assertTrue(self.io.notify("bell", "ding", 5000))
            self.assertTrue(heard.wait(10))
        self.assertEqual(payloads[0], b"ding")

    def test_errors_are_stocks(self):
        with self.assertRaises(self.rados.ObjectNotFound):
            self.io.read("nothing")
        with self.assertRaises(self.rados.ObjectNotFound):
            self.r.open_ioctx("no-such-pool")
        self.io.write_full("bare", b"")
        with self.assertRaises(self.rados.NoData):
            self.io.get_xattr("bare", "none")
