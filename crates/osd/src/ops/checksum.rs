//! The checksum operation: one value for each chunk of a range, computed where the bytes are.

use super::Limits;
use super::execution::Execution;
use super::handler::{Handler, OpOutcome, OpOutput};
use super::reads::DataRead;
use crate::errno::Errno;
use codec::{Features, Reader, Rope, Writer};
use wire::types::{OsdOp, op_value, osd_op::ChecksumParams};

/// `count, values`: 4 bytes each, 8 for xxhash64. Offset and length 0 mean the whole object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    params: ChecksumParams,
    /// Little-endian seed: 4 bytes, 8 for xxhash64. `None` when the input is too short.
    seed: Option<u64>,
}

impl Handler for Checksum {
    type Reads = DataRead;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let params = op.params.checksum();
        let mut r = Reader::new(&op.input);
        let seed = match params.kind {
            op_value::CHECKSUM_XXHASH64 => r.u64(),
            _ => r.u32().map(u64::from),
        };
        Ok(Checksum { params, seed: seed.ok() })
    }

    fn reads(&self, _: &Limits) -> DataRead {
        let ChecksumParams { offset, len, .. } = self.params;
        DataRead { offset, len: if offset == 0 && len == 0 { u64::MAX } else { len } }
    }

    fn execute(&self, list: &mut Execution<'_>, data: Rope) -> OpOutcome {
        let ChecksumParams { offset, mut len, chunk_size, kind } = self.params;
        let size = list.info.size;
        if chunk_size > 0 && (len == 0 || len % chunk_size as u64 != 0) {
            return Err(Errno::INVAL.into());
        }
        if offset == 0 && len == 0 {
            len = size;
        } else if offset >= size {
            return Ok(OpOutput::default());
        } else if len > size - offset {
            len = size - offset;
            if chunk_size > 0 && len % chunk_size as u64 != 0 {
                return Err(Errno::INVAL.into());
            }
        }
        if kind > op_value::CHECKSUM_CRC32C {
            return Err(Errno::INVAL.into());
        }
        let seed = self.seed.ok_or(Errno::INVAL)?;
        let data = data.slice(0, len as usize).ok_or(Errno::INVAL)?.to_bytes();
        list.count_read(data.len());

        let chunk = if chunk_size == 0 { data.len() } else { chunk_size as usize };
        let count = data.len().checked_div(chunk).unwrap_or(0);
        let mut w = Writer::new(Features::NONE);
        w.count(count);
        for piece in data.chunks_exact(chunk.max(1)) {
            match kind {
                op_value::CHECKSUM_XXHASH32 => w.u32(xxhash32(seed as u32, piece)),
                op_value::CHECKSUM_XXHASH64 => w.u64(xxhash64(seed, piece)),
                _ => w.u32(crc32c(seed as u32, piece)),
            }
        }
        Ok(Rope::from(w.into_vec()).into())
    }
}

/// Castagnoli's polynomial, reflected, without the customary inversions: as Ceph chains it.
fn crc32c(seed: u32, data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i as u32;
            let mut bit = 0;
            while bit < 8 {
                c = if c & 1 == 1 { (c >> 1) ^ 0x82f6_3b78 } else { c >> 1 };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    data.iter().fold(seed, |crc, b| TABLE[((crc ^ *b as u32) & 0xff) as usize] ^ (crc >> 8))
}

/// XXH32, from its published specification.
fn xxhash32(seed: u32, data: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let round =
        |acc: u32, word: u32| acc.wrapping_add(word.wrapping_mul(P[1])).rotate_left(13).wrapping_mul(P[0]);
    let (stripes, rest) = data.as_chunks::<16>();
    let mut h = if stripes.is_empty() {
        seed.wrapping_add(P[4])
    } else {
        let mut acc = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        for stripe in stripes {
            for (lane, word) in acc.iter_mut().zip(stripe.as_chunks::<4>().0) {
                *lane = round(*lane, u32::from_le_bytes(*word));
            }
        }
        let turns = [1, 7, 12, 18];
        acc.iter().zip(turns).fold(0, |h: u32, (lane, turn)| h.wrapping_add(lane.rotate_left(turn)))
    };
    h = h.wrapping_add(data.len() as u32);
    let (words, bytes) = rest.as_chunks::<4>();
    for word in words {
        h = h.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P[2])).rotate_left(17).wrapping_mul(P[3]);
    }
    for byte in bytes {
        h = h.wrapping_add((*byte as u32).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P[2]);
    h ^ (h >> 16)
}

/// XXH64, from its published specification.
fn xxhash64(seed: u64, data: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let round =
        |acc: u64, word: u64| acc.wrapping_add(word.wrapping_mul(P[1])).rotate_left(31).wrapping_mul(P[0]);
    let (stripes, rest) = data.as_chunks::<32>();
    let mut h = if stripes.is_empty() {
        seed.wrapping_add(P[4])
    } else {
        let mut acc = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        for stripe in stripes {
            for (lane, word) in acc.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let turns = [1, 7, 12, 18];
        let joined =
            acc.iter().zip(turns).fold(0, |h: u64, (lane, turn)| h.wrapping_add(lane.rotate_left(turn)));
        acc.iter().fold(joined, |h, lane| (h ^ round(0, *lane)).wrapping_mul(P[0]).wrapping_add(P[3]))
    };
    h = h.wrapping_add(data.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        h = (h ^ round(0, u64::from_le_bytes(*word))).rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]);
    }
    let (halves, bytes) = rest.as_chunks::<4>();
    for half in halves {
        let word = u32::from_le_bytes(*half) as u64;
        h = (h ^ word.wrapping_mul(P[0])).rotate_left(23).wrapping_mul(P[1]).wrapping_add(P[2]);
    }
    for byte in bytes {
        h = (h ^ (*byte as u64).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 33)).wrapping_mul(P[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P[2]);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the algorithms' authors publish.
    #[test]
    fn known_values() {
        assert_eq!(xxhash32(0, b""), 0x02cc_5d05);
        assert_eq!(xxhash32(0, b"abc"), 0x32d1_53ff);
        assert_eq!(xxhash64(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash64(0, b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn long_inputs_use_the_striped_path() {
        let text = b"Nobody inspects the spammish repetition";
        assert_eq!(xxhash32(0, text), 0xe229_3b2f);
        assert_eq!(xxhash64(0, text), 0xfbce_a83c_8a37_8bf1);
    }
}
