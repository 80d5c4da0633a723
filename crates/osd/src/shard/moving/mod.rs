//! A PG moves to another core: what the cores say to one another about it.
//!
//! ```text
//! control     source                                destination             every core
//!   │ Depart ──▶ Begin ─────────────────────────────▶ a place, and an arriving copy; Taken ──▶ source
//!   │            Part … (copies, while it serves) ──▶ submits; Taken ──▶ source
//!   │            closes when it has a place: holds requests, last Parts,
//!   │            waits for what is under way
//!   │ ◀── Drained
//!   │ Cross ───▶ Finish (the PG itself) ────────────▶ takes it in, submits its arrival
//!   │ the new routes, then Switch ───────────────────────────────────────▶ Switched ──▶ source
//!   │            Release (held requests) ───────────▶ goes on with them, once the arrival is durable
//!   │ ◀────────────────────────────────────── Moved; Settled ──▶ source
//!   │ ◀── Cleared (the old copy is gone)
//! ```
//! **The point of no return is `Cross`.** Until then every order of a map reaches the source, and an order for the PG ends the
//! move: `Abandon`, the destination removes what it has and says `Cleared`. The control machine knows which orders it gave, so it
//! answers a `Drained` from before such an order with `Stay`. From `Cross` on it sends the PG's orders to the destination,
//! which keeps them until the PG lives there. Nothing else of a map waits for a move.
//!
//! **A closed PG takes nothing in.** A primary holds its requests, and waits until every member has made its writes durable. A
//! replica holds its primary's statements, and waits for its own store. Then the role has nothing under way, and goes along as
//! it is. A PG that is not quiet [`CLOSED_MAX`] after it closed stays, and serves what it has held.
//!
//! What one core says to another arrives in order; hence `Switched` comes after every request and statement that was sent by the
//! old routes. Links belong to cores: what the source's links lose after the move, and what they deliver late, is as if the
//! links had broken. So the destination repeats the PG's statements, and each kind of statement about a PG at rest means the
//! same in any order: writes name their predecessors, acknowledgements are cumulative, grants have numbers.
//!
//! [`departure`] is the source's part, [`arrival`] the destination's. What is stored where, and which copy counts after a crash,
//! is the store's affair: [`store::moving`].
//!
//! [`CLOSED_MAX`]: departure::CLOSED_MAX

mod arrival;
mod departure;

pub use arrival::Arrival;
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
    /// A place for a PG that comes from another core, and then the PG itself. Requests, statements and orders wait.
    Arriving(Arrival),
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
    /// What the source has held back, in order. Nothing else comes by way of it.
    Release { parked: Vec<Parked>, statements: Early },

    /// To the source: a part is durable.
    Taken { lane: usize },
    /// There is no room, or something is in the way.
    Refused { why: &'static str },
    /// From every core: requests for the PG come no more from here.
    Switched,
    /// The PG lives at the destination: the old copy may go. `ending`: its records until it has gone.
    Settled { ending: Vec<Change> },
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
            MoveMessage::Release { parked, statements } => self.on_released(now, pg, parked, statements, fx),
            MoveMessage::Taken { lane } => self.on_taken(pg, lane),
            MoveMessage::Refused { why } => self.on_refused(now, pg, why, fx),
            MoveMessage::Switched => self.on_switched(pg, fx),
            MoveMessage::Settled { ending } => self.clear_old(pg, ending, fx),
        }
    }
}
