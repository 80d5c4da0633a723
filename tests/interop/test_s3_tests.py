"""Ceph's own S3 tests (ceph/s3-tests) through `radosgw` of stock Ceph on a cluster of shoal's.

`SHOAL_S3_TESTS` names a checkout of https://github.com/ceph/s3-tests, branch ceph-tentacle; without it the suite is skipped.
`s3-tests/RELEASE.txt` lists the tests that pass through that release's radosgw on stock's own daemons: each must pass here.
With `--stock` the suite runs on stock's daemons, and SHOAL_UPDATE_LISTS=1 writes the list anew.

SHOAL_S3_TESTS_ONLY is a pytest expression (`-k`) that chooses among the tests.
"""
import os
import re
import unittest
from pathlib import Path

import harness
from gateway import Gateway, missing
from harness import HERE, Client, ClusterTest, clean_environment, run
from stock_cluster import StockCluster

TESTS = os.environ.get("SHOAL_S3_TESTS")
ONLY = os.environ.get("SHOAL_S3_TESTS_ONLY")
PYTHON = "/usr/bin/python3"
FILES = ("test_headers.py", "test_s3.py")
#: Features of other services than the gateway itself: accounts and roles, notifications, select, clouds, websites by DNS.
LEFT_OUT = ("iam_account", "iam_role", "iam_tenant", "iam_user", "iam_cross_account", "group", "sns", "s3select", "test_of_sts",
            "webidentity_test", "cloud_transition", "cloud_restore", "s3website", "fails_on_rgw", "bucket_logging")
SECONDS_MAX = 3 * 3600

#: Users as the sample configuration of ceph/s3-tests names them: section, user, tenant, name, access key, secret key, mail.
USERS = (
    ("s3 main", "testid", "", "M. Tester", "0555b35654ad1656d804", "h7GhxuBLTrlhVUyxSPUKUV8r/2EI4ngqJxD7iBdBYLhwluN30JaT3Q==",
     "tester@ceph.com"),
    ("s3 alt", "56789abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234", "", "john.doe", "NOPQRSTUVWXYZABCDEFG",
     "nopqrstuvwxyzabcdefghijklmnabcdefghijklm", "john.doe@example.com"),
    ("s3 tenant", "9876543210abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "testx", "tenanteduser",
     "HIJKLMNOPQRSTUVWXYZA", "opqrstuvwxyzabcdefghijklmnopqrstuvwxyzab", "tenanteduser@example.com"),
    ("iam", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "", "youruseridhere", "ABCDEFGHIJKLMNOPQRST",
     "abcdefghijklmnopqrstuvwxyzabcdefghijklmn", "s3@example.com"),
    # Sections that the configuration must have; no account is behind them.
    ("iam root", "rootone", "", "rootone", "AAAAAAAAAAAAAAAAAAaa", "a" * 40, "account1@ceph.com"),
    ("iam alt root", "roottwo", "", "roottwo", "BBBBBBBBBBBBBBBBBBbb", "b" * 40, "account2@ceph.com"),
)


def configuration(port):
    text = f"[DEFAULT]\nhost = 127.0.0.1\nport = {port}\nis_secure = False\nssl_verify = False\n"
    text += "[fixtures]\nbucket prefix = shoal-{random}-\niam name prefix = s3-tests-\niam path prefix = /s3-tests/\n"
    for section, user, tenant, name, access, secret, mail in USERS:
        full = f"{tenant}${user}" if tenant else user
        text += f"[{section}]\ndisplay_name = {name}\nuser_id = {full}\nemail = {mail}\naccess_key = {access}\nsecret_key = {secret}\n"
        text += "api_name = default\nkms_keyid = testkey-1\nkms_keyid2 = testkey-2\nlc_debug_interval = 10\n" if section == "s3 main" else ""
        text += f"tenant = {tenant}\n" if tenant else ""
    return text


def why_not():
    if not TESTS or not Path(TESTS, "s3tests/functional/test_s3.py").exists():
        return "SHOAL_S3_TESTS names no checkout of ceph/s3-tests"
    needs = "import boto3, pytest, munch, isodate, requests, pytz, httplib2, lxml, yaml"
    if run([PYTHON, "-c", needs], check=False).code != 0:
        return f"{PYTHON} cannot `{needs}`"
    return None


class S3Tests:
    """The tests through one release's radosgw. Subclasses say which in `RELEASE` and `ROOT`."""

    RELEASE, ROOT = "16.2", None
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        why = why_not() or missing(cls.ROOT)
        if why:
            raise unittest.SkipTest(why)
        if harness.STOCK:
            return StockCluster(osds=cls.OSDS, root=cls.ROOT)
        return super().make_cluster()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gateway = Gateway(cls.cluster, cls.ROOT)
        cls.addClassCleanup(cls.gateway.close)
        for section, user, tenant, name, access, secret, mail in USERS:
            tenanted = ("--tenant", tenant) if tenant else ()
            caps = ("--caps", "user-policy=*;roles=*;oidc-provider=*") if section == "iam" else ()
            cls.gateway.make_user(user, *tenanted, "--email", mail, *caps, access=access, secret=secret, name=name)

    def test_every_test_that_passes_on_stock_passes(self):
        listed = HERE / "s3-tests" / f"{self.RELEASE}.txt"
        expected = [] if harness.STOCK else listed.read_text().split()
        outcome = self.run_pytest()
        passed = sorted(name for name, result in outcome.items() if result == "PASSED")
        kinds = {kind: sum(1 for r in outcome.values() if r == kind) for kind in sorted(set(outcome.values()))}
        print(f"s3-tests through radosgw {self.RELEASE}: {kinds}")
        if harness.STOCK:
            self.assertGreater(len(passed), 400)
            if os.environ.get("SHOAL_UPDATE_LISTS") == "1":
                listed.write_text("\n".join(passed) + "\n")
            return
        wrong = {name: outcome[name] for name in expected if name in outcome and outcome[name] != "PASSED"}
        # A test that pytest did not even begin counts as lost, where all were asked for.
        lost = [] if ONLY else [name for name in expected if name not in outcome]
        self.assertEqual(({}, []), (wrong, lost), f"{len(wrong)} of {len(expected)} fail, {len(lost)} did not run")
        print(f"{len(passed)} passed, {len(expected)} pass on stock, {len(set(passed) - set(expected))} pass here alone")

    def run_pytest(self):
        """Each test's outcome by its name."""
        conf, log = self.cluster.dir / "s3tests.conf", self.cluster.dir / "s3tests.out"
        conf.write_text(configuration(self.gateway.port))
        chosen = ["-k", ONLY] if ONLY else []
        argv = [PYTHON, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short", "--color=no", "-m", " and ".join(f"not {name}" for name in LEFT_OUT), *chosen,
                *(f"s3tests/functional/{name}" for name in FILES)]
        env = dict(clean_environment(), S3TEST_CONF=str(conf), PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1")
        harness.give_time(SECONDS_MAX)
        done = run(["env", "-C", TESTS, *argv], check=False, env=env, timeout=SECONDS_MAX)
        log.write_text(done.text + done.errors)
        found = re.findall(r"^s3tests/functional/(\S+)::(\S+) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)", done.text, re.M)
        outcome = {}
        for file, name, result in found:
            # A test that passed and whose clean-up failed has two lines.
            name = f"{file.removesuffix('.py')}::{name}"
            outcome[name] = result if outcome.get(name, "PASSED") == "PASSED" else outcome[name]
        if not outcome:
            raise harness.Failed(f"pytest ran no test:\n{done.text[-3000:]}\n{done.errors[-3000:]}")
        keep = os.environ.get("SHOAL_S3_TESTS_LOG")
        if keep:
            Path(keep).write_text(log.read_text())
        return outcome


class Pacific(S3Tests, ClusterTest):
    """Through Debian 12's radosgw."""


class Tentacle(S3Tests, ClusterTest):
    """Through the radosgw of the release that SHOAL_CEPH20 names."""

    RELEASE, ROOT = "20.2", os.environ.get("SHOAL_CEPH20") or "/nonexistent"


del S3Tests
if __name__ == "__main__":
    unittest.main()
