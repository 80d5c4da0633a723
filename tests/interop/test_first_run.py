"""The first run of `make up` after the build: through Ceph's tools, and without them."""
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from harness import ROOT, SHOAL, free_port_base, run


class FirstRun(unittest.TestCase):
    def first_run(self, **env):
        with tempfile.TemporaryDirectory(prefix="shoal-interop-first-") as scratch:
            dir = Path(scratch) / "cluster"
            try:
                done = run([ROOT / "tests/first-run", dir, "--port", str(free_port_base())],
                           env={**os.environ, "SHOAL": str(SHOAL), **env})
            finally:
                run([SHOAL, "down", "--dir", dir], check=False)
        self.assertIn("the same, byte for byte", done.text)
        self.assertIn(f"ceph -c {dir}/ceph.conf -s", done.text)
        return done.text

    def test_through_stock_tools(self):
        self.assertIn("'s rados", self.first_run())

    def test_through_its_own_client(self):
        with tempfile.TemporaryDirectory() as only:
            for tool in ("bash", "cat", "cmp", "head", "mktemp", "rm", "stat", "basename", "env"):
                (Path(only) / tool).symlink_to(shutil.which(tool))
            self.assertIn("through shoal's own client", self.first_run(PATH=only))
