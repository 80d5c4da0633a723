//! Header of every message to the monitor that may change its state (`PaxosServiceMessage`).

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The version of the monitor's state that the sender has seen, and two fields of a forwarding scheme long gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PaxosHeader {
    pub version: u64,
}

impl Encode for PaxosHeader {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.i16(-1);
        w.u64(0);
    }
}

impl Decode for PaxosHeader {
    const MIN_LEN: usize = 18;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = codec::field(r, "version", true, u64::default)?;
        let _session_mon = r.i16()?;
        let _session_mon_tid = r.u64()?;
        Ok(PaxosHeader { version })
    }
}
