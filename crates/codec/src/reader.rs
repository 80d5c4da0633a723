//! A bounded cursor over bytes that came from a wire or a disk.

use crate::{Decode, DecodeError, Trace};
use std::fmt::Debug;

/// Reads values from a slice and never past its end. Cheap to copy a position of: see [`Reader::sub`].
pub struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    /// Where `data` starts within the outermost slice; only for messages to a person.
    base: usize,
    trace: Option<&'a Trace>,
}

macro_rules! ints {
    ($($name:ident: $t:ty),*) => {$(
        #[inline]
        pub fn $name(&mut self) -> Result<$t, DecodeError> {
            const N: usize = size_of::<$t>();
            let offset = self.offset();
            let raw = self.take_raw(stringify!($t), N)?;
            let value = <$t>::from_le_bytes(raw.try_into().expect("take_raw returned N bytes"));
            if let Some(t) = self.trace { t.record(offset, N, format!("{} {value}", stringify!($t))); }
            Ok(value)
        }
    )*};
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Reader<'a> {
        Reader { data, at: 0, base: 0, trace: None }
    }

    pub fn traced(data: &'a [u8], trace: &'a Trace) -> Reader<'a> {
        Reader { data, at: 0, base: 0, trace: Some(trace) }
    }

    ints!(u8: u8, u16: u16, u32: u32, u64: u64, i8: i8, i16: i16, i32: i32, i64: i64, f32: f32, f64: f64);

    pub fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Bytes consumed since the outermost start.
    pub fn offset(&self) -> usize {
        self.base + self.at
    }

    /// Exactly `n` bytes, borrowed.
    pub fn take(&mut self, what: &'static str, n: usize) -> Result<&'a [u8], DecodeError> {
        let offset = self.offset();
        let raw = self.take_raw(what, n)?;
        if let Some(t) = self.trace {
            t.record(offset, n, format!("{what} [{n} bytes]"));
        }
        Ok(raw)
    }

    /// All that is left, borrowed.
    pub fn rest(&mut self) -> &'a [u8] {
        let out = &self.data[self.at..];
        self.at = self.data.len();
        out
    }

    /// All that is left, borrowed and still unread: for a checksum over bytes that are then decoded.
    pub fn ahead(&self) -> &'a [u8] {
        &self.data[self.at..]
    }

    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take("skipped", n).map(|_| ())
    }

    /// A byte that must be 0 or 1 to Ceph; any non-zero value is true, as Ceph reads it.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// A `u32` length and that many bytes, borrowed.
    pub fn blob(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.u32()? as usize;
        self.take("blob", n)
    }

    /// A `u32` length and that many bytes that are mostly text, borrowed: a name. A trace shows them as text.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.u32()? as usize;
        let offset = self.offset();
        let raw = self.take_raw("bytes", n)?;
        if let Some(t) = self.trace {
            t.record(offset, n, format!("\"{}\"", raw.escape_ascii()));
        }
        Ok(raw)
    }

    /// A `u32` length and that many bytes of UTF-8.
    pub fn string(&mut self) -> Result<String, DecodeError> {
        self.str().map(str::to_owned)
    }

    /// A string that stays where it is.
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let n = self.u32()? as usize;
        let offset = self.offset();
        let raw = self.take_raw("string", n)?;
        let s = std::str::from_utf8(raw).map_err(|_| DecodeError::NotUtf8 { what: "string", offset })?;
        if let Some(t) = self.trace {
            t.record(offset, n, format!("{s:?}"));
        }
        Ok(s)
    }

    /// A `u32` element count, refused when `min_len` bytes an element would not fit in what is left.
    pub fn count(&mut self, what: &'static str, min_len: usize) -> Result<usize, DecodeError> {
        let offset = self.offset();
        let n = self.u32()? as usize;
        let needed = n.saturating_mul(min_len.max(1));
        if needed > self.remaining() {
            return Err(DecodeError::Truncated { what, needed, remaining: self.remaining(), offset });
        }
        Ok(n)
    }

    pub fn get<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// A reader over exactly the next `n` bytes, which this one then skips.
    pub fn sub(&mut self, what: &'static str, n: usize) -> Result<Reader<'a>, DecodeError> {
        let base = self.offset();
        let data = self.take_raw(what, n)?;
        Ok(Reader { data, at: 0, base, trace: self.trace })
    }

    /// Read a versioned envelope. `supported` is the newest version `body` understands; a writer that demands
    /// a newer reader (`compat > supported`) is refused, and what a newer writer appended is skipped.
    pub fn envelope<T>(
        &mut self,
        what: &'static str,
        supported: u8,
        body: impl FnOnce(&mut Reader<'a>, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let (version, mut inner) = self.open_envelope(what, supported)?;
        if let Some(t) = self.trace {
            t.enter();
        }
        let value = body(&mut inner, version);
        if let Some(t) = self.trace {
            if value.is_ok() && !inner.is_empty() {
                t.record(inner.offset(), inner.remaining(), "(newer fields, skipped)".into());
            }
            t.leave();
        }
        value
    }

    /// Like [`Reader::envelope`] for types older than envelopes: below `compat_since` only a version byte was
    /// written, below `len_since` no length (Ceph's `DECODE_START_LEGACY_COMPAT_LEN`).
    pub fn envelope_legacy<T>(
        &mut self,
        what: &'static str,
        supported: u8,
        compat_since: u8,
        len_since: u8,
        body: impl FnOnce(&mut Reader<'a>, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let version = self.peek_u8(what)?;
        if version >= len_since && version >= compat_since {
            return self.envelope(what, supported, body);
        }
        self.u8()?;
        if version >= compat_since {
            let compat = self.u8()?;
            if compat > supported {
                return Err(DecodeError::Incompatible { what, compat, supported });
            }
        }
        body(self, version)
    }

    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(DecodeError::Trailing { remaining, offset: self.offset() }),
        }
    }

    /// Name the next primitive in a trace; free when nothing traces.
    #[inline]
    pub fn label(&mut self, name: &'static str) {
        if let Some(t) = self.trace {
            t.label(name);
        }
    }

    /// An [`DecodeError::Invalid`] at the current place.
    pub fn invalid(&self, what: &'static str, value: impl TryInto<u64>) -> DecodeError {
        DecodeError::Invalid { what, value: value.try_into().unwrap_or(u64::MAX), offset: self.offset() }
    }

    pub fn peek_u8(&self, what: &'static str) -> Result<u8, DecodeError> {
        self.data.get(self.at).copied().ok_or(DecodeError::Truncated {
            what,
            needed: 1,
            remaining: 0,
            offset: self.offset(),
        })
    }

    fn open_envelope(&mut self, what: &'static str, supported: u8) -> Result<(u8, Reader<'a>), DecodeError> {
        let offset = self.offset();
        let head = self.take_raw(what, 6)?;
        let (version, compat) = (head[0], head[1]);
        let len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        if let Some(t) = self.trace {
            t.record(offset, 6, format!("{what} v{version} compat {compat}, {len} bytes"));
        }
        if compat > supported {
            return Err(DecodeError::Incompatible { what, compat, supported });
        }
        Ok((version, self.sub(what, len)?))
    }

    #[inline]
    fn take_raw(&mut self, what: &'static str, n: usize) -> Result<&'a [u8], DecodeError> {
        match self.data[self.at..].get(..n) {
            Some(out) => {
                self.at += n;
                Ok(out)
            }
            None => Err(DecodeError::Truncated {
                what,
                needed: n,
                remaining: self.remaining(),
                offset: self.offset(),
            }),
        }
    }
}

impl Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader(at {}, {} left)", self.offset(), self.remaining())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_beyond_input_is_refused_before_allocation() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 1, 2];
        assert!(matches!(Reader::new(&bytes).blob(), Err(DecodeError::Truncated { .. })));
        assert!(matches!(Reader::new(&bytes).get::<Vec<u64>>(), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn envelope_skips_fields_of_newer_writer() {
        // version 9, compat 2, length 3: one known byte, two unknown ones; then a byte outside.
        let bytes = [9, 2, 3, 0, 0, 0, 42, 7, 7, 5];
        let mut r = Reader::new(&bytes);
        let known = r.envelope("t", 4, |r, v| Ok((v, r.u8()?))).unwrap();
        assert_eq!(known, (9, 42));
        assert_eq!(r.u8(), Ok(5));
    }

    #[test]
    fn envelope_demanding_newer_reader_is_refused() {
        let bytes = [9, 5, 1, 0, 0, 0, 42];
        let got = Reader::new(&bytes).envelope("t", 4, |r, _| r.u8());
        assert_eq!(got, Err(DecodeError::Incompatible { what: "t", compat: 5, supported: 4 }));
    }

    #[test]
    fn envelope_read_stops_at_its_length() {
        let bytes = [1, 1, 1, 0, 0, 0, 42, 43];
        let got = Reader::new(&bytes).envelope("t", 1, |r, _| r.u16());
        assert!(matches!(got, Err(DecodeError::Truncated { .. })));
    }
}
