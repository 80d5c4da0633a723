//! The store under test, driven in a closed loop on the soak's clock.

use crate::clock::Clock;
use crate::device::{Counts, Handle, Medium, Model, NextDue, unnamed_file};
use crate::trace::Trace;
use block_store::check::{Depth, Report};
use block_store::format::DeviceRole;
use block_store::{Figures, FormatOptions, Identity, Options, Shard};
use device::BlockDevice;
use device::joined::Joined;
use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use store::{
    Answer, Change, Collection, Completion, ObjectStore, ReadError, ReadRequest, Transaction, Usage,
};

/// Operations whose latencies are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Write4k,
    Read4k,
    WriteLarge,
    Omap,
    Clone,
    Remove,
}

/// A completed operation.
pub struct Ended {
    pub tag: u64,
    pub kind: Kind,
    pub latency_ns: u64,
    pub answers: Option<Result<Vec<Answer>, ReadError>>,
}

/// Devices of the store.
#[derive(Clone, Copy)]
pub struct Disks {
    pub bytes: u64,
    pub model: Model,
    /// Size of a db device on NVMe.
    pub db_bytes: Option<u64>,
}

/// Settings of an open store.
#[derive(Clone, Copy)]
pub struct OpenOptions {
    /// As on a rotating disk.
    pub defers: bool,
    pub shards: usize,
    /// Caches of all shards together.
    pub cache_bytes: usize,
    /// Turns of so many ms of processor time are told on standard error.
    pub trace_turns_ms: Option<f64>,
    /// Fixed time of a turn on the soak's clock.
    pub turn_ns: Option<u64>,
}

/// The main device, and the db device if there is one.
#[derive(Clone)]
struct Media {
    main: Rc<RefCell<Medium>>,
    db: Option<Rc<RefCell<Medium>>>,
}

impl Media {
    fn handle(&self, clock: &Clock) -> (Box<dyn BlockDevice>, NextDue) {
        let (main, next_due) = Handle::new(&self.main, clock);
        match &self.db {
            None => (Box::new(main), next_due),
            Some(db) => {
                let db = Handle::beside(db, clock, &next_due);
                (Box::new(Joined::new([(0, main), (DeviceRole::Db.number(), db)])), next_due)
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Rc<RefCell<Medium>>> {
        std::iter::once(&self.main).chain(&self.db)
    }
}

pub struct Driver {
    pub clock: Clock,
    media: Media,
    options: OpenOptions,
    shards: Vec<(Shard, NextDue)>,
    in_flight: HashMap<u64, (Kind, u64)>,
    next_tag: u64,
    /// Processor time of each call into the store.
    turns: Histogram<u64>,
    trace: Trace,
    cpu_ns: u64,
    out: Vec<Completion>,
}

/// A call into the store, for the trace of long turns.
struct Called {
    name: &'static str,
    changes: usize,
    bytes: u64,
}

/// Maximum time of a histogram; longer ones are counted as this.
const TIME_NS_MAX: u64 = 1_000_000_000_000;

pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(TIME_NS_MAX, 3).expect("valid bounds")
}

impl Driver {
    /// Formats a device and opens its shards.
    pub fn format(disks: Disks, open: OpenOptions, directory: &std::path::Path) -> Driver {
        let medium = |bytes, model| {
            let file = unnamed_file(directory).expect("a file can be made there");
            Medium::new(bytes, file, model).expect("the file system takes sparse files of this size")
        };
        let media = Media {
            main: medium(disks.bytes, disks.model),
            db: disks.db_bytes.map(|bytes| medium(bytes, Model::default())),
        };
        let clock = Clock::default();
        clock.fix_turns(open.turn_ns);
        let (mut handle, next_due) = media.handle(&clock);
        let db = disks.db_bytes.map(|_| (DeviceRole::Db, Identity(*b"db of that store")));
        let options = FormatOptions {
            identity: Identity(*b"soak of a store\0"),
            label: "soak".into(),
            shards: open.shards,
            log_bytes: None,
            zone_bytes: None,
            discard: false,
            encryption: None,
            devices: db.into_iter().collect(),
        };
        let mut wait = || wait_for(&clock, &next_due);
        block_store::format(&mut *handle, &options, &mut wait).expect("the device can be formatted");
        Driver::open(clock, media, open).0
    }

    fn open(clock: Clock, media: Media, options: OpenOptions) -> (Driver, u64) {
        let mut opened = Vec::new();
        let mut cpu_ns = 0;
        let trace = Trace::new(options.trace_turns_ms);
        let pool = {
            let (mut handle, next_due) = media.handle(&clock);
            block_store::attach(&mut *handle, &mut || wait_for(&clock, &next_due))
                .expect("a store was made there")
        };
        for number in 0..options.shards {
            let (handle, next_due) = media.handle(&clock);
            let how = match options.defers {
                true => Options::for_rotating_disk(64 << 10),
                false => Options::default(),
            };
            let mut wait = || wait_for(&clock, &next_due);
            let open = || Shard::open(handle, number, &pool, how, &mut wait);
            let (shard, used) = clock.turn(open);
            cpu_ns += used;
            let mut shard = shard.expect("the store opens");
            shard.set_cache_budget(options.cache_bytes / options.shards);
            trace.observe(&mut shard, &clock);
            opened.push((shard, next_due));
        }
        let (turns, out) = (histogram(), Vec::new());
        let driver = Driver {
            clock,
            media,
            options,
            shards: opened,
            in_flight: HashMap::new(),
            next_tag: 0,
            turns,
            trace,
            cpu_ns: 0,
            out,
        };
        (driver, cpu_ns)
    }

    /// Ends the store cleanly, and opens it again.
    pub fn restart(&mut self) {
        self.shards.iter_mut().for_each(|(shard, _)| shard.stop());
        while self.shards.iter().any(|(shard, _)| !shard.is_stopped()) {
            self.turn(&mut Vec::new());
        }
        self.shards.clear();
        *self = Driver::open(self.clock.clone(), self.media.clone(), self.options).0;
    }

    /// Ends the store as a kill does, with requests in flight, and opens it again. Returns time and processor time.
    pub fn kill_and_open(self) -> (Driver, u64, u64) {
        let Driver { clock, media, shards, options, .. } = self;
        drop(shards);
        let started = clock.now();
        let (driver, cpu_ns) = Driver::open(clock.clone(), media, options);
        (driver, clock.now() - started, cpu_ns)
    }

    /// Checks the metadata of all shards, which must be at rest. Returns time and processor time, too.
    pub fn check(&mut self) -> (Vec<Report>, u64, u64) {
        let (mut reports, started, mut cpu_ns) = (Vec::new(), self.clock.now(), 0);
        for (shard, next_due) in &mut self.shards {
            let mut wait = || wait_for(&self.clock, next_due);
            let (report, used) = self.clock.turn(|| shard.check(Depth::Metadata, &mut wait));
            cpu_ns += used;
            reports.push(report);
        }
        (reports, self.clock.now() - started, cpu_ns)
    }

    fn shard_of(&self, collection: Collection) -> usize {
        match collection {
            Collection::Meta => 0,
            Collection::Pg(pg) => pg.pg.seed as usize % self.shards.len(),
        }
    }

    pub fn submit(&mut self, kind: Kind, transaction: Transaction) -> u64 {
        let shard = self.shard_of(transaction.collection);
        let (changes, bytes) =
            (transaction.changes.len(), transaction.changes.iter().map(Change::growth).sum());
        let called = Called { name: "submit", changes, bytes };
        self.call(kind, shard, called, |shard, tag| shard.submit(tag, transaction))
    }

    pub fn read(&mut self, kind: Kind, request: ReadRequest) -> u64 {
        let shard = self.shard_of(request.collection);
        let called = Called { name: "read", changes: 0, bytes: 0 };
        self.call(kind, shard, called, |shard, tag| shard.read(tag, request))
    }

    fn call(&mut self, kind: Kind, shard: usize, called: Called, call: impl FnOnce(&mut Shard, u64)) -> u64 {
        self.next_tag += 1;
        let tag = self.next_tag;
        self.in_flight.insert(tag, (kind, self.clock.now()));
        self.trace.begin(&self.clock);
        let ((), used) = self.clock.turn(|| call(&mut self.shards[shard].0, tag));
        let Called { name, changes, bytes } = called;
        self.trace.end(|| format!("{name} {kind:?} of {changes} changes, {bytes} bytes"), used);
        self.cpu_ns += used;
        self.turns.saturating_record(used);
        tag
    }

    /// Names the phase of the soak for traced turns.
    pub fn begin_phase(&mut self, name: &str) {
        self.trace.begin_soak_phase(name);
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Polls all shards once, and moves the clock to the device's next completion when only the device can go on. Returns
    /// true while any shard has work.
    ///
    /// # Panics
    /// If the store fails a transaction: the device has no faults, so the store is full or broken.
    pub fn turn(&mut self, ended: &mut Vec<Ended>) -> bool {
        let mut is_busy = false;
        for (shard, _) in &mut self.shards {
            self.trace.begin(&self.clock);
            let (busy, used) = self.clock.turn(|| shard.poll(&mut self.out));
            self.trace.end(|| "poll".into(), used);
            is_busy |= busy;
            self.cpu_ns += used;
            self.turns.saturating_record(used);
        }
        let now = self.clock.now();
        for completion in self.out.drain(..) {
            let (tag, answers) = match completion {
                Completion::Committed { tag } => (tag, None),
                Completion::Read { tag, answers } => (tag, Some(answers)),
                other => panic!("the store failed: {other:?}, {:?}", self.shards[0].0.failure()),
            };
            let (kind, since) = self.in_flight.remove(&tag).expect("an operation in flight");
            ended.push(Ended { tag, kind, latency_ns: now - since, answers });
        }
        if ended.is_empty() && !self.shards.iter().any(|(shard, _)| shard.wants_poll()) {
            let next = self.shards.iter().filter_map(|(_, due)| due.get()).min();
            next.into_iter().for_each(|due| self.clock.wait_until(due));
        }
        is_busy
    }

    /// Turns until the store is at rest. Returns the time.
    pub fn settle(&mut self) -> u64 {
        let started = self.clock.now();
        while self.turn(&mut Vec::new()) {}
        self.clock.now() - started
    }

    /// Processor time of the calls into the store since the last call, and those calls' times.
    pub fn take_turns(&mut self) -> (u64, Histogram<u64>) {
        (std::mem::take(&mut self.cpu_ns), std::mem::replace(&mut self.turns, histogram()))
    }

    pub fn device_counts(&self) -> Counts {
        self.media.all().map(|medium| medium.borrow().counts()).fold(Counts::default(), |sum, one| sum + one)
    }

    pub fn model_bytes(&self) -> u64 {
        self.media.all().map(|medium| medium.borrow().memory_bytes()).sum()
    }

    pub fn figures(&self) -> Figures {
        self.shards.iter().map(|(shard, _)| shard.figures()).reduce(Figures::plus).unwrap_or_default()
    }

    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for usage in self.shards.iter().map(|(shard, _)| shard.usage()) {
            sum.total += usage.total;
            sum.available += usage.available;
            sum.data += usage.data;
            sum.omap += usage.omap;
            sum.metadata += usage.metadata;
        }
        sum
    }
}

fn wait_for(clock: &Clock, next_due: &NextDue) {
    clock.wait_until(next_due.get().unwrap_or_default());
}
