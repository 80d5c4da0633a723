"""The `rados` crate from crates.io: a client written by others, that speaks Quincy and later."""
import shutil

from harness import HERE, ClusterTest, long_only, run


class RadosCrate:
    def test_basics(self):
        if not shutil.which("cargo"):
            self.skipTest("cargo is not installed")
        crate = HERE / "rados-crate"
        run(["cargo", "build", "--quiet", "--locked", "--manifest-path", crate / "Cargo.toml"], timeout=1800)
        pool = self.pool("crate")
        done = run([crate / "target/debug/rados-crate", self.cluster.conf, pool], check=False, timeout=300)
        self.assertEqual(done.code, 0, done.text + done.errors)


@long_only
class RadosCrateCephx(RadosCrate, ClusterTest):
    OPTIONS = ("--auth", "cephx")


@long_only
class RadosCrateNone(RadosCrate, ClusterTest):
    OPTIONS = ("--auth", "none")
