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
