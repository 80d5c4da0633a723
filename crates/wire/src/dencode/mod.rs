//! Every wire type by Ceph's name for it: for `shoal dencode`, the corpus of values that Ceph encoded, and fuzzing.
//!
//! [`types`] is the one table. Who adds a type to the wire adds its line to `table`, and the corpus test, the fuzz
//! targets and the command line find it there.

pub mod hostile;
mod table;

use codec::{Decode, DecodeError, Encode, Features, Reader, Span, Trace, Writer};
use std::fmt::Debug;

/// One type: how to read it, print it and write it again.
pub struct TypeEntry {
    /// As `ceph-dencoder` calls it.
    pub name: &'static str,
    print: fn(&mut Reader<'_>) -> Result<String, DecodeError>,
    reencode: fn(&mut Reader<'_>, Features) -> Result<Vec<u8>, DecodeError>,
}

impl TypeEntry {
    const fn of<T: Decode + Encode + Debug>(name: &'static str) -> TypeEntry {
        TypeEntry { name, print: print::<T>, reencode: reencode::<T> }
    }

    /// The value in Rust's notation. It must fill `bytes` exactly.
    pub fn print(&self, bytes: &[u8]) -> Result<String, DecodeError> {
        exactly(&mut Reader::new(bytes), self.print)
    }

    /// Bytes and the fields decoded from them, as far as decoding got, and the value or the error.
    pub fn trace(&self, bytes: &[u8]) -> (Vec<Span>, Result<String, DecodeError>) {
        let trace = Trace::default();
        let value = exactly(&mut Reader::traced(bytes, &trace), self.print);
        (trace.into_spans(), value)
    }

    /// The value as shoal writes it for a peer with `features`. It must fill `bytes` exactly.
    pub fn reencode(&self, bytes: &[u8], features: Features) -> Result<Vec<u8>, DecodeError> {
        exactly(&mut Reader::new(bytes), |r| (self.reencode)(r, features))
    }
}

/// Every type that shoal has, by name in ascending order.
pub fn types() -> &'static [TypeEntry] {
    table::TYPES
}

pub fn by_name(name: &str) -> Option<&'static TypeEntry> {
    types().iter().find(|entry| entry.name == name)
}

fn exactly<'a, T>(
    r: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let value = read(r)?;
    r.expect_end()?;
    Ok(value)
}

fn print<T: Decode + Debug>(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    T::decode(r).map(|value| format!("{value:#?}"))
}

fn reencode<T: Decode + Encode>(r: &mut Reader<'_>, features: Features) -> Result<Vec<u8>, DecodeError> {
    let value = T::decode(r)?;
    let mut w = Writer::new(features);
    value.encode(&mut w);
    Ok(w.into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ascend_and_are_unique() {
        assert!(types().windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn each_type_has_a_tag_of_its_own() {
        let tags: std::collections::BTreeSet<u32> =
            types().iter().map(|entry| hostile::type_tag(entry.name)).collect();
        assert_eq!(tags.len(), types().len());
    }

    #[test]
    fn a_trace_shows_each_field_and_ends_with_what_stopped_it() {
        let entry = by_name("osd_info_t").unwrap();
        let mut bytes = vec![1];
        bytes.extend((1u32..=6).flat_map(u32::to_le_bytes));
        let (spans, value) = entry.trace(&bytes);
        assert!(value.unwrap().contains("up_thru: 4"));
        assert!(
            spans.iter().any(|s| s.offset == 13 && s.len == 4 && s.text == "up_thru = u32 4"),
            "{spans:?}"
        );
        let (spans, value) = entry.trace(&bytes[..10]);
        assert_eq!(spans.len(), 3);
        assert!(matches!(value, Err(DecodeError::Truncated { .. })));
    }
}
