//! Variable-length integers: seven bits per byte, lowest first, the top bit set on all bytes but the last.

use crate::{DecodeError, Reader};

pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a number.
pub fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// A signed number: small ones of both signs are short.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value << 1 ^ value >> 63) as u64);
}

pub fn take_signed(r: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let value = take(r)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// A number that must fit into 32 bits.
pub fn take_u32(r: &mut Reader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let offset = r.offset();
    let value = take(r)?;
    u32::try_from(value).map_err(|_| DecodeError::Invalid { what, value, offset })
}

pub fn take(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let offset = r.offset();
        let byte = r.u8()?;
        let bits = (byte & 0x7f) as u64;
        if shift > 63 || (shift == 63 && bits > 1) {
            return Err(DecodeError::Invalid { what: "number", value: byte as u64, offset });
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
        shift += 7;
    }
}

/// A length and that many bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub fn take_bytes<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = take(r)?;
    let (remaining, offset) = (r.remaining(), r.offset());
    match usize::try_from(len).ok().filter(|len| *len <= remaining) {
        Some(len) => r.take(what, len),
        None => Err(DecodeError::Truncated { what, needed: usize::MAX, remaining, offset }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_bytes_round_trip(value in any::<u64>(), shift in 0..64, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(len(value), out.len());
            put_bytes(&mut out, &bytes);
            let mut r = Reader::new(&out);
            prop_assert_eq!(take(&mut r).unwrap(), value);
            prop_assert_eq!(take_bytes(&mut r, "bytes").unwrap(), &bytes[..]);
            prop_assert!(r.is_empty());
            let (signed, mut out) = (value as i64, Vec::new());
            put_signed(&mut out, signed);
            prop_assert_eq!(take_signed(&mut Reader::new(&out)).unwrap(), signed);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let mut r = Reader::new(&bytes);
            while take(&mut r).is_ok() {}
            let _ = take_bytes(&mut Reader::new(&bytes), "bytes");
        }
    }
}
