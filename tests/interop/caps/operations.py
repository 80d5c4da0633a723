"""Every operation tried as every client: prints the errno that each combination of operation and capabilities gets.

    operations.py CONF < {"CLIENT": {"key": KEY}, ...}  > {"CLIENT": {"OPERATION": ERRNO, ...}, ...}

0 is success; any errno but EPERM (1) means that the capability let the operation through. The pools `caps-a` and
`caps-b` must be there as `prepare` in test_caps.py makes them. Runs with any release's python3-rados, on any cluster.
"""
import json
import sys
import threading

import rados

PATIENCE_SECONDS = 20


def in_pool(pool, namespace=None, key=None):
    """Decorates an operation on an open pool."""

    def wrap(f):
        def run(cluster):
            with cluster.open_ioctx(pool) as io:
                if namespace is not None:
                    io.set_namespace(namespace)
                if key is not None:
                    io.set_locator_key(key)
                f(io)

        return run

    return wrap


def on_a(f):
    return in_pool("caps-a")(f)


def omap_get(io):
    with rados.ReadOpCtx() as op:
        values, _ = io.get_omap_vals(op, "", "", 10)
        io.operate_read_op(op, "obj")
        list(values)


def omap_set(io):
    with rados.WriteOpCtx() as op:
        io.set_omap(op, ("k",), (b"v",))
        io.operate_write_op(op, "obj")


def write_and_call(io):
    """A plain write and a class call that writes, in one request."""
    with rados.WriteOpCtx() as op:
        op.append(b"x")
        op.execute("refcount", "get", b"\x01\x01\x06\0\0\0\x01\0\0\0t\0")
        io.operate_write_op(op, "obj")


def two_classes(io):
    with rados.WriteOpCtx() as op:
        op.execute("refcount", "get", b"\x01\x01\x06\0\0\0\x01\0\0\0t\0")
        op.execute("hello", "write_return_data", b"")
        io.operate_write_op(op, "obj")


def list_all(io):
    # A listing that is refused just ends.
    if not list(io.list_objects()):
        raise rados.PermissionError("nothing listed", errno=1)


def watch(io):
    io.watch("obj", lambda *_: None).close()


def create_and_remove(io):
    io.write_full("fleeting", b"x")
    io.remove_object("fleeting")


LOCK_INFO = b"\x01\x01\x08\0\0\0\x04\0\0\0none"

OPERATIONS = {
    "read": on_a(lambda io: io.read("obj")),
    "stat": on_a(lambda io: io.stat("obj")),
    "getxattr": on_a(lambda io: io.get_xattr("obj", "a")),
    "write": on_a(lambda io: io.write_full("obj", b"x")),
    "append": on_a(lambda io: io.append("obj", b"x")),
    "setxattr": on_a(lambda io: io.set_xattr("obj", "a", b"v")),
    "create+remove": on_a(create_and_remove),
    "omap-get": on_a(omap_get),
    "omap-set": on_a(omap_set),
    "list": on_a(list_all),
    "watch": on_a(watch),
    "notify": on_a(lambda io: io.notify("obj", "hi")),
    "call-read": on_a(lambda io: io.execute("obj", "lock", "get_info", LOCK_INFO)),
    "call-write": on_a(lambda io: io.execute("obj", "hello", "write_return_data", b"")),
    "call-read-write": on_a(lambda io: io.execute("obj", "refcount", "get", b"\x01\x01\x06\0\0\0\x01\0\0\0t\0")),
    "call-hello-read": on_a(lambda io: io.execute("obj", "hello", "say_hello", b"")),
    "call-lock-write": on_a(lambda io: io.lock_shared("obj", "l", "c", "t", flags=1)),
    "write+call": on_a(write_and_call),
    "two-classes": on_a(two_classes),
    "read@b": in_pool("caps-b")(lambda io: io.read("obj")),
    "write@b": in_pool("caps-b")(lambda io: io.write_full("obj", b"x")),
    "read@a/ns1": in_pool("caps-a", "ns1")(lambda io: io.read("obj")),
    "write@a/ns1": in_pool("caps-a", "ns1")(lambda io: io.write_full("obj", b"x")),
    "list@a/ns1": in_pool("caps-a", "ns1")(list_all),
    "read@a/ns2": in_pool("caps-a", "ns2")(lambda io: io.read("obj")),
    "read-prefixed": on_a(lambda io: io.read("pre_obj")),
    "write-prefixed": on_a(lambda io: io.write_full("pre_obj", b"x")),
    "read-by-key": in_pool("caps-a", key="pre_key")(lambda io: io.read("keyed")),
    "read-other-by-name": on_a(lambda io: io.read("keyed_prefix")),
}


def attempt(operation, cluster):
    """The errno, 0, or a word when it is neither."""
    try:
        operation(cluster)
        return 0
    except rados.Error as error:
        return abs(getattr(error, "errno", None) or 0) or repr(error)


def main():
    conf, out = sys.argv[1], {}
    for name, client in json.load(sys.stdin).items():
        with rados.Rados(conffile=conf, name=name, conf={"key": client["key"], "keyring": ""}) as cluster:
            out[name] = {label: patiently(attempt, f, cluster) for label, f in OPERATIONS.items()}
    json.dump(out, sys.stdout)


def patiently(f, *args):
    result = ["no answer"]

    def run():
        result[0] = f(*args)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return result[0]


main()
