//! Metadata of an object (`object_info_t`), kept in its `_` attribute; and `object_manifest_t`, the place of bytes that
//! are elsewhere.

use super::{
    EntityKind, EntityName, Eversion, HObject, ObjectLocator, ReqId, ShardId, SnapId, UTime, WatchInfo,
};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// `object_info_t::FLAG_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ObjectFlags(pub u32);

impl ObjectFlags {
    pub const LOST: ObjectFlags = ObjectFlags(1 << 0);
    /// The object does not exist, though its snapshots or a cache tier need this record.
    pub const WHITEOUT: ObjectFlags = ObjectFlags(1 << 1);
    pub const DIRTY: ObjectFlags = ObjectFlags(1 << 2);
    /// There may be omap entries.
    pub const OMAP: ObjectFlags = ObjectFlags(1 << 3);
    pub const DATA_DIGEST: ObjectFlags = ObjectFlags(1 << 4);
    pub const OMAP_DIGEST: ObjectFlags = ObjectFlags(1 << 5);
    pub const CACHE_PIN: ObjectFlags = ObjectFlags(1 << 6);
    pub const MANIFEST: ObjectFlags = ObjectFlags(1 << 7);
    pub const USES_TMAP: ObjectFlags = ObjectFlags(1 << 8);
    pub const REDIRECT_HAS_REFERENCE: ObjectFlags = ObjectFlags(1 << 9);
    /// Shoal's own: a head with a [`super::SnapSet`], which only such heads are read for.
    pub const SNAP_SET: ObjectFlags = ObjectFlags(1 << 30);

    pub const fn contains(self, o: ObjectFlags) -> bool {
        self.0 & o.0 == o.0
    }

    pub fn set(&mut self, o: ObjectFlags) {
        self.0 |= o.0;
    }

    pub fn clear(&mut self, o: ObjectFlags) {
        self.0 &= !o.0;
    }
}

/// The flags' names joined by `|`, as Ceph prints them.
impl std::fmt::Debug for ObjectFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [(ObjectFlags, &str); 10] = [
            (ObjectFlags::LOST, "lost"),
            (ObjectFlags::WHITEOUT, "whiteout"),
            (ObjectFlags::DIRTY, "dirty"),
            (ObjectFlags::USES_TMAP, "uses_tmap"),
            (ObjectFlags::OMAP, "omap"),
            (ObjectFlags::DATA_DIGEST, "data_digest"),
            (ObjectFlags::OMAP_DIGEST, "omap_digest"),
            (ObjectFlags::CACHE_PIN, "cache_pin"),
            (ObjectFlags::MANIFEST, "manifest"),
            (ObjectFlags::REDIRECT_HAS_REFERENCE, "redirect_has_reference"),
        ];
        let set: Vec<&str> = NAMES.iter().filter(|n| self.contains(n.0)).map(|n| n.1).collect();
        f.write_str(&set.join("|"))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    pub object: HObject,
    /// Of the last change, in the PG's log.
    pub version: Eversion,
    pub prior_version: Eversion,
    pub last_reqid: ReqId,
    /// Of the last change that a client can see: what a client compares and asserts.
    pub user_version: u64,
    pub size: u64,
    /// As the last writer's clock said.
    pub mtime: UTime,
    /// As this OSD's clock said.
    pub local_mtime: UTime,
    pub flags: ObjectFlags,
    /// CephFS truncations: a write made before the truncation it has not seen is cut by it.
    pub truncate_seq: u64,
    pub truncate_size: u64,
    /// By cookie and watcher.
    pub watchers: BTreeMap<(u64, EntityName), WatchInfo>,
    /// crc32c of all bytes, valid with [`ObjectFlags::DATA_DIGEST`]; all ones otherwise.
    pub data_digest: u32,
    pub omap_digest: u32,
    pub expected_object_size: u64,
    pub expected_write_size: u64,
    pub alloc_hint_flags: u32,
    /// Written only with [`ObjectFlags::MANIFEST`].
    pub manifest: ObjectManifest,
    /// Shards of an erasure-coded object that partial writes left behind.
    pub shard_versions: BTreeMap<ShardId, Eversion>,
}

impl ObjectInfo {
    pub fn new(object: HObject) -> ObjectInfo {
        ObjectInfo {
            object,
            version: Eversion::ZERO,
            prior_version: Eversion::ZERO,
            last_reqid: NO_REQID,
            user_version: 0,
            size: 0,
            mtime: UTime::ZERO,
            local_mtime: UTime::ZERO,
            flags: ObjectFlags::default(),
            truncate_seq: 0,
            truncate_size: 0,
            watchers: BTreeMap::new(),
            data_digest: u32::MAX,
            omap_digest: u32::MAX,
            expected_object_size: 0,
            expected_write_size: 0,
            alloc_hint_flags: 0,
            manifest: ObjectManifest::None,
            shard_versions: BTreeMap::new(),
        }
    }
}

const NO_REQID: ReqId = ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 };

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(18, 8, |w| {
            let o = &self.object;
            w.put(o);
            ObjectLocator::encode_parts(w, o.pool, &o.key, &o.namespace, -1);
            w.string(""); // a category
            w.put(&self.version);
            w.put(&self.prior_version);
            w.put(&self.last_reqid);
            w.u64(self.size);
            w.put(&self.mtime);
            // Once the holder of a write lock on a head, and the snapshots of a clone.
            match o.snap {
                SnapId::HEAD => w.put(&NO_REQID),
                _ => w.count(0),
            }
            w.u64(self.truncate_seq);
            w.u64(self.truncate_size);
            w.bool(self.flags.contains(ObjectFlags::LOST));
            self.encode_watchers_by_name(w);
            w.put(&Eversion { epoch: 0, version: self.user_version });
            w.bool(self.flags.contains(ObjectFlags::USES_TMAP));
            w.put(&self.watchers);
            w.u32(self.flags.0);
            w.put(&self.local_mtime);
            w.u32(self.data_digest);
            w.u32(self.omap_digest);
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.u32(self.alloc_hint_flags);
            if self.flags.contains(ObjectFlags::MANIFEST) {
                w.put(&self.manifest);
            }
            w.put(&self.shard_versions);
        });
    }
}

impl ObjectInfo {
    /// One watch a watcher, the one with the least cookie: from when a client could have only one.
    fn encode_watchers_by_name(&self, w: &mut Writer) {
        if self.watchers.is_empty() {
            return w.count(0);
        }
        let mut by_name: BTreeMap<EntityName, &WatchInfo> = BTreeMap::new();
        for ((_, name), info) in &self.watchers {
            by_name.entry(*name).or_insert(info);
        }
        w.put(&by_name);
    }
}

impl Decode for ObjectInfo {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("object_info_t", 18, 8, 8, |r, v| {
            let mut out = ObjectInfo::new(r.get()?);
            let locator: ObjectLocator = r.get()?;
            if v < 10 {
                out.object.pool = locator.pool;
            }
            r.blob()?;
            out.version = r.get()?;
            out.prior_version = r.get()?;
            out.last_reqid = r.get()?;
            out.size = r.u64()?;
            out.mtime = r.get()?;
            match out.object.snap {
                SnapId::HEAD => drop(r.get::<ReqId>()?),
                _ => drop(r.get::<Vec<SnapId>>()?),
            }
            out.truncate_seq = r.u64()?;
            out.truncate_size = r.u64()?;
            out.flags = ObjectFlags(r.u8()? as u32);
            let by_name: BTreeMap<EntityName, WatchInfo> = r.get()?;
            out.user_version = r.get::<Eversion>()?.version;
            if v < 9 || r.bool()? {
                out.flags.set(ObjectFlags::USES_TMAP);
            }
            out.watchers = match v {
                ..11 => by_name.into_iter().map(|(name, info)| ((info.cookie, name), info)).collect(),
                _ => r.get()?,
            };
            if v >= 13 {
                out.flags = ObjectFlags(r.u32()?);
            }
            if v >= 14 {
                out.local_mtime = r.get()?;
            }
            if v >= 15 {
                (out.data_digest, out.omap_digest) = (r.u32()?, r.u32()?);
            } else {
                out.flags.clear(ObjectFlags::DATA_DIGEST);
                out.flags.clear(ObjectFlags::OMAP_DIGEST);
            }
            if v >= 16 {
                (out.expected_object_size, out.expected_write_size) = (r.u64()?, r.u64()?);
                out.alloc_hint_flags = r.u32()?;
            }
            if v >= 17 && out.flags.contains(ObjectFlags::MANIFEST) {
                out.manifest = r.get()?;
            }
            if v >= 18 {
                out.shard_versions = r.get()?;
            }
            Ok(out)
        })
    }
}

/// Where an object's bytes are, when they are not here (`object_manifest_t`). Shoal keeps it and does not act on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ObjectManifest {
    #[default]
    None,
    Redirect(HObject),
    /// By offset.
    Chunked(BTreeMap<u64, ChunkInfo>),
}

impl Encode for ObjectManifest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            ObjectManifest::None => w.u8(0),
            ObjectManifest::Redirect(target) => {
                w.u8(1);
                w.put(target);
            }
            ObjectManifest::Chunked(chunks) => {
                w.u8(2);
                w.put(chunks);
            }
        });
    }
}

impl Decode for ObjectManifest {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("object_manifest_t", 1, |r, _| match r.u8()? {
            0 => Ok(ObjectManifest::None),
            1 => r.get().map(ObjectManifest::Redirect),
            2 => r.get().map(ObjectManifest::Chunked),
            n => Err(r.invalid("object_manifest_t type", n)),
        })
    }
}

/// A piece of an object that another object holds (`chunk_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ChunkInfo {
    /// In the object that holds it.
    pub offset: u32,
    pub len: u32,
    pub object: HObject,
    pub flags: u32,
}
