//! Operations that give an object the contents of another, or of its own past.

use super::execution::Execution;
use super::handler::{Handler, OpOutcome, OpStop, done};
use super::reads::{AllAttrsRead, DataRead, Found, OmapHeaderRead, OmapPageRead};
use super::{ATTR_PREFIX, INFO_ATTR, Limits, SNAPS_ATTR, stored_attr};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features, Reader, Rope};
use store::{Change, ObjectId};
use wire::types::osd_op::CopyFromParams;
use wire::types::{
    CopyCursor, CopyData, HObject, Name, ObjectFlags, ObjectInfo, ObjectLocator, OpCode, OsdFlags, OsdOp,
    PoolId, SnapId, copy_flags,
};

/// `CEPH_OSD_COPY_FROM_FLAG_*`: all that exist, and those that mean something without cache tiers.
const COPY_FROM_FLAGS: u8 = 0x3f;
const COPY_FROM_MAP_SNAP_CLONE: u8 = 0x08;
const COPY_FROM_RWORDERED: u8 = 0x10;
const COPY_FROM_TRUNCATE: u8 = 0x20;

/// Makes the object a copy of another one, which may be in another PG: of its bytes, attributes, omap, user version and times. The
/// list waits while the shard reads the source ([`OpStop::NeedsCopy`]), and is then executed again with the [`Copied`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFrom {
    source: Name,
    locator: ObjectLocator,
    params: CopyFromParams,
    truncate: Option<(u32, u64)>,
}

impl CopyFrom {
    /// The source in a pool where its name has this hash.
    pub fn source(&self, hash: u32) -> HObject {
        let ObjectLocator { pool, key, namespace, .. } = self.locator.clone();
        // As a client names an object whose key is its name.
        let key = if key == self.source { Name::EMPTY } else { key };
        HObject {
            pool,
            hash,
            key,
            namespace,
            name: self.source.clone(),
            snap: self.params.snap,
            ..HObject::min()
        }
    }

    /// Name, key and namespace, from which the source's place is computed.
    pub fn place(&self) -> (&Name, &Name, &Name) {
        (&self.source, &self.locator.key, &self.locator.namespace)
    }

    pub fn pool(&self) -> PoolId {
        self.locator.pool
    }

    /// The user version that the source must have; 0: any.
    pub fn source_version(&self) -> u64 {
        self.params.source_version
    }

    /// Flags for the read of the source.
    pub fn read_flags(&self) -> OsdFlags {
        let mut flags = OsdFlags::NONE;
        if self.params.flags & COPY_FROM_MAP_SNAP_CLONE != 0 {
            flags |= OsdFlags::MAP_SNAP_CLONE;
        }
        if self.params.flags & COPY_FROM_RWORDERED != 0 {
            flags |= OsdFlags::RWORDERED;
        }
        flags
    }

    fn is_of(&self, object: &HObject) -> bool {
        self.source(object.hash) == *object
    }
}

impl Handler for CopyFrom {
    type Reads = ();
    /// The copy has the source's user version.
    const USER_VISIBLE: bool = false;

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        let params = op.params.copy_from();
        let second = op.code == OpCode::COPY_FROM2;
        if second && params.flags & !COPY_FROM_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let (source, locator) = (r.get()?, r.get()?);
        let truncate = match second && params.flags & COPY_FROM_TRUNCATE != 0 {
            true => Some((r.u32()?, r.u64()?)),
            false => None,
        };
        Ok(CopyFrom { source, locator, params, truncate })
    }

    fn reads(&self, _: &Limits) {}

    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        if self.is_of(&list.id.object) {
            return Err(Errno::INVAL.into());
        }
        let copies = list.copies;
        match copies.iter().find(|(position, _)| *position == list.position) {
            None => Err(OpStop::NeedsCopy(list.position)),
            Some((_, Err(errno))) => Err((*errno).into()),
            Some((_, Ok(copied))) => list.become_copy_of(copied, self.truncate),
        }
    }
}

/// Another object's contents, as far as they have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The source's user version.
    pub user_version: u64,
    /// The last part's metadata, and the place that the copy has reached.
    part: CopyData,
    data: Rope,
    omap: Vec<(Bytes, Bytes)>,
    /// Bytes of the omap.
    omap_len: usize,
}

impl Copied {
    pub fn cursor(&self) -> &CopyCursor {
        &self.part.cursor
    }

    /// Takes the next part. `EIO`: it does not follow the last one.
    pub fn add(&mut self, mut part: CopyData, limits: &Limits) -> Result<(), Errno> {
        if part.size > limits.max_object_size {
            return Err(Errno::FBIG);
        }
        self.data.append(std::mem::take(&mut part.data));
        let omap = std::mem::take(&mut part.omap);
        if !omap.is_empty() {
            let entries: Vec<(Bytes, Bytes)> = codec::decode_exact(&omap).map_err(|_| Errno::IO)?;
            self.omap_len += omap.len();
            self.omap.extend(entries);
        }
        if self.omap_len as u64 > limits.max_metadata_size {
            return Err(Errno::MSGSIZE);
        }
        // The header comes with the first part of the omap.
        if !self.part.omap_header.is_empty() {
            part.omap_header = std::mem::take(&mut self.part.omap_header);
        }
        let reached = part.cursor.data_offset;
        let is_sound =
            self.data.len() as u64 == reached && (!part.cursor.data_complete || reached == part.size);
        self.part = part;
        if is_sound { Ok(()) } else { Err(Errno::IO) }
    }

    pub fn is_complete(&self) -> bool {
        self.part.cursor.is_complete()
    }
}

impl Execution<'_> {
    /// As `PrimaryLogPG::finish_copyfrom`. `truncate`: the truncation that the copy is to know, instead of the source's.
    fn become_copy_of(&mut self, copied: &Copied, truncate: Option<(u32, u64)>) -> OpOutcome {
        let Copied { user_version, part, data, omap, .. } = copied;
        let object = || self.id.clone();
        let mut changes = Vec::new();
        if self.exists {
            changes.push(Change::Remove { object: object() });
        }
        changes.push(Change::Touch { object: object() });
        let len = data.len() as u64;
        if len > 0 {
            changes.push(Change::Write { object: object(), offset: 0, data: data.clone() });
        }
        for (name, value) in &part.attrs {
            changes.push(Change::SetAttr { object: object(), name: stored_attr(name), value: value.clone() });
        }
        let has_omap = !omap.is_empty() || !part.omap_header.is_empty();
        if !part.omap_header.is_empty() {
            changes.push(Change::OmapSetHeader { object: object(), header: part.omap_header.clone() });
        }
        if !omap.is_empty() {
            changes.push(Change::OmapSet { object: object(), entries: omap.clone() });
        }
        self.changes.extend(changes);
        if !self.exists {
            self.exists = true;
            self.stats.objects += 1;
        }
        self.set_size(len);
        self.unmark_omap();
        if has_omap {
            self.mark_omap();
        }
        let info = self.info.to_mut();
        for (flag, bit) in [
            (ObjectFlags::DATA_DIGEST, copy_flags::DATA_DIGEST),
            (ObjectFlags::OMAP_DIGEST, copy_flags::OMAP_DIGEST),
        ] {
            match part.flags & bit != 0 {
                true => info.flags.set(flag),
                false => info.flags.clear(flag),
            }
        }
        (info.data_digest, info.omap_digest) = (part.data_digest, part.omap_digest);
        (info.truncate_seq, info.truncate_size) = match truncate {
            Some((seq, size)) => (u64::from(seq), size),
            None => (part.truncate_seq, part.truncate_size),
        };
        info.mtime = part.mtime;
        self.copied_version = Some(*user_version);
        self.count_write(len);
        done()
    }
}

/// A part of the object for an OSD that copies it, of at most so many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyGet {
    cursor: CopyCursor,
    max: u64,
}

/// Entries of an omap in one part.
const OMAP_ENTRIES_MAX: usize = 1024;

impl Handler for CopyGet {
    type Reads = (AllAttrsRead, (DataRead, (OmapHeaderRead, OmapPageRead)));

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        let mut r = Reader::new(&op.input);
        Ok(CopyGet { cursor: r.get()?, max: r.u64()? })
    }

    fn reads(&self, limits: &Limits) -> Self::Reads {
        let CopyCursor { data_offset: offset, data_complete, omap_complete, .. } = self.cursor;
        let len = if data_complete { 0 } else { self.max.min(limits.copy_part_max) };
        let max = if omap_complete { 0 } else { OMAP_ENTRIES_MAX.min(limits.max_omap_entries_per_request) };
        let after = self.cursor.omap_offset.clone();
        let page = OmapPageRead { after, prefix: Bytes::new(), max, values: true };
        (AllAttrsRead, (DataRead { offset, len }, (OmapHeaderRead, page)))
    }

    /// As `PrimaryLogPG::do_copy_get`.
    fn execute(&self, list: &mut Execution<'_>, found: Found<Self::Reads>) -> OpOutcome {
        let (attrs, (data, (header, page))) = found;
        let attrs = attrs?;
        let info = ObjectInfo::clone(&list.info);
        let mut cursor = self.cursor.clone();
        let mut part = CopyData {
            size: info.size,
            mtime: info.mtime,
            data_digest: info.data_digest,
            omap_digest: info.omap_digest,
            truncate_seq: info.truncate_seq,
            truncate_size: info.truncate_size,
            ..CopyData::default()
        };
        for (flag, bit) in [
            (ObjectFlags::DATA_DIGEST, copy_flags::DATA_DIGEST),
            (ObjectFlags::OMAP_DIGEST, copy_flags::OMAP_DIGEST),
        ] {
            part.flags |= if info.flags.contains(flag) { bit } else { 0 };
        }
        if let Some(set) = list.snapshots.set {
            match list.id.object.snap {
                clone if clone < SnapId::HEAD => {
                    part.snaps = set.clone_snaps.get(&clone).cloned().unwrap_or_default();
                }
                _ => part.snap_seq = set.seq,
            }
        }
        let is_users = |name: &Bytes| name.starts_with(ATTR_PREFIX) && *name != INFO_ATTR;
        part.attrs = attrs
            .into_iter()
            .filter(|(name, _)| is_users(name))
            .map(|(name, value)| (name.slice(ATTR_PREFIX.len()..), value))
            .collect();
        cursor.attr_complete = true;
        if !cursor.data_complete {
            cursor.data_offset += data.len() as u64;
            cursor.data_complete = cursor.data_offset >= info.size || data.is_empty();
            part.data = data;
        }
        if !info.flags.contains(ObjectFlags::OMAP) {
            cursor.omap_complete = true;
        } else if cursor.data_complete && !cursor.omap_complete {
            if cursor.omap_offset.is_empty() {
                part.omap_header = header;
            }
            let (mut len, mut count) = (part.data.len() as u64, 0);
            for (key, value) in &page.entries {
                // Each part goes on, however large an entry is.
                if count > 0 && len >= self.max.min(list.limits.copy_part_max) {
                    break;
                }
                len += (key.len() + value.len() + 8) as u64;
                count += 1;
            }
            let entries = &page.entries[..count];
            if let Some((last, _)) = entries.last() {
                cursor.omap_offset = last.clone();
                part.omap = entries.to_vec().to_vec(Features::NONE).into();
            }
            cursor.omap_complete = count == page.entries.len() && !page.more;
        }
        part.cursor = cursor;
        let out = part.to_rope(list.features);
        list.count_read(out.len());
        Ok(out.into())
    }
}

/// The state of an object when a snapshot was taken, for a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackTo<'a> {
    Absent,
    /// No write has come since.
    Head,
    Clone(&'a ObjectId, &'a ObjectInfo),
}

/// Takes the object back to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback(SnapId);

impl Rollback {
    pub fn snap(&self) -> SnapId {
        self.0
    }
}

impl Handler for Rollback {
    type Reads = ();

    fn decode(op: &OsdOp) -> Result<Self, Errno> {
        Ok(Rollback(op.params.snap()))
    }

    fn reads(&self, _: &Limits) {}

    /// As `PrimaryLogPG::_rollback_to`.
    fn execute(&self, list: &mut Execution<'_>, (): ()) -> OpOutcome {
        let target = match list.snapshots.rollback {
            Some((snap, target)) if snap == self.0 => target,
            // A second rollback of the list, to another snapshot.
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        match target {
            RollbackTo::Absent if !list.info.watchers.is_empty() => Err(Errno::BUSY.into()),
            RollbackTo::Absent if list.exists => list.delete(),
            RollbackTo::Absent => done(),
            RollbackTo::Head => {
                list.touched = true;
                done()
            }
            RollbackTo::Clone(id, info) => {
                if !list.exists {
                    list.exists = true;
                    list.stats.objects += 1;
                }
                list.changes.push(Change::Clone { from: id.clone(), to: list.id.clone() });
                // The snapshot set and the watchers are the head's own.
                list.changes.push(Change::RemoveAttr { object: list.id.clone(), name: SNAPS_ATTR });
                list.take_contents_of(info);
                done()
            }
        }
    }
}
