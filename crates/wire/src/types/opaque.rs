//! A versioned value that shoal hands on without looking inside.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// An envelope and its body as they came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opaque(pub Bytes);

impl Encode for Opaque {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Opaque {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ahead = r.ahead();
        let whole = match ahead.get(2..6) {
            Some(len) => 6 + u32::from_le_bytes(len.try_into().expect("four bytes were taken")) as usize,
            None => 6,
        };
        r.take("opaque", whole).map(|bytes| Opaque(Bytes::copy_from_slice(bytes)))
    }
}
