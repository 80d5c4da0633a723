"""Ceph's own S3 gateway, `radosgw`, on a cluster of shoal's or of stock's: the daemon, its users, and clients for it."""
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from harness import clean_environment, eventually, free_port_base, program_of, run

#: Lifecycle days last ten seconds, and deleted data is collected within seconds: tests wait for both.
QUICK = ("--rgw-lc-debug-interval", "10", "--rgw-gc-obj-min-wait", "2", "--rgw-gc-processor-period", "3",
         "--rgw-crypt-require-ssl", "false", "--rgw-crypt-s3-kms-backend", "testing",
         "--rgw-crypt-s3-kms-encryption-keys",
         "testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo= testkey-2=aWIKTWFrZWZpbGUKbWFuCm91dApzcmMKVGVzdGluZwo=")


def missing(root=None):
    """The reason why no gateway can be started, or None."""
    for program in ("radosgw", "radosgw-admin"):
        path = Path(root, "usr/bin", program) if root else Path("/usr/bin", program)
        if not path.exists():
            return f"{path} is not there"
    return None


class Gateway:
    """One `radosgw` on `cluster`. `root` is the folder of another release."""

    def __init__(self, cluster, root=None, name="x", options=QUICK):
        self.cluster, self.root, self.name, self.options = cluster, root, f"client.rgw.{name}", options
        self.port = free_port_base()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.dir = cluster.dir / f"rgw.{name}"
        self.dir.mkdir(exist_ok=True)
        made = self.ceph("auth", "get-or-create", self.name, "mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw")
        (self.dir / "keyring").write_text(made.text)
        self.start()

    def ceph(self, *args):
        """`ceph` of the gateway's release, as the administrator."""
        enter = getattr(self.cluster, "enter", [])
        return run([*enter, "ceph", "-c", str(self.cluster.conf), "--connect-timeout", "30", *map(str, args)],
                   env=clean_environment())

    def start(self, seconds=120):
        argv = [*program_of(self.root, "radosgw"), "-f", "-c", self.cluster.conf, "-n", self.name,
                "--keyring", self.dir / "keyring", "--log-file", self.dir / "log", "--log-to-stderr", "false",
                "--admin-socket", self.dir / "asok", "--rgw-frontends", f"beast endpoint=127.0.0.1:{self.port}",
                *self.options]
        with open(self.dir / "out", "ab") as out:
            self.process = subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env=clean_environment(), process_group=0)
        try:
            eventually(self.answers, seconds)
        except BaseException:
            self.show_log()
            self.stop()
            raise

    def answers(self):
        assert self.process.poll() is None, f"radosgw ended with {self.process.returncode}"
        try:
            with urllib.request.urlopen(self.endpoint, timeout=5) as answer:
                return b"ListAllMyBucketsResult" in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def show_log(self):
        for name in ("out", "log"):
            path = self.dir / name
            if path.exists():
                print(f"--- {path.name} of {self.name}")
                print("\n".join(path.read_text(errors="replace").splitlines()[-30:]))

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def admin(self, *args, check=True, stdin=b""):
        """`radosgw-admin`."""
        argv = [*program_of(self.root, "radosgw-admin"), "-c", self.cluster.conf, *args]
        return run(list(map(str, argv)), stdin, check, clean_environment())

    def make_user(self, uid, *options, access=None, secret=None, name=None):
        """A user with a key pair: what `radosgw-admin user create` prints."""
        key = ("--access-key", access or f"access-{uid}", "--secret-key", secret or uuid.uuid4().hex)
        return self.admin("user", "create", "--uid", uid, "--display-name", name or uid, *key, *options).json

    def client(self, user, **config):
        """A boto3 client with the first key of a user that `make_user` returned."""
        import boto3
        from botocore.config import Config
        key = user["keys"][0]
        config = {"retries": {"total_max_attempts": 1}, "read_timeout": 120, "s3": {"addressing_style": "path"}, **config}
        return boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=key["access_key"],
                            aws_secret_access_key=key["secret_key"], region_name="default", config=Config(**config))

    def close(self):
        self.stop()
