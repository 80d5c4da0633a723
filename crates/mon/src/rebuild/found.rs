//! Maps and keys that the stores of OSDs gave, gathered store after store, and the file that carries them from host to host.

use crate::auth_entity::AuthEntity;
use crate::joining::Host;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::frames::crc32c;
use wire::types::{AuthName, Epoch, OsdMap, OsdMapIncremental, PgPool, Uuid};

/// The maps of one OSD's store.
#[derive(Clone, Debug)]
pub struct Store {
    /// For messages: the OSD and the place of its store.
    pub name: String,
    pub cluster: Uuid,
    /// The identity of the OSD, by which a map knows its number.
    pub identity: Uuid,
    /// The newest map that it has seen, by its own record.
    pub newest: Epoch,
    /// That map. `None`: it is damaged.
    pub map: Option<Arc<OsdMap>>,
    /// Increments, as they came, by the epoch that each leads to.
    pub steps: BTreeMap<Epoch, Bytes>,
}

/// A store that was read.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Seen {
    pub name: String,
    pub newest: Epoch,
}

/// A value with the identity of the OSD that gave it.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub by: Uuid,
    pub value: Arc<T>,
}

/// Everything that was found so far.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Nil before the first store.
    pub(super) cluster: Uuid,
    /// By identity.
    pub(super) stores: BTreeMap<Uuid, Seen>,
    pub(super) maps: BTreeMap<Epoch, Given<OsdMap>>,
    pub(super) steps: BTreeMap<Epoch, Given<OsdMapIncremental>>,
    /// Keys and capabilities.
    pub keys: BTreeMap<AuthName, AuthEntity>,
    /// Hosts that joined, as their directories know them.
    pub hosts: BTreeMap<String, Host>,
}

/// Stores that do not belong together. Nothing of the last one was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error(
        "{name} is of cluster {theirs}, the stores before it are of {ours}: give the stores of one cluster"
    )]
    OtherCluster { name: String, ours: Uuid, theirs: Uuid },
    #[error(
        "{one} and {other} have different OSDMaps of epoch {epoch}: they followed different monitors. Give the stores that \
         followed the same ones"
    )]
    TwoHistories { one: String, other: String, epoch: Epoch },
}

/// Bytes that are no file of collected maps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFile {
    #[error("it is no file of `shoal mon rebuild --collect`")]
    Magic,
    #[error("it is damaged or cut off: its checksum does not match")]
    Checksum,
    #[error("it does not decode: {0}")]
    Content(#[from] DecodeError),
}

const MAGIC: &[u8] = b"shoal collected OSDMaps\n";
const CRC_LEN: usize = 4;
/// A pool with more PGs is damage: `mon_max_pool_pg_num` is 65,536.
const PG_NUM_MAX: u32 = 1 << 20;

impl Found {
    /// The cluster of the stores. `None` before the first one.
    pub fn cluster(&self) -> Option<Uuid> {
        Some(self.cluster).filter(|cluster| *cluster != Uuid::default())
    }

    pub fn stores(&self) -> impl Iterator<Item = &Seen> {
        self.stores.values()
    }

    /// The newest epoch that an OSD has seen by its own record. Its map may be damaged.
    pub fn newest_seen(&self) -> Epoch {
        self.stores.values().map(|seen| seen.newest).max().unwrap_or(0)
    }

    /// Takes the maps of one more store; of one that was read before, its present ones. Returns the increments that are damaged,
    /// a sentence each: they are left out.
    pub fn add(&mut self, store: Store) -> Result<Vec<String>, Conflict> {
        let Store { name, cluster, identity, newest, map, steps } = store;
        if self.cluster().is_some_and(|ours| ours != cluster) {
            return Err(Conflict::OtherCluster { name, ours: self.cluster, theirs: cluster });
        }
        let (mut good, mut damaged) = (Vec::new(), Vec::new());
        for (epoch, bytes) in steps {
            match step(&bytes, epoch, cluster) {
                Ok(step) => good.push(Arc::new(step)),
                Err(why) => damaged.push(format!("the increment to OSDMap {epoch} is damaged: {why}")),
            }
        }
        let map = map.filter(|map| map.fsid == cluster && has_plausible_pools(map.pools.values()));
        let parted = |epoch, by: &Uuid| {
            let other = self.stores.get(by).map_or_else(|| by.to_string(), |seen| seen.name.clone());
            Err(Conflict::TwoHistories { one: other, other: name.clone(), epoch })
        };
        for step in &good {
            // An increment may have been written anew for a reader; the map that it leads to is one.
            if let Some(known) =
                self.steps.get(&step.epoch).filter(|known| known.value.full_crc != step.full_crc)
            {
                return parted(step.epoch, &known.by);
            }
        }
        if let Some(map) = &map
            && let Some(known) = self.maps.get(&map.epoch).filter(|known| *known.value != **map)
        {
            return parted(map.epoch, &known.by);
        }
        self.cluster = cluster;
        let newest = newest.max(map.as_ref().map_or(0, |map| map.epoch));
        self.stores.insert(identity, Seen { name, newest });
        for step in good {
            self.steps.entry(step.epoch).or_insert(Given { by: identity, value: step });
        }
        if let Some(map) = map {
            self.maps.entry(map.epoch).or_insert(Given { by: identity, value: map });
        }
        Ok(damaged)
    }

    /// The name of the store that gave a value.
    pub(super) fn name_of<T>(&self, given: &Given<T>) -> String {
        self.stores.get(&given.by).map_or_else(|| given.by.to_string(), |seen| seen.name.clone())
    }

    /// The file's bytes: a first line, the content, crc32c of both.
    pub fn to_file(&self) -> Vec<u8> {
        let mut bytes = [MAGIC, &self.to_content()].concat();
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    pub(crate) fn to_content(&self) -> Vec<u8> {
        let mut w = Writer::new(Features::ALL);
        w.envelope(1, 1, |w| {
            w.put(&self.cluster);
            w.put(&self.stores);
            w.count(self.maps.len());
            for given in self.maps.values() {
                w.put(&given.by);
                w.blob(&given.value.to_canonical().0);
            }
            w.count(self.steps.len());
            for given in self.steps.values() {
                w.put(&given.by);
                w.blob(&given.value.to_vec(Features(given.value.encode_features)));
            }
            w.put(&self.keys);
            w.put(&self.hosts);
        });
        w.into_vec()
    }

    pub fn from_file(bytes: &[u8]) -> Result<Found, BadFile> {
        let content = bytes.strip_prefix(MAGIC).ok_or(BadFile::Magic)?;
        let (content, crc) = content.split_last_chunk::<CRC_LEN>().ok_or(BadFile::Checksum)?;
        if crc32c(&bytes[..bytes.len() - CRC_LEN]) != u32::from_le_bytes(*crc) {
            return Err(BadFile::Checksum);
        }
        Ok(Found::from_content(content)?)
    }

    pub(crate) fn from_content(content: &[u8]) -> Result<Found, DecodeError> {
        let mut r = Reader::new(content);
        let found = r.envelope("collected OSDMaps", 1, |r, _| {
            let mut found = Found { cluster: r.get()?, stores: r.get()?, ..Found::default() };
            for _ in 0..r.count("maps", 20)? {
                let given: Given<OsdMap> = given(r)?;
                plausible(r, given.value.pools.values())?;
                found.maps.insert(given.value.epoch, given);
            }
            for _ in 0..r.count("steps", 20)? {
                let given: Given<OsdMapIncremental> = given(r)?;
                plausible(r, given.value.new_pools.values())?;
                found.steps.insert(given.value.epoch, given);
            }
            found.keys = r.get()?;
            found.hosts = r.get()?;
            Ok(found)
        })?;
        r.expect_end()?;
        Ok(found)
    }
}

fn given<T: Decode>(r: &mut Reader<'_>) -> Result<Given<T>, DecodeError> {
    Ok(Given { by: r.get()?, value: Arc::new(codec::decode_exact(r.blob()?)?) })
}

fn plausible<'a>(r: &Reader<'_>, pools: impl Iterator<Item = &'a PgPool>) -> Result<(), DecodeError> {
    match pools.map(|pool| pool.pg_num).find(|pg_num| *pg_num > PG_NUM_MAX) {
        Some(pg_num) => Err(r.invalid("number of PGs", pg_num)),
        None => Ok(()),
    }
}

pub(super) fn has_plausible_pools<'a>(mut pools: impl Iterator<Item = &'a PgPool>) -> bool {
    pools.all(|pool| pool.pg_num <= PG_NUM_MAX)
}

fn step(bytes: &[u8], epoch: Epoch, cluster: Uuid) -> Result<OsdMapIncremental, String> {
    let step: OsdMapIncremental = codec::decode_exact(bytes).map_err(|error| error.to_string())?;
    match (step.epoch == epoch, step.fsid == cluster) {
        (false, _) => Err(format!("it leads to epoch {}", step.epoch)),
        (_, false) => Err(format!("it is of cluster {}", step.fsid)),
        _ if !has_plausible_pools(step.new_pools.values()) => Err("a pool has too many PGs".into()),
        _ => Ok(step),
    }
}
