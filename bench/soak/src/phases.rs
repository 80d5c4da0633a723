//! The phases of a soak: measure the empty store, fill it, age it, measure again, kill it, open and check it.

use crate::driver::{Driver, Ended, Kind};
use crate::objects::{
    self, BLOCK, LARGE_BLOCKS, LARGE_BYTES, Name, OMAP_KEYS, PGS, PgLogs, omap_entries, omap_key,
};
use crate::pattern;
use crate::stats::{Row, Window};
use indicatif::{ProgressBar, ProgressStyle};
use machine::Random;
use std::collections::{HashMap, VecDeque};
use store::{Answer, Change};

/// Numbers of objects for a device.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Population {
    pub large: u64,
    pub small: u64,
    pub omaps: u64,
    /// Clones of large objects that exist at a time.
    pub clones: u64,
}

impl Population {
    /// Fills `share` of a device. Small objects and omap keys grow with the device: 10 million and 100 million on 1 TB.
    pub fn of(device_bytes: u64, share: f64) -> Population {
        let of_a_terabyte = |count: u64| (count as f64 * device_bytes as f64 / (1_u64 << 40) as f64) as u64;
        let (small, omaps) = (of_a_terabyte(10_000_000), of_a_terabyte(100_000_000) / OMAP_KEYS);
        let for_large = device_bytes as f64 * share - (small * BLOCK + omaps * OMAP_KEYS * 60) as f64;
        let large = (for_large.max(0.0) / LARGE_BYTES as f64) as u64;
        Population { large, small, omaps, clones: large / 50 }
    }
}

/// Sizes of the measured phases, in operations.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Lengths {
    pub measured: u64,
    pub aging: u64,
    pub window: u64,
    pub depth: usize,
    /// Keys of a transaction that fills omaps.
    pub omap_step: u64,
}

pub struct Soak {
    pub driver: Driver,
    pub population: Population,
    pub lengths: Lengths,
    pub rows: Vec<Row>,
    logs: PgLogs,
    random: Random,
    /// Large objects, clones and omap keys that exist now.
    is_small_there: Vec<bool>,
    clones: VecDeque<(u64, u64)>,
    next_snap: u64,
    /// Marks that reads in flight must find.
    expected: HashMap<u64, u32>,
    /// Reads whose bytes were compared.
    pub verified: u64,
}

impl Soak {
    pub fn new(driver: Driver, population: Population, lengths: Lengths, seed: u64) -> Soak {
        let is_small_there = vec![false; population.small as usize];
        Soak {
            driver,
            population,
            lengths,
            rows: Vec::new(),
            logs: PgLogs::new(),
            random: Random::from_number(seed),
            is_small_there,
            clones: VecDeque::new(),
            next_snap: 1,
            expected: HashMap::new(),
            verified: 0,
        }
    }

    /// Runs a phase of `ops` operations that `step` starts, in windows of `window` of them.
    pub fn phase(
        &mut self,
        name: &str,
        ops: u64,
        window: u64,
        mut step: impl FnMut(&mut Soak, u64, &mut Window),
    ) {
        self.driver.begin_phase(name);
        let progress = progress(name, ops);
        let (mut started, mut ended) = (0, Vec::new());
        while started < ops {
            let mut gathered = Window::new(&mut self.driver);
            let end = ops.min(started + window);
            while started < end || self.driver.in_flight() > 0 {
                while started < end && self.driver.in_flight() < self.lengths.depth {
                    step(self, started, &mut gathered);
                    started += 1;
                }
                self.driver.turn(&mut ended);
                self.finish(&mut ended, &mut gathered);
            }
            progress.set_position(started);
            let row = gathered.row(name, &mut self.driver);
            // Where nobody sees the bar: a phase may take an hour.
            if progress.is_hidden() {
                let (rate, cpu) = (row.ops_per_second, row.cpu_us_per_op);
                eprintln!(
                    "{name}: {started} of {ops}, {rate:.0} op/s, {cpu:.1} us of processor time an operation"
                );
            }
            self.rows.push(row);
        }
        progress.finish_and_clear();
    }

    /// Counts what has ended, and compares what was read.
    ///
    /// # Panics
    /// If a read returns other bytes than were written.
    fn finish(&mut self, ended: &mut Vec<Ended>, window: &mut Window) {
        for one in ended.drain(..) {
            window.count(&one);
            let Some(answers) = one.answers else { continue };
            let answers = answers.expect("the object exists and the device has no faults");
            let [Answer::Data(data)] = &answers[..] else { panic!("one answer to one query") };
            let mark = self.expected.remove(&one.tag).expect("a read in flight");
            assert_eq!(pattern::mark_of(&data.to_bytes()), Some(mark), "the store returned other bytes");
            self.verified += 1;
        }
    }

    pub fn create_pgs(&mut self) {
        self.phase("create PGs", PGS.into(), PGS.into(), |soak, pg, _| {
            soak.driver.submit(Kind::Omap, PgLogs::create(pg as u32));
        });
        self.rows.clear();
    }

    /// Device blocks with data when the logs of all PGs are empty and the store has been stopped cleanly.
    ///
    /// # Panics
    /// If the check of the store has findings.
    pub fn blocks_without_logs(&mut self) -> u64 {
        self.phase("clear logs", PGS.into(), PGS.into(), |soak, pg, _| {
            let transaction = soak.logs.clear(pg as u32);
            soak.driver.submit(Kind::Omap, transaction);
        });
        self.rows.pop();
        self.driver.settle();
        self.driver.restart();
        let (reports, ..) = self.driver.check();
        let findings: Vec<_> = reports.iter().flat_map(|report| &report.findings).collect();
        assert!(findings.is_empty(), "{findings:?}");
        reports.iter().map(|report| report.blocks_stored).sum()
    }

    pub fn submit(&mut self, kind: Kind, name: Name, changes: Vec<Change>, window: &mut Window) {
        window.count_written(changes.iter().map(Change::growth).sum());
        let transaction = self.logs.transaction(name, changes, kind == Kind::Remove);
        self.driver.submit(kind, transaction);
    }

    fn write_large(&mut self, object: u64, window: &mut Window) {
        let name = Name::Large(object);
        self.submit(Kind::WriteLarge, name, vec![objects::write(name, 0, LARGE_BLOCKS)], window);
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    pub fn overwrite(&mut self, objects: u64, window: &mut Window) {
        let name = Name::Large(self.random.below(objects));
        let block = self.random.below(LARGE_BLOCKS);
        self.submit(Kind::Write4k, name, vec![objects::write(name, block, 1)], window);
    }

    /// 4 KiB overwrites of a gigabyte, on a store that has nothing else.
    pub fn measure_empty(&mut self) {
        let objects = self.population.large.min(256);
        self.phase("first objects", objects, objects, |soak, object, window| {
            soak.write_large(object, window)
        });
        let ops = self.lengths.measured;
        self.phase("4k writes, empty", ops, ops, |soak, _, window| soak.overwrite(objects, window));
    }

    pub fn fill(&mut self) {
        let from = self.population.large.min(256);
        let rest = self.population.large - from;
        self.phase("fill, 4 MiB objects", rest, rest.div_ceil(8).max(1), |soak, at, window| {
            soak.write_large(from + at, window);
        });
        let small = self.population.small;
        self.phase("fill, 4 KiB objects", small, small.div_ceil(8).max(1), |soak, at, window| {
            let name = Name::Small(at);
            soak.is_small_there[at as usize] = true;
            soak.submit(Kind::Write4k, name, vec![objects::write(name, 0, 1)], window);
        });
        // Neighbours in time are of different objects, as of many buckets.
        let keys = self.lengths.omap_step.clamp(1, OMAP_KEYS);
        let (omaps, steps) = (self.population.omaps, OMAP_KEYS / keys);
        self.phase(
            "fill, omap keys",
            omaps * steps,
            (omaps * steps).div_ceil(8).max(1),
            |soak, at, window| {
                let (step, object) = (at / omaps, at % omaps);
                let name = Name::Omap(object);
                let entries = omap_entries(object, (step * keys..(step + 1) * keys).map(objects::mix));
                soak.submit(Kind::Omap, name, vec![Change::OmapSet { object: name.id(), entries }], window);
            },
        );
    }

    /// A mix of operations that fragments the device and keeps its fill.
    pub fn age(&mut self) {
        let (ops, window) = (self.lengths.aging, self.lengths.window);
        self.phase("aging", ops, window, Soak::age_once);
    }

    fn age_once(&mut self, _: u64, window: &mut Window) {
        let large = self.population.large;
        match self.random.below(1000) {
            0..700 => self.overwrite(large, window),
            700..850 => {
                let (name, block) = (Name::Large(self.random.below(large)), self.random.below(LARGE_BLOCKS));
                let tag = self.driver.read(Kind::Read4k, objects::read(name, block));
                self.expected.insert(tag, name.mark(block));
            }
            850..920 if self.population.small > 0 => self.toggle_small(window),
            920..990 if self.population.omaps > 0 => self.change_omap(window),
            990..998 if self.population.clones > 0 => self.clone_or_remove(window),
            _ => self.write_large_again(window),
        }
    }

    /// Removes a small object that exists, or creates one that does not.
    fn toggle_small(&mut self, window: &mut Window) {
        let at = self.random.below(self.population.small);
        let name = Name::Small(at);
        let is_there = &mut self.is_small_there[at as usize];
        *is_there = !*is_there;
        match *is_there {
            true => self.submit(Kind::Write4k, name, vec![objects::write(name, 0, 1)], window),
            false => self.submit(Kind::Remove, name, vec![Change::Remove { object: name.id() }], window),
        }
    }

    /// Replaces ten keys by themselves, and removes and sets ten others, as a bucket index does.
    fn change_omap(&mut self, window: &mut Window) {
        let object = self.random.below(self.population.omaps);
        let name = Name::Omap(object);
        let from = self.random.below(OMAP_KEYS - 20);
        let keys: Vec<u64> = (from..from + 20).map(objects::mix).collect();
        let (set, removed) = keys.split_at(10);
        let changes = vec![
            Change::OmapRemove {
                object: name.id(),
                keys: removed.iter().map(|key| omap_key(object, *key)).collect(),
            },
            Change::OmapSet { object: name.id(), entries: omap_entries(object, set.iter().copied()) },
            Change::OmapSet { object: name.id(), entries: omap_entries(object, removed.iter().copied()) },
        ];
        self.submit(Kind::Omap, name, changes, window);
    }

    /// Clones a large object, and removes the oldest clone when there are enough.
    fn clone_or_remove(&mut self, window: &mut Window) {
        if self.clones.len() as u64 >= self.population.clones {
            let (of, snap) = self.clones.pop_front().expect("there are some");
            let name = Name::Clone { of, snap };
            return self.submit(Kind::Remove, name, vec![Change::Remove { object: name.id() }], window);
        }
        let of = self.random.below(self.population.large);
        let name = Name::Clone { of, snap: self.next_snap };
        self.next_snap += 1;
        self.clones.push_back((of, self.next_snap - 1));
        let change = Change::Clone { from: Name::Large(of).id(), to: name.id() };
        self.submit(Kind::Clone, name, vec![change], window);
    }

    /// Removes a large object and writes it anew.
    fn write_large_again(&mut self, window: &mut Window) {
        let object = self.random.below(self.population.large);
        let name = Name::Large(object);
        self.submit(Kind::Remove, name, vec![Change::Remove { object: name.id() }], window);
        self.write_large(object, window);
    }

    /// 4 KiB overwrites over all large objects of the filled and aged store.
    pub fn measure_full(&mut self) {
        let (ops, large) = (self.lengths.measured, self.population.large);
        self.phase("4k writes, aged", ops, ops, |soak, _, window| soak.overwrite(large, window));
    }

    /// Starts overwrites and does not wait for them.
    pub fn leave_writes_in_flight(&mut self) {
        let mut unused = Window::new(&mut self.driver);
        for _ in 0..self.lengths.depth {
            self.overwrite(self.population.large, &mut unused);
        }
        self.driver.turn(&mut Vec::new());
    }
}

fn progress(name: &str, ops: u64) -> ProgressBar {
    let bar = ProgressBar::new(ops);
    let style =
        ProgressStyle::with_template("{msg:22} {wide_bar} {percent:>3} %  {eta}").expect("a valid template");
    bar.set_style(style);
    bar.set_message(name.to_owned());
    bar
}
