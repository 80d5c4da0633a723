"""A cluster of several hosts, as docs/guide/hosts.md makes it: three hosts, one killed and replaced, a fourth added, one drained, all
while verifying clients write and read. Nothing acknowledged is lost, and the cluster is healthy at the end."""
import unittest

from harness import SHOAL, Client, Failed, eventually
from history import History
from hosts import HostsTest, Page
from replicated import OP_SECONDS_MAX, Pgs

#: Copying a host's data to another takes seconds here.
DRAIN_SECONDS_MAX = 90


class SeveralHosts(HostsTest):
    def status(self, host):
        """The table of `shoal status` by host: its columns."""
        done = self.cluster[host].shoal("status", check=False)
        lines = done.text.splitlines()
        heads = next((number for number, line in enumerate(lines) if line.startswith("HOST")), None)
        if heads is None:
            raise Failed(f"no table of hosts:\n{done.text}\n{done.errors}")
        rows = [line.split(None, 4) for line in lines[heads + 1:] if line.startswith("h")]
        return {row[0]: dict(zip(("addr", "monitor", "manager", "osds"), row[1:])) for row in rows}

    def goes_on(self, load, writes=100):
        before = load.writes()
        eventually(lambda: load.problems or load.writes() >= before + writes, OP_SECONDS_MAX, 0.05)
        self.assertEqual(load.problems, [])

    def test_guide_page_is_what_happens(self):
        hosts = self.cluster
        page = Page("hosts.md", hosts)
        try:
            self.story(page, hosts)
        except BaseException:
            hosts.show_logs()
            raise

    def story(self, page, hosts):
        said = page.perform("h1# shoal init --addr 10.0.0.1 --device /dev/nvme0n1").text
        self.assertIn("shoal join shoal1-", said)
        again = hosts["h1"].shoal("init", "--addr", hosts["h1"].addr)
        self.assertIn("is there already: nothing is made anew", again.text)

        page.perform("h2# shoal join TOKEN --device /dev/nvme0n1")
        page.perform("h3# shoal join TOKEN --device /dev/nvme0n1")
        rows = self.status("h2")
        self.assertEqual({name: row["osds"] for name, row in rows.items()}, {"h1": "osd.0", "h2": "osd.1", "h3": "osd.2"})
        self.assertEqual({name: row["addr"] for name, row in rows.items()}, {name: hosts[name].addr for name in rows})
        self.assertEqual(sorted(row["monitor"] for row in rows.values()), ["leader", "peon", "peon"])
        self.refusals(page, hosts)

        client = Client(hosts)
        page.perform("h3# shoal status")
        page.perform("h1# ceph -c /var/lib/shoal/ceph.conf osd pool create data 32")
        page.perform("h1# ceph -c /var/lib/shoal/ceph.conf osd pool application enable data rados")
        pgs = Pgs(client)
        pgs.wait_clean()
        pool = pgs.pool("data")
        self.assertEqual((pool["size"], pool["min_size"]), (3, 2))
        load = History(hosts.conf, "data").start()
        self.addCleanup(self.end, load)
        self.goes_on(load, 300)

        hosts["h3"].kill()
        self.goes_on(load)
        self.assertIn("takes part", hosts["h3"].shoal("up").text)
        pgs.wait_clean()

        hosts["h2"].kill()
        self.goes_on(load)
        eventually(lambda: self.status("h1")["h2"]["osds"] == "osd.1 down")
        # Its monitor was missed before its OSD: otherwise another sentence refuses.
        refused = hosts["h1"].shoal("leave", "--host", "h2", "--dead", check=False)
        self.assertIn("2 would be left. Add a host first", refused.errors)
        page.perform("h1# shoal token create --uses 1 --expires 1h --mons")
        once = page.token
        for seconds in (0.05, 0.1, 0.2, 0.4):
            # Whatever it has done by then, the same line goes on with it, and the token counts one host.
            hosts["h4"].run("timeout", "-s", "KILL", seconds, SHOAL, "join", once, "--device", hosts["h4"].disk, "--dir", hosts["h4"].dir,
                            check=False)
        page.perform("h4# shoal join TOKEN --device /dev/nvme0n1")
        alive = hosts["h1"].shoal("leave", "--host", "h3", "--dead", check=False)
        self.assertIn("h3 is alive", alive.errors)
        page.perform("h1# shoal leave --host h2 --dead", timeout=DRAIN_SECONDS_MAX)
        self.assertNotIn("h2", self.status("h3"))
        self.goes_on(load)
        self.assertRegex(page.perform("h1# shoal token ls").text, r"1 hosts joined, 0 more may, may add monitors: h4")

        page.perform("h2# shoal leave --removed --destroy")
        self.assertEqual(hosts["h2"].start_of_disk(), bytes(1 << 20))
        still = hosts["h1"].shoal("leave", "--removed", check=False)
        self.assertIn("is in the cluster", still.errors)

        used_up = hosts["h5"].shoal("join", once, "--device", hosts["h5"].disk, check=False)
        self.assertIn("is used up", used_up.errors)
        page.perform("h1# shoal token create --mons")
        page.perform("h5# shoal join TOKEN --device /dev/nvme0n1")
        self.assertIn(self.status("h4")["h5"]["monitor"], ("leader", "peon"))
        self.goes_on(load)

        # The file named h1's monitor alone when it was made.
        eventually(lambda: hosts["h3"].addr in hosts.conf.read_text(), 120)
        page.perform("h3# shoal leave", timeout=DRAIN_SECONDS_MAX)
        self.assertEqual(hosts["h3"].pids(), [])
        self.assertNotEqual(hosts["h3"].start_of_disk(), bytes(1 << 20), "the data stays until it is destroyed")
        page.perform("h3# shoal leave --destroy")
        self.assertEqual(hosts["h3"].start_of_disk(), bytes(1 << 20))
        page.perform("h4# shoal join TOKEN --mon")
        pgs.wait_clean()
        self.goes_on(load)

        self.assertEqual(load.finish(), [])
        self.assertEqual(load.undecided, 0, load.summary())
        self.assertLess(load.slowest()[0], OP_SECONDS_MAX, load.summary())
        self.assertEqual(sorted(self.status("h1")), ["h1", "h4", "h5"])
        eventually(lambda: client.json("health", "detail")["status"] == "HEALTH_OK", 60)
        last = page.perform("h5# shoal status").text
        self.assertIn("HEALTH_OK", last)
        page.ends()
        self.assertEqual(sorted(client.json("quorum_status")["quorum_names"]), ["h1", "h4", "h5"])
        entities = {row["entity"] for row in client.json("auth", "ls")["auth_dump"]}
        gone = {f"{kind}{name}" for kind in ("mgr.", "client.host-") for name in ("h2", "h3")}
        self.assertFalse(entities & gone)
        osds = {f"osd.{osd}" for osd in client.json("osd", "ls")}
        self.assertEqual((len(osds), {name for name in entities if name.startswith("osd.")}), (3, osds))

    def refusals(self, page, hosts):
        """Joins that cannot be, each with the word that says what to do. None leaves anything behind."""
        h4 = hosts["h4"]
        for token, more, said in (
                (page.token[:-1] + ("A" if page.token[-1] != "A" else "B"), [], "mistyped or cut off"),
                (page.token, ["--name", "h2"], "a host h2 is in the cluster already"),
                (page.token, ["--addr", hosts["h1"].addr], "no address of this host"),
                (page.token, ["--device", hosts.conf], "is not blank"),
                (page.token, ["--device", hosts["h1"].disk], "in use"),
        ):
            refused = h4.shoal("join", token, *more, check=False)
            self.assertNotEqual(refused.code, 0, said)
            self.assertIn(said, refused.errors)
            self.assertFalse((h4.dir / "host.json").exists(), said)
        self.assertNotIn("h4", self.status("h1"))
        # A host's own key takes out no other host.
        keyring = hosts["h2"].dir / "keyring"
        other = h4.run("ceph", "-c", hosts["h2"].dir / "ceph.conf", "-n", "client.host-h2", "-k", keyring, "shoal", "host", "out", "h1",
                       check=False)
        self.assertIn("EACCES", other.errors)

    @staticmethod
    def end(load):
        """A test that failed leaves no load that waits for its OSDs."""
        load.ending.set()
        load.running.set()


if __name__ == "__main__":
    unittest.main()
