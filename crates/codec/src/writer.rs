//! A growing buffer of encoded bytes, for one peer's feature bits.

use crate::{Encode, Features};

pub struct Writer {
    buf: Vec<u8>,
    features: Features,
}

macro_rules! ints {
    ($($name:ident: $t:ty),*) => {$(
        #[inline]
        pub fn $name(&mut self, value: $t) { self.buf.extend_from_slice(&value.to_le_bytes()); }
    )*};
}

impl Writer {
    pub fn new(features: Features) -> Writer {
        Writer { buf: Vec::new(), features }
    }

    pub fn with_capacity(features: Features, capacity: usize) -> Writer {
        Writer { buf: Vec::with_capacity(capacity), features }
    }

    /// Continue in a buffer that is already there (its contents stay in front).
    pub fn reuse(features: Features, buf: Vec<u8>) -> Writer {
        Writer { buf, features }
    }

    ints!(u8: u8, u16: u16, u32: u32, u64: u64, i8: i8, i16: i16, i32: i32, i64: i64, f32: f32, f64: f64);

    /// The feature bits of the peer that will read these bytes.
    pub fn features(&self) -> Features {
        self.features
    }

    pub fn bool(&mut self, value: bool) {
        self.u8(value as u8);
    }

    /// Bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// A `u32` length and the bytes.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    pub fn string(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }

    /// A `u32` count or length.
    ///
    /// # Panics
    /// When `n` does not fit: nothing shoal encodes comes near 4 GiB, and a silent wrap would corrupt.
    pub fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).expect("a length on the wire fits in 32 bits"));
    }

    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Write a versioned envelope around what `body` writes.
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Writer)) {
        self.u8(version);
        self.u8(compat);
        self.blob_of(body);
    }

    /// A `u32` length around what `body` writes.
    pub fn blob_of(&mut self, body: impl FnOnce(&mut Writer)) {
        let at = self.buf.len();
        self.u32(0);
        body(self);
        let len = u32::try_from(self.buf.len() - at - 4).expect("a length on the wire fits in 32 bits");
        self.patch_u32(at, len);
    }

    /// Overwrite the four bytes at `at`, which must have been written already.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.buf[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    pub fn into_bytes(self) -> bytes::Bytes {
        self.buf.into()
    }
}
