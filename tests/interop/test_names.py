"""Names that are not text: objects, namespaces, locator keys, attributes, omap keys and locks are bytes.

names/expected.tsv is what a stock cluster answered. To record it again:
    python3 names/operations.py CEPH_CONF EMPTY_POOL > names/expected.tsv
"""
import json
import os

import harness
from harness import HERE, SHOAL, ClusterTest, run

NAME = b"not\xfftext\nat all"


class Names(ClusterTest):
    def test_every_operation_answers_as_stock(self):
        self.pool("names")
        program = ["/usr/bin/python3", str(HERE / "names/operations.py"), str(self.cluster.conf), "names"]
        got = run(program, timeout=120).text.splitlines()
        wanted = (HERE / "names/expected.tsv").read_text().splitlines()
        self.assertGreater(len(wanted), 300)
        self.assertEqual(got, wanted)

    def test_names_survive_restart_export_and_import(self):
        self.pool("kept")
        rados = ["rados", "-c", self.cluster.conf, "-p", "kept"]
        bench = [SHOAL, "bench", "--conf", self.cluster.conf, "--pool", "kept"]
        run([*rados, "put", NAME, "/etc/hostname"])
        run([*rados, "setxattr", NAME, NAME, "value"])

        def check():
            self.assertEqual(run([*rados, "ls"]).out, NAME + b"\n")
            self.assertEqual(run([*rados, "listxattr", NAME]).out, NAME + b"\n")
            self.assertEqual(run([*bench, "--list"]).out, NAME + b"\n")
            self.assertEqual(int(run([*bench, "--stat", NAME]).out), os.path.getsize("/etc/hostname"))

        check()
        self.cluster.down()
        if harness.STORE != "mem":
            block, copy = self.cluster.dir / "osd.0" / "block", self.cluster.dir / "copy"
            described = [json.loads(line) for line in run([SHOAL, "store", "dump", block]).text.splitlines()]
            # Objects are shown as Ceph's logs show them, attributes with what is not text escaped.
            found = [o for o in described if ":not%fftext%0aat all:" in o.get("object", "")]
            self.assertEqual(len(found), 1, described)
            self.assertIn("_not%fftext%0aat all", found[0]["attrs"])
            run([SHOAL, "store", "export", block, copy])
            block.rename(self.cluster.dir / "before")
            run([SHOAL, "osd", "--conf", self.cluster.conf, "--id", "0", "--mkfs", "--size", "4G"])
            run([SHOAL, "store", "import", block, copy])
        self.cluster.up()
        check()
