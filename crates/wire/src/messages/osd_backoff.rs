//! `MOSDBackoff`: an OSD asks a client to hold back what it sends for a range of objects, and later lets go.

use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, HObject, SpgId};
use codec::{DecodeError, Reader};

#[derive(Clone, Debug, PartialEq)]
pub struct MOSDBackoff {
    pub pg: SpgId,
    pub epoch: Epoch,
    /// `op_value::BACKOFF_*`: block, the client's acknowledgement of it, unblock.
    pub op: u8,
    /// Unique within the session.
    pub id: u64,
    /// Objects from `begin` up to but not including `end`; the one object when they are equal.
    pub begin: HObject,
    pub end: HObject,
}

impl MessageBody for MOSDBackoff {
    const TYPE: u16 = 61;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.pg);
        w.u32(self.epoch);
        w.u8(self.op);
        w.u64(self.id);
        w.put(&self.begin);
        w.put(&self.end);
    }

    fn decode(_: &Header, payload: &Payload) -> Result<MOSDBackoff, DecodeError> {
        let mut r = Reader::new(&payload.front);
        Ok(MOSDBackoff {
            pg: r.get()?,
            epoch: r.u32()?,
            op: r.u8()?,
            id: r.u64()?,
            begin: r.get()?,
            end: r.get()?,
        })
    }
}
