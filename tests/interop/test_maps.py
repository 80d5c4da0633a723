"""The maps that `ceph` fetches, read by the same release's `osdmaptool`, `crushtool` and `monmaptool`."""
import re

from harness import Client, ClusterTest, eventually, releases


class Maps(ClusterTest):
    OSDS = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ceph = cls.client.ceph
        for osd in range(cls.OSDS):
            ceph("osd", "crush", "move", f"osd.{osd}", "root=default", f"host=h{osd % 2}")
        ceph("osd", "crush", "set-device-class", "ssd", "osd.1", check=False)
        ceph("osd", "crush", "rule", "create-replicated", "by-osd", "default", "osd")
        ceph("osd", "reweight", 3, 0.7)
        ceph("osd", "primary-affinity", 2, 0.5)
        for name, pgs in (("one", 32), ("two", 7)):
            ceph("osd", "pool", "create", name, pgs, pgs, "by-osd")
        ceph("osd", "pool", "application", "enable", "one", "rbd")
        ceph("osd", "pool", "set-quota", "two", "max_objects", 1000)
        eventually(lambda: set(cls.mapping()) and all(len(osds) == 3 for osds in cls.mapping().values()))
        # Without backfill the OSDs of before go on serving a PG that has moved, as a temporary set says.
        ceph("osd", "set", "nobackfill")
        pg, osds = next(iter(cls.mapping().items()))
        [other] = set(range(cls.OSDS)) - set(osds)
        ceph("osd", "pg-upmap-items", pg, osds[0], other)
        eventually(lambda: pg in (temp["pgid"] for temp in cls.client.json("osd", "dump")["pg_temp"]))

    @classmethod
    def mapping(cls):
        """`{pg: acting}` as the cluster has it."""
        stats = cls.client.json("pg", "dump", "pgs_brief")["pg_stats"]
        return {pg["pgid"]: pg["acting"] for pg in stats}

    def clients(self):
        return [(label, Client(self.cluster, root)) for label, root in releases()]

    def test_osdmaptool_maps_every_pg_as_the_cluster_does(self):
        path = self.cluster.dir / "osdmap"
        for label, on in self.clients():
            with self.subTest(label):
                on.ceph("osd", "getmap", "-o", path)
                shown = on.tool("osdmaptool", path, "--print").text
                self.assertIn(f"max_osd {self.OSDS}", shown)
                self.assertRegex(shown, r"pool 2 'two' replicated size 3 .*max_objects 1000")
                self.assertEqual(len(re.findall(r"^osd\.\d+ +up +in ", shown, re.M)), self.OSDS)
                dump = on.tool("osdmaptool", path, "--test-map-pgs-dump").text
                lines = re.findall(r"^(\d+\.[0-9a-f]+)\s+\[([\d,]*)\]\s+(-?\d+)$", dump, re.M)
                theirs = {pg: [int(osd) for osd in osds.split(",") if osd] for pg, osds, _ in lines}
                self.assertEqual(theirs, self.mapping())
                self.assertRegex(on.tool("osdmaptool", path, "--test-map-pgs").text, r"size 3\s+39")

    def test_crushtool_writes_the_map_out_and_back(self):
        path = self.cluster.dir / "crush"
        for label, on in self.clients():
            with self.subTest(label):
                on.ceph("osd", "getcrushmap", "-o", path)
                on.tool("crushtool", "-d", path, "-o", f"{path}.txt")
                on.tool("crushtool", "-c", f"{path}.txt", "-o", f"{path}.again")
                text = on.tool("crushtool", "-d", f"{path}.again").text
                self.assertIn("rule by-osd {", text)
                self.assertIn("device 1 osd.1 class ssd", text)
                on.ceph("osd", "setcrushmap", "-i", f"{path}.again")
                self.assertIn("by-osd", self.client.json("osd", "crush", "rule", "ls"))

    def test_monmaptool_reads_the_map(self):
        path = self.cluster.dir / "monmap"
        for label, on in self.clients():
            with self.subTest(label):
                on.ceph("mon", "getmap", "-o", path)
                shown = on.tool("monmaptool", "--print", path).text
                self.assertIn(f"0: v2:127.0.0.1:{self.cluster.port}/0 mon.a", shown)
                self.assertIn(f"fsid {self.client.ceph('fsid').text.strip()}", shown)


class Balancer(ClusterTest):
    OSDS = 5

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ceph = cls.client.ceph
        ceph("osd", "crush", "rule", "create-replicated", "by-osd", "default", "osd")
        ceph("osd", "pool", "create", "data", 128, 128, "by-osd")
        ceph("osd", "pool", "application", "enable", "data", "rados")
        ceph("config", "set", "mgr", "mgr/balancer/upmap_max_deviation", 1)
        cls.content = cls.cluster.dir / "content"
        cls.content.write_bytes(bytes(range(256)) * 64)
        for number in range(40):
            cls.client.rados("-p", "data", "put", f"object-{number}", cls.content)

    def setUp(self):
        self.settle()

    def settle(self):
        def is_clean():
            states = self.client.json("pg", "stat")["pg_summary"]["num_pg_by_state"]
            return [(state["name"], state["num"]) for state in states] == [("active+clean", 128)]
        eventually(is_clean, 60)

    def copies(self):
        """PGs of each OSD."""
        stats = self.client.json("pg", "dump", "pgs_brief")["pg_stats"]
        up = [osd for pg in stats for osd in pg["up"]]
        return [up.count(osd) for osd in range(self.OSDS)]

    def upmaps(self):
        return {item["pgid"] for item in self.client.json("osd", "dump")["pg_upmap_items"]}

    def score(self, *of):
        words = self.client.ceph("balancer", "eval", *of).text
        return float(re.search(r" score (\d\.\d{6}) \(lower is better\)", words).group(1))

    def proposals(self):
        """Upmaps that the same release's `osdmaptool` would make."""
        proposed = []
        for label, root in releases():
            on, path = Client(self.cluster, root), self.cluster.dir / f"osdmap-{len(proposed)}"
            on.ceph("osd", "getmap", "-o", path)
            on.tool("osdmaptool", path, "--upmap", f"{path}.out", "--upmap-deviation", 1, "--upmap-max", 100)
            with open(f"{path}.out") as lines:
                proposed.append([line for line in lines if "upmap" in line])
        return proposed

    def check_objects(self):
        back = self.cluster.dir / "back"
        for number in range(40):
            self.client.rados("-p", "data", "get", f"object-{number}", back)
            self.assertEqual(back.read_bytes(), self.content.read_bytes(), number)

    def test_plan_by_hand_leaves_nothing_for_stocks_tool(self):
        ceph = self.client.ceph
        ceph("balancer", "off")
        ceph("config", "set", "mgr", "mgr/balancer/upmap_max_optimizations", 1000)
        # What the balancer did before it was off may have PGs peer.
        self.settle()
        before, score = self.copies(), self.score()
        self.assertGreater(max(before) - min(before), 2, before)

        def plan_is_made():
            planned = ceph("balancer", "optimize", "first", "data", check=False)
            self.assertIn(planned.code, (0, 11), planned)
            return planned.code == 0
        eventually(plan_is_made)
        self.assertEqual(self.client.json("balancer", "ls"), ["first"])
        self.assertLess(self.score("first"), score)
        shown = ceph("balancer", "show", "first").text.splitlines()
        dumped = self.client.json("balancer", "dump", "first")
        made, ended = ({item["pgid"] for item in dumped["new_pg_upmap_items"]}, set(dumped["old_pg_upmap_items"]))
        self.assertEqual(len(shown) - 3, len(made) + len(ended))
        known = self.upmaps()
        moved = ceph("balancer", "execute", "first")
        self.assertEqual(moved.text.strip(), "")
        self.assertEqual(self.client.json("balancer", "ls"), [])
        self.assertEqual(self.upmaps(), (known | made) - ended)
        # The manager hears of it from the OSDs.
        eventually(lambda: max(self.copies()) - min(self.copies()) <= 2)
        self.settle()
        self.assertEqual([], [lines for lines in self.proposals() if lines])
        self.check_objects()
        refused = ceph("balancer", "optimize", "again", check=False)
        self.assertEqual(refused.code, 114, refused)
        self.assertIn("distribution is already perfect", refused.errors)

    def test_balancer_follows_a_changed_weight(self):
        ceph = self.client.ceph
        ceph("config", "set", "mgr", "mgr/balancer/upmap_max_optimizations", 10)
        ceph("config", "set", "mgr", "mgr/balancer/sleep_interval", 1)
        ceph("config", "set", "mgr", "target_max_misplaced_ratio", 0.5)
        # Half of an OSD's weight is in: it is to have half as many as before.
        ceph("osd", "reweight", 4, 0.5)
        ceph("balancer", "on")
        share = 128 * 3 / 4.5
        eventually(lambda: all(abs(copies - wanted) <= 2 for copies, wanted in
                               zip(self.copies(), [share] * 4 + [share / 2])), 90)
        self.settle()
        status = self.client.json("balancer", "status")
        self.assertTrue(status["active"])
        self.assertEqual(status["mode"], "upmap")
        eventually(lambda: "already perfect" in self.client.json("balancer", "status")["optimize_result"], 30)
        epoch = self.client.json("osd", "dump")["epoch"]
        ceph("balancer", "off")
        self.check_objects()
        self.assertLessEqual(self.client.json("osd", "dump")["epoch"], epoch + 1, "an even cluster is left alone")
        ceph("osd", "reweight", 4, 1)

    def test_what_cannot_be_done_is_refused(self):
        for words, code, error in [
            (("balancer", "mode", "crush-compat"), 95, "shoal balances by upmaps"),
            (("balancer", "mode", "read"), 1, '< "reef", which is required for pg-upmap-primary. Try "ceph osd set-require-min-compat-client reef"'),
            (("balancer", "show", "none"), 2, "plan none not found"),
            (("balancer", "eval", "none"), 22, 'option "none" not a plan or a pool'),
            (("balancer", "optimize", "p", "none"), 22, "not found"),
            (("balancer", "pool", "add", "none"), 22, "not found"),
        ]:
            with self.subTest(words):
                refused = self.client.ceph(*words, check=False)
                self.assertEqual(refused.code, code, refused)
                self.assertIn(error, refused.errors)
        self.client.ceph("balancer", "pool", "add", "data")
        eventually(lambda: self.client.ceph("balancer", "pool", "ls").text.split() == ["[", '"data"', "]"])
        self.client.ceph("balancer", "pool", "rm", "data")
        eventually(lambda: self.client.ceph("balancer", "pool", "ls").text.strip() == "")


class Primaries(ClusterTest):
    """The balancer's mode `read`. No client of 16.2 works on objects here: it does not know the exceptions for primaries."""
    OSDS = 5

    def primaries(self):
        """PGs that each OSD serves."""
        served = [pg["acting_primary"] for pg in self.client.json("pg", "dump", "pgs_brief")["pg_stats"]]
        return [served.count(osd) for osd in range(self.OSDS)]

    def proposals(self):
        """Primaries that stock's `osdmaptool` would change, for each release that can."""
        proposed = {}
        for label, root in releases():
            if root is None:
                continue
            on, path = Client(self.cluster, root), self.cluster.dir / f"osdmap-{label}"
            on.ceph("osd", "getmap", "-o", path)
            on.tool("osdmaptool", path, "--read", f"{path}.out", "--read-pool", "data")
            with open(f"{path}.out") as lines:
                proposed[label] = [line for line in lines if "pg-upmap-primary" in line]
        return proposed

    def test_plans_of_primaries_leave_nothing_for_stocks_tool(self):
        ceph = self.client.ceph
        ceph("osd", "crush", "rule", "create-replicated", "by-osd", "default", "osd")
        ceph("osd", "pool", "create", "data", 128, 128, "by-osd")
        ceph("osd", "set-require-min-compat-client", "reef", "--yes-i-really-mean-it")
        ceph("balancer", "mode", "read")
        ceph("config", "set", "mgr", "mgr/balancer/upmap_max_optimizations", 1000)
        eventually(lambda: self.client.json("balancer", "status")["mode"] == "read")
        eventually(lambda: sum(self.primaries()) == 128, 60)
        before = self.primaries()
        eventually(lambda: ceph("balancer", "optimize", "p", "data", check=False).code == 0, 60)
        shown = [line for line in ceph("balancer", "show", "p").text.splitlines() if line.startswith("ceph osd")]
        self.assertTrue(shown and all(line.startswith("ceph osd pg-upmap-primary") for line in shown), shown)
        self.assertEqual(len(self.client.json("balancer", "dump", "p")["new_pg_upmap_primaries"]), len(shown))
        ceph("balancer", "execute", "p")
        eventually(lambda: max(self.primaries()) - min(self.primaries()) <= 3, 60)
        print(f"primaries of each OSD: {before}, then {self.primaries()} by {len(shown)} changes", flush=True)
        self.assertEqual(len(self.client.json("osd", "dump")["pg_upmap_primaries"]), len(shown))
        self.assertEqual({label: lines for label, lines in self.proposals().items() if lines}, {})
        eventually(lambda: "already perfect" in ceph("balancer", "optimize", "again", check=False).errors, 60)
