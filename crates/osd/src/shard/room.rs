//! Requests that were dropped because this OSD had no room for them, and how their clients come to send them again.
//!
//! A request that waits for room is not kept: waiting ones would fill the memory that the requests need which make room.
//! Clients send again what a map told them was held back; but the map may never have said so, when room came back before
//! the monitor heard of the want. So a client that lost a request is disconnected once there is room: then it sends all
//! that was not answered again, in its order. Until then nothing that it sends overtakes what was dropped: whatever
//! is about the same object is dropped as well.

use super::{Effect, Fx, Shard};
use crate::fast_map::FastSet;
use crate::pg::Pg;
use machine::ConnId;
use wire::messages::MOSDOp;
use wire::types::{EntityKind, HObject, OsdFlags};

/// How many objects are remembered for one client; one more, and it is everything.
const OBJECTS_MAX: usize = 4096;

/// What a client will have to send again.
pub enum Withheld {
    /// Whatever is about these.
    Objects(FastSet<HObject>),
    Everything,
    /// Everything, and the connection is about to end.
    Closing,
}

impl Default for Withheld {
    fn default() -> Withheld {
        Withheld::Objects(FastSet::default())
    }
}

impl Withheld {
    pub fn holds(&self, object: &HObject) -> bool {
        match self {
            Withheld::Objects(objects) => !objects.is_empty() && objects.contains(object),
            Withheld::Everything | Withheld::Closing => true,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Withheld::Objects(objects) if objects.is_empty())
    }

    fn add(&mut self, object: &HObject) {
        let Withheld::Objects(objects) = self else { return };
        if objects.len() < OBJECTS_MAX {
            objects.insert(object.clone());
        } else {
            *self = Withheld::Everything;
        }
    }

    fn holds_any_of(&self, pg: &Pg) -> bool {
        let is_its = |object: &HObject| object.pool == pg.id.pg.pool && pg.contains(object.hash);
        match self {
            Withheld::Objects(objects) => objects.iter().any(is_its),
            Withheld::Everything | Withheld::Closing => true,
        }
    }
}

impl Shard {
    /// There is no room for what a client asks of an object.
    pub(super) fn withhold(&mut self, conn: ConnId, object: &HObject) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.withheld.add(object);
            self.is_withholding = true;
        }
    }

    /// Whether something that the client asked of the object before was dropped.
    pub(super) fn is_withheld(&self, conn: ConnId, object: &HObject) -> bool {
        self.is_withholding && self.sessions.get(&conn).is_some_and(|session| session.withheld.holds(object))
    }

    /// True if the client sent an ordered request before it could know that the pool is full. The client resends all of these
    /// when there is room, so none may overtake another that was dropped meanwhile.
    pub(super) fn was_sent_before_full(&self, conn: ConnId, op: &MOSDOp) -> bool {
        op.epoch < self.view.epoch
            && self.view.pools.get(&op.pg.pg.pool).is_some_and(|pool| op.epoch < pool.full_since)
            && !op.flags.intersects(OsdFlags::FULL_TRY | OsdFlags::FULL_FORCE)
            && self.sessions.get(&conn).is_some_and(|session| session.peer.identity.role() != EntityKind::MDS)
    }

    /// There may be room again.
    pub(super) fn have_withheld_sent_again(&mut self, fx: &mut Fx) {
        if !self.store_full && !self.view.failsafe.is_full && self.is_withholding {
            self.disconnect_if(|withheld| !withheld.is_empty(), fx);
        }
    }

    /// Another core, which knows nothing of this, will have the PG.
    pub(super) fn have_sent_again_elsewhere(&mut self, pg: &Pg, fx: &mut Fx) {
        self.disconnect_if(|withheld| withheld.holds_any_of(pg), fx);
    }

    /// A session has ended.
    pub(super) fn forget_withheld(&mut self) {
        self.is_withholding =
            self.is_withholding && self.sessions.values().any(|session| !session.withheld.is_empty());
    }

    fn disconnect_if(&mut self, is_due: impl Fn(&Withheld) -> bool, fx: &mut Fx) {
        for (conn, session) in &mut self.sessions {
            let is_closing = matches!(session.withheld, Withheld::Closing);
            if !is_closing && is_due(&session.withheld) {
                session.withheld = Withheld::Closing;
                fx.push(Effect::Close { conn: *conn });
            }
        }
    }
}
