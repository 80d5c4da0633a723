"""Ceph's own S3 gateway, `radosgw` of the installed packages, on a cluster of shoal's: buckets, objects, multipart uploads,
versions, listings, copies, access lists, lifecycle, quotas, resharding, garbage collection, `radosgw-admin`, `s3cmd`, the
service map, and writes while an OSD dies. `--stock` runs it on stock's daemons. `--long` adds ten minutes of mixed load with
OSDs dying (`s3_load.py`).
"""
import hashlib
import random
import signal
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import harness
import replicated
import s3_load
from gateway import Gateway, missing
from harness import ClusterTest, eventually, long_only, run

MIB = 1 << 20


def body(size, seed=0):
    return random.Random(f"{seed} {size}").randbytes(size)


def names(answer, kind="Contents", key="Key"):
    return [row[key] for row in answer.get(kind, [])]


class Radosgw(ClusterTest):
    OSDS = 3

    @classmethod
    def make_cluster(cls):
        try:
            import boto3  # noqa: F401
        except ImportError:
            raise unittest.SkipTest("python3-boto3 is not installed") from None
        if missing():
            raise unittest.SkipTest(missing())
        return replicated.make_cluster(cls.OSDS)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gateway = Gateway(cls.cluster)
        cls.addClassCleanup(cls.gateway.close)
        cls.alice = cls.gateway.make_user("alice")
        cls.bob = cls.gateway.make_user("bob", "--email", "bob@example.com")
        cls.s3, cls.other = cls.gateway.client(cls.alice), cls.gateway.client(cls.bob)

    def bucket(self):
        name = self.id().rpartition(".")[2].removeprefix("test_").replace("_", "-")[:60]
        self.s3.create_bucket(Bucket=name)
        return name

    def refused(self, status, code, call, **how):
        """The call fails with this HTTP status and S3 code."""
        from botocore.exceptions import ClientError
        with self.assertRaises(ClientError) as caught:
            call(**how)
        error = caught.exception.response
        self.assertEqual((status, code), (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]))

    def get(self, bucket, key, **how):
        return self.s3.get_object(Bucket=bucket, Key=key, **how)["Body"].read()

    def put(self, bucket, key, data, **how):
        return self.s3.put_object(Bucket=bucket, Key=key, Body=data, **how)

    def stats(self, bucket):
        return self.gateway.admin("bucket", "stats", "--bucket", bucket).json

    # ---- what the cluster says of its gateway ----

    def test_service_map_names_the_gateway(self):
        def services():
            return self.client.json("-s")["servicemap"]["services"]

        def daemons(service_map):
            return {name: row for name, row in service_map.get("rgw", {}).get("daemons", {}).items() if name != "summary"}

        rows = eventually(lambda: daemons(services()), 30)
        (name, row), = rows.items()
        self.assertEqual(name, str(row["gid"]))
        self.assertEqual(("x", "default", "16.2.15"), tuple(row["metadata"][k] for k in ("id", "zone_name", "ceph_version_short")))
        self.assertRegex(row["addr"], r"^127\.0\.0\.1:0/\d+$")
        self.assertRegex(self.client.ceph("-s").text, r"(?m)^    rgw: 1 daemon active \(1 hosts, 1 zones\)$")
        dumped = daemons(self.client.json("service", "dump")["services"])
        self.assertEqual(row, dumped[name])
        # The status stamp comes with the first report after the registration.
        status = eventually(lambda: self.client.json("service", "status")["rgw"][name]["status"], 30)
        self.assertEqual({"current_sync": "[]"}, status)
        applications = {row["pool_name"]: row["application_metadata"] for row in self.client.json("osd", "dump")["pools"]
                        if "rgw" in row["pool_name"]}
        self.assertLessEqual({".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta"}, set(applications))
        self.assertEqual({name: {"rgw": {}} for name in applications}, applications)
        # A gateway that is gone without a word is listed for as long as the option says.
        self.client.ceph("config", "set", "mgr", "mgr_service_beacon_grace", "12")
        self.gateway.stop(signal.SIGKILL)
        try:
            self.assertEqual({name}, set(daemons(services())))
            eventually(lambda: not daemons(services()), 60)
        finally:
            self.gateway.start()
        eventually(lambda: set(daemons(services())) not in ({name}, set()), 30)
        self.client.ceph("config", "rm", "mgr", "mgr_service_beacon_grace")

    # ---- objects ----

    def test_object_comes_back_with_its_metadata(self):
        bucket = self.bucket()
        # Below, at and above what the head object holds.
        for size in (0, 1, 4 * MIB, 4 * MIB + 1, 9 * MIB):
            data = body(size)
            made = self.put(bucket, f"o{size}", data, Metadata={"Colour": "grün".encode().hex()}, ContentType="image/x")
            self.assertEqual(made["ETag"], f'"{hashlib.md5(data).hexdigest()}"')
            told = self.s3.head_object(Bucket=bucket, Key=f"o{size}")
            self.assertEqual((size, "image/x", {"colour": "grün".encode().hex()}),
                             (told["ContentLength"], told["ContentType"], told["Metadata"]))
            self.assertEqual(data, self.get(bucket, f"o{size}"))
        data = body(9 * MIB)
        self.assertEqual(data[4 * MIB - 5:4 * MIB + 6], self.get(bucket, f"o{9 * MIB}", Range=f"bytes={4 * MIB - 5}-{4 * MIB + 5}"))
        self.assertEqual(data[-7:], self.get(bucket, f"o{9 * MIB}", Range="bytes=-7"))
        self.refused(416, "InvalidRange", self.s3.get_object, Bucket=bucket, Key="o1", Range="bytes=5-6")
        # A shorter body replaces a longer one whole.
        self.put(bucket, f"o{9 * MIB}", b"short")
        self.assertEqual(b"short", self.get(bucket, f"o{9 * MIB}"))
        self.refused(412, "PreconditionFailed", self.s3.get_object, Bucket=bucket, Key="o1", IfMatch='"no"')
        self.refused(404, "NoSuchKey", self.s3.get_object, Bucket=bucket, Key="none")
        self.refused(409, "BucketNotEmpty", self.s3.delete_bucket, Bucket=bucket)
        gone = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"o{n}"} for n in (0, 1, 4 * MIB, 4 * MIB + 1, 9 * MIB)]})
        self.assertEqual(5, len(gone["Deleted"]))
        self.refused(404, "NoSuchKey", self.s3.get_object, Bucket=bucket, Key="o1")
        self.s3.delete_bucket(Bucket=bucket)
        self.refused(404, "NoSuchBucket", self.s3.list_objects, Bucket=bucket)

    def test_listing_by_prefix_delimiter_and_page(self):
        bucket = self.bucket()
        keys = sorted(["a", "a/b", "a/c/1", "a/c/2", "d/1", "d/2", "é/ü", "x y", "~", "%41", "_underscore", "__two"] +
                      [f"many/{n:03}" for n in range(40)])
        for key in keys:
            self.put(bucket, key, key.encode())
        self.assertEqual(keys, names(self.s3.list_objects(Bucket=bucket)))
        top = self.s3.list_objects_v2(Bucket=bucket, Delimiter="/")
        self.assertEqual(["a/", "d/", "many/", "é/"], names(top, "CommonPrefixes", "Prefix"))
        self.assertEqual([key for key in keys if "/" not in key], names(top))
        inner = self.s3.list_objects_v2(Bucket=bucket, Prefix="a/", Delimiter="/")
        self.assertEqual((["a/c/"], ["a/b"]), (names(inner, "CommonPrefixes", "Prefix"), names(inner)))
        pages, token = [], {}
        while True:
            page = self.s3.list_objects_v2(Bucket=bucket, MaxKeys=7, **token)
            pages += names(page)
            if not page["IsTruncated"]:
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
        self.assertEqual(keys, pages)
        self.assertEqual([f"many/{n:03}" for n in range(31, 40)],
                         names(self.s3.list_objects(Bucket=bucket, Prefix="many/", Marker="many/030")))
        for key in ("__two", "é/ü", "%41"):
            self.assertEqual(key.encode(), self.get(bucket, key))

    def test_multipart_upload_and_its_parts(self):
        bucket = self.bucket()
        parts = [body(5 * MIB, 1), body(5 * MIB, 2), body(MIB + 3, 3)]
        upload = self.s3.create_multipart_upload(Bucket=bucket, Key="big", Metadata={"of": "parts"})["UploadId"]
        where = {"Bucket": bucket, "Key": "big", "UploadId": upload}
        made = {}
        # Out of order, and one twice.
        self.s3.upload_part(**where, PartNumber=2, Body=body(5 * MIB, 9))
        for number in (3, 1, 2):
            made[number] = self.s3.upload_part(**where, PartNumber=number, Body=parts[number - 1])["ETag"]
        listed = self.s3.list_parts(**where)["Parts"]
        self.assertEqual([(n, made[n], len(parts[n - 1])) for n in (1, 2, 3)],
                         [(p["PartNumber"], p["ETag"], p["Size"]) for p in listed])
        self.assertEqual(["big"], names(self.s3.list_multipart_uploads(Bucket=bucket), "Uploads"))
        self.refused(404, "NoSuchKey", self.s3.get_object, Bucket=bucket, Key="big")
        whole = {"Parts": [{"PartNumber": n, "ETag": made[n]} for n in (1, 2, 3)]}
        self.refused(400, "InvalidPart", self.s3.complete_multipart_upload, **where,
                     MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": made[2]}]})
        self.s3.complete_multipart_upload(**where, MultipartUpload=whole)
        etag = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
        self.assertEqual(f'"{etag}-3"', self.s3.head_object(Bucket=bucket, Key="big")["ETag"])
        data = b"".join(parts)
        self.assertEqual(data, self.get(bucket, "big"))
        self.assertEqual(data[5 * MIB - 9:5 * MIB + 9], self.get(bucket, "big", Range=f"bytes={5 * MIB - 9}-{5 * MIB + 8}"))
        self.assertEqual({"of": "parts"}, self.s3.head_object(Bucket=bucket, Key="big")["Metadata"])
        usage = self.stats(bucket)["usage"]
        # radosgw 16.2 goes on counting the part that was replaced, on stock's daemons too.
        self.assertEqual((2, len(data) + 5 * MIB), (usage["rgw.main"]["num_objects"], usage["rgw.main"]["size"]))
        copied = self.s3.create_multipart_upload(Bucket=bucket, Key="copy")["UploadId"]
        where = {"Bucket": bucket, "Key": "copy", "UploadId": copied}
        one = self.s3.upload_part_copy(**where, PartNumber=1, CopySource={"Bucket": bucket, "Key": "big"},
                                       CopySourceRange=f"bytes={5 * MIB}-{10 * MIB - 1}")["CopyPartResult"]["ETag"]
        self.s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": one}]})
        self.assertEqual(parts[1], self.get(bucket, "copy"))
        given_up = self.s3.create_multipart_upload(Bucket=bucket, Key="never")["UploadId"]
        where = {"Bucket": bucket, "Key": "never", "UploadId": given_up}
        self.s3.upload_part(**where, PartNumber=1, Body=parts[2])
        self.s3.abort_multipart_upload(**where)
        self.assertEqual([], names(self.s3.list_multipart_uploads(Bucket=bucket), "Uploads"))
        # 16.2 says NoSuchKey of an upload that is gone, on stock's daemons too.
        self.refused(404, "NoSuchKey", self.s3.list_parts, **where)

    def test_versions_and_delete_markers(self):
        bucket = self.bucket()
        before = self.put(bucket, "k", b"before")
        self.assertNotIn("VersionId", before)
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        one, two = (self.put(bucket, "k", data)["VersionId"] for data in (b"one", b"two"))
        self.assertEqual((b"two", b"one", b"before"), (self.get(bucket, "k"), self.get(bucket, "k", VersionId=one),
                                                       self.get(bucket, "k", VersionId="null")))
        marker = self.s3.delete_object(Bucket=bucket, Key="k")
        self.assertTrue(marker["DeleteMarker"])
        self.refused(404, "NoSuchKey", self.s3.get_object, Bucket=bucket, Key="k")
        second = self.s3.delete_object(Bucket=bucket, Key="k")["VersionId"]
        told = self.s3.list_object_versions(Bucket=bucket)
        self.assertEqual([two, one, "null"], names(told, "Versions", "VersionId"))
        self.assertEqual([(second, True), (marker["VersionId"], False)],
                         [(m["VersionId"], m["IsLatest"]) for m in told["DeleteMarkers"]])
        self.assertEqual([], names(self.s3.list_objects(Bucket=bucket)))
        for version in (second, marker["VersionId"]):
            self.s3.delete_object(Bucket=bucket, Key="k", VersionId=version)
        self.assertEqual(b"two", self.get(bucket, "k"))
        # The newest goes: the one before is current again.
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId=two)
        self.assertEqual(b"one", self.get(bucket, "k"))
        self.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
        self.put(bucket, "k", b"suspended")
        self.assertEqual((b"suspended", b"one"), (self.get(bucket, "k", VersionId="null"), self.get(bucket, "k", VersionId=one)))
        self.s3.delete_object(Bucket=bucket, Key="k")
        told = self.s3.list_object_versions(Bucket=bucket)
        self.assertEqual(([one], ["null"]), (names(told, "Versions", "VersionId"), names(told, "DeleteMarkers", "VersionId")))
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId="null")
        self.assertEqual(b"one", self.get(bucket, "k"))
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId=one)
        checked = self.gateway.admin("bucket", "check", "--bucket", bucket, "--check-objects").text
        self.assertNotIn("k", checked.replace("check", ""))
        self.s3.delete_bucket(Bucket=bucket)

    def test_copies_carry_data_and_metadata(self):
        bucket = self.bucket()
        target = f"{bucket}-2"
        self.s3.create_bucket(Bucket=target)
        data = body(6 * MIB, 4)
        self.put(bucket, "from", data, Metadata={"a": "1"})
        source = {"Bucket": bucket, "Key": "from"}
        self.s3.copy_object(Bucket=bucket, Key="same", CopySource=source)
        self.s3.copy_object(Bucket=target, Key="other", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
        # The copies share their tail objects with the source, which goes first.
        self.s3.delete_object(Bucket=bucket, Key="from")
        self.gateway.admin("gc", "process", "--include-all")
        self.assertEqual((data, {"a": "1"}), (self.get(bucket, "same"), self.s3.head_object(Bucket=bucket, Key="same")["Metadata"]))
        self.assertEqual((data, {"b": "2"}), (self.get(target, "other"), self.s3.head_object(Bucket=target, Key="other")["Metadata"]))

    def test_access_lists_and_policies_admit_others(self):
        bucket = self.bucket()
        self.put(bucket, "private", b"p")
        self.put(bucket, "public", b"q", ACL="public-read")
        self.refused(403, "AccessDenied", self.other.get_object, Bucket=bucket, Key="private")
        self.refused(403, "AccessDenied", self.other.list_objects, Bucket=bucket)
        with urllib.request.urlopen(f"{self.gateway.endpoint}/{bucket}/public", timeout=30) as answer:
            self.assertEqual(b"q", answer.read())
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{self.gateway.endpoint}/{bucket}/private", timeout=30)
        self.assertEqual(403, caught.exception.code)
        self.s3.put_object_acl(Bucket=bucket, Key="private", GrantRead='emailAddress="bob@example.com"')
        self.assertEqual(b"p", self.other.get_object(Bucket=bucket, Key="private")["Body"].read())
        grants = self.s3.get_object_acl(Bucket=bucket, Key="private")["Grants"]
        self.assertEqual([("bob", "READ")], [(g["Grantee"]["ID"], g["Permission"]) for g in grants])
        policy = f'''{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Principal": {{"AWS": ["arn:aws:iam:::user/bob"]}},
                      "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::{bucket}"]}}]}}'''
        self.s3.put_bucket_policy(Bucket=bucket, Policy=policy)
        self.assertEqual(["private", "public"], names(self.other.list_objects(Bucket=bucket)))
        bad = dict(self.alice, keys=[dict(self.alice["keys"][0], secret_key="wrong")])
        self.refused(403, "SignatureDoesNotMatch", self.gateway.client(bad).list_objects, Bucket=bucket)

    # ---- what works in the background ----

    def test_lifecycle_expires_objects_and_uploads(self):
        bucket = self.bucket()
        for key in ("old/1", "old/2", "keep/1"):
            self.put(bucket, key, b"x")
        upload = self.s3.create_multipart_upload(Bucket=bucket, Key="old/upload")["UploadId"]
        self.s3.upload_part(Bucket=bucket, Key="old/upload", UploadId=upload, PartNumber=1, Body=b"y")
        rules = [{"ID": "r", "Prefix": "old/", "Status": "Enabled", "Expiration": {"Days": 1}},
                 {"ID": "u", "Prefix": "", "Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]
        self.s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
        listed = self.gateway.admin("lc", "list").json
        self.assertTrue([row for row in listed if row["bucket"].split(":")[1] == bucket], listed)
        eventually(lambda: names(self.s3.list_objects(Bucket=bucket)) == ["keep/1"], 90, 1)
        eventually(lambda: names(self.s3.list_multipart_uploads(Bucket=bucket), "Uploads") == [], 90, 1)

    def test_garbage_collection_gives_the_space_back(self):
        bucket = self.bucket()
        marker = self.stats(bucket)["marker"]

        def stored():
            return [name for name in self.client.rados("-p", "default.rgw.buckets.data", "ls").text.splitlines() if name.startswith(marker)]

        self.put(bucket, "big", body(9 * MIB, 5))
        # A head of 4 MiB and two tail objects.
        self.assertEqual(3, len(stored()))
        self.s3.delete_object(Bucket=bucket, Key="big")
        self.gateway.admin("gc", "process", "--include-all")
        eventually(lambda: not stored(), 60)
        queued = [entry for entry in self.gateway.admin("gc", "list", "--include-all").json
                  if any(o["oid"].startswith(marker) for o in entry["objs"])]
        self.assertEqual([], queued)

    # ---- radosgw-admin ----

    def test_admin_counts_checks_and_limits(self):
        bucket = self.bucket()
        for n in range(12):
            self.put(bucket, f"k{n}", body(1000, n))
        usage = self.stats(bucket)["usage"]["rgw.main"]
        self.assertEqual((12, 12_000, 12 * 4096), (usage["num_objects"], usage["size"], usage["size_actual"]))
        check = self.gateway.admin("bucket", "check", "--bucket", bucket, "--check-objects", "--fix").text
        self.assertIn('"num_objects": 12', check)
        self.assertEqual(12, self.stats(bucket)["usage"]["rgw.main"]["num_objects"])
        user = self.gateway.admin("user", "stats", "--uid", "alice", "--sync-stats").json["stats"]
        buckets = [self.stats(b["Name"])["usage"] for b in self.s3.list_buckets()["Buckets"]]
        self.assertEqual(sum(kind["num_objects"] for b in buckets for kind in b.values()), user["num_objects"])
        shards = self.stats(bucket).get("num_shards")
        self.gateway.admin("bucket", "reshard", "--bucket", bucket, "--num-shards", "5", "--yes-i-really-mean-it")
        told = self.stats(bucket)
        self.assertEqual((5, 12), (told["num_shards"], told["usage"]["rgw.main"]["num_objects"]), shards)
        self.assertEqual(sorted(f"k{n}" for n in range(12)), names(self.s3.list_objects(Bucket=bucket)))
        self.put(bucket, "after", b"resharded")
        self.gateway.admin("quota", "set", "--quota-scope", "bucket", "--uid", "bob", "--max-objects", "2")
        self.gateway.admin("quota", "enable", "--quota-scope", "bucket", "--uid", "bob")
        self.other.create_bucket(Bucket=f"{bucket}-bob")
        for key in ("1", "2"):
            self.other.put_object(Bucket=f"{bucket}-bob", Key=key, Body=b"")
        self.refused(403, "QuotaExceeded", self.other.put_object, Bucket=f"{bucket}-bob", Key="3", Body=b"")

    def test_admin_makes_and_removes_users(self):
        carol = self.gateway.make_user("carol")
        s3 = self.gateway.client(carol)
        s3.create_bucket(Bucket="carols")
        s3.put_object(Bucket="carols", Key="k", Body=b"v")
        self.assertEqual({"alice", "bob", "carol"}, set(self.gateway.admin("user", "list").json))
        self.gateway.admin("user", "suspend", "--uid", "carol")
        eventually(lambda: self.is_refused(s3, 403), 30)
        self.gateway.admin("user", "enable", "--uid", "carol")
        eventually(lambda: not self.is_refused(s3, 403), 30)
        key = self.gateway.admin("key", "create", "--uid", "carol", "--key-type", "s3", "--gen-access-key", "--gen-secret").json["keys"]
        self.assertEqual(2, len(key))
        self.gateway.admin("bucket", "link", "--bucket", "carols", "--uid", "bob")
        self.assertEqual("bob", self.stats("carols")["owner"])
        done = self.gateway.admin("user", "rm", "--uid", "bob", check=False)
        self.assertNotEqual(0, done.code, "a user with buckets stays without --purge-data")
        self.gateway.admin("bucket", "rm", "--bucket", "carols", "--purge-objects")
        self.gateway.admin("user", "rm", "--uid", "carol")
        self.assertEqual({"alice", "bob"}, set(self.gateway.admin("user", "list").json))

    def is_refused(self, s3, status):
        from botocore.exceptions import ClientError
        try:
            s3.list_objects(Bucket="carols")
        except ClientError as error:
            self.assertEqual(status, error.response["ResponseMetadata"]["HTTPStatusCode"])
            return True
        return False

    # ---- another client ----

    @unittest.skipUnless(Path("/usr/bin/s3cmd").exists(), "s3cmd is not installed")
    def test_s3cmd_stores_and_returns_a_folder(self):
        conf, key = self.cluster.dir / "s3cfg", self.alice["keys"][0]
        conf.write_text(f"[default]\naccess_key = {key['access_key']}\nsecret_key = {key['secret_key']}\nuse_https = False\n"
                        f"host_base = 127.0.0.1:{self.gateway.port}\nhost_bucket = 127.0.0.1:{self.gateway.port}\n"
                        "multipart_chunk_size_mb = 5\n")

        def s3cmd(*args):
            return run(["s3cmd", "-c", str(conf), "--no-progress", *map(str, args)])

        folder, back = self.cluster.dir / "folder", self.cluster.dir / "back"
        (folder / "in").mkdir(parents=True), back.mkdir()
        files = {"a.txt": b"text", "in/b.bin": body(11 * MIB, 6), "in/empty": b""}
        for name, data in files.items():
            (folder / name).write_bytes(data)
        s3cmd("mb", "s3://cmd")
        s3cmd("sync", f"{folder}/", "s3://cmd/")
        listed = {line.split()[-1].removeprefix("s3://cmd/") for line in s3cmd("ls", "-r", "s3://cmd").text.splitlines()}
        self.assertEqual(set(files), listed)
        s3cmd("sync", "s3://cmd/", f"{back}/")
        self.assertEqual(files, {name: (back / name).read_bytes() for name in files})
        self.assertEqual("", s3cmd("sync", "--dry-run", f"{folder}/", "s3://cmd/").text.replace("INFO", "").strip())
        s3cmd("rb", "-r", "--force", "s3://cmd")
        self.assertNotIn("s3://cmd", s3cmd("ls").text)

    # ---- OSDs that die ----

    def test_writes_survive_the_death_of_an_osd(self):
        load = s3_load.Load(self.gateway, self.gateway.make_user("loaded"), workers=4)
        with load.running():
            eventually(lambda: load.done >= 20, 60)
            self.cluster.kill("osd.1")
            so_far = load.done
            eventually(lambda: load.done >= so_far + 20, 90)
            self.cluster.start_daemon("osd.1")
            so_far = load.done
            eventually(lambda: load.done >= so_far + 20, 90)
        load.verify()

    @long_only
    def test_ten_minutes_of_mixed_load_with_dying_osds(self):
        harness.give_time(3600)
        load = s3_load.Load(self.gateway, self.gateway.make_user("hours"), workers=6)
        with load.running():
            s3_load.kill_in_turns(self.cluster, self.client, load, seconds=600)
        load.verify()
        print(load.summary())


if __name__ == "__main__":
    unittest.main()
