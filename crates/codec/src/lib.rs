//! Encoding of values to bytes and decoding of bytes to values, as Ceph's `encode` and `decode` do it.
//!
//! Everything is little-endian. A container is a `u32` count and its elements; a string or blob is a `u32`
//! length and its bytes. A *versioned* struct is wrapped in an envelope, `u8 version, u8 compat, u32 length,
//! body`, so that an older reader can skip what a newer writer appended, and refuse what it cannot understand
//! (Ceph's `ENCODE_START`/`DECODE_START`, described in its `doc/dev/encoding.rst`).
//!
//! [`Reader`] is bounded: a length is compared with what is really there before any memory is taken for it.
//! [`Writer`] carries the feature bits of the peer that will read the bytes, because several types are written
//! differently for older peers.

mod derive_support;
mod error;
mod primitives;
mod reader;
mod rope;
mod trace;
pub mod varint;
mod writer;

pub use codec_derive::{Decode, Encode};
pub use derive_support::field;
pub use error::DecodeError;
pub use reader::Reader;
pub use rope::Rope;
pub use trace::{Span, Trace};
pub use writer::Writer;

/// A value that can be written for a peer with given feature bits (see [`Writer::features`]).
pub trait Encode {
    fn encode(&self, w: &mut Writer);

    /// The bytes of `self` alone, as a peer with `features` expects them.
    fn to_vec(&self, features: Features) -> Vec<u8>
    where
        Self: Sized,
    {
        let mut w = Writer::new(features);
        self.encode(&mut w);
        w.into_vec()
    }
}

/// A value that can be read back. The reader may hold more than the value; see [`decode_exact`] for the rest.
pub trait Decode: Sized {
    /// The least number of bytes one value takes. Bounds how many elements a count may promise.
    const MIN_LEN: usize = 1;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// Decode one value that must fill `bytes` exactly.
pub fn decode_exact<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r)?;
    r.expect_end()?;
    Ok(value)
}

/// The feature bits of the peer that will read what is written. The bits' names live in `wire::features`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Features(pub u64);

impl Features {
    pub const NONE: Features = Features(0);
    pub const ALL: Features = Features(u64::MAX);

    /// True when every bit of `mask` is present. Some Ceph features are more than one bit.
    pub const fn has(self, mask: u64) -> bool {
        self.0 & mask == mask
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Features({:#018x})", self.0)
    }
}
