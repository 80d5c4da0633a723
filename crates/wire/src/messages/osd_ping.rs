//! Heartbeats between OSDs (`MOSDPing`).

use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, UTime, Uuid};
use codec::{DecodeError, Reader};

/// Kind of a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PingOp(pub u8);

impl PingOp {
    /// The map has you down.
    pub const YOU_DIED: PingOp = PingOp(2);
    pub const PING: PingOp = PingOp(4);
    pub const PING_REPLY: PingOp = PingOp(5);
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct MOSDPing {
    pub fsid: Uuid,
    pub map_epoch: Epoch,
    pub op: PingOp,
    /// When the ping was sent, by its sender's wall clock; comes back in the reply.
    pub ping_stamp: UTime,
    pub up_from: Epoch,
    /// The same by the sender's monotonic clock, in nanoseconds, and by the replier's when it replied.
    pub mono_ping_stamp_ns: i64,
    pub mono_send_stamp_ns: i64,
    /// The least that the receiver's clock may be ahead of the sender's.
    pub delta_upper_bound_ns: Option<i64>,
    /// Minimum length of the message, to find links that lose only large packets.
    pub min_message_size: u32,
}

/// Where the padding's length stands: all before it has a fixed size.
const PADDING_AT: u32 = 16 + 4 + 1 + 8;
/// The most padding that is written: a jumbo Ethernet frame, and generously more.
const PADDING_MAX: u32 = 64 * 1024;

impl MessageBody for MOSDPing {
    const TYPE: u16 = 70;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.fsid);
        w.u32(self.map_epoch);
        w.u8(self.op.0);
        w.put(&self.ping_stamp);
        let padding = self.min_message_size.saturating_sub(PADDING_AT).min(PADDING_MAX);
        w.u32(padding);
        w.u32(self.up_from);
        w.i64(self.mono_ping_stamp_ns);
        w.i64(self.mono_send_stamp_ns);
        w.put(&self.delta_upper_bound_ns);
        w.raw(&vec![0; padding as usize]);
    }

    fn decode(header: &Header, payload: &Payload) -> Result<MOSDPing, DecodeError> {
        let r = &mut Reader::new(&payload.front);
        let (fsid, map_epoch, op, ping_stamp) = (r.get()?, r.u32()?, PingOp(r.u8()?), r.get()?);
        let padding = r.u32()?;
        let stamps = header.version >= 5;
        Ok(MOSDPing {
            fsid,
            map_epoch,
            op,
            ping_stamp,
            up_from: codec::field(r, "up_from", stamps, Epoch::default)?,
            mono_ping_stamp_ns: codec::field(r, "mono_ping_stamp", stamps, i64::default)?,
            mono_send_stamp_ns: codec::field(r, "mono_send_stamp", stamps, i64::default)?,
            delta_upper_bound_ns: codec::field(r, "delta_upper_bound", stamps, || None)?,
            min_message_size: if padding == 0 { 0 } else { padding.saturating_add(PADDING_AT) },
        })
    }
}
