"""Names that are not text: each is used as an object, namespace, locator key, attribute, omap key, lock and watch payload.

    operations.py CONF POOL  > a line per operation: `WHAT NAME<TAB>OUTCOME`

Uses librados' C interface through ctypes, because python3-rados takes names as text. Bytes are shown as Python shows
them. Runs with any release's librados, on any cluster; the pool must be there and empty.
"""
import ctypes
import sys

#: librados takes most names as C strings. Omap keys have lengths, so they may hold a NUL.
NAMES = [b"\xff", b"\xff\xfe\xfd", b"\xc3\x28", b"a\xe2\x82", b"line\nbreak", b"tab\tspace ", b"\x01", b"\x7f",
         b"per%cent:colon/slash", "na\u00efve".encode(), b"'quo\"te\\", b"\x80" * 100]
KEYS = NAMES + [b"\0", b"a\0b", b"a\0", b"\0\xff"]
LIST_END = -2
ALL_NAMESPACES = b"\x01"

lib = ctypes.CDLL("librados.so.2")
size_t, u64, void_p, char_p = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p
for function, arguments in {
    "rados_create": [void_p, char_p], "rados_conf_read_file": [void_p, char_p], "rados_connect": [void_p],
    "rados_ioctx_create": [void_p, char_p, void_p], "rados_ioctx_set_namespace": [void_p, char_p],
    "rados_ioctx_locator_set_key": [void_p, char_p], "rados_write_full": [void_p, char_p, char_p, size_t],
    "rados_read": [void_p, char_p, void_p, size_t, u64], "rados_stat": [void_p, char_p, void_p, void_p],
    "rados_remove": [void_p, char_p], "rados_setxattr": [void_p, char_p, char_p, char_p, size_t],
    "rados_getxattr": [void_p, char_p, char_p, void_p, size_t], "rados_rmxattr": [void_p, char_p, char_p],
    "rados_getxattrs": [void_p, char_p, void_p], "rados_getxattrs_next": [void_p] * 4,
    "rados_nobjects_list_open": [void_p, void_p], "rados_nobjects_list_next": [void_p] * 4,
    "rados_write_op_omap_set2": [void_p, void_p, void_p, void_p, void_p, size_t],
    "rados_write_op_omap_rm_keys2": [void_p, void_p, void_p, size_t],
    "rados_write_op_operate": [void_p, void_p, char_p, void_p, ctypes.c_int],
    "rados_read_op_omap_get_vals2": [void_p, char_p, char_p, u64, void_p, void_p, void_p],
    "rados_read_op_operate": [void_p, void_p, char_p, ctypes.c_int], "rados_omap_get_next2": [void_p] * 5,
    "rados_read_op_omap_get_vals_by_keys2": [void_p, void_p, size_t, void_p, void_p, void_p],
    "rados_lock_exclusive": [void_p, char_p, char_p, char_p, char_p, void_p, ctypes.c_uint8],
    "rados_unlock": [void_p, char_p, char_p, char_p],
    "rados_list_lockers": [void_p, char_p, char_p, void_p, void_p, void_p, void_p, void_p, void_p, void_p, void_p],
    "rados_create_write_op": [], "rados_create_read_op": [], "rados_exec":
    [void_p, char_p, char_p, char_p, char_p, size_t, void_p, size_t],
}.items():
    getattr(lib, function).argtypes = arguments
lib.rados_create_write_op.restype = lib.rados_create_read_op.restype = void_p


def say(what, name, outcome):
    print(f"{what} {name!r}\t{outcome}", flush=True)


def connect(conf, pool):
    cluster, io = void_p(), void_p()
    for code in [lib.rados_create(ctypes.byref(cluster), b"admin"), lib.rados_conf_read_file(cluster, conf.encode()),
                 lib.rados_connect(cluster), lib.rados_ioctx_create(cluster, pool.encode(), ctypes.byref(io))]:
        if code != 0:
            sys.exit(f"no connection: {code}")
    return cluster, io


def read(io, name):
    out = ctypes.create_string_buffer(64)
    code = lib.rados_read(io, name, out, len(out), 0)
    return out.raw[:code] if code >= 0 else code


def stat(io, name):
    size, mtime = u64(), ctypes.c_long()
    code = lib.rados_stat(io, name, ctypes.byref(size), ctypes.byref(mtime))
    return size.value if code == 0 else code


def listed(io, namespace):
    """`(namespace, key, name)` of every object."""
    lib.rados_ioctx_set_namespace(io, namespace)
    cursor, out = void_p(), []
    lib.rados_nobjects_list_open(io, ctypes.byref(cursor))
    name, key, space = char_p(), char_p(), char_p()
    while True:
        code = lib.rados_nobjects_list_next(cursor, ctypes.byref(name), ctypes.byref(key), ctypes.byref(space))
        if code != 0:
            break
        out.append((space.value, key.value, name.value))
    lib.rados_nobjects_list_close(cursor)
    lib.rados_ioctx_set_namespace(io, b"")
    return sorted(out, key=repr) if code == LIST_END else code


def attrs(io, name):
    cursor, out = void_p(), {}
    code = lib.rados_getxattrs(io, name, ctypes.byref(cursor))
    if code != 0:
        return code
    key, value, length = char_p(), void_p(), size_t()
    while lib.rados_getxattrs_next(cursor, ctypes.byref(key), ctypes.byref(value), ctypes.byref(length)) == 0 and key.value:
        out[key.value] = ctypes.string_at(value, length.value)
    lib.rados_getxattrs_end(cursor)
    return sorted(out.items())


def strings(values):
    """As C has them: pointers and lengths."""
    return (char_p * len(values))(*values), (size_t * len(values))(*map(len, values))


def write(io, name, fill):
    op = void_p(lib.rados_create_write_op())
    fill(op)
    code = lib.rados_write_op_operate(op, io, name, None, 0)
    lib.rados_release_write_op(op)
    return code


def omap(io, name, ask):
    """The result of a listing by `ask(op, cursor, result)`."""
    op, cursor, result = void_p(lib.rados_create_read_op()), void_p(), ctypes.c_int()
    ask(op, ctypes.byref(cursor), ctypes.byref(result))
    code = lib.rados_read_op_operate(op, io, name, 0)
    out = []
    if code == 0 and result.value == 0:
        key, value, key_len, value_len = void_p(), void_p(), size_t(), size_t()
        while True:
            lib.rados_omap_get_next2(cursor, *map(ctypes.byref, (key, value, key_len, value_len)))
            if not value.value and not key.value:
                break
            out.append((ctypes.string_at(key, key_len.value), ctypes.string_at(value, value_len.value)))
        lib.rados_omap_get_end(cursor)
    lib.rados_release_read_op(op)
    return out if code == 0 else code


def objects(io):
    for name in NAMES:
        say("write", name, lib.rados_write_full(io, name, b"data", 4))
        say("read", name, read(io, name))
        say("stat", name, stat(io, name))
    for name in NAMES:
        lib.rados_ioctx_set_namespace(io, name)
        say("write in namespace", name, lib.rados_write_full(io, b"inside", name, len(name)))
        say("read in namespace", name, read(io, b"inside"))
        say("list namespace", name, listed(io, name) if name != ALL_NAMESPACES else "all of them, as every client knows")
    for name in NAMES:
        lib.rados_ioctx_locator_set_key(io, name)
        say("write with key", name, lib.rados_write_full(io, b"keyed", b"k", 1))
        say("stat with key", name, stat(io, b"keyed"))
        lib.rados_ioctx_locator_set_key(io, None)
    for found in listed(io, ALL_NAMESPACES):
        say("listed", found, "")


def attributes(io):
    lib.rados_write_full(io, b"attrs", b"", 0)
    for name in NAMES:
        say("setxattr", name, lib.rados_setxattr(io, b"attrs", name, name, len(name)))
        out = ctypes.create_string_buffer(256)
        say("getxattr", name, lib.rados_getxattr(io, b"attrs", name, out, len(out)))
    say("getxattrs", b"attrs", attrs(io, b"attrs"))
    for name in NAMES[::2]:
        say("rmxattr", name, lib.rados_rmxattr(io, b"attrs", name))
    say("getxattrs", b"attrs", attrs(io, b"attrs"))


def omaps(io):
    keys, key_lens = strings(KEYS)
    say("omap set", b"omap", write(io, b"omap", lambda op: lib.rados_write_op_omap_set2(op, keys, keys, key_lens, key_lens, len(KEYS))))

    def whole(after=b"", prefix=b""):
        more = ctypes.c_ubyte()
        return lambda op, cursor, result: lib.rados_read_op_omap_get_vals2(
            op, after, prefix, 100, cursor, ctypes.byref(more), result)

    say("omap", b"omap", omap(io, b"omap", whole()))
    say("omap after", b"\x80", omap(io, b"omap", whole(after=b"\x80")))
    say("omap prefix", b"\xff", omap(io, b"omap", whole(prefix=b"\xff")))
    for key in KEYS:
        one, one_len = strings([key])
        say("omap get", key, omap(io, b"omap", lambda op, cursor, result: lib.rados_read_op_omap_get_vals_by_keys2(
            op, one, 1, one_len, cursor, result)))
    some, some_lens = strings(KEYS[::2])
    say("omap remove", b"omap", write(io, b"omap", lambda op: lib.rados_write_op_omap_rm_keys2(op, some, some_lens, len(KEYS[::2]))))
    say("omap", b"omap", omap(io, b"omap", whole()))


def lockers(io, lock):
    count, exclusive = ctypes.c_int(), ctypes.c_int()
    buffers = [ctypes.create_string_buffer(1024) for _ in range(4)]
    lens = [size_t(1024) for _ in range(4)]
    tag, clients, cookies, _ = buffers
    code = lib.rados_list_lockers(io, b"locks", lock, ctypes.byref(exclusive), tag, ctypes.byref(lens[0]),
                                  clients, ctypes.byref(lens[1]), cookies, ctypes.byref(lens[2]), buffers[3],
                                  ctypes.byref(lens[3]))
    return (code, exclusive.value, tag.value, cookies.value)


def locks(io):
    for name in NAMES:
        say("lock", name, lib.rados_lock_exclusive(io, b"locks", name, name, name, None, 0))
        say("lock again", name, lib.rados_lock_exclusive(io, b"locks", name, name, name, None, 0))
        say("lockers", name, lockers(io, name))
    out = ctypes.create_string_buffer(4096)
    length = lib.rados_exec(io, b"locks", b"lock", b"list_locks", None, 0, out, len(out))
    say("locks", b"locks", out.raw[:max(length, 0)])
    for name in NAMES:
        say("unlock", name, lib.rados_unlock(io, b"locks", name, name))
        say("unlock again", name, lib.rados_unlock(io, b"locks", name, name))


def classes(io):
    out = ctypes.create_string_buffer(64)
    for name in [b"\xff", b"no\nclass"]:
        say("call class", name, lib.rados_exec(io, b"attrs", name, b"method", None, 0, out, 64))
        say("call method", name, lib.rados_exec(io, b"attrs", b"lock", name, None, 0, out, 64))


def removals(io):
    for name in NAMES:
        say("remove", name, lib.rados_remove(io, name))
        say("stat removed", name, stat(io, name))
    for found in listed(io, ALL_NAMESPACES):
        say("left", found, "")


if __name__ == "__main__":
    cluster, io = connect(*sys.argv[1:])
    for part in [objects, attributes, omaps, locks, classes, removals]:
        part(io)
    lib.rados_ioctx_destroy(io)
    lib.rados_shutdown(cluster)
