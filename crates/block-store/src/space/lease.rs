//! The index record of a leased zone: a version, and one bit per block that says if the block holds data.

use codec::DecodeError;

/// 1: the first.
const VERSION: u8 = 1;

/// Record of a zone with these bits; no bits stand for none set.
pub fn lease_record(bits: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + bits.len());
    out.push(VERSION);
    out.extend_from_slice(bits);
    out
}

/// The bits of a record.
pub fn lease_bits(record: &[u8]) -> Result<&[u8], DecodeError> {
    match record.split_first() {
        Some((&VERSION, bits)) => Ok(bits),
        Some((&other, _)) => {
            Err(DecodeError::Invalid { what: "version of a lease", value: other as u64, offset: 0 })
        }
        None => Err(DecodeError::Invalid { what: "length of a lease", value: 0, offset: 0 }),
    }
}
