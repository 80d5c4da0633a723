"""Mirror snapshots of block images at scheduled times, made by the manager, and migrations by its tasks. Two stories; with --stock on
stock's daemons of 16.2. The snapshots are read by stock's librbd, contents are compared byte by byte, and no object is left of an
image that was migrated away from."""
import json
import os
import unittest
from pathlib import Path

import harness
from harness import eventually
from test_rbd_tasks import POOL, TaskTest

OTHER = "images-other"
SCHEDULE = ("rbd", "mirror", "snapshot", "schedule")
#: Stock looks for new images once a minute, and schedules are at full minutes.
SNAPSHOT_SECONDS_MAX = 130
SNAPSHOTS_MAX = 3

#: Command, exit code, and the errors that stock 16.2.15 prints.
SCHEDULE_REFUSALS = [
    ("add images/plain 1m", 22, "Invalid level spec images/plain: image plain is not in snapshot mirror mode"),
    ("add images/nope 1m", 22, "Invalid level spec images/nope: image nope does not exist"),
    ("add images/plain@s 1m", 22, "Invalid level spec images/plain@s: failed to parse images/plain@s"),
    ("add images/unmirrored/ 1h", 22, "Invalid level spec images/unmirrored/: namespace unmirrored is not in mirror image mode"),
    ("add images/unmirrored/i 1h", 22, "Invalid level spec images/unmirrored/i: namespace unmirrored is not in mirror image mode"),
    ("add images/nx/i 2h", 22, "Invalid level spec images/nx/i: namespace nx does not exist"),
    ("add nopool/ 1h", 22, "Invalid level spec nopool/: pool nopool does not exist"),
    ("add images/ 1x", 22, "Invalid interval (1x)"),
    ("add images/ 10 25:00", 22, "Invalid start time 25:00: hour must be in 0..23: 25:00"),
    ("status images", 22, "Invalid level spec images: failed to parse images"),
]
MIGRATION_REFUSALS = [
    ("execute images/nope", 22, "[errno 22] RBD invalid argument (Image images/nope is not migrating)"),
    ("execute images/still", 22, "[errno 22] RBD invalid argument (Image images/still is not migrating)"),
    ("commit images/still", 22, "[errno 22] RBD invalid argument (Image images/still is not migrating)"),
    ("abort images/still", 22, "[errno 22] RBD invalid argument (Image images/still is not migrating)"),
    ("abort nopool/p", 2, "[errno 2] RADOS object not found (error opening pool 'nopool')"),
    ("execute a/b/c/d", 22, "Invalid image spec: a/b/c/d"),
]


class Story(TaskTest):
    def refused(self, *command):
        told = self.ask(*command, check=False)
        return told.code, told.errors.strip().partition(": ")[2]

    def filled(self, spec, mib, *options):
        """An image of random bytes with every second 64 KiB empty."""
        path = Path(self.cluster.dir) / "imported"
        path.write_bytes(b"".join(os.urandom(65536) + bytes(65536) for _ in range(mib * 8)))
        self.rbd("import", "--no-progress", *options, path, spec)


class Schedules(Story):
    def snapshots(self, name):
        """Mirror snapshots of an image, oldest first."""
        rows = self.rbd("snap", "ls", "--all", f"{POOL}/{name}", "--format", "json").json
        return [row for row in rows if row["namespace"]["type"] == "mirror"]

    def newest(self, name, after):
        """The newest mirror snapshot, once there is one that is newer and whole."""
        def found():
            rows = [row for row in self.snapshots(name) if row["id"] > after and row["namespace"].get("complete")]
            return rows[-1] if rows else None
        return eventually(found, SNAPSHOT_SECONDS_MAX, every=0.5)

    def last(self, name):
        return max((row["id"] for row in self.snapshots(name)), default=0)

    def rows(self):
        """Rows of the pool's table, as another manager would read them."""
        names = self.client.rados("-p", POOL, "listomapkeys", "rbd_mirror_snapshot_schedule").text.split()
        path = Path(self.cluster.dir) / "row"
        rows = {}
        for name in names:
            self.client.rados("-p", POOL, "getomapval", "rbd_mirror_snapshot_schedule", name, path)
            rows[name] = path.read_text()
        return rows

    def mirrored(self, name, *options):
        self.filled(f"{POOL}/{name}", 1, "--object-size", "64K", *options)
        self.rbd("mirror", "image", "enable", f"{POOL}/{name}", "snapshot")
        return self.info(f"{POOL}/{name}")["id"]

    def test_images_get_mirror_snapshots_at_their_times(self):
        self.assertEqual(self.ask(*SCHEDULE, "list").json, {})
        self.assertEqual(self.ask(*SCHEDULE, "status").json, {"scheduled_images": []})
        self.rbd("mirror", "pool", "enable", POOL, "image")
        self.rbd("namespace", "create", f"{POOL}/unmirrored")
        self.rbd("create", "--size", "1M", f"{POOL}/plain")
        idle = self.mirrored("idle")
        self.rbd("snap", "create", "--no-progress", f"{POOL}/idle@mine")
        self.rbd("image-meta", "set", f"{POOL}/idle", "conf_rbd_mirroring_max_mirroring_snapshots", SNAPSHOTS_MAX)
        busy, demoted = self.mirrored("busy"), self.mirrored("demoted")
        self.mirrored("lockless", "--image-feature", "layering")
        for command, code, errors in SCHEDULE_REFUSALS:
            with self.subTest(command):
                self.assertEqual(self.refused(*SCHEDULE, *command.split()), (code, errors))
        self.ask(*SCHEDULE, "add", f"{POOL}/", "1m")
        self.ask(*SCHEDULE, "add", f"{POOL}/demoted", "1d", "14:00-05:00")
        self.ask(*SCHEDULE, "add", f"{POOL}//busy", "1m")
        self.ask(*SCHEDULE, "remove", f"{POOL}/busy", "7m")
        pool_id = next(iter(self.ask(*SCHEDULE, "list", f"{POOL}/").json)).split("/")[0]
        every = {"interval": "1m", "start_time": None}
        listed = {
            pool_id: {"name": f"{POOL}/", "schedule": [every]},
            f"{pool_id}//{busy}": {"name": f"{POOL}/busy", "schedule": [every]},
            f"{pool_id}//{demoted}": {"name": f"{POOL}/demoted", "schedule": [{"interval": "1d", "start_time": "14:00:00-05:00"}]},
        }
        self.assertEqual(self.ask(*SCHEDULE, "list").json, listed)
        self.assertEqual(list(self.ask(*SCHEDULE, "list", f"{POOL}/idle").json), [pool_id], "the level above counts")
        self.assertEqual(list(self.ask(*SCHEDULE, "list", f"{POOL}/busy").json), [f"{pool_id}//{busy}"])
        self.assertEqual({key: json.loads(row) for key, row in self.rows().items()},
                         {key: row["schedule"] for key, row in listed.items()})
        self.assertEqual(self.rows()[pool_id], '[\n    {\n        "interval": "1m",\n        "start_time": null\n    }\n]')

        def planned():
            rows = self.ask(*SCHEDULE, "status").json["scheduled_images"]
            return rows if len(rows) == 4 else None
        planned = eventually(planned, SNAPSHOT_SECONDS_MAX)
        self.assertEqual({row["image"] for row in planned}, {f"{POOL}/{name}" for name in ("idle", "busy", "demoted", "lockless")})
        self.assertEqual([row["schedule_time"] for row in planned], sorted(row["schedule_time"] for row in planned))
        self.assertTrue(planned[-1]["schedule_time"].endswith(" 09:00:00"), planned)
        self.assertEqual(self.ask(*SCHEDULE, "status", f"{POOL}/demoted").json["scheduled_images"], planned[-1:])
        self.rbd("mirror", "image", "demote", f"{POOL}/demoted")
        # Without a peer no snapshot is made.
        peer = self.rbd("mirror", "pool", "peer", "add", POOL, "client.remote@elsewhere").text.strip()
        with self.owner(f"{POOL}/busy") as owner:
            before = {name: self.last(name) for name in ("idle", "busy", "lockless", "demoted")}
            for name in ("busy", "idle", "lockless"):
                with self.subTest(name):
                    made = self.newest(name, before[name])
                    self.assertEqual(made["namespace"]["mirror_peer_uuids"], [peer])
                    self.assertEqual(made["namespace"]["state"], "primary")
                    self.assertTrue(made["name"].startswith(".mirror.primary."), made)
                    state = f"rbd_mirror_snapshot.{self.info(f'{POOL}/{name}')['id']}.{made['id']}.0"
                    self.assertIn(state, self.objects())
            self.assertIsNone(owner.poll(), "the owner of the lock goes on")
        self.check_snapshot("idle", idle)
        self.keeps_as_many_as_set("idle", idle, peer)
        self.assertEqual(self.last("demoted"), before["demoted"], "it is another cluster's to snapshot")
        self.goes_on_with_next_manager("idle")
        # Rows of images that are no longer mirrored go.
        self.rbd("mirror", "image", "promote", f"{POOL}/demoted")
        self.rbd("mirror", "image", "disable", f"{POOL}/demoted")
        eventually(lambda: f"{pool_id}//{demoted}" not in self.rows(), SNAPSHOT_SECONDS_MAX)
        self.ask(*SCHEDULE, "remove", f"{POOL}/busy")
        self.ask(*SCHEDULE, "remove", f"{POOL}/", "1m")
        self.assertEqual((self.ask(*SCHEDULE, "list").json, self.rows()), ({}, {}))
        eventually(lambda: self.ask(*SCHEDULE, "status").json == {"scheduled_images": []}, SNAPSHOT_SECONDS_MAX)
        self.of_all_pools()

    def digest_at(self, name, snap_id):
        """Of the contents of a snapshot, which `rbd export` finds by no name."""
        script = ("import hashlib, rados, rbd, sys\n"
                  "conf, pool, name, snap = sys.argv[1:]\n"
                  "with rados.Rados(conffile=conf) as cluster, cluster.open_ioctx(pool) as io, rbd.Image(io, name, read_only=True) as image:\n"
                  "    image.set_snap_by_id(int(snap))\n"
                  "    print(hashlib.sha256(image.read(0, image.size())).hexdigest())\n")
        return harness.run(["/usr/bin/python3", "-c", script, self.cluster.conf, POOL, name, str(snap_id)]).text.strip()

    def check_snapshot(self, name, image_id):
        """librbd finds the manager's snapshot as it would be one of its own."""
        made = self.snapshots(name)[-1]
        head = self.digest(f"{POOL}/{name}")
        self.assertEqual(self.digest_at(name, made["id"]), head)
        self.rbd("object-map", "check", "--no-progress", f"{POOL}/{name}")
        self.assertEqual(self.info(f"{POOL}/{name}")["flags"], [])
        self.assertIn(f"rbd_object_map.{image_id}.{made['id']:016x}", self.objects())
        # A write after it leaves it as it is: the clients of the image know of it.
        self.write(f"{POOL}/{name}")
        self.rbd("object-map", "check", "--no-progress", f"{POOL}/{name}")
        self.assertEqual(self.info(f"{POOL}/{name}")["flags"], [])
        self.assertEqual(self.digest_at(name, made["id"]), head)
        self.assertNotEqual(self.digest(f"{POOL}/{name}"), head)

    def keeps_as_many_as_set(self, name, image_id, peer):
        """Beyond the maximum older snapshots go, with their objects. The user's snapshot stays."""
        while len(self.snapshots(name)) < SNAPSHOTS_MAX:
            self.rbd("mirror", "image", "snapshot", f"{POOL}/{name}")
        first, last = self.snapshots(name)[0]["id"], self.last(name)
        made = self.newest(name, last)
        eventually(lambda: len(self.snapshots(name)) == SNAPSHOTS_MAX, 20)
        left = self.snapshots(name)
        self.assertEqual((left[0]["id"], left[-1]["id"]), (first, made["id"]), "a peer may still copy the first")
        states = [f"rbd_mirror_snapshot.{image_id}.{row['id']}.0" for row in left]
        def found():
            return sorted(name for name in self.objects() if name.startswith(f"rbd_mirror_snapshot.{image_id}."))
        self.assertEqual(found(), sorted(states))
        self.assertEqual({tuple(row["namespace"]["mirror_peer_uuids"]) for row in left}, {(peer,)})
        def maps():
            return {name for name in self.objects() if name.startswith(f"rbd_object_map.{image_id}.")}

        def expected():
            rows = self.rbd("snap", "ls", "--all", f"{POOL}/{name}", "--format", "json").json
            return {f"rbd_object_map.{image_id}.{row['id']:016x}" for row in rows}
        eventually(lambda: maps() == expected(), 20)
        self.assertEqual([row["name"] for row in self.rbd("snap", "ls", f"{POOL}/{name}", "--format", "json").json], ["mine"])

    def goes_on_with_next_manager(self, name):
        before, listed = self.last(name), self.ask(*SCHEDULE, "list").json
        self.cluster.kill(self.manager)
        self.cluster.start_daemon(self.manager)
        self.assertEqual(self.ask(*SCHEDULE, "list").json, listed)
        self.newest(name, before)

    def of_all_pools(self):
        self.ask(*SCHEDULE, "add", "", "2h")
        self.assertEqual(self.ask(*SCHEDULE, "list").json, {"": {"name": "", "schedule": [{"interval": "2h", "start_time": None}]}})
        option = {row["name"]: row["value"] for row in self.client.json("config", "dump")}["mgr/rbd_support/mirror_snapshot_schedule"]
        self.assertEqual(json.loads(option), [{"interval": "2h", "start_time": None}])
        rows = eventually(lambda: self.ask(*SCHEDULE, "status").json["scheduled_images"], SNAPSHOT_SECONDS_MAX)
        self.assertIn(f"{POOL}/idle", {row["image"] for row in rows})
        self.ask(*SCHEDULE, "remove", "")
        self.assertEqual(self.ask(*SCHEDULE, "list").json, {})


class Migrations(Story):
    LARGE_MIB = 24

    def migration(self, step, spec):
        return self.task("migration", step, spec)

    def state(self, spec):
        return self.rbd("status", spec, "--format", "json").json.get("migration", {}).get("state")

    def all_objects(self, *parts):
        """Objects of both pools that belong to an image."""
        spaces = (("-p", POOL), ("-p", OTHER), ("-p", OTHER, "-N", "ns"))
        names = [name for space in spaces for name in self.client.rados(*space, "ls").text.split()]
        return sorted(name for name in names if set(parts) & set(name.split(".")))

    def migrates(self, source, target, *options, clone_of=None):
        """Prepared by the client, executed and committed by tasks."""
        source_id = self.info(source)["id"]
        self.rbd("migration", "prepare", source, target, *options)
        self.write(target)
        before = self.digest(target)
        shown = self.migration("execute", target)
        refs = {"action": "migrate execute", "pool_name": target.split("/")[0],
                "pool_namespace": target.split("/")[1] if target.count("/") == 2 else "", "image_name": target.split("/")[-1],
                "image_id": self.info(target)["id"]}
        self.assertEqual(shown["refs"], refs)
        # Stock names the source's pool for both.
        if not harness.STOCK:
            self.assertEqual(shown["message"], f"Migrating image {source} to {target}")
        self.wait_done(shown["id"])
        self.assertEqual(self.state(target), "executed")
        self.assertEqual(self.digest(target), before)
        again = self.migration("execute", target)
        self.assertEqual(again["id"], shown["id"], "a repeated command finds the task that is done")
        shown = self.migration("commit", target)
        self.assertEqual(shown["message"], f"Committing image migration for {target}")
        self.wait_done(shown["id"])
        self.assertEqual(self.completed(shown["id"])["refs"]["action"], "migrate commit")
        self.assertIsNone(self.state(target))
        self.assertEqual(self.digest(target), before)
        self.assertEqual(self.all_objects(source_id), [])
        self.assertEqual(self.info(target).get("parent", {}).get("image"), clone_of)
        self.assertNotIn("migrating", self.info(target)["features"])
        if "object-map" in self.info(target)["features"]:
            self.rbd("object-map", "check", "--no-progress", target)
            self.assertEqual(self.info(target)["flags"], [])

    def aborts(self, is_executed, *options):
        """Writes to the target are in the source afterwards."""
        self.filled(f"{POOL}/back", 1, "--object-size", "64K")
        source_id = self.info(f"{POOL}/back")["id"]
        self.rbd("migration", "prepare", f"{POOL}/back", f"{OTHER}/forth", *options)
        self.assertEqual(self.refused("rbd", "task", "add", "migration", "commit", f"{OTHER}/forth"),
                         (22, f"[errno 22] RBD invalid argument (Image {OTHER}/forth has not completed migration)"))
        self.write(f"{OTHER}/forth")
        if is_executed:
            self.wait_done(self.migration("execute", f"{OTHER}/forth")["id"])
            self.write(f"{OTHER}/forth")
        before = self.digest(f"{OTHER}/forth")
        target_id = self.info(f"{OTHER}/forth")["id"]
        shown = self.migration("abort", f"{OTHER}/forth")
        self.assertEqual(shown["message"], f"Aborting image migration for {OTHER}/forth")
        self.wait_done(shown["id"])
        self.assertEqual((self.info(f"{POOL}/back")["id"], self.digest(f"{POOL}/back")), (source_id, before))
        self.assertEqual(self.all_objects(target_id, "forth"), [])
        self.assertEqual(self.rbd("trash", "ls", "--all", POOL, "--format", "json").json, [])
        self.rbd("object-map", "check", "--no-progress", f"{POOL}/back")
        self.assertEqual(self.info(f"{POOL}/back")["flags"], [])
        self.write(f"{POOL}/back")
        self.rbd("rm", "--no-progress", f"{POOL}/back")

    def executes_for_owner(self):
        """The target is in use by a client that holds its lock. That client copies."""
        self.filled(f"{POOL}/used", 1, "--object-size", "64K")
        self.rbd("migration", "prepare", f"{POOL}/used", f"{OTHER}/used")
        with self.owner(f"{OTHER}/used") as owner:
            self.wait_done(self.migration("execute", f"{OTHER}/used")["id"])
            self.assertIsNone(owner.poll(), "the owner goes on")
        self.assertEqual(self.state(f"{OTHER}/used"), "executed")
        before = self.digest(f"{OTHER}/used")
        self.wait_done(self.migration("commit", f"{OTHER}/used")["id"])
        self.assertEqual(self.digest(f"{OTHER}/used"), before)

    def successor_finishes(self, task):
        """The manager dies in the middle of a task that is under way."""
        eventually(lambda: any(shown.get("progress", 0) > 0.05 for shown in self.tasks()), 30, every=0.02)
        self.cluster.kill(self.manager)
        self.cluster.start_daemon(self.manager)
        self.assertEqual([shown["id"] for shown in self.tasks()], [task], "the task was under way")
        self.wait_done(task)
        self.assertEqual(self.completed(task).get("failed", False), False)

    def survives_manager(self):
        """The manager dies in the middle of an execution. Its successor finishes it."""
        self.filled(f"{POOL}/large", self.LARGE_MIB, "--object-size", "4K")
        before = self.digest(f"{POOL}/large")
        self.rbd("migration", "prepare", f"{POOL}/large", f"{OTHER}/large")
        self.successor_finishes(self.migration("execute", f"{OTHER}/large")["id"])
        self.assertEqual(self.digest(f"{OTHER}/large"), before)
        self.wait_done(self.migration("commit", f"{OTHER}/large")["id"])
        self.assertEqual(self.digest(f"{OTHER}/large"), before)

    def abort_survives_manager(self):
        """The manager dies in the middle of an abort. Its successor finishes it, with all that was written to the target."""
        self.filled(f"{POOL}/returning", self.LARGE_MIB, "--object-size", "4K")
        source_id = self.info(f"{POOL}/returning")["id"]
        self.rbd("migration", "prepare", f"{POOL}/returning", f"{OTHER}/returning")
        self.wait_done(self.migration("execute", f"{OTHER}/returning")["id"])
        self.write(f"{OTHER}/returning")
        before, target_id = self.digest(f"{OTHER}/returning"), self.info(f"{OTHER}/returning")["id"]
        self.successor_finishes(self.migration("abort", f"{OTHER}/returning")["id"])
        self.assertEqual((self.info(f"{POOL}/returning")["id"], self.digest(f"{POOL}/returning")), (source_id, before))
        self.assertEqual(self.all_objects(target_id), [])
        self.assertEqual(self.rbd("trash", "ls", "--all", POOL, "--format", "json").json, [])

    def leaves_to_librbd(self):
        """A source with snapshots: shoal's manager refuses it, and changes nothing. Stock's calls librbd."""
        self.filled(f"{POOL}/shot", 1)
        self.rbd("snap", "create", "--no-progress", f"{POOL}/shot@s")
        self.rbd("migration", "prepare", f"{POOL}/shot", f"{OTHER}/shot")
        before = self.digest(f"{OTHER}/shot")
        for step in ("execute", "abort"):
            self.assertEqual(self.refused("rbd", "task", "add", "migration", step, f"{OTHER}/shot"),
                             (95, f"image {OTHER}/shot has snapshots in its source: use `rbd migration`"))
        self.rbd("migration", "execute", "--no-progress", f"{OTHER}/shot")
        self.assertEqual(self.refused("rbd", "task", "add", "migration", "commit", f"{OTHER}/shot")[0], 95)
        self.rbd("migration", "commit", "--no-progress", f"{OTHER}/shot")
        self.assertEqual(self.digest(f"{OTHER}/shot"), before)

    def test_tasks_migrate_images(self):
        self.client.ceph("osd", "pool", "create", OTHER, "8")
        self.rbd("pool", "init", OTHER)
        self.rbd("namespace", "create", f"{OTHER}/ns")
        self.rbd("create", "--size", "1M", f"{POOL}/still")
        for command, code, errors in MIGRATION_REFUSALS:
            with self.subTest(command):
                self.assertEqual(self.refused("rbd", "task", "add", "migration", *command.split()), (code, errors))
        self.filled(f"{POOL}/plain", 1, "--object-size", "64K")
        self.migrates(f"{POOL}/plain", f"{OTHER}/plain2")
        self.filled(f"{POOL}/plain", 2)
        self.migrates(f"{POOL}/plain", f"{POOL}/plain", "--object-size", "16K", "--stripe-unit", "4096", "--stripe-count", "3")
        self.filled(f"{POOL}/spaced", 1, "--object-size", "16K")
        self.migrates(f"{POOL}/spaced", f"{OTHER}/ns/spaced", "--object-size", "64K")
        self.image("parent", 1)
        for name, options, clone_of in (("kept", (), "parent"), ("flat", ("--flatten",), None)):
            self.rbd("clone", "--rbd-default-clone-format", "2", "--object-size", "16K", f"{POOL}/parent@s", f"{POOL}/{name}")
            self.write(f"{POOL}/{name}")
            self.migrates(f"{POOL}/{name}", f"{OTHER}/{name}", *options, clone_of=clone_of)
        self.aborts(False)
        self.aborts(False, "--object-size", "16K", "--stripe-unit", "4096", "--stripe-count", "3")
        self.aborts(True, "--object-size", "256K")
        self.executes_for_owner()
        self.survives_manager()
        if not harness.STOCK:
            self.abort_survives_manager()
            self.leaves_to_librbd()


if __name__ == "__main__":
    unittest.main()
