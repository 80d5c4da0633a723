"""Balanced and localized reads of librados while OSDs die: each read shows the last write that was answered before it, or a later
one, and replicas serve a part of them.
"""
import ctypes
import random
import threading
import time

import replicated
from harness import ClusterTest, eventually
from kills import Killer

#: Flags of an operation (`librados.h`).
BALANCE_READS, LOCALIZE_READS = 1, 2
OBJECTS, SECONDS, LENGTH = 24, 20, 4096


class Reader:
    """Librados, for the operation flags of reads that python3-rados does not pass on."""

    def __init__(self, conf, pool):
        self.lib = ctypes.CDLL("librados.so.2")
        self.lib.rados_create_read_op.restype = ctypes.c_void_p
        self.cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("rados_create2", ctypes.byref(self.cluster), b"ceph", b"client.admin", ctypes.c_uint64(0))
        self.call("rados_conf_read_file", self.cluster, str(conf).encode())
        self.call("rados_connect", self.cluster)
        self.call("rados_ioctx_create", self.cluster, pool.encode(), ctypes.byref(self.io))

    def call(self, function, *args):
        code = getattr(self.lib, function)(*args)
        if code < 0:
            raise OSError(-code, function)
        return code

    def read(self, name, flags):
        buffer, count, result = ctypes.create_string_buffer(LENGTH), ctypes.c_size_t(), ctypes.c_int()
        op = ctypes.c_void_p(self.lib.rados_create_read_op())
        try:
            self.lib.rados_read_op_read(op, ctypes.c_uint64(0), ctypes.c_size_t(LENGTH), buffer, ctypes.byref(count), ctypes.byref(result))
            self.call("rados_read_op_operate", op, self.io, name.encode(), ctypes.c_int(flags))
        finally:
            self.lib.rados_release_read_op(op)
        if result.value < 0:
            raise OSError(-result.value, name)
        return buffer.raw[:count.value]

    def write(self, name, data):
        self.call("rados_write_full", self.io, name.encode(), data, ctypes.c_size_t(len(data)))

    def close(self):
        self.lib.rados_ioctx_destroy(self.io)
        self.lib.rados_shutdown(self.cluster)


class CopyReads(ClusterTest):
    OSDS = 3
    #: OSDs die.
    QUIET = False

    @classmethod
    def make_cluster(cls):
        return replicated.make_cluster(cls.OSDS)

    def counters(self, name):
        return [self.client.json("tell", f"osd.{osd}", "perf", "dump")["osd"][name] for osd in range(self.OSDS)]

    def make_pool(self, name):
        self.pool(name)
        self.client.ceph("osd", "pool", "set", name, "size", "3")
        replicated.Pgs(self.client).wait_clean()

    def test_replicas_serve_reads_of_objects_at_rest(self):
        self.make_pool("rest")
        reader = Reader(self.cluster.conf, "rest")
        for number in range(OBJECTS):
            reader.write(f"o{number}", b"%d" % number)
        for flags in (BALANCE_READS, LOCALIZE_READS):
            for number in range(10 * OBJECTS):
                self.assertEqual(reader.read(f"o{number % OBJECTS}", flags), b"%d" % (number % OBJECTS))
            with self.assertRaises(FileNotFoundError):
                reader.read("none", flags)
        reader.close()
        served = self.counters("replica_read_served")
        print(f"reads served by replicas: {served} of {self.counters('replica_read')}", flush=True)
        self.assertGreater(sum(served), 5 * OBJECTS)

    def test_balanced_reads_are_never_old_while_osds_die(self):
        self.make_pool("deaths")
        writer, ending = Reader(self.cluster.conf, "deaths"), threading.Event()
        answered, problems, reads = [0] * OBJECTS, [], [0, 0]
        for number in range(OBJECTS):
            writer.write(f"o{number}", b"0")

        def write():
            count = 0
            while not ending.is_set():
                number, count = random.randrange(OBJECTS), count + 1
                writer.write(f"o{number}", b"%d" % count)
                answered[number] = count

        def read(which, flags):
            reader = Reader(self.cluster.conf, "deaths")
            while not ending.is_set():
                number = random.randrange(OBJECTS)
                least = answered[number]
                seen = int(reader.read(f"o{number}", flags))
                reads[which] += 1
                if seen < least:
                    problems.append(f"o{number}: {seen}, and {least} was answered")
            reader.close()

        def guard(work, *args):
            try:
                work(*args)
            except Exception as problem:  # pylint: disable=broad-except
                problems.append(repr(problem))

        threads = [threading.Thread(target=guard, args=args) for args in
                   ((write,), (read, 0, BALANCE_READS), (read, 1, LOCALIZE_READS))]
        with Killer(self.cluster) as killer:
            for thread in threads:
                thread.start()
            time.sleep(SECONDS)
        # After the deaths replicas serve again.
        before = sum(self.counters("replica_read_served"))
        served = eventually(lambda: max(0, sum(self.counters("replica_read_served")) - before))
        ending.set()
        for thread in threads:
            thread.join()
        writer.close()
        print(f"{max(answered)} writes, {reads} reads, {served} by replicas after deaths of OSDs {killer.deaths}", flush=True)
        self.assertEqual(problems, [])
        self.assertTrue(killer.deaths)
