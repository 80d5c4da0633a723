//! Telling clients to hold back what they send for a PG that cannot serve, and letting go again.

use super::{Effect, Fx, Input, Shard};
use crate::slab::Key;
use machine::{ConnId, CoreId};
use wire::messages::{MOSDBackoff, Message};
use wire::types::op_value;

impl Shard {
    /// The PG cannot serve now. The request is not kept: the client keeps it, and sends it when it may.
    pub(super) fn hold_back(&mut self, pg_key: Key, conn: ConnId, fx: &mut Fx) {
        let pg = &self.pgs[pg_key];
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if session.backoffs.contains_key(&pg.id) {
            return;
        }
        self.next_backoff += 1;
        // The acknowledgement comes to this core by its id.
        let id = self.next_backoff << 16 | self.config.core.0 as u64;
        session.backoffs.insert(pg.id, id);
        session.unacknowledged_backoffs.insert(pg.id, id);
        // It sent these before it gets the message, so it sends them again. The map for which they wait may come after the PG has
        // let it go: then nothing would tell that they overtake the dropped ones.
        session.waiting_for_map.retain(|parked| parked.op.pg != pg.id);
        let message = self.backoff_message(pg_key, op_value::BACKOFF_BLOCK, id);
        self.send(conn, message, fx);
    }

    /// The PG serves again, or others do: whoever held back may send.
    pub(super) fn let_go(&mut self, pg_key: Key, fx: &mut Fx) {
        let pg_id = self.pgs[pg_key].id;
        let held: Vec<(ConnId, u64)> = self
            .sessions
            .iter_mut()
            .filter_map(|(conn, s)| s.backoffs.remove(&pg_id).map(|id| (*conn, id)))
            .collect();
        for (conn, id) in held {
            let message = self.backoff_message(pg_key, op_value::BACKOFF_UNBLOCK, id);
            self.send(conn, message, fx);
        }
    }

    fn backoff_message(&self, pg_key: Key, op: u8, id: u64) -> Message {
        let pg = &self.pgs[pg_key];
        let (begin, end) = (pg.start(), pg.end());
        Message::new(MOSDBackoff { pg: pg.id, epoch: self.view.epoch, op, id, begin, end })
    }

    /// The client acknowledges: whatever it sent before has come.
    ///
    /// The acknowledgement takes the way of the requests before it, and then belongs to the core that told the client to hold back.
    /// The routes of the core with the connection may be those of a map in which the PG was not here.
    pub(super) fn on_backoff(&mut self, conn: ConnId, message: Box<MOSDBackoff>, fx: &mut Fx) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let core = CoreId(message.id as u16);
        if core != self.config.core {
            // Requests that came before it, and wait for a map here, would overtake those that are sent again.
            session.waiting_for_map.retain(|parked| parked.op.pg != message.pg);
            if self.view.routes.has_core(core) {
                let input = Box::new(Input::Backoff { conn, message });
                fx.push(Effect::ToShard { core, input });
            }
            return;
        }
        if session.unacknowledged_backoffs.get(&message.pg) == Some(&message.id) {
            session.unacknowledged_backoffs.remove(&message.pg);
        }
    }
}
