//! Blocks of an object that are compressed together, within a page: their place, packing and unpacking.
//!
//! Checksums are those of the stored blocks, so a scrub does not unpack. The unpacked length is recorded (`blocks`), so
//! unpacking allocates that much, whatever the bytes say.

use crate::varint;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use device::BLOCK;
use smallvec::SmallVec;
use store::{Compressed, CompressionAlgorithm};

const LZ4: u8 = 1;
const ZSTD: u8 = 2;
const ZLIB: u8 = 3;
const SNAPPY: u8 = 4;
const ALGORITHM: u8 = 0x0f;
const SHARED: u8 = 0x10;
/// The default of Ceph's `compressor_zstd_level`.
const ZSTD_LEVEL: i32 = 1;
/// The default of Ceph's `compressor_zlib_level`.
const ZLIB_LEVEL: u32 = 5;
const POOL_VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Unpacked blocks: from 2 to a whole page.
    pub blocks: u8,
    pub algorithm: CompressionAlgorithm,
    /// Packed length; the last block is padded with zeroes.
    pub len: u32,
    /// Other pages may point to it, too: owners are counted for each of its blocks.
    pub shared: bool,
    /// Device blocks with their checksums, fewer than `blocks`. The first one is its name.
    pub units: SmallVec<[(u64, u32); 8]>,
}

impl Packed {
    pub fn name(&self) -> u64 {
        self.units[0].0
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        let algorithm = match self.algorithm {
            CompressionAlgorithm::Lz4 => LZ4,
            CompressionAlgorithm::Zstd => ZSTD,
            CompressionAlgorithm::Zlib => ZLIB,
            CompressionAlgorithm::Snappy => SNAPPY,
        };
        out.push(algorithm | if self.shared { SHARED } else { 0 });
        out.push(self.blocks);
        varint::put(out, self.len as u64);
        for run in self.units.chunk_by(|a, b| a.0 + 1 == b.0) {
            out.push(run.len() as u8);
            varint::put(out, run[0].0);
            run.iter().for_each(|(_, crc)| out.extend_from_slice(&crc.to_le_bytes()));
        }
    }

    pub fn decode(r: &mut Reader<'_>, page_blocks: u64) -> Result<Packed, DecodeError> {
        let offset = r.offset();
        let kind = r.u8()?;
        let invalid = |value: u64| Err(DecodeError::Invalid { what: "compressed blocks", value, offset });
        let algorithm = match kind & ALGORITHM {
            LZ4 => CompressionAlgorithm::Lz4,
            ZSTD => CompressionAlgorithm::Zstd,
            ZLIB => CompressionAlgorithm::Zlib,
            SNAPPY => CompressionAlgorithm::Snappy,
            compat => {
                return Err(DecodeError::Incompatible { what: "compression", compat, supported: SNAPPY });
            }
        };
        let (blocks, len) = (r.u8()?, varint::take(r)?);
        let units_len = len.div_ceil(BLOCK as u64);
        let fits = (2..=page_blocks).contains(&(blocks as u64)) && len > 0 && units_len < blocks as u64;
        if kind & !(ALGORITHM | SHARED) != 0 || !fits {
            return invalid(len);
        }
        let mut units: SmallVec<[(u64, u32); 8]> = SmallVec::new();
        while (units.len() as u64) < units_len {
            let (count, first) = (r.u8()?, varint::take(r)?);
            let follows = units.last().is_some_and(|last| last.0 + 1 == first);
            if count == 0
                || follows
                || first > u64::MAX / BLOCK as u64 - 16
                || units.len() as u64 + count as u64 > units_len
            {
                return invalid(first);
            }
            for i in 0..count as u64 {
                units.push((first + i, r.u32()?));
            }
        }
        Ok(Packed { blocks, algorithm, len: len as u32, shared: kind & SHARED != 0, units })
    }
}

/// Compresses whole blocks; `None` if that saves no block, or the result exceeds `ratio` of their length.
pub fn pack(algorithm: CompressionAlgorithm, ratio: f64, data: &[u8]) -> Option<Vec<u8>> {
    // A longer result saves no block.
    let room = (data.len() as f64 * ratio) as usize;
    let room = room.min(data.len().saturating_sub(BLOCK));
    if room == 0 {
        return None;
    }
    match algorithm {
        CompressionAlgorithm::Lz4 => {
            let mut out = vec![0; lz4_flex::block::get_maximum_output_size(data.len())];
            let len = lz4_flex::block::compress_into(data, &mut out).ok()?;
            out.truncate(len);
            (len <= room).then_some(out)
        }
        CompressionAlgorithm::Zstd => {
            let mut out = vec![0; room];
            // Fails if the room is too small.
            let len = zstd::bulk::compress_to_buffer(data, &mut out, ZSTD_LEVEL).ok()?;
            out.truncate(len);
            Some(out)
        }
        CompressionAlgorithm::Zlib => {
            let mut out = vec![0; room];
            // Without zlib's header and checksum: the block's checksum covers it.
            let mut stream = flate2::Compress::new(flate2::Compression::new(ZLIB_LEVEL), false);
            let status = stream.compress(data, &mut out, flate2::FlushCompress::Finish).ok()?;
            out.truncate(stream.total_out() as usize);
            // Otherwise the room is too small.
            (status == flate2::Status::StreamEnd).then_some(out)
        }
        CompressionAlgorithm::Snappy => {
            let mut out = vec![0; snap::raw::max_compress_len(data.len())];
            let len = snap::raw::Encoder::new().compress(data, &mut out).ok()?;
            out.truncate(len);
            (len <= room).then_some(out)
        }
    }
}

/// Unpacks the bytes of [`pack`] to `blocks` blocks; `None` if they are malformed.
pub fn unpack(algorithm: CompressionAlgorithm, blocks: u8, data: &[u8]) -> Option<Bytes> {
    let mut out = vec![0; blocks as usize * BLOCK];
    let len = match algorithm {
        CompressionAlgorithm::Lz4 => lz4_flex::block::decompress_into(data, &mut out).ok()?,
        CompressionAlgorithm::Zstd => zstd::bulk::decompress_to_buffer(data, &mut out).ok()?,
        CompressionAlgorithm::Zlib => {
            let mut stream = flate2::Decompress::new(false);
            let status = stream.decompress(data, &mut out, flate2::FlushDecompress::Finish).ok()?;
            let is_whole = status == flate2::Status::StreamEnd && stream.total_in() == data.len() as u64;
            is_whole.then_some(stream.total_out() as usize)?
        }
        // Fails if the bytes' own length exceeds the room.
        CompressionAlgorithm::Snappy => snap::raw::Decoder::new().decompress(data, &mut out).ok()?,
    };
    (len == out.len()).then(|| out.into())
}

/// Encodes a pool's compression totals.
pub fn encode_pool(compressed: &Compressed) -> Vec<u8> {
    let mut out = vec![POOL_VERSION];
    for number in [compressed.original, compressed.stored, compressed.allocated] {
        varint::put(&mut out, number);
    }
    out
}

pub fn decode_pool(bytes: &[u8]) -> Result<Compressed, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.u8()?;
    if version != POOL_VERSION {
        return Err(DecodeError::Incompatible {
            what: "pool's record",
            compat: version,
            supported: POOL_VERSION,
        });
    }
    let out = Compressed {
        original: varint::take(&mut r)?,
        stored: varint::take(&mut r)?,
        allocated: varint::take(&mut r)?,
    };
    r.expect_end()?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_that_saves_too_little_is_not_packed() {
        let zeroes = vec![0; 4 * BLOCK];
        let mut dice = device::dice::Dice::new(1);
        let noise: Vec<u8> = (0..4 * BLOCK).map(|_| dice.roll() as u8).collect();
        let half = [&noise[..2 * BLOCK], &zeroes[..2 * BLOCK]].concat();
        for algorithm in CompressionAlgorithm::ALL {
            assert!(pack(algorithm, 0.875, &zeroes).unwrap().len() < 1000);
            assert_eq!(pack(algorithm, 0.875, &zeroes[..BLOCK]), None);
            assert_eq!(pack(algorithm, 1.0, &noise), None);
            assert!(pack(algorithm, 0.6, &half).is_some());
            assert_eq!(pack(algorithm, 0.4, &half), None);
            assert_eq!(pack(algorithm, 0.0, &zeroes), None);
        }
    }

    #[test]
    fn algorithm_is_kept_and_unknown_ones_are_refused() {
        for (number, algorithm) in [(1, "lz4"), (2, "zstd"), (3, "zlib"), (4, "snappy")] {
            let algorithm = CompressionAlgorithm::of_name(algorithm).unwrap();
            let packed = Packed {
                blocks: 4,
                algorithm,
                len: 5000,
                shared: false,
                units: smallvec::smallvec![(7, 1), (8, 2)],
            };
            let mut bytes = Vec::new();
            packed.encode(&mut bytes);
            assert_eq!(bytes[0], number);
            assert_eq!(Packed::decode(&mut Reader::new(&bytes), 16), Ok(packed));
            for unknown in [0, 5, 15] {
                bytes[0] = unknown;
                let refused = Packed::decode(&mut Reader::new(&bytes), 16);
                assert!(matches!(refused, Err(DecodeError::Incompatible { .. })), "{unknown}");
            }
        }
    }

    #[test]
    fn unpacking_never_exceeds_its_blocks() {
        // 16 blocks of zeroes in a few bytes, for a run that says 2 blocks.
        for algorithm in CompressionAlgorithm::ALL {
            let bomb = pack(algorithm, 1.0, &[0; 16 * BLOCK]).unwrap();
            assert_eq!(unpack(algorithm, 2, &bomb), None, "{algorithm:?}");
        }
    }

    #[test]
    fn malformed_packed_bytes_are_refused() {
        for algorithm in CompressionAlgorithm::ALL {
            let packed = pack(algorithm, 1.0, &vec![7; 4 * BLOCK]).unwrap();
            assert_eq!(unpack(algorithm, 4, &packed).unwrap()[..], vec![7; 4 * BLOCK]);
            for blocks in [2, 3, 5, 16] {
                assert_eq!(unpack(algorithm, blocks, &packed), None);
            }
            assert_eq!(unpack(algorithm, 4, &packed[..packed.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out(seed in any::<u64>(), blocks in 2u8..=16, alphabet in 1u64..200, algorithm in 0usize..4) {
            let algorithm = CompressionAlgorithm::ALL[algorithm];
            let mut dice = device::dice::Dice::new(seed);
            let data: Vec<u8> = (0..blocks as usize * BLOCK).map(|_| dice.below(alphabet) as u8).collect();
            if let Some(packed) = pack(algorithm, 0.875, &data) {
                prop_assert!(packed.len() <= data.len() / 8 * 7 && packed.len() + BLOCK <= data.len());
                prop_assert_eq!(&unpack(algorithm, blocks, &packed).unwrap()[..], &data[..]);
            }
        }

        #[test]
        fn anything_is_refused_or_unpacked(data in prop::collection::vec(any::<u8>(), 0..400), at in 0usize..400, blocks in 2u8..=16, algorithm in 0usize..4) {
            let algorithm = CompressionAlgorithm::ALL[algorithm];
            let _ = unpack(algorithm, blocks, &data);
            // Almost valid.
            let mut packed = pack(algorithm, 1.0, &vec![9; blocks as usize * BLOCK]).unwrap();
            let at = at % packed.len();
            packed[at] = data.first().copied().unwrap_or(0);
            let _ = unpack(algorithm, blocks, &packed);
        }
    }
}
