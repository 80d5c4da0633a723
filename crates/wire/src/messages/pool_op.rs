//! Pools created, deleted and snapshotted through librados (`MPoolOp`, `MPoolOpReply`).

use super::paxos::PaxosHeader;
use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, SnapId, Uuid};
use bytes::Bytes;
use codec::{DecodeError, Reader};

#[derive(Clone, Debug, PartialEq)]
pub struct MPoolOp {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub pool: u32,
    /// One of the constants below.
    pub op: u32,
    pub snap: SnapId,
    /// Of the new pool or the snapshot.
    pub name: String,
    /// Negative: the cluster's choice.
    pub crush_rule: i16,
}

impl MPoolOp {
    pub const CREATE: u32 = 0x01;
    pub const DELETE: u32 = 0x02;
    pub const CREATE_SNAP: u32 = 0x11;
    pub const DELETE_SNAP: u32 = 0x12;
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

impl MessageBody for MPoolOp {
    const TYPE: u16 = 49;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.u32(self.pool);
        w.u32(self.op);
        w.u64(0); // the owner, a feature long gone
        w.put(&self.snap);
        w.put(&self.name);
        w.u8(0); // version 3 had the rule in one byte here
        w.i16(self.crush_rule);
    }

    fn decode(header: &Header, payload: &Payload) -> Result<MPoolOp, DecodeError> {
        let r = &mut Reader::new(&payload.front);
        let (paxos, fsid, pool, op) = (r.get()?, r.get()?, r.u32()?, r.u32()?);
        let _owner = r.u64()?;
        let (snap, name) = (r.get()?, r.get()?);
        let crush_rule = match header.version {
            ..=2 => -1,
            3 => i16::from(r.u8()?),
            _ => {
                r.u8()?;
                r.i16()?
            }
        };
        Ok(MPoolOp { paxos, fsid, pool, op, snap, name, crush_rule })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct MPoolOpReply {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    /// 0, or a negative errno.
    pub result: i32,
    /// The OSDMap in which the change is; the client waits for it.
    pub epoch: Epoch,
    /// A new unmanaged snapshot's id, encoded.
    pub response: Bytes,
}

impl MessageBody for MPoolOpReply {
    const TYPE: u16 = 48;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.i32(self.result);
        w.u32(self.epoch);
        w.put(&(!self.response.is_empty()).then_some(&self.response));
    }

    fn decode(_: &Header, payload: &Payload) -> Result<MPoolOpReply, DecodeError> {
        let r = &mut Reader::new(&payload.front);
        Ok(MPoolOpReply {
            paxos: r.get()?,
            fsid: r.get()?,
            result: r.i32()?,
            epoch: r.u32()?,
            response: r.get::<Option<Bytes>>()?.unwrap_or_default(),
        })
    }
}
