//! The names under which an OSD's figures are shown: group `osd` with stock's counters, group `osd_stages` with
//! shoal's.

use super::figures::{ShardFigures, ShardHistograms};
use super::latency::{LatencyHistogram, SIZE_AXES, STAGE_AXIS, SizeHistogram};
use super::stages::Stage;
use super::totals::KindTotals;
use command::perf::{Counter, Histogram, Reading, Unit};

pub const GROUP: &str = "osd";
/// `r_route_latency`, `w_commit_latency` and so on: what shoal's own latency is made of.
pub const STAGE_GROUP: &str = "osd_stages";

/// Nick, priority and unit of a counter of stock's.
type Look = (&'static str, u8, Unit);

const PLAIN: Look = ("", 5, Unit::None);
const BYTES: Look = ("", 5, Unit::Bytes);
const MINOR: Look = ("", 0, Unit::None);

/// A counter that stock has, with the description that stock gives it.
pub fn stock(name: &'static str, help: &'static str, look: Look, value: Reading) -> Counter {
    let (nick, priority, unit) = look;
    Counter { nick, priority, unit, is_stock: true, ..Counter::own(GROUP, name, help, value) }
}

/// Figures of the control machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlFigures {
    pub pgs: u64,
    pub pgs_primary: u64,
    pub pgs_replica: u64,
    pub pgs_stray: u64,
    pub heartbeat_peers: u64,
    pub map_messages: u64,
    pub map_epochs: u64,
    pub stat_bytes: u64,
    pub stat_bytes_used: u64,
    pub stat_bytes_avail: u64,
}

/// Everything in the group `osd`, as a stock OSD lists it, without what shoal does not have.
pub fn osd(f: &ShardFigures, c: &ControlFigures) -> Vec<Counter> {
    let (total, level) = (Reading::Total, Reading::Level);
    let all = f.totals.all();
    let KindTotals { latency, process, prepare, .. } = all;
    let (r, w, rw) = (&f.totals.reads, &f.totals.writes, &f.totals.read_writes);
    vec![
        stock(
            "op_wip",
            "Replication operations currently being processed (primary)",
            PLAIN,
            level(f.in_flight.writes_submitted),
        ),
        stock("op", "Client operations", ("ops", 10, Unit::None), total(all.count)),
        stock(
            "op_in_bytes",
            "Client operations total write size",
            ("wr", 8, Unit::Bytes),
            total(all.in_bytes),
        ),
        stock(
            "op_out_bytes",
            "Client operations total read size",
            ("rd", 8, Unit::Bytes),
            total(all.out_bytes),
        ),
        stock(
            "op_latency",
            "Latency of client operations (including queue time)",
            ("l", 9, Unit::None),
            latency.reading(),
        ),
        stock(
            "op_process_latency",
            "Latency of client operations (excluding queue time)",
            PLAIN,
            process.reading(),
        ),
        stock(
            "op_prepare_latency",
            "Latency of client operations (excluding queue time and wait for finished)",
            PLAIN,
            prepare.reading(),
        ),
        stock("op_r", "Client read operations", PLAIN, total(r.count)),
        stock("op_r_out_bytes", "Client data read", BYTES, total(r.out_bytes)),
        stock("op_r_latency", "Latency of read operation (including queue time)", PLAIN, r.latency.reading()),
        stock(
            "op_r_process_latency",
            "Latency of read operation (excluding queue time)",
            PLAIN,
            r.process.reading(),
        ),
        stock(
            "op_r_prepare_latency",
            "Latency of read operations (excluding queue time and wait for finished)",
            PLAIN,
            r.prepare.reading(),
        ),
        stock("op_w", "Client write operations", PLAIN, total(w.count)),
        stock("op_w_in_bytes", "Client data written", PLAIN, total(w.in_bytes)),
        stock(
            "op_w_latency",
            "Latency of write operation (including queue time)",
            PLAIN,
            w.latency.reading(),
        ),
        stock(
            "op_w_process_latency",
            "Latency of write operation (excluding queue time)",
            PLAIN,
            w.process.reading(),
        ),
        stock(
            "op_w_prepare_latency",
            "Latency of write operations (excluding queue time and wait for finished)",
            PLAIN,
            w.prepare.reading(),
        ),
        stock("op_rw", "Client read-modify-write operations", PLAIN, total(rw.count)),
        stock("op_rw_in_bytes", "Client read-modify-write operations write in", BYTES, total(rw.in_bytes)),
        stock("op_rw_out_bytes", "Client read-modify-write operations read out ", BYTES, total(rw.out_bytes)),
        stock(
            "op_rw_latency",
            "Latency of read-modify-write operation (including queue time)",
            PLAIN,
            rw.latency.reading(),
        ),
        stock(
            "op_rw_process_latency",
            "Latency of read-modify-write operation (excluding queue time)",
            PLAIN,
            rw.process.reading(),
        ),
        stock(
            "op_rw_prepare_latency",
            "Latency of read-modify-write operations (excluding queue time and wait for finished)",
            PLAIN,
            rw.prepare.reading(),
        ),
        stock(
            "op_before_queue_op_lat",
            "Latency of IO before calling queue(before really queue into ShardedOpWq)",
            MINOR,
            f.totals.before_queue.reading(),
        ),
        stock(
            "op_before_dequeue_op_lat",
            "Latency of IO before calling dequeue_op(already dequeued and get PG lock)",
            MINOR,
            f.totals.before_dequeue.reading(),
        ),
        stock("numpg", "Placement groups", ("pgs", 5, Unit::None), level(c.pgs)),
        stock("numpg_primary", "Placement groups for which this osd is primary", MINOR, level(c.pgs_primary)),
        stock("numpg_replica", "Placement groups for which this osd is replica", MINOR, level(c.pgs_replica)),
        stock("numpg_stray", "Placement groups ready to be deleted from this osd", MINOR, level(c.pgs_stray)),
        stock("heartbeat_to_peers", "Heartbeat (ping) peers we send to", MINOR, level(c.heartbeat_peers)),
        stock("map_messages", "OSD map messages", MINOR, total(c.map_messages)),
        stock("map_message_epochs", "OSD map epochs", MINOR, total(c.map_epochs)),
        stock(
            "messages_delayed_for_map",
            "Operations waiting for OSD map",
            MINOR,
            total(f.totals.delayed_for_map),
        ),
        stock("replica_read", "Count of replica reads received", MINOR, total(f.totals.copy_reads)),
        stock(
            "replica_read_redirect_missing",
            "Count of replica reads redirected to primary due to missing object",
            MINOR,
            total(f.totals.copy_reads_missing),
        ),
        stock(
            "replica_read_redirect_conflict",
            "Count of replica reads redirected to primary due to unstable write",
            MINOR,
            total(f.totals.copy_reads_unstable),
        ),
        stock(
            "replica_read_served",
            "Count of replica reads served",
            MINOR,
            total(f.totals.copy_reads_served),
        ),
        // Counted when an object's recovery is complete.
        stock(
            "recovery_ops",
            "Started recovery operations",
            ("rop", 8, Unit::None),
            total(f.totals.recovered.objects.max(0) as u64),
        ),
        stock(
            "recovery_bytes",
            "recovery bytes",
            ("rbt", 8, Unit::None),
            total(f.totals.recovered.bytes.max(0) as u64),
        ),
        stock("stat_bytes", "OSD size", ("size", 5, Unit::Bytes), level(c.stat_bytes)),
        stock("stat_bytes_used", "Used space", ("used", 5, Unit::Bytes), level(c.stat_bytes_used)),
        stock("stat_bytes_avail", "Available space", ("", 0, Unit::Bytes), level(c.stat_bytes_avail)),
    ]
}

/// The stages that a read goes through: all but the commit.
fn read_stages() -> impl Iterator<Item = Stage> {
    Stage::ALL.into_iter().filter(|stage| *stage != Stage::Commit)
}

fn stage_name(direction: &str, stage: Stage) -> String {
    format!("{direction}_{}_latency", stage.name())
}

/// The group `osd_stages`.
pub fn stages(f: &ShardFigures) -> Vec<Counter> {
    let row = |direction: &str, stage: Stage, latencies: &[super::Latency; Stage::ALL.len()]| {
        let (name, value) = (stage_name(direction, stage), latencies[stage as usize].reading());
        Counter::own(STAGE_GROUP, name, stage.help(), value)
    };
    let reads = read_stages().map(|stage| row("r", stage, &f.read_stages));
    let writes = Stage::ALL.into_iter().map(|stage| row("w", stage, &f.write_stages));
    reads.chain(writes).collect()
}

/// Every histogram, for `perf histogram dump`.
pub fn histograms(h: &ShardHistograms) -> Vec<Histogram> {
    let size = |name: &'static str, help: &'static str, histogram: &SizeHistogram| Histogram {
        group: GROUP.into(),
        name: name.into(),
        help: help.into(),
        axes: SIZE_AXES.to_vec(),
        values: histogram.0.to_vec(),
    };
    let stage =
        |direction: &str, stage: Stage, histograms: &[LatencyHistogram; Stage::ALL.len()]| Histogram {
            group: STAGE_GROUP.into(),
            name: stage_name(direction, stage).into(),
            help: stage.help().into(),
            axes: vec![STAGE_AXIS],
            values: histograms[stage as usize].buckets.to_vec(),
        };
    let mut out = vec![
        size(
            "op_r_latency_out_bytes_histogram",
            "Histogram of operation latency (including queue time) + data read",
            &h.sizes.read_out,
        ),
        size(
            "op_w_latency_in_bytes_histogram",
            "Histogram of operation latency (including queue time) + data written",
            &h.sizes.write_in,
        ),
        size(
            "op_rw_latency_in_bytes_histogram",
            "Histogram of rw operation latency (including queue time) + data written",
            &h.sizes.read_write_in,
        ),
        size(
            "op_rw_latency_out_bytes_histogram",
            "Histogram of rw operation latency (including queue time) + data read",
            &h.sizes.read_write_out,
        ),
    ];
    out.extend(read_stages().map(|s| stage("r", s, &h.stages.reads)));
    out.extend(Stage::ALL.into_iter().map(|s| stage("w", s, &h.stages.writes)));
    out
}
