"""Damage to one copy of single objects, made behind a stopped OSD's back: by `shoal store object`, or on stock by
ceph-objectstore-tool, and by flipped bits in the device's file. What each kind leaves is what a deep scrub has to find."""
import os

import harness
from harness import SHOAL, Failed, run

#: Objects have this many bytes: more than a store keeps in its log, so that the device has them once.
SIZE = 128 << 10
#: Clients set these; the other values are what damage leaves.
ATTR, KEY, VALUE, OTHER = "a", "k", b"value", b"other"
#: A store's blocks begin at multiples of it.
BLOCK = 4096


class Tool:
    """The tool on the objects of stopped OSDs, shoal's or stock's."""

    def __init__(self, cluster):
        self.cluster = cluster

    def __call__(self, osd, pgid, name, command, *args, stdin=b""):
        path = self.cluster.dir / f"osd.{osd}"
        if not harness.STOCK:
            return run([SHOAL, "store", "object", command, path, pgid, name, *args], stdin)
        # It takes input from a file alone, and an object's name goes before the command.
        given = self.cluster.dir / "injected"
        given.write_bytes(stdin)
        reads = command.startswith("set-")
        return run(["ceph-objectstore-tool", "--no-mon-config", "--data-path", path, "--pgid", pgid, name, command, *args, *([given] if reads else [])])

    def remove(self, osd, pgid, name):
        if not harness.STOCK:
            return self(osd, pgid, name, "remove")
        path = self.cluster.dir / f"osd.{osd}"
        return run(["ceph-objectstore-tool", "--no-mon-config", "--data-path", path, "--pgid", pgid, name, "remove"])

    def attr(self, osd, pgid, name, command, key, stdin=b""):
        """An attribute of the client."""
        return self(osd, pgid, name, command, f"_{key}" if harness.STOCK else key, stdin=stdin)

    def info(self, osd, pgid, name, command, stdin=b""):
        """The object's own info."""
        return self(osd, pgid, name, command, "_", *([] if harness.STOCK else ["--stored-name"]), stdin=stdin)


class Copy:
    """One copy of an object that is to be damaged."""

    def __init__(self, osd, pgid, name, value):
        self.osd, self.pgid, self.name, self.value = osd, pgid, name, value
        #: The bytes and the info of an earlier version, for a write that is lost.
        self.older = None


def _bytes(of):
    return lambda tool, copy: tool(copy.osd, copy.pgid, copy.name, "set-bytes", stdin=of(copy))


def _attr(command, key, value=b""):
    return lambda tool, copy: tool.attr(copy.osd, copy.pgid, copy.name, command, key, stdin=value)


def _omap(command, *args, value=b""):
    return lambda tool, copy: tool(copy.osd, copy.pgid, copy.name, command, *args, stdin=value)


def _lose_write(tool, copy):
    data, info = copy.older
    tool(copy.osd, copy.pgid, copy.name, "set-bytes", stdin=data)
    tool.info(copy.osd, copy.pgid, copy.name, "set-attr", stdin=info)


#: Each kind of damage that a tool makes. Rot comes to the device itself, see `rot`.
KINDS = {
    "missing": lambda tool, copy: tool.remove(copy.osd, copy.pgid, copy.name),
    "bytes": _bytes(lambda copy: os.urandom(SIZE)),
    "short": _bytes(lambda copy: copy.value[:-BLOCK]),
    "long": _bytes(lambda copy: copy.value + b"more"),
    "attr other": _attr("set-attr", ATTR, OTHER),
    "attr gone": _attr("rm-attr", ATTR),
    "attr more": _attr("set-attr", "b", VALUE),
    "omap other": _omap("set-omap", KEY, value=OTHER),
    "omap gone": _omap("rm-omap", KEY),
    "omap more": _omap("set-omap", "m", value=VALUE),
    "omap header": _omap("set-omaphdr", value=OTHER),
    "lost write": _lose_write,
    "info gone": lambda tool, copy: tool.info(copy.osd, copy.pgid, copy.name, "rm-attr"),
    "info rotten": lambda tool, copy: tool.info(copy.osd, copy.pgid, copy.name, "set-attr", stdin=b"rotten"),
    "rot": None,
}


def rot(cluster, copies):
    """Flips a bit in the first block of each copy, on the device of their OSD: wherever those bytes are."""
    wanted = {copy.value[:16]: copy for copy in copies}
    found = set()
    for osd in {copy.osd for copy in copies}:
        with open(cluster.dir / f"osd.{osd}" / "block", "r+b") as file:
            for at in _written_blocks(file):
                file.seek(at)
                block = file.read(BLOCK)
                copy = wanted.get(block[:16])
                if copy is not None and copy.osd == osd and block == copy.value[:BLOCK]:
                    file.seek(at + 100)
                    file.write(bytes([block[100] ^ 1]))
                    found.add(copy.name)
            file.flush()
            os.fsync(file.fileno())
    if lost := sorted(copy.name for copy in copies if copy.name not in found):
        raise Failed(f"the devices have no block of {lost}")


def _written_blocks(file):
    """Where the blocks of a sparse file begin, as far as they were written."""
    end, size = 0, os.fstat(file.fileno()).st_size
    while end < size:
        try:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
        except OSError:
            return
        yield from range(begin - begin % BLOCK, end, BLOCK)
