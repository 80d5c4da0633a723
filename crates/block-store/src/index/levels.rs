//! Levels of tables, their age, and the choice of the next merge.
//!
//! A sorted run is a list of disjoint tables in key order. Level 0 has a run for each flushed memtable. Every deeper level
//! is one run, and may be `fanout` times as large as the one above. Newer entries hide older ones: the newest run of level
//! 0 comes first, then the others, then the deeper levels.

use super::Options;
use super::table::Table;
use std::sync::Arc;

pub type SortedRun = Vec<Arc<Table>>;

/// Runs of level 0 at which a merge begins, and at which changes wait.
const FRESH_MERGE: usize = 4;
pub const FRESH_MAX: usize = 16;

#[derive(Default)]
pub struct Levels {
    /// Level 0, newest first.
    pub fresh: Vec<SortedRun>,
    /// Level 1 and deeper.
    pub deep: Vec<SortedRun>,
    /// First key of the next merge out of each deep level, so that merges go through the whole key space.
    merge_cursors: Vec<Vec<u8>>,
    /// No merge is due until a level changes.
    settled: bool,
    /// No table is brought home until a level changes, or there is more space.
    stays: bool,
    /// A merge found no space. Merges out of level 0 take one table at a time until few runs are left there.
    takes_small_steps: bool,
    /// Device space of all tables.
    bytes: u64,
}

/// A merge to be done.
#[derive(Debug)]
pub struct Plan {
    /// Newest first.
    pub inputs: Vec<SortedRun>,
    /// Runs older than the inputs: a deletion is kept while its key may be in one of them.
    pub older: Vec<SortedRun>,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One run of level 0 in place of several.
    Fresh,
    /// The level of this number, from 1.
    Level(usize),
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
        self.takes_small_steps &= self.fresh.len() >= FRESH_MERGE;
        let plan = if self.takes_small_steps {
            Some(self.plan_oldest())
        } else if self.fresh.len() >= FRESH_MERGE {
            Some(self.plan_fresh())
        } else {
            self.fullest(options).map(|level| self.plan_next_of(level)).or_else(|| self.plan_of_deletions())
        };
        self.settled = plan.is_none();
        plan
    }

    /// The deep level that exceeds its target size by the largest factor.
    fn fullest(&self, options: &Options) -> Option<usize> {
        let score = |level: usize| bytes(&self.deep[level - 1]) as f64 / self.target(level, options) as f64;
        let scores = (1..=self.deep.len()).map(|level| (level, score(level)));
        scores.filter(|(_, score)| *score > 1.0).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(level, _)| level)
    }

    /// Merge of a table with mostly deletions into the next level, though that is within its size: it frees the space of
    /// hidden entries.
    fn plan_of_deletions(&self) -> Option<Plan> {
        (1..self.deep.len()).find_map(|level| {
            let is_due = |table: &&Arc<Table>| table.deletions * 2 > table.entries;
            self.deep[level - 1].iter().find(is_due).map(|table| self.plan_down(level, table.clone()))
        })
    }

    /// Adds the tables of a flushed memtable.
    pub fn add_fresh(&mut self, run: SortedRun) {
        self.fresh.insert(0, run);
        self.changed();
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

    pub fn changed(&mut self) {
        (self.settled, self.stays) = (false, false);
        self.bytes = self.runs().map(bytes).sum();
    }

    fn target(&self, level: usize, options: &Options) -> u64 {
        options.level_bytes.saturating_mul(options.fanout.saturating_pow(level as u32 - 1))
    }

    /// Merge of level 0 into level 1; or, if level 1 is much larger and to rewrite it would cost too much, of runs of similar
    /// size in level 0.
    fn plan_fresh(&self) -> Plan {
        let total: u64 = self.fresh.iter().map(bytes).sum();
        if self.deep.first().is_none_or(|level| bytes(level) <= total * 4) {
            let first = self.fresh.iter().filter_map(|run| run.first()).map(|table| &table.first[..]).min();
            let end = self.fresh.iter().filter_map(|run| run.last()).map(|table| &table.end[..]).max();
            let mut inputs = self.fresh.clone();
            if let (Some(level), Some(first), Some(end)) = (self.deep.first(), first, end) {
                inputs.push(overlapping(level, first, end).to_vec());
            }
            return Plan {
                inputs,
                older: self.deep.iter().skip(1).cloned().collect(),
                target: Target::Level(1),
            };
        }
        // From the newest run on, while the next one is not much larger than the sum of those before it.
        let mut taken = 2;
        let mut sum: u64 = self.fresh[..taken].iter().map(bytes).sum();
        while taken < self.fresh.len() && (bytes(&self.fresh[taken]) <= sum * 2 || taken + 1 < FRESH_MERGE) {
            sum += bytes(&self.fresh[taken]);
            taken += 1;
        }
        Plan {
            inputs: self.fresh[..taken].to_vec(),
            older: self.fresh[taken..].iter().chain(&self.deep).cloned().collect(),
            target: Target::Fresh,
        }
    }

    /// Merge of one table of the oldest run of level 0 into level 1. The whole level at a time needs as much space as it has.
    fn plan_oldest(&self) -> Plan {
        let table = self.fresh.last().and_then(|run| run.first()).expect("a run has tables");
        self.plan_down(0, table.clone())
    }

    /// Merge of the next table of a level into the level below.
    fn plan_next_of(&mut self, level: usize) -> Plan {
        self.merge_cursors.resize(self.merge_cursors.len().max(level), Vec::new());
        let (run, cursor) = (&self.deep[level - 1], &mut self.merge_cursors[level - 1]);
        let table = run.iter().find(|table| table.first >= *cursor).unwrap_or(&run[0]).clone();
        cursor.clone_from(&table.end);
        self.plan_down(level, table)
    }

    fn plan_down(&self, level: usize, table: Arc<Table>) -> Plan {
        let below = self.deep.get(level).map_or(&[][..], |run| overlapping(run, &table.first, &table.end));
        Plan {
            inputs: vec![vec![table], below.to_vec()],
            older: self.deep.iter().skip(level + 1).cloned().collect(),
            target: Target::Level(level + 1),
        }
    }

    /// Writes a table again that is not where it belongs, or in level 0 its run. Nothing else is due.
    pub fn plan_home(&mut self, is_home: impl Fn(&Table) -> bool) -> Option<Plan> {
        if !self.settled || self.stays {
            return None;
        }
        let is_away = |table: &&Arc<Table>| !is_home(table);
        let of_deep = self.deep.iter().enumerate().find_map(|(i, run)| {
            let table = run.iter().find(is_away)?.clone();
            let older = self.deep.iter().skip(i + 1).cloned().collect();
            Some(Plan { inputs: vec![vec![table]], older, target: Target::Level(i + 1) })
        });
        let of_fresh = || {
            let at = self.fresh.iter().position(|run| run.iter().any(|table| !is_home(table)))?;
            let older = self.fresh[at + 1..].iter().chain(&self.deep).cloned().collect();
            Some(Plan { inputs: vec![self.fresh[at].clone()], older, target: Target::Fresh })
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
        let is_input =
            |table: &Arc<Table>| plan.inputs.iter().flatten().any(|input| input.number == table.number);
        // The inputs of level 0 are neighbours; runs flushed meanwhile are before them.
        let newer = self.fresh.iter().take_while(|run| !run.iter().any(is_input)).count();
        for run in self.fresh.iter_mut().chain(&mut self.deep) {
            run.retain(|table| !is_input(table));
        }
        match plan.target {
            Target::Fresh => self.fresh.insert(newer, output),
            Target::Level(level) => self.add(level, output),
        }
        self.fresh.retain(|run| !run.is_empty());
        self.changed();
    }

    /// Adds tables to a deep level.
    pub fn add(&mut self, level: usize, tables: SortedRun) {
        if self.deep.len() < level {
            self.deep.resize(level, SortedRun::new());
        }
        let run = &mut self.deep[level - 1];
        run.extend(tables);
        run.sort_by(|a, b| a.first.cmp(&b.first));
        debug_assert!(is_run(run), "tables of a level overlap");
    }
}

/// The one table of a run that may hold `key`.
#[inline]
pub fn covering<'a>(run: &'a [Arc<Table>], key: &[u8]) -> Option<&'a Arc<Table>> {
    let i = run.partition_point(|table| &table.end[..] <= key);
    run.get(i).filter(|table| &table.first[..] <= key)
}

pub fn is_run(run: &[Arc<Table>]) -> bool {
    run.iter().all(|table| table.first < table.end) && run.windows(2).all(|pair| pair[0].end <= pair[1].first)
}

fn overlapping<'a>(run: &'a [Arc<Table>], first: &[u8], end: &[u8]) -> &'a [Arc<Table>] {
    let start = run.partition_point(|table| &table.end[..] <= first);
    let stop = run.partition_point(|table| &table.first[..] < end);
    &run[start..stop.max(start)]
}

fn bytes(run: &SortedRun) -> u64 {
    run.iter().map(|table| table.bytes()).sum()
}
