//! Levels of tables, their age, and the choice of the next merge.
//!
//! A sorted run is a list of disjoint tables in key order. Level 0 has a run for each flushed memtable. Every deeper level
//! is one run, and may be `fanout` times as large as the one above. Newer entries hide older ones: the newest run of level
//! 0 comes first, then the others, then the deeper levels.
//!
//! Each merge is a small step, whatever the size of the index, so that level 0 shrinks before changes have to wait:
//!
//! - All of level 0 goes into level 1 while both are small ([`gathered_max`]).
//! - Otherwise its newest runs become one run, until the oldest one is a good part of level 1. The oldest run then goes into
//!   level 1 by a table or some small ones at a time.
//! - A level above its size gives one table, or some small ones, to the next level. [`super::overlap`] bounds the tables below.
//!
//! Level 0 and the others compete: the level that exceeds its size by the largest factor comes first.

use super::Options;
use super::overlap;
use super::table::Table;
use std::ops::Range;
use std::sync::Arc;

pub type SortedRun = Vec<Arc<Table>>;

/// Runs of level 0 at which a merge begins, and at which changes wait.
const FRESH_MERGE: usize = 4;
pub const FRESH_MAX: usize = 16;
/// Runs of level 0 at which its merges come before all others: background work that changes keys pauses at one more.
const FRESH_URGENT: usize = FRESH_MAX / 2 - 1;
/// Runs of level 0 at which its newest ones are merged before the oldest one goes on down.
const FRESH_GATHERED: usize = FRESH_MERGE + 2;
/// Level 0 goes into level 1 when that is at most so many times as large: each byte is written again as often.
const REWRITTEN_MAX: u64 = 4;
/// Memtables whose changes pay for the largest merge of whole runs.
const GATHERED_MEMTABLES: u64 = 64;
/// Tables that a step takes from a level.
const STEP_TABLES_MAX: usize = 64;
/// Largest value of [`Levels::debt`].
const DEBT_MAX: usize = 3;

#[derive(Default)]
pub struct Levels {
    /// Level 0, newest first.
    pub fresh: Vec<SortedRun>,
    /// Level 1 and deeper.
    pub deep: Vec<SortedRun>,
    /// Of each deep level.
    sums: Vec<Sum>,
    /// First key of the next merge out of each deep level, so that merges go through the whole key space.
    merge_cursors: Vec<Vec<u8>>,
    /// No merge is due until a level changes.
    settled: bool,
    /// No table is brought home until a level changes, or there is more space.
    stays: bool,
    /// A merge found no space. Merges out of level 0 take one table at a time until few runs are left there.
    takes_small_steps: bool,
    debt: usize,
    /// Device space of all tables.
    bytes: u64,
    /// Number of changes of levels: positions of runs and tables are of one version.
    version: u64,
}

/// Figures of a deep level, so that the choice of a merge reads no table.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Sum {
    bytes: u64,
    /// Tables with mostly deletions.
    sparse: usize,
}

/// A merge to be done.
#[derive(Debug)]
pub struct Plan {
    /// Newest first.
    pub inputs: Vec<SortedRun>,
    /// Tables older than the inputs in their key range: a deletion is kept while its key may be in one of them.
    pub older: Vec<SortedRun>,
    /// Tables of the level below the target in that range.
    pub below: SortedRun,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One run of level 0 in place of several.
    Fresh,
    /// The level of this number, from 1.
    Level(usize),
}

/// Upper bound of the bytes of a merge of whole runs.
fn gathered_max(options: &Options) -> u64 {
    let paid = (options.memtable_bytes as u64).saturating_mul(GATHERED_MEMTABLES);
    paid.min(options.level_bytes.saturating_mul(4))
}

/// Bytes up to which a step takes further small tables.
fn step_bytes(options: &Options) -> u64 {
    overlap::max_bytes(options).saturating_add(options.table_bytes.saturating_mul(4))
}

impl Levels {
    /// Newest first.
    pub fn runs(&self) -> impl Iterator<Item = &SortedRun> {
        self.fresh.iter().chain(&self.deep)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs().flatten()
    }

    /// The most pressing merge.
    pub fn plan(&mut self, options: &Options) -> Option<Plan> {
        if self.settled {
            return None;
        }
        let waiting = self.fresh.len();
        self.takes_small_steps &= waiting >= FRESH_MERGE;
        let fullest = self.fullest(options);
        self.debt = fullest.map_or(0, |(_, factor)| (factor - 0.5) as usize).min(DEBT_MAX);
        let pressure = waiting as f64 / FRESH_MERGE as f64;
        let deep = fullest.filter(|(_, factor)| {
            waiting < FRESH_MERGE || waiting < FRESH_URGENT && *factor > pressure && !self.takes_small_steps
        });
        let plan = match deep {
            Some((level, _)) => Some(self.plan_next_of(level, options)),
            None if self.takes_small_steps => Some(self.plan_oldest(0)),
            None if waiting >= FRESH_MERGE => Some(self.plan_fresh(options)),
            None => self.plan_of_deletions(),
        };
        self.settled = plan.is_none();
        plan
    }

    /// Multiples of its size that a deep level was too large by when the last merge was planned, rounded, at most [`DEBT_MAX`]:
    /// changes pay for more merges then.
    pub fn debt(&self) -> usize {
        self.debt
    }

    /// The deep level that exceeds its size by the largest factor, and that factor.
    fn fullest(&self, options: &Options) -> Option<(usize, f64)> {
        let factor = |level: usize| self.sums[level - 1].bytes as f64 / self.target(level, options) as f64;
        let factors = (1..=self.sums.len()).map(|level| (level, factor(level)));
        factors.filter(|(_, factor)| *factor > 1.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Merge of a table with mostly deletions into the next level, though that is within its size: it frees the space of
    /// hidden entries.
    fn plan_of_deletions(&self) -> Option<Plan> {
        (1..self.deep.len()).filter(|level| self.sums[level - 1].sparse > 0).find_map(|level| {
            let at = self.deep[level - 1].iter().position(|table| is_sparse(table))?;
            Some(self.plan_down(level, at..at + 1))
        })
    }

    /// Adds the tables of a flushed memtable.
    pub fn add_fresh(&mut self, run: SortedRun) {
        self.fresh.insert(0, run);
        self.changed();
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Device space of all tables.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Plans no merge until a level changes.
    pub fn rest(&mut self) {
        self.settled = true;
    }

    /// A merge found no space and was given up. The next one is smaller, if there is a smaller one.
    pub fn rest_without_space(&mut self) {
        let has_smaller = !self.takes_small_steps && self.fresh.len() >= FRESH_MERGE;
        self.takes_small_steps |= has_smaller;
        self.settled = !has_smaller;
    }

    /// Plans the merges that [`Levels::rest`] put off.
    pub fn plan_again(&mut self) {
        self.settled = false;
        self.stays = false;
    }

    /// True while merges out of level 0 take one table at a time.
    pub fn takes_small_steps(&self) -> bool {
        self.takes_small_steps
    }

    /// Tells that tables were added or removed, and counts them all.
    pub fn recount(&mut self) {
        self.sums = self.deep.iter().map(|run| Sum::of(run)).collect();
        self.changed();
    }

    fn changed(&mut self) {
        (self.settled, self.stays) = (false, false);
        self.version += 1;
        self.bytes = self.fresh.iter().map(|run| bytes(run)).sum::<u64>()
            + self.sums.iter().map(|sum| sum.bytes).sum::<u64>();
    }

    fn target(&self, level: usize, options: &Options) -> u64 {
        options.level_bytes.saturating_mul(options.fanout.saturating_pow(level as u32 - 1))
    }

    fn plan_fresh(&self, options: &Options) -> Plan {
        let level_bytes = self.sums.first().map_or(0, |sum| sum.bytes);
        let is_worth = |bytes: u64| level_bytes <= bytes.saturating_mul(REWRITTEN_MAX);
        let fresh_bytes: u64 = self.fresh.iter().map(|run| bytes(run)).sum();
        if is_worth(fresh_bytes) && fresh_bytes + level_bytes <= gathered_max(options) {
            return self.plan_all_fresh();
        }
        let similar = self.similar_runs(gathered_max(options));
        let oldest = self.fresh.last().map_or(0, |run| bytes(run));
        // While the oldest run goes down, new runs must not become too many.
        let gathers_first = self.fresh.len() >= FRESH_GATHERED && similar < self.fresh.len();
        if similar < 2 || is_worth(oldest) && !gathers_first {
            return self.plan_oldest(step_bytes(options));
        }
        let inputs = self.fresh[..similar].to_vec();
        let older = self.fresh[similar..].iter().chain(&self.deep);
        let below = self.deep.first();
        Plan::new(inputs, older, below, Target::Fresh)
    }

    /// Merge of level 0 into level 1.
    fn plan_all_fresh(&self) -> Plan {
        let mut inputs = self.fresh.clone();
        if let (Some(level), Some((first, end))) = (self.deep.first(), hull(&inputs)) {
            inputs.push(overlapping(level, first, end).to_vec());
        }
        Plan::new(inputs, self.deep.iter().skip(1), self.deep.get(1), Target::Level(1))
    }

    /// Number of newest runs of level 0 to be merged: each next one is not much larger than the sum of those before it, and
    /// all have at most `max` bytes.
    fn similar_runs(&self, max: u64) -> usize {
        let (mut taken, mut sum) = (0, 0);
        for run in &self.fresh {
            let len = bytes(run);
            let is_similar = len <= sum * 2 || taken + 1 < FRESH_MERGE;
            if !is_similar || sum + len > max {
                break;
            }
            (taken, sum) = (taken + 1, sum + len);
        }
        taken
    }

    /// Merge of the first table of the oldest run of level 0 into level 1, and of further ones up to `step` bytes.
    fn plan_oldest(&self, step: u64) -> Plan {
        let run = self.fresh.last().expect("level 0 has a run");
        self.plan_down(0, self.step(run, 0, self.deep.first(), step))
    }

    /// Merge of the next tables of a level into the level below.
    fn plan_next_of(&mut self, level: usize, options: &Options) -> Plan {
        self.merge_cursors.resize(self.merge_cursors.len().max(level), Vec::new());
        let (run, cursor) = (&self.deep[level - 1], &self.merge_cursors[level - 1]);
        let at = run.partition_point(|table| table.first < *cursor) % run.len();
        let tables = self.step(run, at, self.deep.get(level), step_bytes(options));
        let end = run[tables.end - 1].end.clone();
        let plan = self.plan_down(level, tables);
        self.merge_cursors[level - 1] = end;
        plan
    }

    /// The table at `at`, and further ones while all and those that they overlap below have at most `step` bytes.
    fn step(&self, run: &[Arc<Table>], at: usize, below: Option<&SortedRun>, step: u64) -> Range<usize> {
        let overlapped = |tables: &[Arc<Table>]| match (below, tables.first(), tables.last()) {
            (Some(below), Some(first), Some(last)) => bytes(overlapping(below, &first.first, &last.end)),
            _ => 0,
        };
        let (mut end, mut upper) = (at + 1, run[at].bytes());
        while end < run.len() && end - at < STEP_TABLES_MAX {
            upper += run[end].bytes();
            if upper + overlapped(&run[at..end + 1]) > step {
                break;
            }
            end += 1;
        }
        at..end
    }

    /// Merge of tables of a deep level, or of the oldest run of level 0, into the level below.
    fn plan_down(&self, level: usize, tables: Range<usize>) -> Plan {
        let run = if level == 0 { self.fresh.last() } else { self.deep.get(level - 1) };
        let upper = run.expect("the level has tables")[tables].to_vec();
        let (first, end) = (&upper[0].first[..], &upper[upper.len() - 1].end[..]);
        let lower = self.deep.get(level).map_or(&[][..], |run| overlapping(run, first, end)).to_vec();
        let older = self.deep.iter().skip(level + 1);
        Plan::new(vec![upper, lower], older, self.deep.get(level + 1), Target::Level(level + 1))
    }

    /// Writes a table again that is not where it belongs, or in level 0 its run. Nothing else is due.
    pub fn plan_home(&mut self, is_home: impl Fn(&Table) -> bool) -> Option<Plan> {
        if !self.settled || self.stays {
            return None;
        }
        let is_away = |table: &&Arc<Table>| !is_home(table);
        let of_deep = self.deep.iter().enumerate().find_map(|(i, run)| {
            let table = run.iter().find(is_away)?.clone();
            let older = self.deep.iter().skip(i + 1);
            Some(Plan::new(vec![vec![table]], older, self.deep.get(i + 1), Target::Level(i + 1)))
        });
        let of_fresh = || {
            let at = self.fresh.iter().position(|run| run.iter().any(|table| !is_home(table)))?;
            let older = self.fresh[at + 1..].iter().chain(&self.deep);
            Some(Plan::new(vec![self.fresh[at].clone()], older, self.deep.first(), Target::Fresh))
        };
        let plan = of_deep.or_else(of_fresh);
        self.stays = plan.is_none();
        plan
    }

    /// There was no room to bring a table home.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// Replaces the inputs of a merge by its output.
    pub fn replace(&mut self, plan: &Plan, output: SortedRun) {
        let mut numbers: Vec<u64> = plan.inputs.iter().flatten().map(|table| table.number).collect();
        numbers.sort_unstable();
        let is_input = |table: &Arc<Table>| numbers.binary_search(&table.number).is_ok();
        // The inputs of level 0 are neighbours; runs flushed meanwhile are before them.
        let newer = self.fresh.iter().take_while(|run| !run.iter().any(is_input)).count();
        self.fresh.iter_mut().for_each(|run| run.retain(|table| !is_input(table)));
        match plan.target {
            Target::Fresh => self.fresh.insert(newer, output),
            Target::Level(level) => {
                let range = hull(&plan.inputs).map(|(first, end)| (first.to_vec(), end.to_vec()));
                let (first, end) = range.expect("a merge has inputs");
                if level > 1 {
                    self.change(level - 1, (&first, &end), is_input, SortedRun::new());
                }
                self.change(level, (&first, &end), is_input, output);
            }
        }
        self.fresh.retain(|run| !run.is_empty());
        self.changed();
    }

    /// Removes tables of a key range of a deep level, and adds others there.
    fn change(
        &mut self,
        level: usize,
        (first, end): (&[u8], &[u8]),
        is_input: impl Fn(&Arc<Table>) -> bool,
        added: SortedRun,
    ) {
        if self.deep.len() < level {
            self.deep.resize(level, SortedRun::new());
            self.sums.resize(level, Sum::default());
        }
        let (run, sum) = (&mut self.deep[level - 1], &mut self.sums[level - 1]);
        let span = span(run, first, end);
        let mut tables: SortedRun =
            run[span.clone()].iter().filter(|table| !is_input(table)).cloned().collect();
        tables.extend(added);
        tables.sort_by(|a, b| a.first.cmp(&b.first));
        let (before, after) = (Sum::of(&run[span.clone()]), Sum::of(&tables));
        sum.bytes = sum.bytes - before.bytes + after.bytes;
        sum.sparse = sum.sparse - before.sparse + after.sparse;
        run.splice(span, tables);
        debug_assert!(is_run(run), "tables of a level overlap");
        debug_assert_eq!(*sum, Sum::of(run));
    }
}

impl Plan {
    fn new<'a>(
        inputs: Vec<SortedRun>,
        older: impl Iterator<Item = &'a SortedRun>,
        below: Option<&SortedRun>,
        target: Target,
    ) -> Plan {
        let in_range = |run: &SortedRun| match hull(&inputs) {
            Some((first, end)) => overlapping(run, first, end).to_vec(),
            None => SortedRun::new(),
        };
        let older = older.map(in_range).filter(|run| !run.is_empty()).collect();
        let below = below.map(in_range).unwrap_or_default();
        Plan { older, below, target, inputs }
    }

    /// True if the tables fit into the next level as they are: it has none in their key range, and they hide nothing there.
    pub fn moves_tables(&self, options: &Options) -> bool {
        let is_whole = |table: &Arc<Table>| table.deletions == 0 && table.bytes() >= options.table_bytes / 2;
        matches!(self.target, Target::Level(_))
            && matches!(&self.inputs[..], [upper, lower] if lower.is_empty() && upper.iter().all(is_whole))
            && bytes(&self.below) <= overlap::max_bytes(options)
    }
}

impl Sum {
    fn of(run: &[Arc<Table>]) -> Sum {
        Sum { bytes: bytes(run), sparse: run.iter().filter(|table| is_sparse(table)).count() }
    }
}

/// True if a table has mostly deletions.
fn is_sparse(table: &Table) -> bool {
    table.deletions > table.entries / 2
}

/// The one table of a run that may hold `key`.
#[inline]
pub fn covering<'a>(run: &'a [Arc<Table>], key: &[u8]) -> Option<&'a Arc<Table>> {
    position(run, key).map(|i| &run[i])
}

/// The position of that table.
#[inline]
pub fn position(run: &[Arc<Table>], key: &[u8]) -> Option<usize> {
    let i = run.partition_point(|table| &table.end[..] <= key);
    run.get(i).filter(|table| &table.first[..] <= key).map(|_| i)
}

pub fn is_run(run: &[Arc<Table>]) -> bool {
    run.iter().all(|table| table.first < table.end) && run.windows(2).all(|pair| pair[0].end <= pair[1].first)
}

/// Positions of the tables of a run in a key range.
fn span(run: &[Arc<Table>], first: &[u8], end: &[u8]) -> Range<usize> {
    let start = run.partition_point(|table| &table.end[..] <= first);
    let stop = run.partition_point(|table| &table.first[..] < end);
    start..stop.max(start)
}

fn overlapping<'a>(run: &'a [Arc<Table>], first: &[u8], end: &[u8]) -> &'a [Arc<Table>] {
    &run[span(run, first, end)]
}

/// First key and end of some runs.
fn hull(runs: &[SortedRun]) -> Option<(&[u8], &[u8])> {
    let first = runs.iter().filter_map(|run| run.first()).map(|table| &table.first[..]).min()?;
    let end = runs.iter().filter_map(|run| run.last()).map(|table| &table.end[..]).max()?;
    Some((first, end))
}

fn bytes(run: &[Arc<Table>]) -> u64 {
    run.iter().map(|table| table.bytes()).sum()
}
