//! Encode and Decode for what the standard library and `bytes` bring.

use crate::{Decode, DecodeError, Encode, Reader, Writer};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

macro_rules! ints {
    ($($t:ident),*) => {$(
        impl Encode for $t {
            #[inline]
            fn encode(&self, w: &mut Writer) { w.$t(*self) }
        }
        impl Decode for $t {
            const MIN_LEN: usize = size_of::<$t>();
            #[inline]
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> { r.$t() }
        }
    )*};
}
ints!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool);

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}

impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}

impl Decode for String {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.string()
    }
}

impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}

/// Decoding copies. Large payloads avoid the copy: their message slices them from its frame.
impl Decode for Bytes {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.blob().map(Bytes::copy_from_slice)
    }
}

/// Ceph writes `optional` as a flag byte and, when set, the value.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(v) = self {
            w.put(v);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if r.bool()? { Some(r.get()?) } else { None })
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for v in self {
            w.put(v);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.put(self.as_slice());
    }
}

impl<T: Decode> Decode for Vec<T> {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = r.count("vector", T::MIN_LEN)?;
        // An element in memory can be larger than on the wire: start small, let it grow as elements arrive.
        let mut out = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            out.push(r.get()?);
        }
        Ok(out)
    }
}

impl<T: Encode> Encode for VecDeque<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for v in self {
            w.put(v);
        }
    }
}

impl<T: Decode> Decode for VecDeque<T> {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.get::<Vec<T>>().map(VecDeque::from)
    }
}

impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for v in self {
            w.put(v);
        }
    }
}

impl<T: Decode + Ord> Decode for BTreeSet<T> {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = r.count("set", T::MIN_LEN)?;
        let mut out = BTreeSet::new();
        for _ in 0..n {
            out.insert(r.get()?);
        }
        Ok(out)
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for (k, v) in self {
            w.put(k);
            w.put(v);
        }
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = r.count("map", K::MIN_LEN + V::MIN_LEN)?;
        let mut out = BTreeMap::new();
        for _ in 0..n {
            let k = r.get()?;
            out.insert(k, r.get()?);
        }
        Ok(out)
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, w: &mut Writer) {
        w.raw(self);
    }
}

/// A fixed array of bytes has no length in front (a uuid, a nonce).
impl<const N: usize> Decode for [u8; N] {
    const MIN_LEN: usize = N;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.take("bytes", N)?.try_into().expect("take returned N bytes"))
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+)),*) => {$(
        impl<$($t: Encode),+> Encode for ($($t,)+) {
            fn encode(&self, w: &mut Writer) { $(w.put(&self.$i);)+ }
        }
        impl<$($t: Decode),+> Decode for ($($t,)+) {
            const MIN_LEN: usize = 0 $(+ $t::MIN_LEN)+;
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> { Ok(($(r.get::<$t>()?,)+)) }
        }
    )*};
}
tuples!((A 0, B 1), (A 0, B 1, C 2));

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, w: &mut Writer) {
        w.put(&**self);
    }
}

impl<T: Decode> Decode for Box<T> {
    const MIN_LEN: usize = T::MIN_LEN;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.get().map(Box::new)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, w: &mut Writer) {
        (**self).encode(w);
    }
}
