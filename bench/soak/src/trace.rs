//! Long turns, told on standard error with the time of each of their phases.
//!
//! A line names the call (for a submission the operation, its changes and bytes), each phase of 0.1 ms and more with its page
//! faults, and the rest that belongs to no phase.
//!
//! Time that the hypervisor takes away counts as the thread's, so a long turn may be idle, and the first use of a page costs a
//! virtual machine's host a fault. With `--turn-ns` the soak's clock moves by a fixed time a turn: runs of one seed then do
//! the same work in the turn of the same number, and a turn that is long in two runs is the store's.

use crate::clock::Clock;
use block_store::{Phase, Shard};
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

pub struct Trace {
    limit_ns: u64,
    phases: Rc<Phases>,
    /// Statistics of the process, for its page faults; `None` if turns are not traced.
    statistics: Option<File>,
    turns: u64,
    soak_phase: String,
    began: Marks,
}

/// Store time at the end of the last phase, and that of each phase of the turn.
#[derive(Default)]
struct Phases {
    at_ns: Cell<u64>,
    /// Page faults of the process when they were looked at last.
    faults: Cell<u64>,
    spent: RefCell<BTreeMap<Phase, Spent>>,
}

#[derive(Clone, Copy, Default)]
struct Spent {
    ns: u64,
    faults: u64,
}

/// Time of a phase from which on its page faults are looked at: the look costs microseconds. Faults of shorter phases before
/// it count as its own.
const FAULTS_COUNTED_NS: u64 = 100_000;

#[derive(Clone, Copy, Default)]
struct Marks {
    monotonic_ns: u64,
    page_faults: u64,
}

impl Trace {
    pub fn new(limit_ms: Option<f64>) -> Trace {
        Trace {
            limit_ns: limit_ms.map_or(u64::MAX, |ms| (ms * 1e6) as u64),
            phases: Rc::default(),
            statistics: limit_ms.map(|_| open_statistics()),
            turns: 0,
            soak_phase: String::new(),
            began: Marks::default(),
        }
    }

    /// Has the shard tell its phases, if turns are traced.
    pub fn observe(&self, shard: &mut Shard, clock: &Clock) {
        if self.statistics.is_none() {
            return;
        }
        let (phases, clock) = (self.phases.clone(), clock.clone());
        let statistics = open_statistics();
        shard.observe_phases(move |phase| {
            let now = clock.store_ns();
            let used = now.saturating_sub(phases.at_ns.replace(now));
            let mut spent = phases.spent.borrow_mut();
            let spent = spent.entry(phase).or_default();
            spent.ns += used;
            if used >= FAULTS_COUNTED_NS {
                let faults = clock.model(|| minor_faults(&statistics));
                spent.faults += faults - phases.faults.replace(faults);
            }
        });
    }

    /// A phase of the soak begins. Its time is told, too, so that a profile can be divided.
    pub fn begin_soak_phase(&mut self, name: &str) {
        self.soak_phase = name.into();
        if let Some(statistics) = &self.statistics {
            eprintln!("{name}: from monotonic {}", Marks::now(statistics).monotonic_ns);
        }
    }

    /// A turn begins.
    pub fn begin(&mut self, clock: &Clock) {
        self.turns += 1;
        if let Some(statistics) = &self.statistics {
            self.began = Marks::now(statistics);
            self.phases.spent.borrow_mut().clear();
            self.phases.faults.set(self.began.page_faults);
            self.phases.at_ns.set(clock.store_ns());
        }
    }

    /// The turn has used so much processor time. `what` names the call.
    pub fn end(&mut self, what: impl FnOnce() -> String, used_ns: u64) {
        let Some(statistics) = self.statistics.as_ref().filter(|_| used_ns >= self.limit_ns) else { return };
        let (began, ended) = (self.began, Marks::now(statistics));
        let mut phases: Vec<(Phase, Spent)> = self.phases.spent.borrow().clone().into_iter().collect();
        phases.sort_by_key(|(_, spent)| std::cmp::Reverse(spent.ns));
        let rest_ns = used_ns.saturating_sub(phases.iter().map(|(_, spent)| spent.ns).sum());
        let ms = |ns: u64| ns as f64 / 1e6;
        let long = phases.iter().filter(|(_, spent)| spent.ns >= FAULTS_COUNTED_NS);
        let long: Vec<String> = long
            .map(|(phase, spent)| match spent.faults {
                0 => format!("{phase:?} {:.2}", ms(spent.ns)),
                faults => format!("{phase:?} {:.2} with {faults} faults", ms(spent.ns)),
            })
            .collect();
        eprintln!(
            "turn {} ({}, {}): {:.2} ms ({}; rest {:.2}); {} page faults; monotonic {} to {}",
            self.turns,
            self.soak_phase,
            what(),
            ms(used_ns),
            long.join(", "),
            ms(rest_ns),
            ended.page_faults - began.page_faults,
            began.monotonic_ns,
            ended.monotonic_ns,
        );
    }
}

fn open_statistics() -> File {
    File::open("/proc/self/stat").expect("/proc is mounted")
}

impl Marks {
    fn now(statistics: &File) -> Marks {
        let time = clock_gettime(ClockId::Monotonic);
        Marks {
            monotonic_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            page_faults: minor_faults(statistics),
        }
    }
}

fn minor_faults(statistics: &File) -> u64 {
    const FIELD: usize = 9;
    let mut buffer = [0; 512];
    let len = statistics.read_at(&mut buffer, 0).unwrap_or_default();
    let mut fields = buffer[..len].split(|byte| *byte == b' ');
    let field = fields.nth(FIELD).and_then(|field| str::from_utf8(field).ok());
    field.and_then(|field| field.parse().ok()).unwrap_or_default()
}
