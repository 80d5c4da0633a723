//! Whether, and how, a store compresses what is written: what a pool's options say (`compression_mode`, …).

/// What is wished for a pool's objects.
///
/// It is no part of what is stored: who opens a store says it again. A store that does not compress ignores it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    pub mode: CompressionMode,
    pub algorithm: CompressionAlgorithm,
    /// What compresses to more than this part of its length is stored as it is.
    pub required_ratio: f64,
    /// Bytes that are compressed together, where an object is read at random (`compression_min_blob_size`)
    pub bytes_min: u64,
    /// and where the client says that it is written once and read from its beginning to its end.
    pub bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionMode {
    #[default]
    None,
    /// What clients say is compressible.
    Passive,
    /// What clients do not say is incompressible.
    Aggressive,
    /// Everything.
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionAlgorithm {
    Lz4,
    Zstd,
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

    /// Those that say something about compression; 0 when none does.
    pub fn of_compression(flags: u32) -> u32 {
        let speaks_of_it = flags & (COMPRESSIBLE | INCOMPRESSIBLE) != 0;
        let is_a_stream = flags & SEQUENTIAL_READ != 0 && flags & (IMMUTABLE | APPEND_ONLY) != 0;
        if speaks_of_it || is_a_stream { flags & 0x3ff } else { 0 }
    }
}

impl Compression {
    /// Whether an object with these hints is compressed.
    pub fn applies(&self, hints: u32) -> bool {
        match self.mode {
            CompressionMode::None => false,
            CompressionMode::Passive => hints & hint::COMPRESSIBLE != 0,
            CompressionMode::Aggressive => hints & hint::INCOMPRESSIBLE == 0,
            CompressionMode::Force => true,
        }
    }

    /// How many bytes of an object with these hints are compressed together.
    pub fn bytes_together(&self, hints: u32) -> u64 {
        use hint::*;
        let is_a_stream = hints & SEQUENTIAL_READ != 0 && hints & (IMMUTABLE | APPEND_ONLY) != 0;
        match is_a_stream && hints & (RANDOM_READ | RANDOM_WRITE) == 0 {
            true => self.bytes_max,
            false => self.bytes_min,
        }
    }
}

/// What compression has come to. What clones share counts for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Bytes of objects that are stored compressed (`data_compressed_original`).
    pub original: u64,
    /// How many bytes they were compressed to (`data_compressed`)
    pub stored: u64,
    /// and how many of the device these take (`data_compressed_allocated`).
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

    /// As far as there is so much.
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
    fn what_is_written_once_and_read_through_is_compressed_in_large_pieces() {
        let stream = hint::SEQUENTIAL_READ | hint::IMMUTABLE;
        assert_eq!(BASE.bytes_together(stream), 65536);
        assert_eq!(BASE.bytes_together(stream | hint::RANDOM_READ), 8192);
        assert_eq!(BASE.bytes_together(hint::SEQUENTIAL_READ), 8192);
    }
}
