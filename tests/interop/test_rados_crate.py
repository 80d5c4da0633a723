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
class RadosCrateSecure(RadosCrate, ClusterTest):
    """With cephx it is always secure. In crc mode its 0.1.4 takes the end of an OSD's handshake for a challenge (it
    knows one by its length), and without cephx it tells an OSD what only a monitor may be told: neither can work. On
    Ceph 20.2.4 it is the same: with `ms service mode = crc` every one of these cases ends in "AUTH_SIGNATURE
    verification failed"."""
