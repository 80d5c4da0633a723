"""Capabilities on OSDs: every capability of caps/capabilities.txt against every operation of caps/operations.py.

What is expected is in caps/expected.tsv, as a stock cluster answered. To record that again, from any release:
    python3 test_caps.py record CEPH_CONF [CHROOT]
"""
import json
import subprocess
import sys
from pathlib import Path

import harness
from harness import ClusterTest

HERE = Path(__file__).resolve().parent / "caps"
POOLS = {"caps-a": ("testapp", "role", "first"), "caps-b": ("testapp", "role", "second")}
OBJECTS = [("caps-a", "", "obj"), ("caps-b", "", "obj"), ("caps-a", "ns1", "obj"), ("caps-a", "ns2", "obj"),
           ("caps-a", "", "pre_obj"), ("caps-a", "", "keyed_prefix")]


def capabilities():
    lines = (HERE / "capabilities.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def prepare(ceph, rados):
    """`ceph` and `rados` run a tool and give what `harness.run` does."""
    for pool, (application, key, value) in POOLS.items():
        ceph("osd", "pool", "create", pool, "8")
        ceph("osd", "pool", "application", "enable", pool, application)
        ceph("osd", "pool", "application", "set", pool, application, key, value)
    for pool, namespace, name in OBJECTS:
        where = ["-p", pool, "-N", namespace]
        rados(*where, "put", name, "/etc/hostname")
        rados(*where, "setxattr", name, "a", "v")
    rados("-p", "caps-a", "--object-locator", "pre_key", "put", "keyed", "/etc/hostname")


def outcomes(ceph, run_operations):
    """`{capability: {operation: errno}}`; `{"auth add": message}` for text that is no capability."""
    clients, out = {}, {}
    for number, cap in enumerate(capabilities()):
        name = f"client.cap{number}"
        ceph("auth", "rm", name, check=False)
        made = ceph("auth", "get-or-create-key", name, "mon", "allow r", "osd", cap, check=False)
        if made.code != 0:
            out[cap] = {"auth add": made.errors.strip().splitlines()[-1]}
        else:
            clients[name] = {"key": made.text.strip()}
            out[cap] = name
    results = json.loads(run_operations(json.dumps(clients)))
    return {cap: results.get(o, o) if isinstance(o, str) else o for cap, o in out.items()}


def to_table(results):
    """A line a capability: its text, then an errno an operation; or the message of its refusal."""
    operations = next(list(r) for r in results.values() if "auth add" not in r)
    lines = ["\t".join(["capability", *operations])]
    for cap, result in results.items():
        cells = [result["auth add"]] if "auth add" in result else [str(result[o]) for o in operations]
        lines.append("\t".join([cap, *cells]))
    return "\n".join(lines) + "\n"


class Capabilities(ClusterTest):
    def test_every_operation_of_every_client(self):
        prepare(self.client.ceph, self.client.rados)
        program = ["/usr/bin/python3", str(HERE / "operations.py"), str(self.cluster.conf)]
        got = to_table(outcomes(
            self.client.ceph, lambda clients: harness.run(program, clients.encode(), timeout=600).out))
        wanted = (HERE / "expected.tsv").read_text()
        operations = wanted.splitlines()[0].split("\t")[1:]
        self.assertEqual(got.splitlines()[0], wanted.splitlines()[0])
        for got_line, wanted_line in zip(got.splitlines()[1:], wanted.splitlines()[1:], strict=True):
            cap, *cells = wanted_line.split("\t")
            with self.subTest(cap):
                if len(cells) == 1:
                    self.assertEqual(got_line.split("\t")[1:], cells)
                else:
                    self.assertEqual(dict(zip(operations, got_line.split("\t")[1:])), dict(zip(operations, cells)))


def record(conf, root=None):
    enter = ["chroot", root] if root else []

    def tool(name):
        return lambda *args, check=True: harness.run([*enter, name, "-c", conf, *args], check=check)

    def run_operations(clients):
        program = (HERE / "operations.py").read_text()
        argv = [*enter, "python3", "-c", program, conf]
        return subprocess.run(argv, input=clients.encode(), stdout=subprocess.PIPE, check=True).stdout

    prepare(tool("ceph"), tool("rados"))
    (HERE / "expected.tsv").write_text(to_table(outcomes(tool("ceph"), run_operations)))


if __name__ == "__main__" and sys.argv[1:2] == ["record"]:
    record(*sys.argv[2:])
