//! One record of the log: header, totals, entries, and inline data.
//!
//! ```text
//! 0   u32 magic          24  u32 body length       48  u64 flushed up to
//! 4   u32 header crc     28  u32 body crc          56  u32 length of the entries
//! 8   u64 shard          32  u32 chain             60  u32 zero
//! 16  u64 sequence       36  u64 header sequence   64  body: totals, entries, data
//!                        44  u32 incarnation
//! ```

use crate::checksum::crc32c;
use crate::format::Totals;
use crate::planted::{self, PlantedBug};
use bytes::Bytes;
use codec::{DecodeError, Reader, Rope};
use crc_fast::{CrcAlgorithm, Digest};
use device::BLOCK;

const MAGIC: u32 = 0x676c_4853; // "SHlg"
pub(crate) const HEAD_LEN: usize = 64;
/// Incarnation of the record that mkfs writes.
pub const FIRST_INCARNATION: u32 = 1;

/// Position of a record, and the state of its shard when it was sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFront {
    pub shard_identity: u64,
    pub sequence: u64,
    /// Header checksum of the preceding record: a record is valid only behind that one.
    pub chain: u32,
    /// Direct data of records up to this sequence was on stable storage.
    pub flushed_up_to: u64,
    /// The newest shard header that both slots had. Records of version 1 have 0.
    pub header_sequence: u64,
    /// Number of the opening that wrote the record. A record that is written again after a crash differs by it from the lost
    /// one, so successors of that one do not continue the new chain. Records of version 1 have 0.
    pub incarnation: u32,
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    pub front: RecordFront,
    body_len: u32,
    body_crc: u32,
    entries_len: u32,
    /// Checksum of this header: the chain of the next record.
    pub crc: u32,
}

/// A complete record.
#[derive(Debug)]
pub struct Record {
    pub head: RecordHead,
    pub totals: Totals,
    body: Bytes,
}

impl RecordHead {
    fn encode(&self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        let front = &self.front;
        out[8..16].copy_from_slice(&front.shard_identity.to_le_bytes());
        out[16..24].copy_from_slice(&front.sequence.to_le_bytes());
        out[24..28].copy_from_slice(&self.body_len.to_le_bytes());
        out[28..32].copy_from_slice(&self.body_crc.to_le_bytes());
        out[32..36].copy_from_slice(&front.chain.to_le_bytes());
        out[36..44].copy_from_slice(&front.header_sequence.to_le_bytes());
        out[44..48].copy_from_slice(&front.incarnation.to_le_bytes());
        out[48..56].copy_from_slice(&front.flushed_up_to.to_le_bytes());
        out[56..60].copy_from_slice(&self.entries_len.to_le_bytes());
        let crc = crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` if the bytes do not begin with a complete record header of this shard.
    pub fn decode(bytes: &[u8], shard_identity: u64) -> Option<RecordHead> {
        let bytes: &[u8; HEAD_LEN] = bytes.get(..HEAD_LEN)?.try_into().ok()?;
        let head = RecordHead::decode_fields(bytes).ok()?;
        (head.crc == crc32c(&bytes[8..]) && head.front.shard_identity == shard_identity).then_some(head)
    }

    fn decode_fields(bytes: &[u8; HEAD_LEN]) -> Result<RecordHead, DecodeError> {
        let mut r = Reader::new(bytes);
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(DecodeError::Invalid { what: "record's magic", value: magic as u64, offset: 0 });
        }
        let crc = r.u32()?;
        let (shard_identity, sequence) = (r.u64()?, r.u64()?);
        let (body_len, body_crc, chain) = (r.u32()?, r.u32()?, r.u32()?);
        let (header_sequence, incarnation) = (r.u64()?, r.u32()?);
        let (flushed_up_to, entries_len) = (r.u64()?, r.u32()?);
        let front =
            RecordFront { shard_identity, sequence, chain, flushed_up_to, header_sequence, incarnation };
        Ok(RecordHead { front, body_len, body_crc, entries_len, crc })
    }

    /// Length of header and body, without padding.
    pub fn len(&self) -> u64 {
        HEAD_LEN as u64 + self.body_len as u64
    }

    pub fn blocks(&self) -> u64 {
        self.len().div_ceil(BLOCK as u64)
    }
}

/// True if a block begins like a record, damaged or not.
pub fn has_record_magic(block: &[u8]) -> bool {
    block.starts_with(&MAGIC.to_le_bytes())
}

/// A record under construction: entries are appended behind the room for header and totals.
pub struct RecordBuilder(Vec<u8>);

impl RecordBuilder {
    const FRONT: usize = HEAD_LEN + Totals::ENCODED_LEN;

    /// A builder with capacity for so many bytes of entries.
    pub fn with_capacity(entries_len: usize) -> RecordBuilder {
        let mut bytes = Vec::with_capacity(RecordBuilder::FRONT + entries_len);
        bytes.resize(RecordBuilder::FRONT, 0);
        RecordBuilder(bytes)
    }

    /// Buffer to append entries to.
    pub fn entries(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub fn entries_len(&self) -> usize {
        self.0.len() - RecordBuilder::FRONT
    }

    /// The record in whole blocks, and its header's checksum, which is the chain of the next record. Copies no data.
    pub fn seal(self, of: RecordFront, totals: &Totals, data: Rope) -> (Rope, u32) {
        static ZEROES: [u8; BLOCK] = [0; BLOCK];
        let entries_len = self.entries_len();
        let RecordBuilder(mut front) = self;
        let mut counters = Vec::with_capacity(Totals::ENCODED_LEN);
        totals.put(&mut counters);
        front[HEAD_LEN..RecordBuilder::FRONT].copy_from_slice(&counters);
        let body_len = front.len() - HEAD_LEN + data.len();
        let body_crc = {
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            digest.update(&front[HEAD_LEN..]);
            data.pieces().iter().for_each(|p| digest.update(p));
            digest.finalize() as u32
        };
        let head = RecordHead {
            front: of,
            body_len: u32::try_from(body_len).expect("a batch is bounded"),
            body_crc,
            entries_len: u32::try_from(entries_len).expect("a batch is bounded"),
            crc: 0,
        };
        let encoded = head.encode();
        front[..HEAD_LEN].copy_from_slice(&encoded);
        let crc = u32::from_le_bytes(encoded[4..8].try_into().expect("four bytes"));
        let padding = (BLOCK - (HEAD_LEN + body_len) % BLOCK) % BLOCK;
        let mut out = Rope::from(front);
        out.append(data);
        out.push(Bytes::from_static(&ZEROES[..padding]));
        (out, crc)
    }
}

impl Record {
    /// Blocks of a record with so many bytes of entries and data.
    pub fn blocks(entries_len: usize, data_len: usize) -> u64 {
        (HEAD_LEN + Totals::ENCODED_LEN + entries_len + data_len).div_ceil(BLOCK) as u64
    }

    /// The record with the header `head`, if its body is complete. `bytes` begin with the header.
    pub fn decode(head: RecordHead, bytes: &Bytes) -> Option<Record> {
        let body = bytes.get(HEAD_LEN..head.len() as usize)?;
        if crc32c(body) != head.body_crc && !planted::has(PlantedBug::TornRecordReplayed) {
            return None;
        }
        let mut r = Reader::new(body);
        let totals = Totals::take(&mut r).ok()?;
        r.take("entries", head.entries_len as usize).ok()?;
        Some(Record { head, totals, body: bytes.slice_ref(body) })
    }

    pub fn entries(&self) -> &[u8] {
        &self.body[Totals::ENCODED_LEN..Totals::ENCODED_LEN + self.head.entries_len as usize]
    }

    /// Inline data, in order of the [`super::Entry::Inline`] entries.
    pub fn data(&self) -> Bytes {
        self.body.slice(Totals::ENCODED_LEN + self.head.entries_len as usize..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_and_any_flipped_bit_is_detected() {
        let totals = Totals { next_number: 9, data_bytes: 8, omap_bytes: 7, objects: 6 };
        let data: Rope = [Bytes::from(vec![3; 5000]), Bytes::from(vec![4; 10])].into_iter().collect();
        let mut draft = RecordBuilder::with_capacity(4);
        draft.entries().extend_from_slice(b"some entries");
        assert_eq!(draft.entries_len(), 12);
        let front = RecordFront {
            shard_identity: 77,
            sequence: 5,
            chain: 123,
            flushed_up_to: 4,
            header_sequence: 3,
            incarnation: 2,
        };
        let (rope, crc) = draft.seal(front, &totals, data);
        let bytes = rope.to_bytes();
        assert_eq!(bytes.len() as u64, Record::blocks(12, 5010) * BLOCK as u64);
        let head = RecordHead::decode(&bytes, 77).unwrap();
        assert_eq!((head.front, head.crc), (front, crc));
        assert_eq!(head.blocks(), 2);
        let record = Record::decode(head, &bytes).unwrap();
        assert_eq!((record.totals, record.entries()), (totals, &b"some entries"[..]));
        assert_eq!(record.data(), [vec![3; 5000], vec![4; 10]].concat());
        assert_eq!(RecordHead::decode(&bytes, 78), None);
        for bit in (0..head.len() as usize * 8).step_by(37) {
            let mut rotten = bytes.to_vec();
            rotten[bit / 8] ^= 1 << (bit % 8);
            let seen = RecordHead::decode(&rotten, 77).and_then(|h| Record::decode(h, &rotten.into()));
            assert!(seen.is_none(), "bit {bit}");
        }
    }
}
