//! Steps about watches and notifications, and listings of who watches.
//!
//! The list itself changes only what is registered with the object; who is told what, and when a watch times out,
//! are side effects that happen when the list has succeeded (and, for a write, is durable).

use super::execution::{Execution, StepResult};
use super::step::WatchKind;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Rope};
use wire::types::{CloneInfo, EntityName, SnapId, SnapList, WatchInfo, WatchItem, WatcherList};

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

impl Execution<'_> {
    pub(super) fn watch(&mut self, kind: WatchKind, cookie: u64, timeout_s: u32) -> StepResult {
        self.must_exist()?;
        let key = (cookie, self.client);
        let timeout_s = if timeout_s == 0 { self.limits.client_watch_timeout_s } else { timeout_s };
        match kind {
            WatchKind::Watch { pings } => {
                if !self.info.watchers.contains_key(&key) {
                    let addr = self.client_addr;
                    self.info.to_mut().watchers.insert(key, WatchInfo { cookie, timeout_s, addr });
                    self.touched = true;
                }
                self.side_effects.connects.push(WatchConnect { cookie, timeout_s, pings });
            }
            WatchKind::Reconnect => {
                if !self.info.watchers.contains_key(&key) {
                    return Err(Errno::NOTCONN.into());
                }
                self.side_effects.connects.push(WatchConnect { cookie, timeout_s, pings: true });
            }
            WatchKind::Ping => {
                if !self.info.watchers.contains_key(&key) {
                    return Err(Errno::NOTCONN.into());
                }
                if !(self.connected)(cookie, self.client) {
                    return Err(Errno::TIMEDOUT.into());
                }
                self.side_effects.pings.push(cookie);
            }
            WatchKind::Unwatch => {
                if self.info.watchers.contains_key(&key) {
                    self.info.to_mut().watchers.remove(&key);
                    self.touched = true;
                    let client = self.client;
                    self.side_effects.disconnects.push(WatchDisconnect { cookie, client, tell: false });
                }
            }
            WatchKind::Unknown => {}
        }
        Ok(Rope::new())
    }

    /// The object goes: so do its watches, and their clients hear of it.
    pub(super) fn forget_watchers(&mut self) {
        if self.info.watchers.is_empty() {
            return;
        }
        for ((cookie, client), _) in std::mem::take(&mut self.info.to_mut().watchers) {
            self.side_effects.disconnects.push(WatchDisconnect { cookie, client, tell: true });
        }
    }

    /// Gives the client the notification's id, by which it recognises the completion.
    pub(super) fn notify(&mut self, cookie: u64, timeout_s: u32, payload: &Bytes) -> StepResult {
        let timeout_s = if timeout_s == 0 { self.limits.default_notify_timeout_s } else { timeout_s };
        let id = self.next_notify_id;
        self.next_notify_id += 1;
        self.side_effects.notifies.push(NotifyStart { id, cookie, timeout_s, payload: payload.clone() });
        Ok(Bytes::copy_from_slice(&id.to_le_bytes()).into())
    }

    pub(super) fn notify_ack(&mut self, notify_id: u64, cookie: Option<u64>, reply: &Bytes) -> StepResult {
        self.side_effects.acks.push(NotifyAck { notify_id, cookie, reply: reply.clone() });
        Ok(Rope::new())
    }

    pub(super) fn list_watchers(&mut self) -> StepResult {
        let item = |(&(cookie, name), info): (&(u64, EntityName), &WatchInfo)| WatchItem {
            name,
            cookie,
            timeout_s: info.timeout_s,
            addr: info.addr,
        };
        let list = WatcherList { entries: self.info.watchers.iter().map(item).collect() };
        self.stats.reads += 1;
        Ok(list.to_vec(self.features).into())
    }

    /// The head alone, while pools have no snapshots.
    pub(super) fn list_snaps(&mut self) -> StepResult {
        let (snaps, overlap) = (Vec::new(), Vec::new());
        let head = CloneInfo { clone: SnapId::HEAD, snaps, overlap, size: self.info.size };
        self.stats.reads += 1;
        Ok(SnapList { clones: vec![head], seq: SnapId(0) }.to_vec(self.features).into())
    }
}
