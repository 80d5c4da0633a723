"""Mixed S3 load on a gateway, whose every answer is checked against what was acknowledged: plain and multipart objects, copies,
deletions, versions, listings, ranged reads. Each worker owns its keys, so that the expected state is exact.

A request that fails (a time-out, 5xx) leaves its key at the old or the new state; both are right until the next success.
"""
import contextlib
import hashlib
import random
import threading
import time

from harness import eventually

MIB = 1 << 20
PART = 5 * MIB
KEYS_PER_WORKER = 40


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Load:
    """`workers` threads on one bucket without versions and one with."""

    def __init__(self, gateway, user, workers=4, seed=1):
        self.gateway, self.user, self.seed = gateway, user, seed
        self.plain, self.versioned = f"load-{user['user_id']}", f"load-{user['user_id']}-v"
        s3 = gateway.client(user)
        for bucket in (self.plain, self.versioned):
            s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=self.versioned, VersioningConfiguration={"Status": "Enabled"})
        self.workers = [Worker(self, number) for number in range(workers)]
        self.stop = threading.Event()

    @property
    def done(self):
        return sum(worker.done for worker in self.workers)

    @property
    def failed_requests(self):
        return sum(worker.failed for worker in self.workers)

    @contextlib.contextmanager
    def running(self):
        threads = [threading.Thread(target=worker.run) for worker in self.workers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def check_workers(self):
        wrong = [what for worker in self.workers for what in worker.wrong]
        if wrong:
            raise AssertionError(f"{len(wrong)} answers were wrong: " + "; ".join(wrong[:5]))

    def verify(self):
        """Every object, version and listing is as acknowledged."""
        self.check_workers()
        s3 = self.gateway.client(self.user)
        expected = {}
        for worker in self.workers:
            expected.update(worker.settle(s3))
        listed = set()
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self.plain):
            listed |= {row["Key"] for row in page.get("Contents", [])}
        there = {key for key, data in expected.items() if data is not None}
        if listed != there:
            raise AssertionError(f"listing: lost {sorted(there - listed)[:5]}, not deleted {sorted(listed - there)[:5]}")
        for key in sorted(there):
            found = digest(s3.get_object(Bucket=self.plain, Key=key)["Body"].read())
            if found != expected[key]:
                raise AssertionError(f"{key} has other bytes than were acknowledged")
        versions = {version: (key, data) for worker in self.workers for version, (key, data) in worker.versions.items()}
        seen = set()
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=self.versioned):
            seen |= {row["VersionId"] for row in page.get("Versions", [])}
        if not set(versions) <= seen:
            raise AssertionError(f"{len(set(versions) - seen)} of {len(versions)} versions are not listed")
        for version, (key, data) in versions.items():
            found = digest(s3.get_object(Bucket=self.versioned, Key=key, VersionId=version)["Body"].read())
            if found != data:
                raise AssertionError(f"version {version} of {key} has other bytes than were acknowledged")
        stats = self.gateway.admin("bucket", "stats", "--bucket", self.plain).json["usage"]
        counted = stats.get("rgw.main", {}).get("num_objects", 0)
        if counted != len(there):
            raise AssertionError(f"bucket stats count {counted} objects of {len(there)}")

    def summary(self):
        longest = max(worker.longest for worker in self.workers)
        versions = sum(len(worker.versions) for worker in self.workers)
        return (f"{self.done} requests, {self.failed_requests} failed and were repeated, the longest took {longest:.1f} s; "
                f"{versions} versions checked")


class Worker:
    def __init__(self, load, number):
        self.load, self.number, self.random = load, number, random.Random(load.seed * 1000 + number)
        #: The states that a key may have: digests, None for no object. One, but after a failed request.
        self.states = {f"w{number}/{n:02}": {None} for n in range(KEYS_PER_WORKER)}
        #: Acknowledged versions: key and digest by version.
        self.versions = {}
        self.done, self.failed, self.longest, self.wrong = 0, 0, 0.0, []

    def run(self):
        s3 = self.load.gateway.client(self.load.user)
        kinds = [self.put, self.put, self.put, self.put_multipart, self.copy, self.delete, self.get, self.get, self.list,
                 self.put_version, self.get_version]
        while not self.load.stop.is_set() and not self.wrong:
            self.act(s3, self.random.choice(kinds))

    def act(self, s3, kind):
        from botocore.exceptions import BotoCoreError, ClientError
        began = time.monotonic()
        try:
            kind(s3)
            self.done += 1
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status < 500:
                self.wrong.append(f"{kind.__name__}: {error}")
            self.failed += 1
        except BotoCoreError:
            self.failed += 1
        except Exception as error:
            self.wrong.append(f"{kind.__name__}: {error!r}")
        self.longest = max(self.longest, time.monotonic() - began)

    def key(self):
        return self.random.choice(sorted(self.states))

    def data(self, size=None):
        return self.random.randbytes(size or self.random.choice([10, 4096, 70_000, MIB, 4 * MIB + 77]))

    def change(self, key, state, request):
        """The key has `state` when `request` returns, and either when it fails."""
        self.states[key] = self.states[key] | {state}
        request()
        self.states[key] = {state}

    def put(self, s3):
        key, data = self.key(), self.data()
        self.change(key, digest(data), lambda: s3.put_object(Bucket=self.load.plain, Key=key, Body=data))

    def put_multipart(self, s3):
        key, parts = self.key(), [self.data(PART), self.data(70_000)]
        where = {"Bucket": self.load.plain, "Key": key}

        def upload():
            where["UploadId"] = s3.create_multipart_upload(**where)["UploadId"]
            made = [{"PartNumber": n, "ETag": s3.upload_part(**where, PartNumber=n, Body=part)["ETag"]}
                    for n, part in enumerate(parts, 1)]
            s3.complete_multipart_upload(**where, MultipartUpload={"Parts": made})

        self.change(key, digest(b"".join(parts)), upload)

    def copy(self, s3):
        source, target = self.key(), self.key()
        if source == target or len(self.states[source]) != 1 or self.states[source] == {None}:
            return
        state, = self.states[source]
        self.change(target, state, lambda: s3.copy_object(Bucket=self.load.plain, Key=target,
                                                          CopySource={"Bucket": self.load.plain, "Key": source}))

    def delete(self, s3):
        key = self.key()
        self.change(key, None, lambda: s3.delete_object(Bucket=self.load.plain, Key=key))

    def read(self, s3, key):
        from botocore.exceptions import ClientError
        try:
            return digest(s3.get_object(Bucket=self.load.plain, Key=key)["Body"].read())
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return None

    def get(self, s3):
        key = self.key()
        found = self.read(s3, key)
        if found not in self.states[key]:
            self.wrong.append(f"{key} is {found}, should be one of {self.states[key]}")

    def list(self, s3):
        listed = {row["Key"] for row in s3.list_objects_v2(Bucket=self.load.plain, Prefix=f"w{self.number}/").get("Contents", [])}
        must = {key for key, states in self.states.items() if None not in states}
        may = {key for key, states in self.states.items() if states != {None}}
        if not must <= listed <= may:
            self.wrong.append(f"listing: lost {sorted(must - listed)[:5]}, too many {sorted(listed - may)[:5]}")

    def put_version(self, s3):
        key, data = f"w{self.number}/v{self.random.randrange(5)}", self.data(self.random.choice([10, 70_000]))
        version = s3.put_object(Bucket=self.load.versioned, Key=key, Body=data)["VersionId"]
        self.versions[version] = (key, digest(data))

    def get_version(self, s3):
        if not self.versions:
            return
        version = self.random.choice(sorted(self.versions))
        key, state = self.versions[version]
        found = digest(s3.get_object(Bucket=self.load.versioned, Key=key, VersionId=version)["Body"].read())
        if found != state:
            self.wrong.append(f"version {version} of {key} has other bytes")

    def settle(self, s3):
        """The state of each key, after a read decided those that a failed request left open."""
        for key, states in self.states.items():
            if len(states) > 1:
                found = self.read(s3, key)
                if found not in states:
                    raise AssertionError(f"{key} is {found}, should be one of {states}")
                self.states[key] = {found}
        return {key: next(iter(states)) for key, states in self.states.items()}


def kill_in_turns(cluster, client, load, seconds, pause=15):
    """Kills one OSD after the other and starts it again, so that at most one is away, for `seconds`."""
    deadline, number, deaths = time.monotonic() + seconds, 0, 0
    while time.monotonic() < deadline:
        name = f"osd.{number % cluster.osds}"
        cluster.kill(name)
        deaths += 1
        time.sleep(pause)
        cluster.start_daemon(name)
        eventually(lambda: client.json("osd", "stat")["num_up_osds"] == cluster.osds, 60)
        # Whole again before the next dies: with two copies gone writes wait, which is not the subject.
        eventually(lambda: "degraded" not in client.ceph("pg", "stat").text, 180, 1)
        load.check_workers()
        so_far = load.done
        eventually(lambda: load.done > so_far + 10, 120)
        number += 1
    print(f"{deaths} OSDs killed")
