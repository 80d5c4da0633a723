"""The suites of before on pools of three copies, while OSDs die: in each test the primary of most PGs is killed and restarted some
seconds later, again and again until the test ends. Every answer is the one of a cluster that is well. With --stock they run on
stock Ceph's daemons.

The `rados` crate is not among them: its 0.1.4 hands "connection refused" to its caller when an OSD dies, and does not try again.
"""
import harness
import replicated
import test_librados
import test_names
import test_python_rados
import test_rados
from harness import ClusterTest
from kills import Killed, Killer

#: Programs of the gate: reads and writes, locks, watches. All that test_librados runs are for `--long`.
GATE = ["ceph_test_rados_api_io", "ceph_test_rados_api_lock", "ceph_test_rados_api_watch_notify"]
#: Programs that make no pool.
WITHOUT_POOLS = ["ceph_test_rados_api_service", "ceph_test_rados_api_service_pp"]
#: A program that ended before it met a death runs again.
TRIES = 5


class PythonRados(Killed, test_python_rados.PythonRados):
    pass


if harness.LONG:
    class Names(Killed, test_names.Names):
        # It takes the cluster down itself.
        test_names_survive_restart_export_and_import = None

    class RadosCrc(Killed, test_rados.RadosCases, ClusterTest):
        LABEL, ROOT, MODE = "crc", None, "crc"

    class RadosSecure(Killed, test_rados.RadosCases, ClusterTest):
        LABEL, ROOT, MODE = "secure", None, "secure"


class KilledPrograms(test_librados.Programs):
    """Ceph's own test programs of a release."""

    QUIET = False

    @classmethod
    def make_cluster(cls):
        return replicated.make_cluster(cls.OSDS)

    def wanted(self):
        wholly_skipped = [program for program, pattern, _ in test_librados.skips(self.RELEASE) if pattern == "*"]
        return [row["program"] for row in test_librados.programs(self.RELEASE)
                if row["run"] != "no" and row["program"] not in [*WITHOUT_POOLS, *wholly_skipped]
                and (harness.LONG or row["program"] in GATE)]

    def run_program(self, program):
        for _ in range(TRIES):
            with Killer(self.cluster, new_pool=True) as killer:
                done = super().run_program(program)
            print(f"{program}: deaths of OSDs {killer.deaths}", flush=True)
            if killer.deaths or done.code:
                return done
        self.fail(f"{program} met no death in {TRIES} runs")


class Programs18(KilledPrograms, ClusterTest):
    RELEASE = "18.2"


if harness.LONG:
    class Programs20(KilledPrograms, ClusterTest):
        RELEASE = "20.2"
