"""Encrypted stores: stock clients notice nothing, the disk has no plaintext, and no start without the key."""
import os

import harness
from harness import SHOAL, ClusterTest, eventually, run

#: Longer than a packet of anything by chance.
MARK = b"this-text-is-on-no-encrypted-disk"


class Encrypted(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "1G", "--encrypt")
    OSDS = 2

    @classmethod
    def tearDownClass(cls):
        # Refused starts are errors in the OSD's log.
        refusals = ("ceph auth get client.osd-lockbox", "--key-file")
        unexpected = [line for line in cls.cluster.unexpected() if not any(text in line for text in refusals)]
        if unexpected:
            raise harness.Failed("unexpected lines in the logs:\n" + "\n".join(unexpected[:20]))

    def block(self, osd):
        return self.cluster.dir / osd / "block"

    def uuid(self, number):
        return self.client.json("osd", "dump")["osds"][number]["uuid"]

    def plaintext(self, osd):
        """Marks of the objects below that a scan of the file finds."""
        found, tail = set(), b""
        with open(self.block(osd), "rb") as disk:
            while piece := disk.read(4 << 20):
                for kind in (b"data-", b"name-", b"key-", b"value-", b"attr-"):
                    if kind + MARK in tail + piece:
                        found.add(kind)
                tail = piece[-64:]
        return found

    def fill(self, pool):
        data = {n: (b"data-" + MARK) * (n * 2000 + 1) for n in range(8)}
        for n, value in data.items():
            self.client.rados("-p", pool, "put", f"name-{MARK.decode()}-{n}", "-", stdin=value)
        name = f"name-{MARK.decode()}-1"
        self.client.rados("-p", pool, "setxattr", name, "a", "attr-" + MARK.decode())
        self.client.rados("-p", pool, "setomapval", name, "key-" + MARK.decode(), "value-" + MARK.decode())
        return data

    def compare(self, pool, data):
        for n, value in data.items():
            self.assertEqual(self.client.rados("-p", pool, "get", f"name-{MARK.decode()}-{n}", "-").out, value)
        name = f"name-{MARK.decode()}-1"
        self.assertEqual(self.client.rados("-p", pool, "getxattr", name, "a").text, "attr-" + MARK.decode())

    def key_of(self, number):
        """A file with the key of an OSD's store, as an operator saves it."""
        path = self.cluster.dir / f"key.{number}"
        path.write_bytes(self.client.ceph("config-key", "get", f"dm-crypt/osd/{self.uuid(number)}/luks").out)
        return path

    def test_objects_survive_kill_9_and_disks_show_nothing(self):
        pool = self.pool("secret")
        data = self.fill(pool)
        keys = [self.key_of(n) for n in (0, 1)]
        for osd in ("osd.0", "osd.1"):
            self.assertEqual(self.plaintext(osd), set(), osd)
            self.cluster.kill(osd)
        for number in (0, 1):
            fsck = [SHOAL, "store", "fsck", "--deep", self.cluster.dir / f"osd.{number}"]
            refused = run(fsck, check=False)
            self.assertNotEqual(refused.code, 0)
            self.assertIn(f"ceph config-key get dm-crypt/osd/{self.uuid(number)}/luks", refused.errors)
            wrong = run([*fsck, "--key-file", keys[1 - number]], check=False)
            self.assertNotEqual(wrong.code, 0)
            self.assertIn("this key does not open the store", wrong.errors)
            run([*fsck, "--key-file", keys[number]])
            dump = run([SHOAL, "store", "dump", self.cluster.dir / f"osd.{number}", "--key-file", keys[number]])
            self.assertIn(MARK.decode(), dump.text)
        self.cluster.up()
        self.compare(pool, data)
        for osd in ("osd.0", "osd.1"):
            self.assertEqual(self.plaintext(osd), set(), osd)
        key = keys[0].read_bytes()
        for log in ("osd.0", "osd.1", "mon.a"):
            self.assertNotIn(key.decode(), self.cluster.log(log))

    def test_start_without_the_lockbox_key_says_what_to_do(self):
        keyring = self.cluster.dir / "keyring"
        before = keyring.read_text()
        self.cluster.kill("osd.0")
        name = f"client.osd-lockbox.{self.uuid(0)}"
        keyring.write_text(before.replace(name, "client.another"))
        osd = [SHOAL, "osd", "--conf", self.cluster.conf, "--id", "0"]
        refused = run(osd, check=False, timeout=60)
        self.assertNotEqual(refused.code, 0)
        self.assertIn(f"ceph auth get {name}", refused.errors + self.cluster.log("osd.0"))
        keyring.write_text(before)
        self.cluster.up()

    def test_rekey_takes_a_file_and_goes_back_to_the_monitors(self):
        pool = self.pool("rekeyed")
        data = self.fill(pool)
        old = self.key_of(0)
        new = self.cluster.dir / "new.key"
        new.write_bytes(os.urandom(64).hex().encode())
        device = self.cluster.dir / "osd.0"
        self.cluster.kill("osd.0")
        size = self.block("osd.0").stat().st_blocks
        rekey = [SHOAL, "store", "rekey", device]
        run([*rekey, "--key-file", old, "--new-key-file", new])
        self.assertEqual(self.block("osd.0").stat().st_blocks, size)
        osd = [SHOAL, "osd", "--conf", self.cluster.conf, "--id", "0"]
        refused = run(osd, check=False, timeout=60)
        self.assertNotEqual(refused.code, 0)
        self.assertIn("--key-file", refused.errors + self.cluster.log("osd.0"))
        run([*rekey, "--key-file", new, "--new-key-file", old, "--with-monitors"])
        self.cluster.up()
        self.compare(pool, data)


class Purged(ClusterTest):
    OPTIONS = ("--store", "disk", "--size", "1G", "--encrypt")
    OSDS = 2

    def test_purged_osd_takes_its_keys_along(self):
        uuid = self.client.json("osd", "dump")["osds"][1]["uuid"]
        caps = self.client.json("auth", "get", f"client.osd-lockbox.{uuid}")[0]["caps"]
        self.assertEqual(caps["mon"], f'allow command "config-key get" with key="dm-crypt/osd/{uuid}/luks"')
        self.cluster.kill("osd.1")
        eventually(lambda: self.client.json("osd", "dump")["osds"][1]["up"] == 0)
        self.client.ceph("osd", "purge", "1", "--yes-i-really-mean-it")
        self.assertNotIn(uuid, self.client.ceph("config-key", "ls").text + self.client.ceph("auth", "ls").text)


if __name__ == "__main__":
    harness.main()
