//! `bench`: writes to the store of core 0, as fast as it takes them, and says how fast that was.
//!
//! Blocks go to objects of the daemon's own collection, as on stock: one new object each, or random places of a few
//! objects that are written in full before the clock starts. The objects are removed at the end. A bounded number of
//! blocks is under way, so that the daemon's memory is bounded and its own records still get through. Nothing of this is
//! replicated, and clients go on being served.

use super::signals::Asker;
use super::{Control, Fx};
use crate::options::BenchOptions;
use bytes::Bytes;
use command::{Answer, Args, Format, errno, object};
use machine::{Tag, Time};
use std::collections::BTreeSet;
use store::{Change, Collection, ObjectId, Transaction};
use wire::text;
use wire::types::{HObject, SnapId};

/// Signature, help, permissions.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[(
    "bench name=count,type=CephInt,req=false name=size,type=CephInt,req=false name=object_size,type=CephInt,req=false \
     name=object_num,type=CephInt,req=false",
    "OSD benchmark: write <count> <size>-byte objects(with <obj_size> <obj_num>), (default count=1G default size=4MB). \
     Results in log.",
    "rw",
)];

/// The start of the pseudo-random bytes and places.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const COUNT_DEFAULT: i64 = 1 << 30;
const BLOCK_DEFAULT: i64 = 4 << 20;
/// Blocks from this size on are bounded by throughput, smaller ones by operations a second.
const BLOCK_LARGE: u64 = 1 << 20;
/// Blocks and bytes that are under way at once.
const UNDER_WAY_MAX: usize = 64;
const UNDER_WAY_BYTES_MAX: u64 = 64 << 20;
/// Objects that one transaction removes.
const REMOVED_AT_ONCE: usize = 256;

/// The arguments, once they are within the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    bytes: u64,
    block: u64,
    /// Size and number of the objects that blocks are written into; `None`: a new object for each block.
    objects: Option<(u64, u64)>,
}

impl Plan {
    fn of(args: &Args, options: &BenchOptions) -> Result<Plan, Answer> {
        let number = |name: &str, default: i64| u64::try_from(args.int(name).unwrap_or(default)).unwrap_or(0);
        let (bytes, mut block) = (number("count", COUNT_DEFAULT), number("size", BLOCK_DEFAULT));
        let (object_size, object_num) = (number("object_size", 0), number("object_num", 0));
        if bytes == 0 || block == 0 {
            return Err(Answer::invalid("block size and/or count of Bytes to write not specified"));
        }
        if block > options.block_bytes_max {
            return Err(Answer::invalid(format!(
                "block 'size' values are capped at {}. If you wish to use a higher value, please adjust \
                 'osd_bench_max_block_size'",
                text::Bytes(options.block_bytes_max)
            )));
        }
        let seconds = options.duration_s;
        let (bytes_max, assumed, option) = match block < BLOCK_LARGE {
            true => {
                let iops = options.small_iops_max;
                let most = block.saturating_mul(seconds).saturating_mul(iops);
                (most, format!("{iops} IOPS"), "osd_bench_small_size_max_iops")
            }
            false => {
                let rate = options.large_throughput_max;
                let most = rate.saturating_mul(seconds);
                (most, format!("{}/s", text::Bytes(rate)), "osd_bench_large_size_max_throughput")
            }
        };
        if bytes > bytes_max {
            return Err(Answer::invalid(format!(
                "'count' values greater than {bytes_max} for a block size of {}, assuming {assumed}, for {seconds} seconds, \
                 can cause ill effects on osd.  Please adjust '{option}' with a higher value if you wish to use a higher \
                 'count'.",
                text::Bytes(block)
            )));
        }
        let objects = (object_size > 0 && object_num > 0).then_some((object_size, object_num));
        if let Some((size, _)) = objects {
            block = block.min(size);
        }
        Ok(Plan { bytes, block, objects })
    }

    fn blocks(&self) -> u64 {
        self.bytes.div_ceil(self.block)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The objects that blocks go to are being written.
    Filling,
    Writing {
        since: Time,
    },
    Removing,
}

/// A benchmark under way.
pub(super) struct Bench {
    asker: Asker,
    format: Format,
    plan: Plan,
    phase: Phase,
    /// Blocks, or objects, of this phase that were submitted.
    submitted: u64,
    under_way: BTreeSet<Tag>,
    data: Bytes,
    /// The state of the generator of places.
    seed: u64,
}

/// Bytes that no compression makes smaller.
fn noise(len: u64) -> Bytes {
    let mut seed = SEED;
    (0..len.div_ceil(8))
        .flat_map(|_| next_random(&mut seed).to_le_bytes())
        .take(len as usize)
        .collect::<Vec<u8>>()
        .into()
}

/// xorshift64*
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn object(number: u64) -> ObjectId {
    let name = format!("disk_bw_test_{number}");
    HObject { pool: -1, snap: SnapId::HEAD, name: name.as_str().into(), ..HObject::min() }.into()
}

impl Bench {
    /// Submissions of this phase.
    fn total(&self) -> u64 {
        let objects = self.plan.objects.map_or(self.plan.blocks(), |(_, number)| number);
        match self.phase {
            Phase::Filling => objects,
            Phase::Writing { .. } => self.plan.blocks(),
            Phase::Removing => objects.div_ceil(REMOVED_AT_ONCE as u64),
        }
    }

    fn next_change(&mut self) -> Vec<Change> {
        let number = self.submitted;
        self.submitted += 1;
        match (self.phase, self.plan.objects) {
            (Phase::Filling, Some((size, _))) => {
                let blocks = 0..size.div_ceil(self.plan.block);
                let write = |at: u64| {
                    let offset = at * self.plan.block;
                    let data = self.data.slice(..(size - offset).min(self.plan.block) as usize);
                    Change::Write { object: object(number), offset, data: data.into() }
                };
                blocks.map(write).collect()
            }
            (Phase::Removing, _) => {
                let objects = self.plan.objects.map_or(self.plan.blocks(), |(_, number)| number);
                let first = number * REMOVED_AT_ONCE as u64;
                let last = (first + REMOVED_AT_ONCE as u64).min(objects);
                (first..last).map(|number| Change::Remove { object: object(number) }).collect()
            }
            (_, objects) => {
                let (number, offset) = match objects {
                    None => (number, 0),
                    Some((size, count)) => {
                        let random = next_random(&mut self.seed);
                        (random % count, (random >> 32) % (size / self.plan.block) * self.plan.block)
                    }
                };
                vec![Change::Write { object: object(number), offset, data: self.data.clone().into() }]
            }
        }
    }

    fn under_way_max(&self) -> usize {
        let unit = match (self.phase, self.plan.objects) {
            (Phase::Filling, Some((size, _))) => size,
            _ => self.plan.block,
        };
        usize::try_from(UNDER_WAY_BYTES_MAX / unit).unwrap_or(UNDER_WAY_MAX).clamp(1, UNDER_WAY_MAX)
    }

    fn result(&self, since: Time, now: Time) -> Answer {
        let (bytes, block) = (self.plan.bytes, self.plan.block);
        let seconds = now.since(since).as_secs_f64();
        let rate = bytes as f64 / seconds.max(1e-9);
        let json = object! {
            "bytes_written" => bytes,
            "blocksize" => block,
            "elapsed_sec" => seconds,
            "bytes_per_sec" => rate,
            "iops" => rate / block as f64,
        };
        Answer::json(self.format, &json)
    }
}

impl Control {
    /// `None`: the answer comes when all is written.
    pub(super) fn begin_bench(
        &mut self,
        now: Time,
        args: &Args,
        asker: Asker,
        fx: &mut Fx,
    ) -> Option<Answer> {
        let plan = match Plan::of(args, &BenchOptions::read(&self.layers)) {
            Ok(plan) => plan,
            Err(refusal) => return Some(refusal),
        };
        if self.bench.is_some() {
            return Some(Answer::error(errno::EBUSY, "a benchmark is running on this OSD"));
        }
        if !self.life.has_loaded() || self.life.is_ending() {
            return Some(Answer::error(errno::EAGAIN, "the OSD is starting or stopping"));
        }
        let phase = if plan.objects.is_some() { Phase::Filling } else { Phase::Writing { since: now } };
        self.bench = Some(Bench {
            asker,
            format: args.format(),
            plan,
            phase,
            submitted: 0,
            under_way: BTreeSet::new(),
            data: noise(plan.block),
            seed: SEED,
        });
        self.continue_bench(now, fx);
        None
    }

    pub(super) fn on_bench_commit(&mut self, now: Time, tag: Tag, fx: &mut Fx) {
        if self.bench.as_mut().is_some_and(|bench| bench.under_way.remove(&tag)) {
            self.continue_bench(now, fx);
        }
    }

    fn continue_bench(&mut self, now: Time, fx: &mut Fx) {
        if self.life.is_ending() {
            // Its objects stay. The next benchmark writes over them.
            return self.bench = None;
        }
        loop {
            let Some(bench) = &mut self.bench else { return };
            if bench.submitted < bench.total() {
                if bench.under_way.len() >= bench.under_way_max() {
                    return;
                }
                let changes = bench.next_change();
                let tag = self.submit(Transaction { collection: Collection::Meta, changes }, fx);
                self.bench.as_mut().expect("just seen").under_way.insert(tag);
                continue;
            }
            if !bench.under_way.is_empty() {
                return;
            }
            bench.submitted = 0;
            match bench.phase {
                Phase::Filling => bench.phase = Phase::Writing { since: now },
                Phase::Writing { since } => {
                    bench.phase = Phase::Removing;
                    let (asker, answer) = (bench.asker, bench.result(since, now));
                    self.answer_asker(asker, answer, fx);
                }
                Phase::Removing => return self.bench = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effect, testing};
    use super::*;
    use command::options::Layers;
    use machine::{Effects, Random};

    fn options() -> BenchOptions {
        BenchOptions::read(&Layers::new(command::options::Identity::named("osd.0")))
    }

    fn plan(args: &str) -> Result<Plan, String> {
        Plan::of(&Args::parse(args).unwrap(), &options()).map_err(|answer| answer.status)
    }

    /// The texts of stock 20.2.4.
    #[test]
    fn bench_bounds_are_those_of_stock() {
        let default = plan(r#"{"prefix":"bench"}"#).unwrap();
        assert_eq!(default, Plan { bytes: 1 << 30, block: 4 << 20, objects: None });
        assert!(plan(r#"{"count":0}"#).unwrap_err().starts_with("block size and/or count"));
        assert_eq!(
            plan(r#"{"count":1048576,"size":100000000}"#).unwrap_err(),
            "block 'size' values are capped at 64 MiB. If you wish to use a higher value, please adjust \
             'osd_bench_max_block_size'"
        );
        assert_eq!(
            plan(r#"{"count":1073741824,"size":100}"#).unwrap_err(),
            "'count' values greater than 300000 for a block size of 100 B, assuming 100 IOPS, for 30 seconds, can cause \
             ill effects on osd.  Please adjust 'osd_bench_small_size_max_iops' with a higher value if you wish to use a \
             higher 'count'."
        );
    }

    /// Runs a benchmark against a store that commits at once. Returns the answer and all changes.
    fn run(args: &str) -> (Answer, Vec<Change>) {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        control.life.pretend_loaded();
        let (mut fx, mut changes, mut answer) = (Effects::new(), Vec::new(), None);
        let args = Args::parse(args).unwrap();
        assert!(control.begin_bench(Time(1_000), &args, Asker::Admin { id: 7 }, &mut fx).is_none());
        let mut most = 0;
        while control.bench.is_some() {
            let effects = fx.take();
            let submits = effects.iter().filter(|effect| matches!(effect, Effect::Submit { .. })).count();
            most = most.max(submits);
            for effect in effects {
                match effect {
                    Effect::Submit { tag, transaction } => {
                        changes.extend(transaction.changes);
                        control.on_bench_commit(Time(2_000_001_000), tag, &mut fx);
                    }
                    Effect::AdminAnswer { id: 7, answer: given } => answer = Some(given),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(most <= UNDER_WAY_MAX);
        (answer.expect("it was answered"), changes)
    }

    #[test]
    fn bench_writes_all_blocks_and_removes_its_objects() {
        let (answer, changes) = run(r#"{"prefix":"bench","count":1048576,"size":4096,"format":"json"}"#);
        let writes = changes.iter().filter(|change| matches!(change, Change::Write { .. })).count();
        let removed: BTreeSet<_> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Remove { object } => Some(object.clone()),
                _ => None,
            })
            .collect();
        assert_eq!((writes, removed.len()), (256, 256));
        assert_eq!(
            answer.body,
            r#"{"bytes_written":1048576,"blocksize":4096,"elapsed_sec":2,"bytes_per_sec":524288,"iops":128}"#
        );
    }

    #[test]
    fn bench_with_objects_fills_them_first() {
        let (_, changes) = run(r#"{"count":40960,"size":4096,"object_size":8192,"object_num":3}"#);
        let writes = |change: &&Change| matches!(change, Change::Write { .. });
        assert_eq!(changes.iter().filter(writes).count(), 3 * 2 + 10);
        assert_eq!(
            changes.iter().rev().take_while(|change| matches!(change, Change::Remove { .. })).count(),
            3
        );
    }
}
