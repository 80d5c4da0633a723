//! The monitor's word that a placement group is new, without which nobody may begin one empty; and the answer.

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::{Epoch, PgId, SpgId, UTime};
use codec::{DecodeError, Reader};
use std::collections::BTreeMap;

/// To the primary: these groups of new pools exist nowhere yet. It makes each once, and knows by the epoch of its
/// creation whether it has made it before.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MOSDPGCreate2 {
    pub epoch: Epoch,
    /// The epoch that brought the pool, and the monitor's time then.
    pub pgs: BTreeMap<SpgId, (Epoch, UTime)>,
}

impl MessageBody for MOSDPGCreate2 {
    const TYPE: u16 = 120;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Outgoing) {
        out.front.u32(self.epoch);
        out.front.put(&self.pgs);
        // Histories of groups that came over from a version before Nautilus: none are left.
        out.front.u32(0);
    }

    fn decode(_: &Header, payload: &Payload) -> Result<MOSDPGCreate2, DecodeError> {
        let mut r = Reader::new(&payload.front);
        Ok(MOSDPGCreate2 { epoch: r.u32()?, pgs: r.get()? })
    }
}

plain_message! {
    /// The group exists now, and durably so.
    MOSDPGCreated = 116, version 1, compat 1 {
        paxos: PaxosHeader,
        pg: PgId,
    }
}
