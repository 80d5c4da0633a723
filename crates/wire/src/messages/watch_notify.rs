//! `MWatchNotify`: an OSD tells a watcher of a notification, or a notifier that all have answered.

use super::{Header, MessageBody, Outgoing, Payload};
use bytes::Bytes;
use codec::{DecodeError, Reader};

#[derive(Clone, Debug, PartialEq)]
pub struct MWatchNotify {
    /// `op_value::EVENT_*`.
    pub event: u8,
    /// The watcher's cookie, or the notifier's on completion.
    pub cookie: u64,
    /// Unused.
    pub version: u64,
    pub notify_id: u64,
    /// The notification's payload.
    pub payload: Bytes,
    /// On completion: 0, or `-ETIMEDOUT` when somebody did not answer.
    pub result: i32,
    pub notifier_gid: u64,
    /// On completion, in the data segment: a [`crate::types::NotifyOutcome`].
    pub outcome: Bytes,
}

impl MessageBody for MWatchNotify {
    const TYPE: u16 = 44;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.u8(1);
        w.u8(self.event);
        w.u64(self.cookie);
        w.u64(self.version);
        w.u64(self.notify_id);
        w.blob(&self.payload);
        w.i32(self.result);
        w.u64(self.notifier_gid);
        out.data.push(self.outcome.clone());
    }

    fn decode(header: &Header, payload: &Payload) -> Result<MWatchNotify, DecodeError> {
        let mut r = Reader::new(&payload.front);
        let body_version = r.u8()?;
        Ok(MWatchNotify {
            event: r.u8()?,
            cookie: r.u64()?,
            version: r.u64()?,
            notify_id: r.u64()?,
            payload: match body_version {
                0 => Bytes::new(),
                _ => payload.front.slice_ref(r.blob()?),
            },
            result: if header.version >= 2 { r.i32()? } else { 0 },
            notifier_gid: if header.version >= 3 { r.u64()? } else { 0 },
            outcome: payload.data.clone(),
        })
    }
}
