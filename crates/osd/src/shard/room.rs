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
use wire::types::HObject;

/// How many objects are remembered for one client; one more, and it is everything.
const OBJECTS_MAX: usize = 4096;

/// What a client will have to send again.
#[derive(Default)]
pub struct Withheld {
    objects: FastSet<HObject>,
    everything: bool,
    /// The connection is about to end: until then everything is lost.
    is_closing: bool,
}

impl Withheld {
    pub fn holds(&self, object: &HObject) -> bool {
        self.everything || self.is_closing || !self.objects.is_empty() && self.objects.contains(object)
    }

    fn is_empty(&self) -> bool {
        !self.everything && !self.is_closing && self.objects.is_empty()
    }

    fn add(&mut self, object: &HObject) {
        if self.objects.len() < OBJECTS_MAX {
            self.objects.insert(object.clone());
        } else {
            self.everything = true;
        }
    }

    fn holds_any_of(&self, pg: &Pg) -> bool {
        let is_its = |object: &HObject| object.pool == pg.id.pg.pool && pg.contains(object.hash);
        self.everything || self.objects.iter().any(is_its)
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

    /// There may be room again.
    pub(super) fn have_withheld_sent_again(&mut self, fx: &mut Fx) {
        if !self.store_full && !self.view.failsafe_full && self.is_withholding {
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
            if !session.withheld.is_closing && is_due(&session.withheld) {
                session.withheld = Withheld { is_closing: true, ..Withheld::default() };
                fx.push(Effect::Close { conn: *conn });
            }
        }
    }
}
