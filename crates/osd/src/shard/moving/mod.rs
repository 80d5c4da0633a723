//! A PG moves to another core: what the cores say to one another about it.
//!
//! ```text
//! control     source                                destination             every core
//!   │ Depart ──▶ Begin ─────────────────────────────▶ an arriving copy
//!   │            Part … (copies, while it serves) ──▶ submits; Taken ──▶ source
//!   │ ◀── Ready  (little is left to copy)
//!   │ Close ───▶ holds its requests; last Parts,
//!   │            Finish (the PG itself) ────────────▶ takes it in, submits its arrival
//!   │ ◀────────────────────────────────────── Arrived
//!   │ the new routes, then Switch ───────────────────────────────────────▶ Switched ──▶ source
//!   │            Release (held requests) ───────────▶ goes on with them
//!   │ ◀────────────────────────────────────── Moved
//!   │ ◀── Cleared (the old copy is gone)
//! ```
//! Until `Finish` the source can give up: `Abandon`, and the destination removes what it has and says `Cleared`. Between
//! `Close` and `Moved` the control machine lets no map change anything, so that no order finds the PG between two cores.
//! What one core says to another arrives in order; hence `Switched` comes after every request that was sent by the old
//! routes. [`departure`] is the source's part, [`arrival`] the destination's. What is stored where, and which copy counts
//! after a crash, is the store's affair: [`store::moving`].

mod arrival;
mod departure;

pub use departure::Departure;
pub(super) use departure::Wanted;
pub(super) use departure::restore_hint;

use super::Parked;
use super::replicated::Early;
use super::watches::Notify;
use crate::pg::Pg;
use machine::CoreId;
use std::fmt;
use store::Change;
use wire::types::SpgId;

/// What a PG is doing between two cores.
#[derive(Debug)]
pub enum Moving {
    /// It is served here, and copied. (Requests are held when that is nearly done.)
    Departing(Box<Departure>),
    /// It has gone; requests that still come here are held, to follow it. `switched`: how many of `cores` send no more.
    Departed { to: CoreId, switched: u16, cores: u16 },
    /// It is here, and requests wait for those that were held at the source.
    Arriving,
}

/// From one shard to another.
#[derive(Debug)]
pub enum MoveMessage {
    /// To the destination: make an arriving copy.
    Begin { split_bits: u8, moves: u32 },
    /// Copies. Answered with [`MoveMessage::Taken`].
    Part { lane: usize, changes: Vec<Change> },
    /// The PG itself, with the changes that complete the copy.
    Finish { traveller: Box<Traveller>, changes: Vec<Change> },
    /// The PG stays; what has been copied may go.
    Abandon,
    /// What the source has held back, in order.
    Release { parked: Vec<Parked>, statements: Early },

    /// To the source: a part is durable.
    Taken { lane: usize },
    /// There is no room, or something is in the way.
    Refused { why: &'static str },
    /// From every core: requests for the PG come no more from here.
    Switched,
}

/// A PG in memory on its way.
pub struct Traveller {
    pub(super) pg: Pg,
    pub(super) notifies: Vec<(u64, Notify)>,
}

impl fmt::Debug for Traveller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} notifications", self.pg.id, self.notifies.len())
    }
}

impl super::Shard {
    pub(super) fn say(&self, core: CoreId, pg: SpgId, message: MoveMessage, fx: &mut super::Fx) {
        let from = self.config.core;
        fx.push(super::Effect::ToShard { core, input: Box::new(super::Input::Move { from, pg, message }) });
    }

    pub(super) fn on_move(
        &mut self,
        now: machine::Time,
        from: CoreId,
        pg: SpgId,
        message: MoveMessage,
        fx: &mut super::Fx,
    ) {
        match message {
            MoveMessage::Begin { split_bits, moves } => self.begin_arrival(from, pg, split_bits, moves, fx),
            MoveMessage::Part { lane, changes } => self.take_part(from, pg, lane, changes, fx),
            MoveMessage::Finish { traveller, changes } => self.take_in(now, *traveller, changes, fx),
            MoveMessage::Abandon => self.give_back(pg, fx),
            MoveMessage::Release { parked, statements } => self.go_on_here(now, pg, parked, statements, fx),
            MoveMessage::Taken { lane } => self.on_taken(pg, lane),
            MoveMessage::Refused { why } => self.on_refused(now, pg, why, fx),
            MoveMessage::Switched => self.on_switched(pg, fx),
        }
    }
}
