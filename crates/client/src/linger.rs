//! Operations that last: watches, which must be kept alive and set up again wherever the object moves, and
//! notifications, which wait for the watchers' answers.

use crate::Reply;
use crate::client::{Client, Event, Fx, OpId};
use crate::in_flight::State;
use crate::operation::{ObjectRef, Operation};
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

/// A watch or a notification; the cookie that OSDs know it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// What happens to a watch.
#[derive(Clone, PartialEq, Debug)]
pub enum WatchEvent {
    /// From now on notifications come.
    Registered,
    /// Somebody notifies; answer with [`Client::notify_ack`].
    Notify { notify_id: u64, notifier: u64, payload: Bytes },
    /// The watch is lost (a negative errno; `-ENOTCONN` when the OSD forgot it): notifications may have been
    /// missed. It stays lost until it is dropped and made anew.
    Lost(i32),
}

/// What an operation in flight is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// A caller waits for it.
    Caller,
    /// It registers a watch, or connects it again, in this generation.
    Watch {
        id: WatchId,
        generation: u32,
    },
    Ping {
        id: WatchId,
        generation: u32,
    },
    Notify {
        id: WatchId,
    },
}

/// Stock pings every five seconds, and OSDs give a watch thirty.
const PING_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Lingering {
    last_id: u64,
    watches: BTreeMap<WatchId, Watch>,
    notifications: BTreeMap<WatchId, Notification>,
}

/// Where an OSD holds something for us: gone when the route changes or the connection ends.
#[derive(Clone)]
struct Held {
    route: Arc<Route>,
    life: u32,
}

struct Watch {
    object: ObjectRef,
    timeout_s: u32,
    generation: u32,
    /// The OSD has confirmed it once: from then on it is connected again, not made.
    registered: bool,
    lost: bool,
    held: Option<Held>,
    /// The operation that sets it up, while it is on its way.
    setting_up: Option<OpId>,
    ping: Option<OpId>,
    ping_at: Time,
}

struct Notification {
    operation: Operation,
    held: Option<Held>,
    /// On its way, until the OSD has taken it.
    sending: Option<OpId>,
    notify_id: Option<u64>,
}

const ENOENT: i32 = -2;
const ENOTCONN: i32 = -107;

impl Client {
    /// Watch an object. A `timeout` of zero is the OSD's default.
    pub fn watch(&mut self, now: Time, object: ObjectRef, timeout: Duration, fx: Fx) -> WatchId {
        self.lingering.last_id += 1;
        let id = WatchId(self.lingering.last_id);
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
        self.lingering.watches.insert(id, watch);
        self.set_up_watch(now, id, fx);
        id
    }

    /// Stop watching. The answer comes as that of an operation; `None` when there is no such watch.
    pub fn unwatch(&mut self, now: Time, id: WatchId, fx: Fx) -> Option<OpId> {
        let watch = self.lingering.watches.remove(&id)?;
        for op in [watch.setting_up, watch.ping].into_iter().flatten() {
            self.cancel(op);
        }
        let step = watch_op(id, op_value::WATCH_UNWATCH, watch.generation, 0);
        let operation = Operation::new(watch.object, smallvec![step], OsdFlags::WRITE);
        Some(self.submit(now, operation, fx))
    }

    /// Answer a notification.
    pub fn notify_ack(
        &mut self,
        now: Time,
        id: WatchId,
        notify_id: u64,
        reply: Bytes,
        fx: Fx,
    ) -> Option<OpId> {
        let object = self.lingering.watches.get(&id)?.object.clone();
        let ack = NotifyAck { notify_id, cookie: Some(id.0), reply };
        let input = ack.to_vec(Features::ALL).into();
        let step = OsdOp::new(OpCode::NOTIFY_ACK, OpParams::default(), input);
        Some(self.submit(now, Operation::new(object, smallvec![step], OsdFlags::READ), fx))
    }

    /// Tell an object's watchers something and wait for their answers: [`Event::Notified`].
    pub fn notify(
        &mut self,
        now: Time,
        object: ObjectRef,
        payload: Bytes,
        timeout: Duration,
        fx: Fx,
    ) -> WatchId {
        self.lingering.last_id += 1;
        let id = WatchId(self.lingering.last_id);
        let timeout_s = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        let input = NotifyRequest { timeout_s, payload }.to_vec(Features::ALL).into();
        let mut params = OpParams::default();
        params.0[..8].copy_from_slice(&id.0.to_le_bytes());
        let step = OsdOp::new(OpCode::NOTIFY, params, input);
        let operation = Operation::new(object, smallvec![step], OsdFlags::READ);
        let notification = Notification { operation, held: None, sending: None, notify_id: None };
        self.lingering.notifications.insert(id, notification);
        self.send_notification(now, id, fx);
        id
    }

    fn set_up_watch(&mut self, now: Time, id: WatchId, fx: Fx) {
        let Some(watch) = self.lingering.watches.get_mut(&id) else { return };
        let step = match watch.registered {
            true => {
                watch.generation += 1;
                watch_op(id, op_value::WATCH_RECONNECT, watch.generation, 0)
            }
            false => watch_op(id, op_value::WATCH_WATCH, watch.generation, watch.timeout_s),
        };
        let flags = OsdFlags::WRITE | OsdFlags::READ;
        let operation = Operation::new(watch.object.clone(), smallvec![step], flags);
        let errand = Errand::Watch { id, generation: watch.generation };
        let op = self.submit_errand(now, operation, errand, fx);
        if let Some(watch) = self.lingering.watches.get_mut(&id) {
            watch.setting_up = Some(op);
        }
    }

    fn send_notification(&mut self, now: Time, id: WatchId, fx: Fx) {
        let Some(notification) = self.lingering.notifications.get(&id) else { return };
        let operation = notification.operation.clone();
        let op = self.submit_errand(now, operation, Errand::Notify { id }, fx);
        if let Some(notification) = self.lingering.notifications.get_mut(&id) {
            notification.sending = Some(op);
            // The OSD that takes it now gives it an identity of its own, which it may complete before it says so.
            notification.notify_id = None;
        }
    }

    /// After a change of map or connection: what an OSD held for us and no longer does is set up again.
    pub(crate) fn refresh_lingering(&mut self, now: Time, fx: Fx) {
        if self.lingering.watches.is_empty() && self.lingering.notifications.is_empty() {
            return;
        }
        let watches: Vec<WatchId> = (self.lingering.watches.iter())
            .filter(|(_, w)| !w.lost && w.setting_up.is_none())
            .filter(|(_, w)| !self.still_held(&w.object, w.held.as_ref()))
            .map(|(id, _)| *id)
            .collect();
        watches.into_iter().for_each(|id| self.set_up_watch(now, id, fx));
        let notifications: Vec<WatchId> = (self.lingering.notifications.iter())
            .filter(|(_, n)| n.sending.is_none())
            .filter(|(_, n)| !self.still_held(&n.operation.object, n.held.as_ref()))
            .map(|(id, _)| *id)
            .collect();
        notifications.into_iter().for_each(|id| self.send_notification(now, id, fx));
    }

    fn still_held(&self, object: &ObjectRef, held: Option<&Held>) -> bool {
        held.is_some_and(|held| {
            self.is_life_of(held.route.primary, held.life) && self.route_holds(object, &held.route)
        })
    }

    /// An operation of this module's own has its answer.
    pub(crate) fn on_errand(&mut self, errand: Errand, state: State, reply: Result<Reply, i32>, fx: Fx) {
        let held = match state {
            State::Placed { route, sent_in: Some(life) } => Some(Held { route, life }),
            _ => None,
        };
        let result = reply.as_ref().map_or_else(|errno| *errno, |r| r.result);
        match errand {
            Errand::Caller => {}
            Errand::Watch { id, generation } => {
                let Some(watch) = self.lingering.watches.get_mut(&id) else { return };
                if watch.generation != generation {
                    return;
                }
                watch.setting_up = None;
                watch.held = held;
                if result < 0 {
                    watch.lose(id, result, fx);
                } else if !watch.registered {
                    watch.registered = true;
                    fx.push(Event::Watch { id, event: WatchEvent::Registered }.into());
                }
            }
            Errand::Ping { id, generation } => {
                let Some(watch) = self.lingering.watches.get_mut(&id) else { return };
                watch.ping = None;
                if watch.generation == generation && result < 0 {
                    watch.lose(id, result, fx);
                }
            }
            Errand::Notify { id } => {
                let Some(notification) = self.lingering.notifications.get_mut(&id) else { return };
                notification.sending = None;
                notification.held = held;
                match reply {
                    Ok(reply) if result >= 0 => notification.notify_id = reply.decode(0).ok(),
                    _ => {
                        self.lingering.notifications.remove(&id);
                        fx.push(Event::Notified { id, result, outcome: Bytes::new() }.into());
                    }
                }
            }
        }
    }

    pub(crate) fn on_watch_notify(&mut self, message: MWatchNotify, fx: Fx) {
        let id = WatchId(message.cookie);
        match message.event {
            op_value::EVENT_NOTIFY => {
                if !self.lingering.watches.contains_key(&id) {
                    return;
                }
                let MWatchNotify { notify_id, notifier_gid: notifier, payload, .. } = message;
                let event = WatchEvent::Notify { notify_id, notifier, payload };
                fx.push(Event::Watch { id, event }.into());
            }
            op_value::EVENT_DISCONNECT => {
                if let Some(watch) = self.lingering.watches.get_mut(&id) {
                    watch.lose(id, ENOTCONN, fx);
                }
            }
            op_value::EVENT_NOTIFY_COMPLETE => {
                // An earlier sending of the same notification may complete, too: only the one that counts is told.
                let awaited = self.lingering.notifications.get(&id).map(|n| n.notify_id);
                if awaited.is_some_and(|own| own.is_none_or(|own| own == message.notify_id)) {
                    let sending = self.lingering.notifications.remove(&id).and_then(|n| n.sending);
                    if let Some(op) = sending {
                        self.cancel(op);
                    }
                    let MWatchNotify { result, outcome, .. } = message;
                    fx.push(Event::Notified { id, result, outcome }.into());
                }
            }
            _ => {}
        }
    }

    pub(crate) fn ping_watches(&mut self, now: Time, fx: Fx) {
        let due: Vec<WatchId> = (self.lingering.watches.iter())
            .filter(|(_, w)| w.ping_at <= now && w.registered && !w.lost && w.setting_up.is_none())
            .filter(|(_, w)| w.ping.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(watch) = self.lingering.watches.get(&id) else { continue };
            let (object, generation) = (watch.object.clone(), watch.generation);
            let step = watch_op(id, op_value::WATCH_PING, generation, 0);
            let operation = Operation::new(object, smallvec![step], OsdFlags::READ);
            let ping = self.submit_errand(now, operation, Errand::Ping { id, generation }, fx);
            if let Some(watch) = self.lingering.watches.get_mut(&id) {
                watch.ping = Some(ping);
            }
        }
        for watch in self.lingering.watches.values_mut().filter(|w| w.ping_at <= now) {
            watch.ping_at = now + PING_INTERVAL;
        }
    }

    pub(crate) fn next_ping(&self) -> Option<Time> {
        self.lingering.watches.values().filter(|w| !w.lost).map(|w| w.ping_at).min()
    }
}

impl Lingering {
    /// One epoch further: what does not go where it is held is held no more, also if the next epoch takes the change
    /// back, for the OSD has forgotten it in between.
    pub(crate) fn let_go_of_moved(&mut self, map: &OsdMap, step: &Step, routes: &mut Routes) {
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
    /// Told once. That the object is gone and that the OSD forgot the watch look the same to the caller.
    fn lose(&mut self, id: WatchId, errno: i32, fx: Fx) {
        if !self.lost {
            self.lost = true;
            let errno = if errno == ENOENT && self.registered { ENOTCONN } else { errno };
            fx.push(Event::Watch { id, event: WatchEvent::Lost(errno) }.into());
        }
    }
}

fn watch_op(id: WatchId, op: u8, generation: u32, timeout_s: u32) -> OsdOp {
    let params = WatchParams { cookie: id.0, version: 0, op, generation, timeout_s };
    OsdOp::new(OpCode::WATCH, params, Bytes::new())
}
