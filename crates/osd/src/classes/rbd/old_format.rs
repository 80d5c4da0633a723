//! Headers of the old format: the header is the object's data.
//!
//! ```text
//! 0      40           80           88         96           100        104               112
//! | text | names, ... | image size | snap seq | snap count | reserved | snap names len | snaps (id, size) | names |
//! ```
//! The newest snapshot comes first. Each name ends with a zero byte.

use super::MethodResult;
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Features, Writer};
use wire::types::Name;

const HEADER_LEN: usize = 112;
const SNAP_LEN: usize = 16;
/// Maximum length of a header with its snapshots.
const LEN_MAX: u64 = 4 << 20;

/// First bytes of an image's header.
pub(super) const HEADER_TEXT: &[u8; 33] = b"<<< Rados Block Device Image >>>\n";
/// First bytes of the header of an image that is migrated away from.
pub(super) const MIGRATING_TEXT: &[u8; 33] = b"<<< Migrating RBD Image      >>>\n";

struct OldHeader {
    /// Everything in front of the image's size.
    front: Vec<u8>,
    image_size: u64,
    snap_seq: u64,
    reserved: u32,
    /// Newest first.
    snaps: Vec<OldSnap>,
}

struct OldSnap {
    id: u64,
    image_size: u64,
    name: Vec<u8>,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl OldHeader {
    /// `EINVAL` without a header, `EIO` when its lists are damaged.
    fn read(call: &mut MethodCall<'_>) -> Result<OldHeader, MethodStop> {
        let fixed = call.data(0, HEADER_LEN as u64)?.to_bytes();
        if fixed.len() < HEADER_LEN {
            return Err(Errno::INVAL.into());
        }
        let (count, names_len) = (u64::from(u32_at(&fixed, 96)), u64_at(&fixed, 104));
        let lists_len = (count * SNAP_LEN as u64).checked_add(names_len).filter(|len| *len <= LEN_MAX);
        let lists_len = lists_len.ok_or(MethodStop::Failed(Errno::FBIG))?;
        let lists = match lists_len {
            0 => Default::default(),
            len => call.data(HEADER_LEN as u64, len)?.to_bytes(),
        };
        let damaged = MethodStop::Failed(Errno::IO);
        if (lists.len() as u64) < lists_len {
            return Err(damaged);
        }
        let (table, names) = lists.split_at(count as usize * SNAP_LEN);
        let mut names = names.split_inclusive(|b| *b == 0).map(|name| name.strip_suffix(&[0]));
        let mut snaps = Vec::with_capacity(count as usize);
        for row in table.chunks_exact(SNAP_LEN) {
            let name = names.next().flatten().ok_or(damaged)?.to_vec();
            snaps.push(OldSnap { id: u64_at(row, 0), image_size: u64_at(row, 8), name });
        }
        Ok(OldHeader {
            front: fixed[..80].to_vec(),
            image_size: u64_at(&fixed, 80),
            snap_seq: u64_at(&fixed, 88),
            reserved: u32_at(&fixed, 100),
            snaps,
        })
    }

    fn write(&self, call: &mut MethodCall<'_>) -> Result<(), MethodStop> {
        let mut w = Writer::new(Features::NONE);
        w.raw(&self.front);
        w.u64(self.image_size);
        w.u64(self.snap_seq);
        w.count(self.snaps.len());
        w.u32(self.reserved);
        w.u64(self.snaps.iter().map(|s| s.name.len() as u64 + 1).sum());
        for snap in &self.snaps {
            w.u64(snap.id);
            w.u64(snap.image_size);
        }
        for snap in &self.snaps {
            w.raw(&snap.name);
            w.u8(0);
        }
        call.write_full(w.into_bytes())
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.snaps.iter().any(|s| s.name == name)
    }
}

/// A name up to its first zero byte.
fn as_c_string(name: &Name) -> Vec<u8> {
    name.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

/// Snapshots of an image of the old format; `None` for another object.
pub(super) fn snapshot_count(call: &mut MethodCall<'_>) -> Result<Option<u64>, MethodStop> {
    match OldHeader::read(call) {
        Ok(header) => Ok(Some(header.snaps.len() as u64)),
        Err(MethodStop::Failed(Errno::INVAL)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

pub fn snap_list(call: &mut MethodCall<'_>) -> MethodResult {
    let header = OldHeader::read(call)?;
    let mut w = Writer::new(Features::NONE);
    w.u64(header.snap_seq);
    w.count(header.snaps.len());
    for snap in &header.snaps {
        w.u64(snap.id);
        w.u64(snap.image_size);
        w.blob(&snap.name);
    }
    call.reply(w.into_bytes());
    Ok(0)
}

pub fn snap_add(call: &mut MethodCall<'_>) -> MethodResult {
    let mut header = OldHeader::read(call)?;
    let (name, id): (Name, u64) = call.argument()?;
    if header.snap_seq > id {
        return Err(Errno::STALE.into());
    }
    let limit: u64 = call.omap_as("snap_limit")?.unwrap_or(u64::MAX);
    if header.snaps.len() as u64 >= limit {
        return Err(Errno::DQUOT.into());
    }
    let name = as_c_string(&name);
    if header.has_name(&name) {
        return Err(Errno::EXIST.into());
    }
    header.snap_seq = id;
    header.snaps.insert(0, OldSnap { id, image_size: header.image_size, name });
    header.write(call)?;
    Ok(0)
}

pub fn snap_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let mut header = OldHeader::read(call)?;
    let name = as_c_string(&call.argument()?);
    let found = header.snaps.iter().position(|s| s.name == name);
    header.snaps.remove(found.ok_or(MethodStop::Failed(Errno::NOENT))?);
    header.write(call)?;
    Ok(0)
}

pub fn snap_rename(call: &mut MethodCall<'_>) -> MethodResult {
    let mut header = OldHeader::read(call)?;
    let (id, name): (u64, Name) = call.argument()?;
    let name = as_c_string(&name);
    if header.has_name(&name) {
        return Err(Errno::EXIST.into());
    }
    let found = header.snaps.iter_mut().find(|s| s.id == id);
    found.ok_or(MethodStop::Failed(Errno::NOENT))?.name = name;
    header.write(call)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn image() -> Object {
        let mut header = vec![0; HEADER_LEN];
        header[..33].copy_from_slice(HEADER_TEXT);
        header[80..88].copy_from_slice(&1000u64.to_le_bytes());
        let mut o = Object::existing();
        o.put_data(&header);
        o
    }

    fn list(o: &mut Object) -> (u64, Vec<(u64, u64, Name)>) {
        decode(&o.call_bare("rbd", "snap_list").unwrap())
    }

    #[test]
    fn snapshots_live_in_the_header() {
        let mut o = image();
        o.call("rbd", "snap_add", &("one".to_string(), 3u64)).unwrap();
        o.call("rbd", "snap_add", &("two".to_string(), 5u64)).unwrap();
        assert_eq!(list(&mut o), (5, vec![(5, 1000, "two".into()), (3, 1000, "one".into())]));
        assert_eq!(&o.data()[HEADER_LEN + 2 * SNAP_LEN..], b"two\0one\0");
        assert_eq!(o.call("rbd", "snap_add", &("one".to_string(), 6u64)), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "snap_add", &("six".to_string(), 4u64)), Err(Errno::STALE));
        o.call("rbd", "snap_rename", &(3u64, "first".to_string())).unwrap();
        assert_eq!(o.call("rbd", "snap_rename", &(5u64, "first".to_string())), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "snap_rename", &(6u64, "x".to_string())), Err(Errno::NOENT));
        o.call("rbd", "snap_remove", &"two".to_string()).unwrap();
        assert_eq!(list(&mut o), (5, vec![(3, 1000, "first".into())]));
        assert_eq!(o.call("rbd", "snap_remove", &"two".to_string()), Err(Errno::NOENT));
        o.call("rbd", "snap_remove", &"first".to_string()).unwrap();
        assert_eq!(o.data().len(), HEADER_LEN);
    }

    #[test]
    fn limit_holds_for_old_format() {
        let mut o = image();
        o.call("rbd", "snap_add", &("one".to_string(), 3u64)).unwrap();
        assert_eq!(o.call("rbd", "snapshot_set_limit", &0u64), Err(Errno::RANGE));
        o.call("rbd", "snapshot_set_limit", &1u64).unwrap();
        assert_eq!(o.call("rbd", "snap_add", &("two".to_string(), 4u64)), Err(Errno::DQUOT));
    }

    #[test]
    fn damaged_lists_are_an_error() {
        assert_eq!(Object::existing().call_bare("rbd", "snap_list"), Err(Errno::INVAL));
        let mut o = image();
        let mut header = o.data().to_vec();
        header[96] = 1;
        o.put_data(&header);
        assert_eq!(o.call_bare("rbd", "snap_list"), Err(Errno::IO));
        header[104..112].copy_from_slice(&u64::MAX.to_le_bytes());
        o.put_data(&header);
        assert_eq!(o.call_bare("rbd", "snap_list"), Err(Errno::FBIG));
    }
}
