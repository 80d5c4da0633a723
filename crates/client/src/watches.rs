//! Operations that last: watches, which are kept alive and set up again wherever their object moves, and
//! notifications, which wait for the watchers' replies.
//!
//! [`Watches`] decides and keeps state; the client sends. Each decision comes as an operation with its [`Purpose`];
//! the client reports the operation's number with [`Watches::sent`] and its reply with [`Watches::on_reply`].

use crate::event::{Event, OpId, WatchEvent, WatchId};
use crate::in_flight::Purpose;
use crate::operation::{ObjectRef, Operation};
use crate::reply::Reply;
use crate::target::{Route, Routes, hash_of};
use bytes::Bytes;
use codec::{Encode, Features};
use machine::Time;
use mon_client::osd_maps::Step;
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::messages::MWatchNotify;
use wire::types::osd_op::WatchParams;
use wire::types::{NotifyAck, NotifyRequest, OpCode, OpParams, OsdFlags, OsdMap, OsdOp, op_value};

/// Stock's interval. OSDs drop a watch after thirty seconds of silence.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const ENOENT: i32 = -2;
const ENOTCONN: i32 = -107;

#[derive(Default)]
pub(crate) struct Watches {
    last_id: u64,
    watches: BTreeMap<WatchId, Watch>,
    notifications: BTreeMap<WatchId, Notification>,
}

/// The route and connection over which an OSD holds a watch or a notification. Either change ends it.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) route: Arc<Route>,
    pub(crate) life: u32,
}

struct Watch {
    object: ObjectRef,
    timeout_s: u32,
    generation: u32,
    /// The OSD has confirmed it once. From then on it is reconnected, not made.
    registered: bool,
    lost: bool,
    held: Option<Held>,
    /// The operation in flight that sets it up.
    setting_up: Option<OpId>,
    ping: Option<OpId>,
    ping_at: Time,
}

struct Notification {
    operation: Operation,
    held: Option<Held>,
    /// The operation in flight that takes it to the OSD.
    sending: Option<OpId>,
    notify_id: Option<u64>,
}

/// An operation to submit, for a watch or a notification.
type Request = (Operation, Purpose);

impl Watches {
    /// The next number; watches and notifications share the numbers.
    fn next_id(&mut self) -> WatchId {
        self.last_id += 1;
        WatchId(self.last_id)
    }

    /// A new watch. [`Watches::set_up`] gives its first operation.
    pub(crate) fn add_watch(&mut self, now: Time, object: ObjectRef, timeout: Duration) -> WatchId {
        let id = self.next_id();
        let timeout_s = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        let watch = Watch {
            object,
            timeout_s,
            generation: 0,
            registered: false,
            lost: false,
            held: None,
            setting_up: None,
            ping: None,
            ping_at: now + PING_INTERVAL,
        };
        self.watches.insert(id, watch);
        id
    }

    /// A new notification. [`Watches::notification`] gives its operation.
    pub(crate) fn add_notification(
        &mut self,
        object: ObjectRef,
        payload: Bytes,
        timeout: Duration,
    ) -> WatchId {
        let id = self.next_id();
        let timeout_s = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        let input = NotifyRequest { timeout_s, payload }.to_vec(Features::ALL).into();
        let mut params = OpParams::default();
        params.0[..8].copy_from_slice(&id.0.to_le_bytes());
        let step = OsdOp::new(OpCode::NOTIFY, params, input);
        let operation = Operation::new(object, smallvec![step], OsdFlags::READ);
        let notification = Notification { operation, held: None, sending: None, notify_id: None };
        self.notifications.insert(id, notification);
        id
    }

    /// Removes a watch: the operation that tells the OSD, and operations in flight to cancel.
    pub(crate) fn remove(&mut self, id: WatchId) -> Option<(Operation, Vec<OpId>)> {
        let watch = self.watches.remove(&id)?;
        let in_flight = [watch.setting_up, watch.ping].into_iter().flatten().collect();
        let step = watch_op(id, op_value::WATCH_UNWATCH, watch.generation, 0);
        Some((Operation::new(watch.object, smallvec![step], OsdFlags::WRITE), in_flight))
    }

    /// The reply to a notification that a watch has received.
    pub(crate) fn ack(&self, id: WatchId, notify_id: u64, reply: Bytes) -> Option<Operation> {
        let object = self.watches.get(&id)?.object.clone();
        let ack = NotifyAck { notify_id, cookie: Some(id.0), reply };
        let input = ack.to_vec(Features::ALL).into();
        let step = OsdOp::new(OpCode::NOTIFY_ACK, OpParams::default(), input);
        Some(Operation::new(object, smallvec![step], OsdFlags::READ))
    }

    /// Registers a watch with the OSD of its object, or reconnects it.
    pub(crate) fn set_up(&mut self, id: WatchId) -> Option<Request> {
        let watch = self.watches.get_mut(&id)?;
        let step = match watch.registered {
            true => {
                watch.generation += 1;
                watch_op(id, op_value::WATCH_RECONNECT, watch.generation, 0)
            }
            false => watch_op(id, op_value::WATCH_WATCH, watch.generation, watch.timeout_s),
        };
        let flags = OsdFlags::WRITE | OsdFlags::READ;
        let operation = Operation::new(watch.object.clone(), smallvec![step], flags);
        Some((operation, Purpose::Watch { id, generation: watch.generation }))
    }

    pub(crate) fn notification(&self, id: WatchId) -> Option<Request> {
        let notification = self.notifications.get(&id)?;
        Some((notification.operation.clone(), Purpose::Notify { id }))
    }

    /// An operation of this module is in flight under this number.
    pub(crate) fn sent(&mut self, purpose: Purpose, op: OpId) {
        match purpose {
            Purpose::Caller => {}
            Purpose::Watch { id, .. } => {
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.setting_up = Some(op);
                }
            }
            Purpose::WatchPing { id, .. } => {
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.ping = Some(op);
                }
            }
            Purpose::Notify { id } => {
                if let Some(notification) = self.notifications.get_mut(&id) {
                    notification.sending = Some(op);
                    // The OSD that takes it now gives it another number, which it may complete before it says so.
                    notification.notify_id = None;
                }
            }
        }
    }

    /// Watches and notifications that no OSD holds any more and that are not on their way to one.
    pub(crate) fn released(
        &self,
        is_held: impl Fn(&ObjectRef, &Held) -> bool,
    ) -> (Vec<WatchId>, Vec<WatchId>) {
        let holds =
            |object: &ObjectRef, held: &Option<Held>| held.as_ref().is_some_and(|h| is_held(object, h));
        let watches = (self.watches.iter())
            .filter(|(_, w)| !w.lost && w.setting_up.is_none() && !holds(&w.object, &w.held));
        let notifications = (self.notifications.iter())
            .filter(|(_, n)| n.sending.is_none() && !holds(&n.operation.object, &n.held));
        (watches.map(|(id, _)| *id).collect(), notifications.map(|(id, _)| *id).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.notifications.is_empty()
    }

    /// The reply to an operation of this module, and where it came from.
    pub(crate) fn on_reply(
        &mut self,
        purpose: Purpose,
        held: Option<Held>,
        reply: Result<Reply, i32>,
    ) -> Option<Event> {
        let result = reply.as_ref().map_or_else(|errno| *errno, |r| r.result);
        match purpose {
            Purpose::Caller => None,
            Purpose::Watch { id, generation } => {
                let watch = self.watches.get_mut(&id).filter(|w| w.generation == generation)?;
                watch.setting_up = None;
                watch.held = held;
                if result < 0 {
                    return watch.lose(id, result);
                }
                let is_new = !std::mem::replace(&mut watch.registered, true);
                is_new.then_some(Event::Watch { id, event: WatchEvent::Registered })
            }
            Purpose::WatchPing { id, generation } => {
                let watch = self.watches.get_mut(&id)?;
                watch.ping = None;
                match watch.generation == generation && result < 0 {
                    true => watch.lose(id, result),
                    false => None,
                }
            }
            Purpose::Notify { id } => {
                let notification = self.notifications.get_mut(&id)?;
                notification.sending = None;
                notification.held = held;
                match reply {
                    Ok(reply) if result >= 0 => {
                        notification.notify_id = reply.decode(0).ok();
                        None
                    }
                    _ => {
                        self.notifications.remove(&id);
                        Some(Event::Notified { id, result, outcome: Bytes::new() })
                    }
                }
            }
        }
    }

    /// A message of an OSD about a watch or a notification: the event for the caller, and an operation to cancel.
    pub(crate) fn on_notify(&mut self, message: MWatchNotify) -> (Option<Event>, Option<OpId>) {
        let id = WatchId(message.cookie);
        match message.event {
            op_value::EVENT_NOTIFY if self.watches.contains_key(&id) => {
                let MWatchNotify { notify_id, notifier_gid: notifier, payload, .. } = message;
                let event = WatchEvent::Notify { notify_id, notifier, payload };
                (Some(Event::Watch { id, event }), None)
            }
            op_value::EVENT_DISCONNECT => {
                (self.watches.get_mut(&id).and_then(|watch| watch.lose(id, ENOTCONN)), None)
            }
            op_value::EVENT_NOTIFY_COMPLETE => {
                // An earlier sending of the same notification may complete, too; only the current one counts.
                let own = self.notifications.get(&id).map(|n| n.notify_id);
                if own.is_none_or(|own| own.is_some_and(|own| own != message.notify_id)) {
                    return (None, None);
                }
                let sending = self.notifications.remove(&id).and_then(|n| n.sending);
                let MWatchNotify { result, outcome, .. } = message;
                (Some(Event::Notified { id, result, outcome }), sending)
            }
            _ => (None, None),
        }
    }

    /// Pings that are due.
    pub(crate) fn due_pings(&mut self, now: Time) -> Vec<Request> {
        let mut out = Vec::new();
        for (id, watch) in self.watches.iter_mut().filter(|(_, w)| w.ping_at <= now) {
            watch.ping_at = now + PING_INTERVAL;
            if watch.registered && !watch.lost && watch.setting_up.is_none() && watch.ping.is_none() {
                let generation = watch.generation;
                let step = watch_op(*id, op_value::WATCH_PING, generation, 0);
                let operation = Operation::new(watch.object.clone(), smallvec![step], OsdFlags::READ);
                out.push((operation, Purpose::WatchPing { id: *id, generation }));
            }
        }
        out
    }

    pub(crate) fn next_ping(&self) -> Option<Time> {
        self.watches.values().filter(|w| !w.lost).map(|w| w.ping_at).min()
    }

    /// One epoch further. A watch or notification whose object moves is released for good, because its OSD has
    /// forgotten it even if the next epoch takes the change back.
    pub(crate) fn release_moved(&mut self, map: &OsdMap, step: &Step, routes: &mut Routes) {
        let mut holds = |operation: &Operation, held: &Held| {
            *step == Step::Next
                && hash_of(map, operation).is_some_and(|hash| held.route.holds(map, routes, operation, hash))
        };
        for watch in self.watches.values_mut() {
            let operation = Operation::new(watch.object.clone(), smallvec![], OsdFlags::READ);
            watch.held = watch.held.take().filter(|held| holds(&operation, held));
        }
        for notification in self.notifications.values_mut() {
            notification.held = notification.held.take().filter(|held| holds(&notification.operation, held));
        }
    }
}

impl Watch {
    /// Told once. A removed object and a forgotten watch look the same to the caller.
    fn lose(&mut self, id: WatchId, errno: i32) -> Option<Event> {
        if std::mem::replace(&mut self.lost, true) {
            return None;
        }
        let errno = if errno == ENOENT && self.registered { ENOTCONN } else { errno };
        Some(Event::Watch { id, event: WatchEvent::Lost(errno) })
    }
}

fn watch_op(id: WatchId, op: u8, generation: u32, timeout_s: u32) -> OsdOp {
    let params = WatchParams { cookie: id.0, version: 0, op, generation, timeout_s };
    OsdOp::new(OpCode::WATCH, params, Bytes::new())
}
