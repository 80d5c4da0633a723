//! One connection's share of a load, without sockets: which operation starts now, how long to wait, when it is over.
//!
//! ```text
//! 0 ──── warm-up ──── window ──── end ──── grace ──── give up
//!        operations start              replies are awaited
//! ```
//! A cluster that stops answering cannot hold the load up: after the end and the grace, [`Next::Over`] tells how many
//! operations have no reply.

use super::{Generator, Start};
use crate::matrix::Spec;

/// The instruction to the connection; see [`Schedule::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Start(Start),
    /// Nothing is due before this time unless a reply arrives.
    Wait {
        until_ns: u64,
    },
    Over {
        unanswered: u64,
    },
}

pub struct Schedule {
    generator: Generator,
    in_flight: u64,
    end_ns: u64,
    give_up_ns: u64,
}

impl Schedule {
    /// `share` is this connection's part of the spec's rate.
    pub fn new(spec: &Spec, share: f64, seed: u64, grace_ns: u64) -> Schedule {
        let end_ns = ((spec.ramp_s + spec.seconds) * 1e9) as u64;
        Schedule {
            generator: Generator::new(spec, share, seed),
            in_flight: 0,
            end_ns,
            give_up_ns: end_ns.saturating_add(grace_ns),
        }
    }

    /// Call again after each `Start`, and after each reply.
    pub fn next(&mut self, now_ns: u64) -> Next {
        if now_ns < self.end_ns {
            if let Some(start) = self.generator.next(now_ns) {
                self.in_flight += 1;
                return Next::Start(start);
            }
            let due_ns = self.generator.next_due_ns().unwrap_or(self.end_ns);
            return Next::Wait { until_ns: due_ns.min(self.end_ns) };
        }
        match self.in_flight {
            0 => Next::Over { unanswered: 0 },
            unanswered if now_ns >= self.give_up_ns => Next::Over { unanswered },
            _ => Next::Wait { until_ns: self.give_up_ns },
        }
    }

    pub fn answered(&mut self, now_ns: u64) {
        self.in_flight -= 1;
        self.generator.answered(now_ns);
    }

    /// Start nothing more; the replies to what is in flight are still awaited.
    pub fn stop_early(&mut self, now_ns: u64) {
        let grace_ns = self.give_up_ns - self.end_ns;
        self.end_ns = self.end_ns.min(now_ns);
        self.give_up_ns = self.end_ns.saturating_add(grace_ns);
    }
}
