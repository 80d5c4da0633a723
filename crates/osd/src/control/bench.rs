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
use codec::Rope;
use command::{Answer, Args, Format, errno, object};
use machine::{Random, Tag, Time};
use std::collections::BTreeSet;
use store::{Change, Collection, ObjectId, Refusal, Transaction};
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

/// The start of the random bytes and places: each benchmark has the same.
const SEED: u64 = 1;
/// Random bytes that are made; a longer block repeats them.
const NOISE_BYTES: usize = 1 << 20;
const COUNT_DEFAULT: i64 = 1 << 30;
const BLOCK_DEFAULT: i64 = 4 << 20;
/// Blocks from this size on are bounded by throughput, smaller ones by operations a second.
const BLOCK_LARGE: u64 = 1 << 20;
/// Blocks and bytes that are under way at once.
const UNDER_WAY_MAX: usize = 64;
const UNDER_WAY_BYTES_MAX: u64 = 64 << 20;
/// Objects that one transaction removes.
const REMOVED_AT_ONCE: u64 = 256;

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

    /// Objects that are written.
    fn objects(&self) -> u64 {
        self.objects.map_or(self.blocks(), |(_, number)| number)
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
    /// Blocks, or removals of objects, of this phase that were submitted.
    submitted: u64,
    under_way: BTreeSet<Tag>,
    data: Rope,
    /// Of the places of blocks.
    random: Random,
    /// The store took a block no more. Some objects may be missing.
    refused: Option<Refusal>,
}

/// Bytes that no compression makes smaller.
fn noise(random: &mut Random, len: u64) -> Rope {
    let len = len as usize;
    let mut piece = vec![0; len.min(NOISE_BYTES)];
    random.fill(&mut piece);
    let (piece, mut noise) = (Bytes::from(piece), Rope::new());
    while noise.len() < len {
        noise.push(piece.slice(..piece.len().min(len - noise.len())));
    }
    noise
}

fn object(number: u64) -> ObjectId {
    let name = format!("disk_bw_test_{number}");
    HObject { pool: -1, snap: SnapId::HEAD, name: name.as_str().into(), ..HObject::min() }.into()
}

impl Bench {
    /// Submissions of this phase.
    fn total(&self) -> u64 {
        match (self.phase, self.plan.objects) {
            (Phase::Filling, Some((size, number))) => number.saturating_mul(size.div_ceil(self.plan.block)),
            (Phase::Removing, _) => self.plan.objects().div_ceil(REMOVED_AT_ONCE),
            _ => self.plan.blocks(),
        }
    }

    fn next_change(&mut self) -> Vec<Change> {
        let number = self.submitted;
        self.submitted += 1;
        match (self.phase, self.plan.objects) {
            (Phase::Filling, Some((size, _))) => {
                let blocks = size.div_ceil(self.plan.block);
                let (number, offset) = (number / blocks, number % blocks * self.plan.block);
                let data = self.data.slice(0, (size - offset).min(self.plan.block) as usize);
                vec![Change::Write { object: object(number), offset, data: data.unwrap_or_default() }]
            }
            (Phase::Removing, _) => {
                let first = number * REMOVED_AT_ONCE;
                let removed = first..(first + REMOVED_AT_ONCE).min(self.plan.objects());
                // What is removed must be there.
                let touch = |number| self.refused.is_some().then(|| Change::Touch { object: object(number) });
                let remove = |number| Change::Remove { object: object(number) };
                removed.flat_map(|number| touch(number).into_iter().chain([remove(number)])).collect()
            }
            (_, objects) => {
                let (number, offset) = match objects {
                    None => (number, 0),
                    Some((size, count)) => {
                        let (number, at) =
                            (self.random.below(count), self.random.below(size / self.plan.block));
                        (number, at * self.plan.block)
                    }
                };
                vec![Change::Write { object: object(number), offset, data: self.data.clone() }]
            }
        }
    }

    fn under_way_max(&self) -> usize {
        usize::try_from(UNDER_WAY_BYTES_MAX / self.plan.block)
            .unwrap_or(UNDER_WAY_MAX)
            .clamp(1, UNDER_WAY_MAX)
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

fn refusal(why: Refusal) -> Answer {
    let errno = match why {
        Refusal::NoSpace => errno::ENOSPC,
        Refusal::TooLarge => errno::E2BIG,
    };
    Answer::error(errno, why.to_string())
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
        if self.failsafe.is_full {
            return Some(Answer::error(errno::ENOSPC, "the OSD is full"));
        }
        let mut random = Random::from_number(SEED);
        let phase = if plan.objects.is_some() { Phase::Filling } else { Phase::Writing { since: now } };
        self.bench = Some(Bench {
            asker,
            format: args.format(),
            plan,
            phase,
            submitted: 0,
            under_way: BTreeSet::new(),
            data: noise(&mut random, plan.block),
            random,
            refused: None,
        });
        self.continue_bench(now, fx);
        None
    }

    pub(super) fn on_bench_commit(&mut self, now: Time, tag: Tag, fx: &mut Fx) {
        if self.bench.as_mut().is_some_and(|bench| bench.under_way.remove(&tag)) {
            self.continue_bench(now, fx);
        }
    }

    /// The store refused a transaction, and is as it was: the benchmark ends. False if the transaction was none of a benchmark.
    pub(super) fn on_bench_refused(&mut self, now: Time, tag: Tag, why: Refusal, fx: &mut Fx) -> bool {
        let Some(bench) = self.bench.as_mut().filter(|bench| bench.under_way.contains(&tag)) else {
            return false;
        };
        bench.under_way.remove(&tag);
        bench.refused = Some(why);
        // Objects that cannot be removed stay. The next benchmark writes over them.
        bench.submitted = bench.total();
        self.continue_bench(now, fx);
        true
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
            let asker = bench.asker;
            match (bench.phase, bench.refused) {
                (Phase::Removing, _) => return self.bench = None,
                (_, Some(why)) => {
                    bench.phase = Phase::Removing;
                    self.answer_asker(asker, refusal(why), fx);
                }
                (Phase::Filling, None) => bench.phase = Phase::Writing { since: now },
                (Phase::Writing { since }, None) => {
                    bench.phase = Phase::Removing;
                    let answer = bench.result(since, now);
                    self.answer_asker(asker, answer, fx);
                }
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
    fn refused_bench_is_answered_and_removes_what_it_may_have_made() {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        control.life.pretend_loaded();
        let mut fx = Effects::new();
        let args = Args::parse(r#"{"prefix":"bench","count":40960,"size":4096}"#).unwrap();
        assert!(control.begin_bench(Time(1_000), &args, Asker::Admin { id: 7 }, &mut fx).is_none());
        let (mut taken, mut answers, mut changes) = (0, Vec::new(), Vec::new());
        while control.bench.is_some() {
            for effect in fx.take() {
                match effect {
                    Effect::Submit { tag, .. } if taken == 3 => {
                        taken += 1;
                        control.on_own_refusal(Time(2_000), tag, Refusal::NoSpace, &mut fx);
                    }
                    Effect::Submit { tag, transaction } => {
                        taken += 1;
                        changes.extend(transaction.changes);
                        control.on_own_commit(Time(2_000), tag, &mut fx);
                    }
                    Effect::AdminAnswer { id: 7, answer } => answers.push(answer.result),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(answers, [-errno::ENOSPC]);
        // The store takes the removal of an object only where it is.
        let mut there = BTreeSet::new();
        for change in changes {
            match change {
                Change::Write { object, .. } | Change::Touch { object } => drop(there.insert(object)),
                Change::Remove { object } => assert!(there.remove(&object), "{object:?} is not there"),
                other => panic!("{other:?}"),
            }
        }
        assert!(there.is_empty());
        // Any other transaction that is refused ends the OSD.
        control.on_own_refusal(Time(2_000), Tag(999), Refusal::NoSpace, &mut fx);
        assert!(matches!(&fx.take()[..], [Effect::Fatal { .. }]));
    }

    #[test]
    fn noise_of_any_length_has_no_short_repetition() {
        for len in [1, NOISE_BYTES as u64, 2 * NOISE_BYTES as u64 + 5] {
            let noise = noise(&mut Random::from_number(SEED), len);
            assert_eq!(noise.len() as u64, len);
        }
        let noise = noise(&mut Random::from_number(SEED), 4096).to_bytes();
        assert_ne!(noise[..2048], noise[2048..]);
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
