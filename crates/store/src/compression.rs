//! Compression of writes, from a pool's options (`compression_mode`, …) and the client's hints.

/// Compression settings of a pool.
///
/// They are not stored: a host sets them after it has opened the store. A store without compression ignores them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    pub mode: CompressionMode,
    pub algorithm: CompressionAlgorithm,
    /// Highest ratio of compressed to original length. Data above it is stored uncompressed.
    pub required_ratio: f64,
    /// Bytes compressed together in an object with random reads (`compression_min_blob_size`).
    pub bytes_min: u64,
    /// Bytes compressed together in an object that is written once and read sequentially (`compression_max_blob_size`).
    pub bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionMode {
    #[default]
    None,
    /// Objects with the hint COMPRESSIBLE.
    Passive,
    /// Objects without the hint INCOMPRESSIBLE.
    Aggressive,
    /// All objects.
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionAlgorithm {
    Lz4,
    Zstd,
    Zlib,
    Snappy,
}

impl CompressionAlgorithm {
    pub const ALL: [CompressionAlgorithm; 4] = [
        CompressionAlgorithm::Lz4,
        CompressionAlgorithm::Zstd,
        CompressionAlgorithm::Zlib,
        CompressionAlgorithm::Snappy,
    ];

    /// Its name in options and pools, as Ceph's.
    pub fn name(self) -> &'static str {
        match self {
            CompressionAlgorithm::Lz4 => "lz4",
            CompressionAlgorithm::Zstd => "zstd",
            CompressionAlgorithm::Zlib => "zlib",
            CompressionAlgorithm::Snappy => "snappy",
        }
    }

    pub fn of_name(name: &str) -> Option<CompressionAlgorithm> {
        CompressionAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// `CEPH_OSD_ALLOC_HINT_FLAG_*` in [`crate::Change::AllocHint`].
pub mod hint {
    pub const SEQUENTIAL_WRITE: u32 = 1;
    pub const RANDOM_WRITE: u32 = 2;
    pub const SEQUENTIAL_READ: u32 = 4;
    pub const RANDOM_READ: u32 = 8;
    pub const APPEND_ONLY: u32 = 16;
    pub const IMMUTABLE: u32 = 32;
    pub const COMPRESSIBLE: u32 = 256;
    pub const INCOMPRESSIBLE: u32 = 512;

    /// The flags if they affect compression, otherwise 0.
    pub fn of_compression(flags: u32) -> u32 {
        let is_explicit = flags & (COMPRESSIBLE | INCOMPRESSIBLE) != 0;
        let is_a_stream = flags & SEQUENTIAL_READ != 0 && flags & (IMMUTABLE | APPEND_ONLY) != 0;
        if is_explicit || is_a_stream { flags & 0x3ff } else { 0 }
    }
}

impl Compression {
    /// True if an object with these hints is compressed.
    pub fn applies(&self, hints: u32) -> bool {
        match self.mode {
            CompressionMode::None => false,
            CompressionMode::Passive => hints & hint::COMPRESSIBLE != 0,
            CompressionMode::Aggressive => hints & hint::INCOMPRESSIBLE == 0,
            CompressionMode::Force => true,
        }
    }

    /// Bytes of an object with these hints that are compressed together.
    pub fn bytes_together(&self, hints: u32) -> u64 {
        use hint::*;
        let is_a_stream = hints & SEQUENTIAL_READ != 0 && hints & (IMMUTABLE | APPEND_ONLY) != 0;
        match is_a_stream && hints & (RANDOM_READ | RANDOM_WRITE) == 0 {
            true => self.bytes_max,
            false => self.bytes_min,
        }
    }
}

/// Compression totals. Bytes that clones share count once until a clone is written; shared ranges count for each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Bytes of objects that are stored compressed (`data_compressed_original`).
    pub original: u64,
    /// Their compressed length (`data_compressed`).
    pub stored: u64,
    /// Bytes of the device that they occupy (`data_compressed_allocated`).
    pub allocated: u64,
}

impl Compressed {
    pub fn plus(self, other: Compressed) -> Compressed {
        Compressed {
            original: self.original.saturating_add(other.original),
            stored: self.stored.saturating_add(other.stored),
            allocated: self.allocated.saturating_add(other.allocated),
        }
    }

    /// The difference, at least zero.
    pub fn minus(self, other: Compressed) -> Compressed {
        Compressed {
            original: self.original.saturating_sub(other.original),
            stored: self.stored.saturating_sub(other.stored),
            allocated: self.allocated.saturating_sub(other.allocated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Compression = Compression {
        mode: CompressionMode::None,
        algorithm: CompressionAlgorithm::Lz4,
        required_ratio: 0.875,
        bytes_min: 8192,
        bytes_max: 65536,
    };

    #[test]
    fn modes_and_hints_decide_as_bluestore_does() {
        use CompressionMode::*;
        let all = [0, hint::COMPRESSIBLE, hint::INCOMPRESSIBLE];
        let table = [
            (None, [false, false, false]),
            (Passive, [false, true, false]),
            (Aggressive, [true, true, false]),
            (Force, [true, true, true]),
        ];
        for (mode, expected) in table {
            assert_eq!(all.map(|hints| Compression { mode, ..BASE }.applies(hints)), expected, "{mode:?}");
        }
    }

    #[test]
    fn sequential_objects_are_compressed_in_large_pieces() {
        let stream = hint::SEQUENTIAL_READ | hint::IMMUTABLE;
        assert_eq!(BASE.bytes_together(stream), 65536);
        assert_eq!(BASE.bytes_together(stream | hint::RANDOM_READ), 8192);
        assert_eq!(BASE.bytes_together(hint::SEQUENTIAL_READ), 8192);
    }
}
