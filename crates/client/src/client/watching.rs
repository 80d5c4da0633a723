//! Watches and notifications of the client's owner: calls, and the operations that [`Watches`] asks for.
//!
//! [`Watches`]: crate::watches::Watches

use super::{Client, Fx};
use crate::event::{OpId, WatchId};
use crate::in_flight::{Purpose, State};
use crate::operation::{ObjectRef, Operation};
use crate::reply::Reply;
use crate::target::{Routes, hash_of};
use crate::watches::Held;
use bytes::Bytes;
use machine::Time;
use std::time::Duration;
use wire::messages::MWatchNotify;
use wire::types::{OsdFlags, OsdMap};

impl Client {
    /// Watch an object. A `timeout` of zero is the OSD's default.
    pub fn watch(&mut self, now: Time, object: ObjectRef, timeout: Duration, fx: Fx) -> WatchId {
        let id = self.watches.add_watch(now, object, timeout);
        self.set_up_watch(now, id, fx);
        id
    }

    /// Stop watching. The answer comes as that of an operation; `None` if there is no such watch.
    pub fn unwatch(&mut self, now: Time, id: WatchId, fx: Fx) -> Option<OpId> {
        let (operation, in_flight) = self.watches.remove(id)?;
        in_flight.into_iter().for_each(|op| self.cancel(op));
        Some(self.submit(now, operation, fx))
    }

    /// Reply to a notification.
    pub fn notify_ack(
        &mut self,
        now: Time,
        id: WatchId,
        notify_id: u64,
        reply: Bytes,
        fx: Fx,
    ) -> Option<OpId> {
        let operation = self.watches.ack(id, notify_id, reply)?;
        Some(self.submit(now, operation, fx))
    }

    /// Notify an object's watchers and wait for their replies: [`crate::Event::Notified`].
    pub fn notify(
        &mut self,
        now: Time,
        object: ObjectRef,
        payload: Bytes,
        timeout: Duration,
        fx: Fx,
    ) -> WatchId {
        let id = self.watches.add_notification(object, payload, timeout);
        self.send_notification(now, id, fx);
        id
    }

    fn set_up_watch(&mut self, now: Time, id: WatchId, fx: Fx) {
        if let Some((operation, purpose)) = self.watches.set_up(id) {
            self.submit_for_watch(now, operation, purpose, fx);
        }
    }

    fn send_notification(&mut self, now: Time, id: WatchId, fx: Fx) {
        if let Some((operation, purpose)) = self.watches.notification(id) {
            self.submit_for_watch(now, operation, purpose, fx);
        }
    }

    fn submit_for_watch(&mut self, now: Time, operation: Operation, purpose: Purpose, fx: Fx) {
        let op = self.submit_for(now, operation, purpose, fx);
        self.watches.sent(purpose, op);
    }

    /// After a change of map or connection: set up again what OSDs hold no more.
    pub(super) fn refresh_watches(&mut self, now: Time, fx: Fx) {
        if self.watches.is_empty() {
            return;
        }
        let is_held = |object: &ObjectRef, held: &Held| {
            let session = self.sessions.get(&held.route.primary);
            session.is_some_and(|s| s.life == held.life && s.conn().is_some())
                && self.map.as_ref().is_some_and(|map| still_routed(map, object, held))
        };
        let (watches, notifications) = self.watches.released(is_held);
        watches.into_iter().for_each(|id| self.set_up_watch(now, id, fx));
        notifications.into_iter().for_each(|id| self.send_notification(now, id, fx));
    }

    pub(super) fn on_watch_reply(
        &mut self,
        purpose: Purpose,
        state: State,
        reply: Result<Reply, i32>,
        fx: Fx,
    ) {
        let held = match state {
            State::Placed { route, sent_in: Some(life), .. } => Some(Held { route, life }),
            _ => None,
        };
        if let Some(event) = self.watches.on_reply(purpose, held, reply) {
            fx.push(event.into());
        }
    }

    pub(super) fn on_watch_notify(&mut self, message: MWatchNotify, fx: Fx) {
        let (event, in_flight) = self.watches.on_notify(message);
        if let Some(op) = in_flight {
            self.cancel(op);
        }
        if let Some(event) = event {
            fx.push(event.into());
        }
    }

    pub(super) fn ping_watches(&mut self, now: Time, fx: Fx) {
        for (operation, purpose) in self.watches.due_pings(now) {
            self.submit_for_watch(now, operation, purpose, fx);
        }
    }
}

/// True if an object's operations still go where they went.
fn still_routed(map: &OsdMap, object: &ObjectRef, held: &Held) -> bool {
    let operation = Operation::new(object.clone(), Default::default(), OsdFlags::READ);
    let hash = hash_of(map, &operation);
    hash.is_some_and(|hash| held.route.holds(map, &mut Routes::default(), &operation, hash))
}
