//! An index with its disk, space and log, and the map that it must equal.

use crate::index::{Get, Index, Limit, LogMark, Options, Purpose, Scan, TakeSpace, Ticket};
use crate::io::{Io, Owner};
use bytes::Bytes;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use device::{BLOCK, BlockDevice};
use std::collections::BTreeMap;

pub type Model = BTreeMap<Vec<u8>, Bytes>;
pub type Changes = Vec<(Vec<u8>, Option<Bytes>)>;

pub const DEVICE_BYTES: u64 = 64 << 20;

/// Small options: a few hundred changes reach the deepest level.
pub fn small() -> Options {
    Options {
        memtable_bytes: 24 << 10,
        table_bytes: 24 << 10,
        segment_bytes: 8 << 10,
        level_bytes: 48 << 10,
        fanout: 3,
        cache_bytes: 0,
        keeps: |_| false,
    }
}

pub struct Rig {
    pub disk: Simulated,
    pub io: Io,
    pub index: Index,
    pub space: Space,
    pub model: Model,
    /// All changes; the mark of each is its number, from 1.
    pub log: Vec<Changes>,
    pub durable: usize,
    /// The manifest of the header.
    pub manifest: Option<Bytes>,
    pub dice: Dice,
    next_ticket: u64,
}

/// Free blocks, optionally without long runs.
pub struct Space {
    pub free: Vec<bool>,
    next: usize,
    /// Longest run, in blocks.
    pub run_max: usize,
    disk: Simulated,
}

impl Space {
    fn new(disk: Simulated) -> Space {
        let blocks = (disk.size() / BLOCK as u64) as usize;
        Space { free: vec![true; blocks], next: 0, run_max: usize::MAX, disk }
    }

    fn occupy(&mut self, offset: u64, len: u64) {
        for block in offset / BLOCK as u64..(offset + len) / BLOCK as u64 {
            assert!(std::mem::take(&mut self.free[block as usize]), "block {block} belongs to two");
        }
    }
}

impl TakeSpace for Space {
    fn take(&mut self, len: u64, _: Purpose) -> Option<u64> {
        let want = (len / BLOCK as u64) as usize;
        if want > self.run_max {
            return None;
        }
        let starts = (self.next..self.free.len()).chain(0..self.next);
        let start = starts.into_iter().find(|start| {
            self.free.get(*start..start + want).is_some_and(|run| run.iter().all(|free| *free))
        })?;
        let offset = (start * BLOCK) as u64;
        self.occupy(offset, len);
        self.next = start + want;
        Some(offset)
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        for block in offset / BLOCK as u64..(offset + len) / BLOCK as u64 {
            assert!(
                !std::mem::replace(&mut self.free[block as usize], true),
                "block {block} given back twice"
            );
            // Whoever gets it next writes to it, and nobody may notice.
            self.disk.poke(block * BLOCK as u64, |bytes| bytes.fill(0xdd));
        }
    }
}

impl Rig {
    pub fn new(options: Options, seed: u64) -> Rig {
        let disk = Simulated::new(DEVICE_BYTES, Pace::Shuffled { per_poll_max: 3 }, seed);
        Rig {
            io: Io::new(Box::new(disk.clone())),
            index: Index::new(options),
            space: Space::new(disk.clone()),
            disk,
            model: Model::new(),
            log: Vec::new(),
            durable: 0,
            manifest: None,
            dice: Dice::new(seed),
            next_ticket: 0,
        }
    }

    pub fn apply(&mut self, changes: Changes) {
        for (key, value) in &changes {
            match value {
                Some(value) => drop(self.model.insert(key.clone(), value.clone())),
                None => drop(self.model.remove(key)),
            }
        }
        self.log.push(changes.clone());
        self.index.apply(changes, LogMark(self.log.len() as u64));
    }

    /// One turn of the reactor.
    pub fn turn(&mut self) -> bool {
        self.poll();
        let more = self.index.maintain(LogMark(self.durable as u64), &mut self.io, &mut self.space);
        more || self.io.under_way() > 0
    }

    /// Polls until background work is done.
    pub fn settle(&mut self) {
        self.durable = self.log.len();
        for _ in 0..1_000_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the background never comes to an end");
    }

    pub fn poll(&mut self) {
        let mut done = Vec::new();
        self.io.poll(&mut done);
        for done in done {
            assert_eq!(done.owner, Owner::Index);
            self.index.on_done(done.token, done.result, &mut self.io);
        }
    }

    pub fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Polls until a ticket is ready.
    pub fn wait_for(&mut self, ticket: Ticket) {
        let mut ready = Vec::new();
        for _ in 0..10_000 {
            self.poll();
            self.index.ready(&mut ready);
            if ready.contains(&ticket) {
                return;
            }
        }
        panic!("a ticket is never ready");
    }

    /// Repeats a query until it is answered, with other work meanwhile.
    pub fn get(&mut self, key: &[u8], mut meanwhile: impl FnMut(&mut Rig)) -> Get {
        let ticket = self.ticket();
        for _ in 0..1000 {
            match self.index.get(key, ticket, &mut self.io) {
                Get::Pending => {
                    meanwhile(self);
                    self.wait_for(ticket);
                }
                answer => return answer,
            }
        }
        panic!("a look-up is never answered");
    }

    pub fn check_get(&mut self, key: &[u8], meanwhile: impl FnMut(&mut Rig)) {
        let answer = self.get(key, meanwhile);
        assert_eq!(answer, self.model.get(key).cloned().map_or(Get::Absent, Get::Found), "{key:?}");
    }

    /// Scans a range, and compares each answer with the map at its moment.
    pub fn check_scan(&mut self, from: &[u8], to: &[u8], limit: Limit, mut meanwhile: impl FnMut(&mut Rig)) {
        let (ticket, mut from) = (self.ticket(), from.to_vec());
        for _ in 0..100_000 {
            let mut seen = Vec::new();
            let answer = self.index.scan(&from, to, limit, ticket, &mut self.io, &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
            });
            let end = match &answer {
                Scan::End => to.to_vec(),
                Scan::More(next) => {
                    assert!(&next[..] < to);
                    next.clone()
                }
                Scan::Pending => from.clone(),
                Scan::Bad(bad) => panic!("a sound disk is {bad}"),
            };
            assert!(seen.len() <= limit.entries.max(1));
            if from < end {
                let range = self.model.range(from.clone()..end.clone());
                let expected: Vec<_> = range.map(|(key, value)| (key.clone(), value.to_vec())).collect();
                assert_eq!(seen, expected, "from {from:?}, {answer:?}");
            } else {
                assert_eq!(seen, []);
            }
            meanwhile(self);
            match answer {
                Scan::End => return,
                Scan::More(next) => {
                    assert!(next > from || seen.is_empty() && next == from, "{next:?} from {from:?}");
                    from = next;
                }
                _ => self.wait_for(ticket),
            }
        }
        panic!("a scan never ends");
    }

    pub fn check_all(&mut self) {
        self.check_scan(&[], &[255; 40], Limit::new(50, 1 << 20), |_| ());
        let keys: Vec<_> = self.model.keys().step_by(7).cloned().collect();
        for key in keys {
            self.check_get(&key, |_| ());
        }
        let occupied = self.space.free.iter().filter(|free| !**free).count() as u64;
        let tables: u64 = self.index.runs().map(|(_, len)| len / BLOCK as u64).sum();
        assert!(tables <= occupied && self.index.usage().device == tables * BLOCK as u64);
    }

    /// Makes a checkpoint: a durable manifest, named by the header.
    pub fn checkpoint(&mut self) {
        self.index.freeze();
        self.durable = self.log.len();
        while self.index.flushed_mark() < LogMark(self.log.len() as u64) {
            self.turn();
        }
        self.store_manifest();
    }

    /// A checkpoint without a flush: more of the log is needed.
    pub fn store_manifest(&mut self) {
        let manifest = self.index.manifest();
        self.disk.set_pace(Pace::AtOnce);
        let mut disk = self.disk.clone();
        self.poll();
        disk.submit(u64::MAX, device::Request::Flush);
        let mut done = Vec::new();
        disk.poll(&mut done);
        assert!(done.iter().any(|done| done.token == u64::MAX));
        self.disk.set_pace(Pace::Shuffled { per_poll_max: 3 });
        self.manifest = Some(manifest.blob);
        self.index.manifest_is_durable(manifest.version, &mut self.space);
    }

    /// A power cut: unflushed writes may be lost, and the log has its durable changes.
    pub fn crash(self, options: Options) -> Rig {
        let mut dice = self.dice;
        let disk = self.disk.power_cut(&mut dice);
        let mut index = match &self.manifest {
            Some(blob) => Index::open(options, blob).expect("a sound manifest"),
            None => Index::new(options),
        };
        let mut space = Space::new(disk.clone());
        space.run_max = self.space.run_max;
        for (offset, len) in index.runs() {
            space.occupy(offset, len);
        }
        let mut log = self.log;
        log.truncate(self.durable);
        let mut model = Model::new();
        for (key, value) in log.iter().flatten() {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
        let flushed = index.flushed_mark().0 as usize;
        assert!(flushed <= log.len(), "tables hold what the log does not");
        for (i, changes) in log.iter().enumerate().skip(flushed) {
            index.apply(changes.clone(), LogMark(i as u64 + 1));
        }
        Rig {
            io: Io::new(Box::new(disk.clone())),
            index,
            space,
            disk,
            model,
            durable: log.len(),
            log,
            manifest: self.manifest,
            dice,
            next_ticket: self.next_ticket,
        }
    }

    /// Random changes, durable in the log.
    pub fn change_durably(&mut self, count: u64) {
        let changes = self.random_changes(count);
        self.apply(changes);
        self.durable = self.log.len();
    }

    /// Keys that collide, are neighbours and share prefixes; values that are short, or sometimes long.
    pub fn random_changes(&mut self, count: u64) -> Changes {
        (0..count).map(|_| (self.random_key(), self.random_value())).collect()
    }

    pub fn random_key(&mut self) -> Vec<u8> {
        let dice = &mut self.dice;
        match dice.below(4) {
            0 => vec![dice.below(3) as u8; dice.below(6) as usize],
            1 => [&b"a prefix that is common to many keys "[..], &(dice.below(500) as u16).to_be_bytes()]
                .concat(),
            2 => [&[9][..], &dice.below(100).to_be_bytes(), &dice.below(50).to_be_bytes()].concat(),
            _ => (dice.below(3000) as u32).to_be_bytes().to_vec(),
        }
    }

    pub fn random_value(&mut self) -> Option<Bytes> {
        let dice = &mut self.dice;
        if dice.chance(25) {
            return None;
        }
        let len = if dice.chance(2) { dice.below(30_000) } else { dice.below(200) };
        Some(Bytes::from(vec![dice.below(256) as u8; len as usize]))
    }
}
