//! Layers in fsck: their records agree with each other and with the objects, and objects see what their records count.
//!
//! The entries of layers with a record are kept in memory: some bytes for each page, and the names of omap keys.

use super::{Checker, Finding, ObjectFacts, OmapFacts};
use crate::object::key::{self, OmapKind};
use crate::object::layer::Layer;
use crate::object::page::{PAGE_BYTES, Page};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Layers {
    records: BTreeMap<u64, Layer>,
    /// Layers with work for the cleaner.
    to_clean: BTreeSet<u64>,
    /// Objects of each layer.
    users: BTreeMap<u64, u64>,
    objects: Vec<(u64, ObjectFacts)>,
    omaps: Vec<OmapFacts>,
    /// By layer and page: bytes, and the end of the last one in the object.
    pages: BTreeMap<(u64, u64), (u64, u64)>,
    /// By layer: names of omap keys, and bytes of values; markers have none.
    entries: BTreeMap<u64, BTreeMap<Vec<u8>, Option<u64>>>,
    /// By layer: length of the header.
    headers: BTreeMap<u64, u64>,
}

impl Layers {
    pub(super) fn has(&self, number: u64) -> bool {
        self.records.contains_key(&number)
    }

    pub(super) fn add_object(&mut self, number: u64, known: ObjectFacts) {
        *self.users.entry(number).or_default() += 1;
        self.objects.push((number, known));
    }

    pub(super) fn add_omap(&mut self, known: OmapFacts) {
        *self.users.entry(known.state.number).or_default() += 1;
        self.omaps.push(known);
    }

    pub(super) fn add_page(&mut self, number: u64, page_number: u64, page: &Page) {
        if self.has(number) {
            let end = page.pieces.last().map_or(0, |piece| page_number * PAGE_BYTES + piece.range().1);
            self.pages.insert((number, page_number), (page.bytes(), end));
        }
    }

    pub(super) fn add_omap_entry(&mut self, number: u64, key: &[u8], value_len: u64) {
        if !self.has(number) {
            return;
        }
        let entries = self.entries.entry(number).or_default();
        match key::omap_kind(key) {
            Some(OmapKind::Entry) => drop(entries.insert(key::omap_name(key).to_vec(), Some(value_len))),
            // Keys come before markers, and hide them.
            Some(OmapKind::Marker) => drop(entries.entry(key::omap_name(key).to_vec()).or_insert(None)),
            Some(OmapKind::Header) => drop(self.headers.insert(number, value_len)),
            None => {}
        }
    }

    /// A layer and its ancestors.
    fn chain(&self, number: u64) -> Vec<u64> {
        let mut out = vec![number];
        let mut at = number;
        while let Some(parent) =
            self.records.get(&at).map(|layer| layer.parent).filter(|p| (1..at).contains(p))
        {
            out.push(parent);
            at = parent;
        }
        out
    }

    /// Bytes that an object of a layer sees, and the end of the last one.
    fn bytes_seen(&self, number: u64) -> (u64, u64) {
        let mut seen: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for layer in self.chain(number) {
            for (&(_, page), &found) in self.pages.range((layer, 0)..(layer + 1, 0)) {
                seen.entry(page).or_insert(found);
            }
        }
        seen.values().fold((0, 0), |(bytes, end), page| (bytes + page.0, end.max(page.1)))
    }

    /// Keys and bytes that an omap of a layer has.
    fn omap_seen(&self, number: u64) -> (u64, u64) {
        let mut seen: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
        let chain = self.chain(number);
        for entries in chain.iter().filter_map(|layer| self.entries.get(layer)) {
            for (name, value) in entries {
                seen.entry(name).or_insert(*value);
            }
        }
        let header = chain.iter().find_map(|layer| self.headers.get(layer)).copied().unwrap_or(0);
        let visible = seen.iter().filter_map(|(name, len)| Some(name.len() as u64 + (*len)?));
        visible.fold((0, header), |(keys, bytes), len| (keys + 1, bytes + len))
    }

    /// Contradictions between records.
    fn contradictions(&self) -> Vec<(u64, &'static str)> {
        let mut out = Vec::new();
        let mut children: BTreeMap<u64, Layer> = BTreeMap::new();
        for (&number, layer) in self.records.iter().filter(|(_, layer)| layer.parent != 0) {
            children.entry(layer.parent).or_default().add_child(number);
            if layer.parent >= number || !self.has(layer.parent) {
                out.push((number, "its parent does not exist, or is younger"));
            }
        }
        for (&number, layer) in &self.records {
            let found = children.get(&number).copied().unwrap_or_default();
            if (layer.children, layer.children_sum) != (found.children, found.children_sum) {
                out.push((number, "its record and its children do not agree"));
            }
            if layer.objects != self.users.get(&number).copied().unwrap_or(0) {
                out.push((number, "its record and its objects do not agree"));
            }
            if layer.objects + layer.children == 0 {
                out.push((number, "nothing reads it"));
            }
            let is_due = layer.heir().is_some() || layer.flattens;
            if is_due && !self.to_clean.contains(&number) {
                out.push((number, "it has work for the cleaner, who does not know"));
            }
        }
        out
    }
}

impl Checker<'_> {
    pub(super) fn all_layers(&mut self) {
        self.scan(key::all_layers(), &mut |this, key, value| match (
            key::parse_number(key),
            Layer::decode(value),
        ) {
            (Ok(number), Ok(layer)) => drop(this.layers.records.insert(number, layer)),
            _ => this.find(Finding::BadValue { key: key.to_vec() }),
        });
        self.scan(key::all_layer_cleanings(), &mut |this, key, _| match key::parse_number(key) {
            Ok(number) => drop(this.layers.to_clean.insert(number)),
            Err(_) => this.find(Finding::BadKey { key: key.to_vec() }),
        });
    }

    /// After all pages and omap keys.
    pub(super) fn objects_in_layers(&mut self) {
        for (number, what) in self.layers.contradictions() {
            self.find(Finding::Layer { number, what });
        }
        let doomed: Vec<u64> =
            self.layers.records.keys().filter(|number| self.to_clean.contains(number)).copied().collect();
        for number in doomed {
            self.find(Finding::Layer { number, what: "objects read it, and the cleaner removes it" });
        }
        for (number, ObjectFacts { object, data_bytes: recorded, size }) in
            std::mem::take(&mut self.layers.objects)
        {
            let (found, end) = self.layers.bytes_seen(number);
            if recorded != found {
                self.find(Finding::DataBytes { object: object.clone(), recorded, found });
            }
            if end > size {
                self.find(Finding::BeyondTheEnd { object, offset: end });
            }
        }
        for OmapFacts { object, state, .. } in std::mem::take(&mut self.layers.omaps) {
            let (recorded, found) = ((state.keys, state.bytes), self.layers.omap_seen(state.number));
            if recorded != found {
                self.find(Finding::OmapBytes { object, recorded, found });
            }
        }
    }
}
