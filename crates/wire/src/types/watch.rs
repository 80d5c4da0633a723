//! Watches as an object keeps them and as clients are told of them: `watch_info_t`, `watch_item_t`,
//! `obj_list_watch_response_t`, and the payloads of notify operations.

use super::{EntityAddr, EntityName};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// One watch in an object's info (`watch_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchInfo {
    pub cookie: u64,
    pub timeout_s: u32,
    pub addr: EntityAddr,
}

impl Encode for WatchInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            w.u64(self.cookie);
            w.u32(self.timeout_s);
            w.put(&self.addr);
        });
    }
}

impl Decode for WatchInfo {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("watch_info_t", 4, 3, 3, |r, v| {
            let cookie = r.u64()?;
            if v < 2 {
                r.u64()?;
            }
            let timeout_s = r.u32()?;
            let addr = if v >= 4 { r.get()? } else { EntityAddr::default() };
            Ok(WatchInfo { cookie, timeout_s, addr })
        })
    }
}

/// One watcher as `list-watchers` reports it (`watch_item_t`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct WatchItem {
    pub name: EntityName,
    pub cookie: u64,
    pub timeout_s: u32,
    #[since(2)]
    pub addr: EntityAddr,
}

/// The answer of `list-watchers` (`obj_list_watch_response_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct WatcherList {
    pub entries: Vec<WatchItem>,
}

/// Input of a `notify` operation: `u32 version` (obsolete, written 1), time-out, payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotifyRequest {
    /// 0 asks for the OSD's default.
    pub timeout_s: u32,
    pub payload: Bytes,
}

impl Encode for NotifyRequest {
    fn encode(&self, w: &mut Writer) {
        w.u32(1);
        w.u32(self.timeout_s);
        w.blob(&self.payload);
    }
}

impl NotifyRequest {
    /// From an operation's input. Input that does not decode means no payload; a time-out that came before the
    /// damage does not count either, as with Ceph.
    pub fn from_input(input: &Bytes) -> NotifyRequest {
        let mut r = Reader::new(input);
        let mut read = || -> Result<NotifyRequest, DecodeError> {
            let _version = r.u32()?;
            let timeout_s = r.u32()?;
            Ok(NotifyRequest { timeout_s, payload: input.slice_ref(r.blob()?) })
        };
        read().unwrap_or_default()
    }
}

/// Input of a `notify-ack` operation: the notification, the watcher's cookie, and a reply.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotifyAck {
    pub notify_id: u64,
    /// `None` from clients that could have only one watch an object.
    pub cookie: Option<u64>,
    pub reply: Bytes,
}

impl Encode for NotifyAck {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.notify_id);
        w.u64(self.cookie.unwrap_or(0));
        w.blob(&self.reply);
    }
}

impl NotifyAck {
    /// From an operation's input; `param` is its first parameter, which very old clients used instead.
    pub fn from_input(input: &Bytes, param: u64) -> NotifyAck {
        let mut r = Reader::new(input);
        let mut read = || -> Result<NotifyAck, DecodeError> {
            let (notify_id, cookie) = (r.u64()?, Some(r.u64()?));
            let reply = if r.is_empty() { Bytes::new() } else { input.slice_ref(r.blob()?) };
            Ok(NotifyAck { notify_id, cookie, reply })
        };
        read().unwrap_or(NotifyAck { notify_id: param, cookie: None, reply: Bytes::new() })
    }
}

/// Outcome for the notifier when all have answered or the time is up: the replies, and the watchers without one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NotifyOutcome {
    /// Watcher's global id and cookie, and its reply; ascending.
    pub replies: Vec<((u64, u64), Bytes)>,
    pub missed: Vec<(u64, u64)>,
}

impl Encode for NotifyOutcome {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.replies);
        w.put(&self.missed);
    }
}

impl Decode for NotifyOutcome {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(NotifyOutcome { replies: r.get()?, missed: r.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn a_notification_that_does_not_decode_is_empty() {
        let full = NotifyRequest { timeout_s: 7, payload: Bytes::from_static(b"hi") };
        let bytes = Bytes::from(full.to_vec(Features::NONE));
        assert_eq!(NotifyRequest::from_input(&bytes), full);
        assert_eq!(NotifyRequest::from_input(&bytes.slice(..9)), NotifyRequest::default());
    }

    #[test]
    fn an_ack_falls_back_to_the_parameter() {
        let ack = NotifyAck { notify_id: 3, cookie: Some(4), reply: Bytes::from_static(b"ok") };
        let bytes = Bytes::from(ack.to_vec(Features::NONE));
        assert_eq!(NotifyAck::from_input(&bytes, 9), ack);
        let bare = NotifyAck::from_input(&bytes.slice(..16), 9);
        assert_eq!((bare.notify_id, bare.cookie, bare.reply.len()), (3, Some(4), 0));
        let old = NotifyAck::from_input(&Bytes::new(), 9);
        assert_eq!((old.notify_id, old.cookie), (9, None));
    }

    #[test]
    fn an_outcome_is_a_map_and_a_vector() {
        let o = NotifyOutcome { replies: vec![((1, 2), Bytes::from_static(b"x"))], missed: vec![(3, 4)] };
        let mut expected = vec![1, 0, 0, 0];
        expected.extend([1u64, 2].iter().flat_map(|n| n.to_le_bytes()));
        expected.extend([1, 0, 0, 0, b'x', 1, 0, 0, 0]);
        expected.extend([3u64, 4].iter().flat_map(|n| n.to_le_bytes()));
        assert_eq!(o.to_vec(Features::NONE), expected);
        assert_eq!(codec::decode_exact(&expected), Ok(o));
    }
}
