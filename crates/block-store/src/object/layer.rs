//! Layers: the pages, or the omap keys, under one number, which clones share.
//!
//! An object reads the pages of its own layer. A page that this layer lacks is that of the layer's parent, and so on: a
//! page without pieces hides those of the ancestors. A layer without a record has one object and no relatives; most
//! objects are like that. Omaps have layers of their own, with the same records.
//!
//! A parent is older than its children, so its number is smaller, and a chain of parents ends.

use super::key;
use crate::index::Bad;
use crate::varint;
use crate::view::Wait;
use bytes::Bytes;
use codec::{DecodeError, Reader};
use smallvec::SmallVec;

const VERSION: u8 = 1;
const FLATTENS: u8 = 1;

/// Ancestors of a new layer at which its parent is given a copy of every page, in the background.
pub const CHAIN_LONG: usize = 8;
/// Ancestors of a layer at which a write that needs a new one waits for the background.
pub const CHAIN_MAX: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// 0: it has none.
    pub parent: u64,
    /// Objects that have this layer as their own. Only a single object without children writes to it.
    pub objects: u64,
    pub children: u64,
    /// Sum of the children's numbers, modulo 2^64. Of a single child it is the number.
    pub children_sum: u64,
    /// The cleaner copies what the layer lacks from its ancestors, until it has no parent.
    pub flattens: bool,
}

/// The ancestors of a layer, nearest first.
pub type Ancestors = SmallVec<[u64; 4]>;

impl Layer {
    /// A layer without a record.
    pub const PLAIN: Layer = Layer { parent: 0, objects: 1, children: 0, children_sum: 0, flattens: false };

    pub fn add_child(&mut self, number: u64) {
        self.children += 1;
        self.children_sum = self.children_sum.wrapping_add(number);
    }

    pub fn remove_child(&mut self, number: u64) {
        self.children = self.children.saturating_sub(1);
        self.children_sum = self.children_sum.wrapping_sub(number);
    }

    /// The object may write to it: nothing else reads it.
    pub fn is_exclusive(&self) -> bool {
        self.objects == 1 && self.children == 0
    }

    /// The child that gets all entries of a layer that has no object.
    pub fn heir(&self) -> Option<u64> {
        (self.objects == 0 && self.children == 1).then_some(self.children_sum)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, if self.flattens { FLATTENS } else { 0 }];
        for number in [self.parent, self.objects, self.children] {
            varint::put(&mut out, number);
        }
        out.extend_from_slice(&self.children_sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Layer, DecodeError> {
        let mut r = Reader::new(bytes);
        let (version, flags) = (r.u8()?, r.u8()?);
        if version != VERSION {
            return Err(DecodeError::Incompatible { what: "layer", compat: version, supported: VERSION });
        }
        let out = Layer {
            parent: varint::take(&mut r)?,
            objects: varint::take(&mut r)?,
            children: varint::take(&mut r)?,
            children_sum: r.u64()?,
            flattens: flags & FLATTENS != 0,
        };
        r.expect_end()?;
        Ok(out)
    }
}

/// The record of a layer; `get` looks a key up.
pub fn find(
    number: u64,
    get: &mut dyn FnMut(&[u8]) -> Result<Option<Bytes>, Wait>,
) -> Result<Option<Layer>, Wait> {
    let Some(value) = get(&key::layer(number))? else { return Ok(None) };
    match Layer::decode(&value) {
        Ok(layer) if layer.parent < number => Ok(Some(layer)),
        Err(DecodeError::Incompatible { .. }) => Err(Wait::Bad(Bad::Newer)),
        _ => Err(Wait::Bad(Bad::Corrupt)),
    }
}

/// The ancestors of a layer.
pub fn ancestors(
    number: u64,
    get: &mut dyn FnMut(&[u8]) -> Result<Option<Bytes>, Wait>,
) -> Result<Ancestors, Wait> {
    let mut out = Ancestors::new();
    let mut at = find(number, get)?.map_or(0, |layer| layer.parent);
    while at != 0 {
        out.push(at);
        // A parent has a record: it has a child.
        at = find(at, get)?.ok_or(Wait::Bad(Bad::Corrupt))?.parent;
    }
    Ok(out)
}

/// Visible entries of an omap in layers: their keys without the number, and their values.
pub type Entries = Vec<(Vec<u8>, Bytes)>;

/// The value of a page in the newest layer that has it, and that layer.
pub fn find_page(
    own: u64,
    ancestors: &[u64],
    number: u64,
    get: &mut dyn FnMut(&[u8]) -> Result<Option<Bytes>, Wait>,
) -> Result<Option<(u64, Bytes)>, Wait> {
    let mut waits = false;
    for &layer in std::iter::once(&own).chain(ancestors) {
        match get(&key::page(layer, number)) {
            // Older layers are asked, too, so that missing blocks are read together.
            Err(Wait::Index) => waits = true,
            _ if waits => {}
            found => {
                if let Some(value) = found? {
                    return Ok(Some((layer, value)));
                }
            }
        }
    }
    if waits { Err(Wait::Index) } else { Ok(None) }
}

/// The value of an omap key in the newest layer that has or hides it.
pub fn find_omap_value(
    own: u64,
    ancestors: &[u64],
    name: &[u8],
    get: &mut dyn FnMut(&[u8]) -> Result<Option<Bytes>, Wait>,
) -> Result<Option<Bytes>, Wait> {
    let mut waits = false;
    let mut layers = std::iter::once(&own).chain(ancestors).peekable();
    while let Some(&layer) = layers.next() {
        let is_oldest = layers.peek().is_none();
        for key in [Some(key::omap(layer, name)), (!is_oldest).then(|| key::omap_marker(layer, name))] {
            let Some(key) = key else { continue };
            let is_marker = key::omap_kind(&key) == Some(key::OmapKind::Marker);
            match get(&key) {
                // Older layers are asked, too, so that missing blocks are read together.
                Err(Wait::Index) => waits = true,
                _ if waits => {}
                found => {
                    if let Some(value) = found? {
                        return Ok((!is_marker).then_some(value));
                    }
                }
            }
        }
    }
    if waits { Err(Wait::Index) } else { Ok(None) }
}

/// The header in the newest layer that has one.
pub fn find_omap_header(
    layers: &[u64],
    get: &mut dyn FnMut(&[u8]) -> Result<Option<Bytes>, Wait>,
) -> Result<Option<Bytes>, Wait> {
    for &layer in layers {
        if let Some(header) = get(&key::omap_header(layer))? {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

/// Looks up to so many entries of `from..to`, and whether there are more.
pub type ScanLayer<'a> =
    &'a mut dyn FnMut(&[u8], &[u8], usize) -> Result<(Vec<(key::Key, Bytes)>, bool), Wait>;

/// Entries of one scan of one layer.
const CHUNK_MAX: usize = 1024;

/// Up to `max` visible entries of an omap's keys `from..to`, and whether there are more. `layers`: its own, and the
/// ancestors. An entry hides those of older layers, and so does a marker; within a layer an entry hides a marker.
pub fn list_omap(
    layers: &[u64],
    from: &[u8],
    to: Option<&[u8]>,
    max: usize,
    scan: ScanLayer<'_>,
) -> Result<(Entries, bool), Wait> {
    let mut out = Entries::new();
    let mut at = from.to_vec();
    loop {
        let chunk = (max - out.len()).saturating_add(1).clamp(8, CHUNK_MAX);
        let mut merged: std::collections::BTreeMap<Vec<u8>, Option<Bytes>> = Default::default();
        // The last key up to which every scan is complete; all are if there is none.
        let mut complete_to: Option<Vec<u8>> = None;
        // All scans, so that missing blocks are read together.
        let mut waits = false;
        for (i, &layer) in layers.iter().enumerate() {
            let is_oldest = i + 1 == layers.len();
            let entries = (key::omap(layer, &at), key::omap_to(layer, to));
            let markers = (key::omap_marker(layer, &at), key::omap_markers_to(layer, to));
            for (is_marker, (from, to)) in [(false, entries), (true, markers)] {
                if is_marker && is_oldest {
                    continue;
                }
                let (found, more) = match scan(&from, &to, chunk) {
                    Err(Wait::Index) => {
                        waits = true;
                        continue;
                    }
                    found => found?,
                };
                if let Some((last, _)) = found.last().filter(|_| more) {
                    let last = key::omap_name(last);
                    if complete_to.as_deref().is_none_or(|to| last < to) {
                        complete_to = Some(last.to_vec());
                    }
                }
                for (key, value) in found {
                    let name = key::omap_name(&key).to_vec();
                    merged.entry(name).or_insert((!is_marker).then_some(value));
                }
            }
        }
        if waits {
            return Err(Wait::Index);
        }
        for (name, value) in merged {
            if complete_to.as_ref().is_some_and(|to| name > *to) {
                break;
            }
            let Some(value) = value else { continue };
            if out.len() == max {
                return Ok((out, true));
            }
            out.push((name, value));
        }
        match complete_to {
            Some(last) => at = key::successor(last),
            None => return Ok((out, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn layer_record_round_trips() {
        let mut layer = Layer { parent: 7, objects: 2, ..Layer::PLAIN };
        layer.add_child(1 << 40);
        layer.add_child(u64::MAX);
        layer.remove_child(1 << 40);
        assert_eq!(Layer::decode(&layer.encode()), Ok(layer));
        assert_eq!((layer.heir(), layer.is_exclusive()), (None, false));
        layer.objects = 0;
        assert_eq!(layer.heir(), Some(u64::MAX));
    }

    #[test]
    fn omap_listing_merges_layers_across_chunks() {
        let mut keys: BTreeMap<key::Key, Bytes> = BTreeMap::new();
        let name = |i: u32| format!("{i:04}").into_bytes();
        for i in 0..100 {
            keys.insert(key::omap(1, &name(i)), "old".into());
            if i % 3 == 0 {
                keys.insert(key::omap_marker(2, &name(i)), Bytes::new());
            }
            if i % 6 == 0 || i % 5 == 0 {
                keys.insert(key::omap(2, &name(i)), "new".into());
            }
        }
        let expected: Vec<(Vec<u8>, Bytes)> = (0..100)
            .filter_map(|i| match () {
                () if i % 6 == 0 || i % 5 == 0 => Some((name(i), "new".into())),
                () if i % 3 == 0 => None,
                () => Some((name(i), "old".into())),
            })
            .collect();
        let mut scan = |from: &[u8], to: &[u8], max: usize| {
            let range = keys.range(from.to_vec()..to.to_vec());
            let found: Vec<_> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
            let more = found.len() > max;
            Ok((found.into_iter().take(max).collect(), more))
        };
        for max in [1, 9, 30, expected.len(), usize::MAX] {
            let (found, more) = list_omap(&[2, 1], b"", None, max, &mut scan).unwrap();
            assert_eq!(found, expected[..max.min(expected.len())]);
            assert_eq!(more, max < expected.len());
        }
    }
}
