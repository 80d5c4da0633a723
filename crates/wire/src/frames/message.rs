//! The header of a message on the wire (`ceph_msg_header2`).

use super::FrameError;
use crate::messages::Header;

/// `u64 seq | u64 tid | u16 type | u16 priority | u16 version | u32 padding | u16 data_off | u64 ack | u8 flags |
/// u16 compat | u16 reserved`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// Counts a session's messages from 1.
    pub seq: u64,
    /// The last of the peer's messages that the sender has.
    pub ack_seq: u64,
    /// Where the payload starts modulo the page.
    pub data_offset: u16,
    pub header: Header,
}

impl MessageHeader {
    pub const LEN: usize = 41;
    /// `CEPH_MSG_FOOTER_COMPLETE`: what every whole message says.
    const FLAG_COMPLETE: u8 = 1;

    pub fn to_bytes(&self) -> [u8; MessageHeader::LEN] {
        let mut out = [0; MessageHeader::LEN];
        let h = &self.header;
        out[0..8].copy_from_slice(&self.seq.to_le_bytes());
        out[8..16].copy_from_slice(&h.tid.to_le_bytes());
        out[16..18].copy_from_slice(&h.kind.to_le_bytes());
        out[18..20].copy_from_slice(&h.priority.to_le_bytes());
        out[20..22].copy_from_slice(&h.version.to_le_bytes());
        out[26..28].copy_from_slice(&self.data_offset.to_le_bytes());
        out[28..36].copy_from_slice(&self.ack_seq.to_le_bytes());
        out[36] = MessageHeader::FLAG_COMPLETE;
        out[37..39].copy_from_slice(&h.compat.to_le_bytes());
        out
    }

    pub fn from_bytes(raw: &[u8]) -> Result<MessageHeader, FrameError> {
        let raw: &[u8; MessageHeader::LEN] =
            raw.try_into().map_err(|_| FrameError::HeaderLength(raw.len()))?;
        let word = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        Ok(MessageHeader {
            seq: word(0),
            ack_seq: word(28),
            data_offset: half(26),
            header: Header {
                tid: word(8),
                kind: half(16),
                priority: half(18),
                version: half(20),
                compat: half(37),
            },
        })
    }
}
