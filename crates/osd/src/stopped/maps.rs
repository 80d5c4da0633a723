//! The OSDMaps of a stopped OSD, as far as they can be read. Damage of one record hides no other: after the loss of all monitors
//! the maps of any OSD may be the newest ones.

use crate::control::Lineage;
use crate::control::history::{FULL, SUPERBLOCK, increment_epoch, object};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Answer, Collection, Query, ReadRequest};
use wire::types::{Epoch, OsdMap};

/// Records of maps. Increments are as they came.
#[derive(Clone, Debug, Default)]
pub struct StoredMaps {
    pub lineage: Option<Lineage>,
    /// The newest map.
    pub map: Option<Arc<OsdMap>>,
    pub increments: BTreeMap<Epoch, Bytes>,
    /// Records that cannot be read, a sentence each.
    pub damaged: Vec<String>,
}

impl StoredMaps {
    /// One read for each kind of record, in the order in which [`StoredMaps::from_answers`] takes the answers.
    pub fn requests() -> [ReadRequest; 3] {
        let increments = Query::OmapList {
            after: None,
            from: Bytes::new(),
            prefix: Bytes::from_static(b"m"),
            max: usize::MAX,
            values: true,
        };
        let get = |key: Bytes| Query::OmapGet { keys: vec![key] };
        [get(SUPERBLOCK), get(FULL), increments].map(|query| ReadRequest {
            collection: Collection::Meta,
            object: object(),
            queries: vec![query],
        })
    }

    pub fn from_answers(answers: [Result<Vec<Answer>, String>; 3]) -> StoredMaps {
        let [lineage, map, increments] = answers.map(|answer| answer.map(entries));
        let mut out = StoredMaps::default();
        match lineage.and_then(|entries| only(&entries)) {
            Ok(lineage) => out.lineage = lineage,
            Err(why) => out.damaged.push(format!("the record of the OSD's identity is damaged: {why}")),
        }
        match map.and_then(|entries| only(&entries)) {
            Ok(map) => out.map = map.map(Arc::new),
            Err(why) => out.damaged.push(format!("the newest OSDMap is damaged: {why}")),
        }
        match increments {
            Ok(entries) => {
                let increments =
                    entries.into_iter().filter_map(|(key, value)| Some((increment_epoch(&key)?, value)));
                out.increments = increments.collect();
            }
            Err(why) => out.damaged.push(format!("the increments of OSDMaps cannot be read: {why}")),
        }
        out
    }

    /// The OSD has never had a map, and no record of one is damaged.
    pub fn is_blank(&self) -> bool {
        self.map.is_none() && self.increments.is_empty() && self.damaged.is_empty()
    }
}

fn entries(answers: Vec<Answer>) -> Vec<(Bytes, Bytes)> {
    let lists = answers.into_iter().filter_map(|answer| match answer {
        Answer::OmapList { entries, .. } | Answer::OmapGet(entries) => Some(entries),
        _ => None,
    });
    lists.flatten().collect()
}

fn only<T: codec::Decode>(entries: &[(Bytes, Bytes)]) -> Result<Option<T>, String> {
    let Some((_, value)) = entries.first() else { return Ok(None) };
    codec::decode_exact(value).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::{Encode, Features};
    use wire::types::Uuid;

    fn answers() -> [Result<Vec<Answer>, String>; 3] {
        let lineage = Lineage { cluster_fsid: Uuid([7; 16]), newest_map: 9, ..Lineage::default() };
        let map = OsdMap { epoch: 9, ..OsdMap::default() };
        let get = |key: &'static [u8], value: Vec<u8>| {
            Ok(vec![Answer::OmapGet(vec![(Bytes::from_static(key), value.into())])])
        };
        let entries = vec![
            (Bytes::from_static(b"m\0\0\0\x08"), Bytes::from_static(b"8")),
            (Bytes::from_static(b"m\0\0\0\x09"), Bytes::from_static(b"9")),
            (Bytes::from_static(b"mm"), Bytes::new()),
        ];
        let full = map.to_canonical().0;
        let superblock = lineage.to_vec(Features::ALL);
        [
            get(b"superblock", superblock),
            get(b"full", full),
            Ok(vec![Answer::OmapList { entries, more: false }]),
        ]
    }

    #[test]
    fn maps_of_a_whole_store_are_read() {
        let maps = StoredMaps::from_answers(answers());
        assert_eq!(maps.lineage.map(|lineage| lineage.newest_map), Some(9));
        assert_eq!(maps.map.map(|map| map.epoch), Some(9));
        assert_eq!(maps.increments.keys().copied().collect::<Vec<_>>(), [8, 9]);
        assert_eq!(maps.damaged, Vec::<String>::new());
        assert!(StoredMaps::from_answers([Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new())]).is_blank());
    }

    #[test]
    fn damage_of_one_record_hides_no_other() {
        let [lineage, map, increments] = answers();
        let torn = |answer: &Result<Vec<Answer>, String>| match &answer.as_ref().unwrap()[0] {
            Answer::OmapGet(entries) => {
                let value = entries[0].1.slice(..entries[0].1.len() - 1);
                Ok(vec![Answer::OmapGet(vec![(entries[0].0.clone(), value)])])
            }
            other => panic!("{other:?}"),
        };
        let maps = StoredMaps::from_answers([lineage.clone(), torn(&map), increments.clone()]);
        assert!(maps.map.is_none() && maps.lineage.is_some() && maps.increments.len() == 2);
        assert!(maps.damaged[0].starts_with("the newest OSDMap is damaged: "), "{:?}", maps.damaged);
        let maps =
            StoredMaps::from_answers([torn(&lineage), map.clone(), Err("a checksum does not match".into())]);
        assert!(maps.lineage.is_none() && maps.map.is_some() && maps.increments.is_empty());
        assert_eq!(maps.damaged.len(), 2);
        assert!(!maps.is_blank());
    }
}
