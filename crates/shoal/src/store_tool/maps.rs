//! OSDMaps of a stopped OSD's store, for the rebuild of a monitor.

use super::pg::access::Access;
use anyhow::Context;
use mon::rebuild::Store;
use osd::stopped::StoredMaps;
use std::path::Path;
use wire::types::{OsdMap, Uuid};

/// The maps of one store, as far as they can be read.
pub struct Read {
    /// `None`: the store has no maps, or they cannot be told to be of a certain OSD.
    pub store: Option<Store>,
    /// Reasons why something is missing, a sentence each.
    pub problems: Vec<String>,
}

/// Fails if the store cannot be opened: its OSD runs, or it is no store.
pub fn read(path: &Path) -> anyhow::Result<Read> {
    let mut store = Access::open(path)?;
    let is_new = !store.collections().iter().any(|(collection, _)| *collection == store::Collection::Meta);
    let mut answers = Vec::new();
    for request in StoredMaps::requests().into_iter().filter(|_| !is_new) {
        answers.push(store.ask(request)?.map_err(|error| error.to_string()));
    }
    store.close().with_context(|| path.display().to_string())?;
    let none = || [Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new())];
    let maps = StoredMaps::from_answers(answers.try_into().unwrap_or_else(|_| none()));
    if maps.is_blank() {
        return Ok(Read { store: None, problems: vec!["it has never had an OSDMap: it is left out".into()] });
    }
    let StoredMaps { lineage, map, increments, damaged: mut problems } = maps;
    let Some(lineage) = lineage else {
        problems.push("it is left out: its OSD is not known".into());
        return Ok(Read { store: None, problems });
    };
    let store = Store {
        name: name_of(path, map.as_deref(), lineage.osd_fsid),
        cluster: map.as_ref().map_or(lineage.cluster_fsid, |map| map.fsid),
        identity: lineage.osd_fsid,
        newest: lineage.newest_map,
        map,
        steps: increments,
    };
    Ok(Read { store: Some(store), problems })
}

fn name_of(path: &Path, map: Option<&OsdMap>, identity: Uuid) -> String {
    let osd = map.and_then(|map| map.osds.iter().position(|row| row.uuid == identity));
    match osd {
        Some(osd) => format!("osd.{osd} ({})", path.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pg::example;
    use super::*;
    use crate::host::disk::Owner;
    use crate::host::making::{Making, make};
    use bytes::Bytes;
    use mon::rebuild::Found;
    use std::path::PathBuf;
    use store::{Change, Collection, Transaction};

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// A block store after these transactions.
    fn store(name: &str, transactions: Vec<Transaction>) -> Scratch {
        let path = std::env::temp_dir().join(format!("shoal-maps-{name}-{}", std::process::id()));
        let owner = Owner { name: "osd.1".into(), osd_uuid: "u".into(), fsid: "f".into() };
        let making = Making {
            owner,
            shards: 1,
            size: 96 << 20,
            force: true,
            discard: false,
            identity: [1; 16],
            encryption: None,
            further: Vec::new(),
        };
        make(&path, &making).unwrap();
        let mut store = Access::open(&path).unwrap();
        transactions.into_iter().for_each(|transaction| store.apply(transaction).unwrap());
        store.close().unwrap();
        Scratch(path)
    }

    fn record(key: &'static [u8], value: &'static [u8]) -> Transaction {
        let object = StoredMaps::requests()[0].object.clone();
        let entries = vec![(Bytes::from_static(key), Bytes::from_static(value))];
        Transaction { collection: Collection::Meta, changes: vec![Change::OmapSet { object, entries }] }
    }

    #[test]
    fn maps_of_a_store_are_read_with_its_osd() {
        let scratch = store("whole", vec![example::write_daemon(1, 12)]);
        let read = read(&scratch.0).unwrap();
        assert_eq!(read.problems, Vec::<String>::new());
        let store = read.store.unwrap();
        assert_eq!(store.name, format!("osd.1 ({})", scratch.0.display()));
        assert_eq!((store.newest, store.map.unwrap().epoch), (12, 12));
    }

    #[test]
    fn store_without_maps_is_left_out() {
        let scratch = store("blank", Vec::new());
        let read = read(&scratch.0).unwrap();
        assert!(read.store.is_none());
        assert_eq!(read.problems, ["it has never had an OSDMap: it is left out"]);
    }

    #[test]
    fn damaged_records_are_named_and_the_others_read() {
        let damage = vec![
            example::write_daemon(1, 12),
            record(b"full", b"no map"),
            record(b"m\0\0\0\x0c", b"no increment"),
        ];
        let scratch = store("torn", damage);
        let Read { store, problems } = read(&scratch.0).unwrap();
        assert!(problems[0].starts_with("the newest OSDMap is damaged: "), "{problems:?}");
        let damaged = Found::default().add(store.unwrap()).unwrap();
        assert!(damaged[0].starts_with("the increment to OSDMap 12 is damaged: "), "{damaged:?}");

        let scratch = self::store("nobody", vec![example::write_daemon(1, 12), record(b"superblock", b"?")]);
        let Read { store, problems } = read(&scratch.0).unwrap();
        assert!(store.is_none());
        assert_eq!(problems.last().unwrap(), "it is left out: its OSD is not known");
    }
}
