//! The operations that have no answer yet.

use crate::event::{OpId, WatchId};
use crate::operation::Operation;
use crate::target::Route;
use machine::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::HObject;

/// One operation on its way. It keeps its number, and so its request id, however often it is sent.
pub(crate) struct Pending {
    pub(crate) operation: Operation,
    pub(crate) purpose: Purpose,
    /// The object as OSDs name it, once the pool is known.
    pub(crate) object: Option<HObject>,
    pub(crate) state: State,
    /// Number of sendings so far.
    pub(crate) attempts: i32,
    pub(crate) submitted_at: Time,
    pub(crate) deadline: Option<Time>,
}

/// The owner of an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The client's own caller.
    Caller,
    /// A watch: registers it, or reconnects it in this generation.
    Watch {
        id: WatchId,
        generation: u32,
    },
    /// A watch: keeps it alive.
    WatchPing {
        id: WatchId,
        generation: u32,
    },
    Notify {
        id: WatchId,
    },
}

pub(crate) enum State {
    /// Waits for a map: the first one, or one with the pool, with a primary, or without a pause.
    WaitsForMap,
    /// Routed to an OSD. `sent_in`: the session's life in which it was sent; `None` while the session is not open or
    /// holds it back.
    Placed {
        route: Arc<Route>,
        /// The primary, or any acting OSD for a balanced read.
        osd: i32,
        sent_in: Option<u32>,
    },
}

/// By number, which is the order of submission. Operations that are sent again keep it.
#[derive(Default)]
pub(crate) struct InFlight {
    by_id: BTreeMap<OpId, Pending>,
    deadlines: BTreeSet<(Time, OpId)>,
}

impl InFlight {
    pub(crate) fn insert(&mut self, id: OpId, op: Pending) {
        if let Some(deadline) = op.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.by_id.insert(id, op);
    }

    pub(crate) fn get(&self, id: OpId) -> Option<&Pending> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: OpId) -> Option<&mut Pending> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: OpId) -> Option<Pending> {
        let op = self.by_id.remove(&id)?;
        if let Some(deadline) = op.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(op)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (OpId, &Pending)> {
        self.by_id.iter().map(|(&id, op)| (id, op))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OpId, &mut Pending)> {
        self.by_id.iter_mut().map(|(&id, op)| (id, op))
    }

    pub(crate) fn ids(&self) -> Vec<OpId> {
        self.by_id.keys().copied().collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(crate) fn overdue(&self, now: Time) -> Vec<OpId> {
        self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }
}
