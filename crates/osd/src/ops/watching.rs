//! Watches and notifications, and the list of watchers.
//!
//! A list changes only what is registered in the object's info. Telling watchers, and the end of a watch that was
//! silent for too long, are side effects: they happen when the list has succeeded and, for a write, is durable.

use super::Limits;
use super::execution::Execution;
use super::handler::{Handler, OpAccess, OpOutcome, done};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{DecodeError, Encode, Reader, Rope};
use wire::types::{EntityName, OpCode, OsdOp, WatchInfo, WatchItem, WatcherList, op_value};

#[derive(Debug, Default)]
pub struct SideEffects {
    pub disconnects: Vec<WatchDisconnect>,
    pub connects: Vec<WatchConnect>,
    pub pings: Vec<u64>,
    pub notifies: Vec<NotifyStart>,
    pub acks: Vec<NotifyAck>,
}

/// This request's client watches from now on over this connection.
#[derive(Debug, PartialEq, Eq)]
pub struct WatchConnect {
    pub cookie: u64,
    pub timeout_s: u32,
    pub pings: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct WatchDisconnect {
    pub cookie: u64,
    pub client: EntityName,
    /// Tell the watcher: it did not ask for this.
    pub tell: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NotifyStart {
    pub id: u64,
    pub cookie: u64,
    pub timeout_s: u32,
    pub payload: Bytes,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NotifyAck {
    pub notify_id: u64,
    /// `None`: all watches of the client.
    pub cookie: Option<u64>,
    pub reply: Bytes,
}

impl SideEffects {
    pub fn is_empty(&self) -> bool {
        let SideEffects { disconnects, connects, pings, notifies, acks } = self;
        disconnects.is_empty()
            && connects.is_empty()
            && pings.is_empty()
            && notifies.is_empty()
            && acks.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    kind: WatchKind,
    cookie: u64,
    /// Seconds; 0 asks for the OSD's default.
    timeout_s: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchKind {
    Unwatch,
    /// `pings`: the client promises to ping, and is dropped when it does not.
    Watch {
        pings: bool,
    },
    Reconnect,
    Ping,
    Unknown,
}

impl Handler for Watch {
    type Reads = ();
    const USER_VISIBLE: bool = false;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let p = op.params.watch();
        let kind = match p.op {
            op_value::WATCH_UNWATCH => WatchKind::Unwatch,
            op_value::WATCH_LEGACY => WatchKind::Watch { pings: false },
            op_value::WATCH_WATCH => WatchKind::Watch { pings: true },
            op_value::WATCH_RECONNECT => WatchKind::Reconnect,
            op_value::WATCH_PING => WatchKind::Ping,
            _ => WatchKind::Unknown,
        };
        Ok(Watch { kind, cookie: p.cookie, timeout_s: p.timeout_s })
    }

    fn reads(&self, _: &Limits) {}

    /// A ping changes nothing, but it comes after the writes before it.
    fn access(&self, _: OpCode) -> OpAccess {
        let is_ping = self.kind == WatchKind::Ping;
        OpAccess { reads: true, writes: !is_ping, ordered: is_ping }
    }

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        list.must_exist()?;
        let cookie = self.cookie;
        let key = (cookie, list.client);
        let is_registered = list.info.watchers.contains_key(&key);
        let timeout_s = if self.timeout_s == 0 { list.limits.client_watch_timeout_s } else { self.timeout_s };
        match self.kind {
            WatchKind::Watch { pings } => {
                if !is_registered {
                    let addr = list.client_addr;
                    list.info.to_mut().watchers.insert(key, WatchInfo { cookie, timeout_s, addr });
                    list.touched = true;
                }
                list.side_effects.connects.push(WatchConnect { cookie, timeout_s, pings });
            }
            WatchKind::Reconnect | WatchKind::Ping if !is_registered => return Err(Errno::NOTCONN.into()),
            WatchKind::Reconnect => {
                list.side_effects.connects.push(WatchConnect { cookie, timeout_s, pings: true });
            }
            WatchKind::Ping => {
                if !(list.connected)(cookie, list.client) {
                    return Err(Errno::TIMEDOUT.into());
                }
                list.side_effects.pings.push(cookie);
            }
            WatchKind::Unwatch if is_registered => {
                list.info.to_mut().watchers.remove(&key);
                list.touched = true;
                let client = list.client;
                list.side_effects.disconnects.push(WatchDisconnect { cookie, client, tell: false });
            }
            WatchKind::Unwatch | WatchKind::Unknown => {}
        }
        done()
    }
}

/// Gives the client the notification's id, by which it recognises the completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    cookie: u64,
    /// 0: the OSD's default.
    timeout_s: u32,
    payload: Bytes,
}

impl Handler for Notify {
    type Reads = ();

    /// An input that does not decode means the default time-out and no payload.
    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let (timeout_s, payload) = notify_input(&op.input).unwrap_or((0, Bytes::new()));
        Ok(Notify { cookie: op.params.notify_cookie(), timeout_s, payload })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let Notify { cookie, timeout_s, payload } = self.clone();
        let timeout_s = if timeout_s == 0 { list.limits.default_notify_timeout_s } else { timeout_s };
        let id = list.next_notify_id;
        list.next_notify_id += 1;
        list.side_effects.notifies.push(NotifyStart { id, cookie, timeout_s, payload });
        Ok(Rope::from(Bytes::copy_from_slice(&id.to_le_bytes())).into())
    }
}

fn notify_input(input: &Bytes) -> Result<(u32, Bytes), DecodeError> {
    let mut r = Reader::new(input);
    let _version = r.u32()?;
    Ok((r.u32()?, r.get()?))
}

/// A watcher's answer to a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckNotify {
    notify_id: u64,
    /// Old clients do not say which of their watches acknowledges.
    cookie: Option<u64>,
    reply: Bytes,
}

impl Handler for AckNotify {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(match notify_ack_input(&op.input) {
            Ok((notify_id, cookie, reply)) => AckNotify { notify_id, cookie: Some(cookie), reply },
            // The oldest clients put the notification's id where the cookie goes.
            Err(_) => AckNotify { notify_id: op.params.watch().cookie, cookie: None, reply: Bytes::new() },
        })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let AckNotify { notify_id, cookie, reply } = self.clone();
        list.side_effects.acks.push(NotifyAck { notify_id, cookie, reply });
        done()
    }
}

fn notify_ack_input(input: &Bytes) -> Result<(u64, u64, Bytes), DecodeError> {
    let mut r = Reader::new(input);
    let (notify_id, cookie) = (r.u64()?, r.u64()?);
    let reply = if r.is_empty() { Bytes::new() } else { r.get()? };
    Ok((notify_id, cookie, reply))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListWatchers;

impl Handler for ListWatchers {
    type Reads = ();

    fn decode(_: &OsdOp) -> Result<Self, Errno> {
        Ok(ListWatchers)
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let item = |(&(cookie, name), info): (&(u64, EntityName), &WatchInfo)| WatchItem {
            name,
            cookie,
            timeout_s: info.timeout_s,
            addr: info.addr,
        };
        let watchers = WatcherList { entries: list.info.watchers.iter().map(item).collect() };
        list.stats.reads += 1;
        Ok(Rope::from(watchers.to_vec(list.features)).into())
    }
}

impl Execution<'_> {
    /// The object goes: so do its watches, and their clients hear of it.
    pub(super) fn forget_watchers(&mut self) {
        if self.info.watchers.is_empty() {
            return;
        }
        for ((cookie, client), _) in std::mem::take(&mut self.info.to_mut().watchers) {
            self.side_effects.disconnects.push(WatchDisconnect { cookie, client, tell: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Operation;
    use super::*;

    #[test]
    fn undecodable_notify_falls_back_to_defaults() {
        let mut op = OsdOp::bare(OpCode::NOTIFY);
        op.input = Bytes::from_static(&[1, 2]);
        let Operation::Notify(notify) = Operation::decode(&op) else { panic!("a notify") };
        assert_eq!((notify.timeout_s, notify.payload), (0, Bytes::new()));
    }
}
