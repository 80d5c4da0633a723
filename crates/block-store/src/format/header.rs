//! A shard's header: the start of its log and the place of its index manifest. A checkpoint writes it to one of two slots and
//! then to the other one, and frees what only the older header names after that: each slot alone is a valid start.

use super::{sealed_block, unsealed};
use crate::log::FIRST_INCARNATION;
use crate::space::{Run, Runs};
use codec::{DecodeError, Reader};
use device::BLOCK;

const MAGIC: u32 = 0x4864_5348; // "HSdH"
/// 1: the first. 2: manifest in several pieces. 3: leases of zones.
const VERSION: u32 = 3;
/// Most pieces of a manifest: their places fit into the header's block.
pub(crate) const MANIFEST_RUNS_MAX: usize = 200;

/// Totals that no index record holds. Every log record and every header carries their newest values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The next number for object data, an omap or an area. Numbers are never reused.
    pub next_number: u64,
    /// Bytes of object data.
    pub data_bytes: u64,
    pub omap_bytes: u64,
    pub objects: u64,
}

impl Totals {
    pub(crate) const ENCODED_LEN: usize = 32;

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for number in [self.next_number, self.data_bytes, self.omap_bytes, self.objects] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(crate) fn take(r: &mut Reader<'_>) -> Result<Totals, DecodeError> {
        Ok(Totals { next_number: r.u64()?, data_bytes: r.u64()?, omap_bytes: r.u64()?, objects: r.u64()? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPlace {
    /// In the manifest's order; at least one.
    pub runs: Runs,
    pub len: u64,
    pub crc: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// See [`super::Identity::of_shard`].
    pub shard_identity: u64,
    /// Of this header: the greater one counts.
    pub sequence: u64,
    /// The block of the log at which its first record that matters begins.
    pub log_block: u64,
    /// That record's sequence.
    pub log_sequence: u64,
    /// The checksum of the header of the record before it.
    pub log_chain: u32,
    /// `None` until the first table is written.
    pub manifest: Option<ManifestPlace>,
    pub totals: Totals,
    /// A clean stop: the log is empty.
    pub clean: bool,
    /// The index has the shard's leases. Otherwise the shard leases all zones of the area with its number: the header was
    /// written by version 1 of the format, or before the first checkpoint since.
    pub has_leases: bool,
    /// Number of the opening that wrote it; see [`crate::log::RecordFront`].
    pub incarnation: u32,
}

impl Header {
    /// The header of a new store.
    pub fn first(shard_identity: u64) -> Header {
        Header {
            shard_identity,
            sequence: 1,
            log_block: 0,
            log_sequence: 1,
            log_chain: shard_identity as u32,
            manifest: None,
            totals: Totals { next_number: 1, ..Totals::default() },
            clean: false,
            has_leases: true,
            incarnation: FIRST_INCARNATION,
        }
    }

    /// Slot that this header is written to first, 0 or 1.
    pub fn slot(&self) -> u64 {
        self.sequence % 2
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        let further: &[Run] = self.manifest.as_ref().map_or(&[], |place| &place.runs[1..]);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for number in [self.shard_identity, self.sequence, self.log_block, self.log_sequence] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.log_chain.to_le_bytes());
        out.push(self.clean as u8);
        out.push(self.manifest.is_some() as u8);
        let (first, len, crc) = match &self.manifest {
            Some(place) => (place.runs[0], place.len, place.crc),
            None => (Run::new(0, 0), 0, 0),
        };
        for number in [first.start, first.len, len] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&crc.to_le_bytes());
        self.totals.put(&mut out);
        assert!(further.len() < MANIFEST_RUNS_MAX, "a manifest in {} pieces", further.len() + 1);
        out.extend_from_slice(&(further.len() as u32).to_le_bytes());
        for run in further {
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.len.to_le_bytes());
        }
        out.push(self.has_leases as u8);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        sealed_block(out)
    }

    /// `None` if the block does not hold a complete header of this shard.
    pub fn decode(block: &[u8], shard_identity: u64) -> Option<Header> {
        let body = unsealed(block)?;
        Header::decode_body(body).ok().filter(|h| h.shard_identity == shard_identity)
    }

    /// The version of a complete header, if it is newer than this program.
    fn newer_version(block: &[u8]) -> Option<u32> {
        let mut r = Reader::new(unsealed(block)?);
        let (magic, version) = (r.u32().ok()?, r.u32().ok()?);
        (magic == MAGIC && version > VERSION).then_some(version)
    }

    fn decode_body(body: &[u8]) -> Result<Header, DecodeError> {
        let mut r = Reader::new(body);
        let (magic, version) = (r.u32()?, r.u32()?);
        if magic != MAGIC || version == 0 || version > VERSION {
            return Err(DecodeError::Invalid { what: "header's magic", value: magic as u64, offset: 0 });
        }
        let (shard_identity, sequence, log_block, log_sequence) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let log_chain = r.u32()?;
        let (clean, has_manifest) = (r.bool()?, r.bool()?);
        let first = Run { start: r.u64()?, len: r.u64()? };
        let (len, crc) = (r.u64()?, r.u32()?);
        let totals = Totals::take(&mut r)?;
        let mut runs = Runs::from_slice(&[first]);
        for _ in 0..if version > 1 { r.count("pieces of the manifest", 16)? } else { 0 } {
            runs.push(Run { start: r.u64()?, len: r.u64()? });
        }
        if runs.len() > MANIFEST_RUNS_MAX {
            return Err(r.invalid("pieces of the manifest", runs.len() as u64));
        }
        let (has_leases, incarnation) = if version > 2 { (r.bool()?, r.u32()?) } else { (false, 0) };
        Ok(Header {
            shard_identity,
            sequence,
            log_block,
            log_sequence,
            log_chain,
            manifest: has_manifest.then_some(ManifestPlace { runs, len, crc }),
            totals,
            clean,
            has_leases,
            incarnation,
        })
    }

    /// The newer one of the complete headers; `None` stands for a slot that cannot be read. An error is the version of a
    /// header of a newer program: the other slot must not be used then.
    pub fn newest(slots: [Option<&[u8]>; 2], shard_identity: u64) -> Result<Option<Header>, u32> {
        if let Some(version) = slots.into_iter().flatten().find_map(Header::newer_version) {
            return Err(version);
        }
        let whole = slots.into_iter().flatten().filter_map(|s| Header::decode(s, shard_identity));
        Ok(whole.max_by_key(|h| h.sequence))
    }
}

/// True if a block begins like a header of any version, damaged or not.
pub(crate) fn has_header_magic(block: &[u8]) -> bool {
    block.starts_with(&MAGIC.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_complete_slot_counts() {
        let first = Header::first(5);
        let place = ManifestPlace { runs: Runs::from_slice(&[Run::new(700, 2)]), len: 5000, crc: 9 };
        let totals = Totals { next_number: 4, data_bytes: 5, omap_bytes: 6, objects: 7 };
        let second = Header {
            sequence: 2,
            manifest: Some(place),
            totals,
            clean: false,
            log_block: 3,
            ..first.clone()
        };
        let newest = |a: &[u8], b: &[u8], identity| Header::newest([Some(a), Some(b)], identity);
        let (a, b) = (first.encode(), second.encode());
        assert_eq!(newest(&a, &b, 5), Ok(Some(second.clone())));
        assert_eq!(Header::newest([None, Some(&b)], 5), Ok(Some(second)));
        let mut torn = b.clone();
        torn[100] ^= 1;
        assert_eq!(newest(&a, &torn, 5), Ok(Some(first)));
        assert_eq!(newest(&a, &b, 6), Ok(None));
        let mut newer = b[..b.len() - 4].to_vec();
        newer[4] = 7;
        assert_eq!(newest(&a, &sealed_block(newer), 5), Err(7));
    }

    #[test]
    fn manifest_in_pieces_round_trips() {
        for pieces in [2, MANIFEST_RUNS_MAX] {
            let runs: Runs = (0..pieces as u64).map(|i| Run::new(900 - 4 * i, 1 + i % 3)).collect();
            let manifest = Some(ManifestPlace { runs, len: 4097 * pieces as u64, crc: 3 });
            let header = Header { manifest, ..Header::first(5) };
            assert_eq!(Header::decode(&header.encode(), 5), Some(header));
        }
    }

    /// Versions 1 and 2 end before the new fields, and their blocks are zeroes from there on.
    #[test]
    fn older_header_implies_the_leases_of_its_area() {
        let place = ManifestPlace { runs: Runs::from_slice(&[Run::new(9, 1)]), len: 7, crc: 3 };
        let header = Header { manifest: Some(place), has_leases: true, ..Header::first(5) };
        for version in [1, 2] {
            let mut old = header.encode()[..BLOCK - 4].to_vec();
            old[4] = version;
            old[110] = 0;
            let expected = Header { has_leases: false, incarnation: 0, ..header.clone() };
            assert_eq!(Header::decode(&sealed_block(old), 5), Some(expected));
        }
    }
}
