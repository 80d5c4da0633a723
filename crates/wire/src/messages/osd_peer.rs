//! `MOSDPeer`: a statement of one OSD to another about a placement group. The message is shoal's own.

use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, PeerBody, SpgId};
use codec::{DecodeError, Reader, Rope};

#[derive(Clone, Debug, PartialEq)]
pub struct MOSDPeer {
    pub pg: SpgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// The first epoch of the interval that the statement belongs to.
    pub interval: Epoch,
    pub body: PeerBody,
    /// Bytes of objects' data, for [`PeerBody::Write`] and [`PeerBody::Push`].
    pub data: Rope,
}

impl MessageBody for MOSDPeer {
    /// Far from Ceph's numbers, which end below 0x800.
    const TYPE: u16 = 0x5348;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.put(&self.pg);
        w.u32(self.epoch);
        w.u32(self.interval);
        w.put(&self.body);
        out.data = self.data.clone();
    }

    fn decode(_: &Header, payload: &Payload) -> Result<MOSDPeer, DecodeError> {
        let mut r = Reader::new(&payload.front);
        let (pg, epoch, interval, body) = (r.get()?, r.u32()?, r.u32()?, r.get()?);
        Ok(MOSDPeer { pg, epoch, interval, body, data: Rope::summed(payload.data.clone(), payload.data_sum) })
    }
}
