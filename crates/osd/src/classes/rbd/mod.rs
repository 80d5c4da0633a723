//! Block images: everything of an image but its data, and of a pool's images together.
//!
//! An image's header, a pool's directory, its trash, its groups and its mirroring state are omaps of one object each,
//! under the keys and in the encodings of Ceph's `cls/rbd/cls_rbd.cc`. An image that stock OSDs made is readable here,
//! and the other way round. Old-format headers and object maps are the data of their objects.
//!
//! | File | Object |
//! |---|---|
//! | `header`, `parent`, `children`, `snapshot`, `metadata`, `migration` | `rbd_header.ID` |
//! | `old_format` | `NAME.rbd` |
//! | `object_map` | `rbd_object_map.ID` |
//! | `directory` | `rbd_directory`, `rbd_id.NAME` |
//! | `trash`, `namespaces` | `rbd_trash`, `rbd_namespace` |
//! | `group`, `group_snapshot` | `rbd_group_directory`, `rbd_group_header.ID` |
//! | `mirror` | `rbd_mirroring`, `rbd_mirror_leader` |
//! | `data` | objects of the image's data |

pub(super) mod children;
pub(super) mod data;
pub(super) mod directory;
pub(super) mod group;
pub(super) mod group_snapshot;
pub(super) mod header;
pub(super) mod metadata;
pub(super) mod migration;
pub(super) mod mirror;
pub(super) mod namespaces;
pub(super) mod object_map;
pub(super) mod old_format;
pub(super) mod parent;
pub(super) mod snapshot;
pub(super) mod trash;

use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;

type MethodResult = Result<i32, MethodStop>;

/// An image's or group's id is letters and digits.
fn is_valid_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

/// At most `max` entries of keys with a prefix, by the names behind the prefix, from the first name after `after`.
fn list_names(
    call: &mut MethodCall<'_>,
    prefix: &str,
    after: &Name,
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>, MethodStop> {
    let (entries, _) = call.omap_list(&omap::key(prefix, after), prefix, omap::reply_max(max), true)?;
    Ok(entries.into_iter().map(|(key, value)| (key.slice(prefix.len()..), value)).collect())
}

/// Two names with their values decoded.
fn decode_values<T: codec::Decode>(entries: Vec<(Bytes, Bytes)>) -> Result<Vec<(Bytes, T)>, MethodStop> {
    entries.into_iter().map(|(name, value)| Ok((name, omap::stored(&value)?))).collect()
}

/// `ENOENT` means that there is nothing.
fn ignore_missing(result: Result<(), MethodStop>) -> Result<(), MethodStop> {
    match result {
        Err(MethodStop::Failed(Errno::NOENT)) => Ok(()),
        other => other,
    }
}

/// A random uuid in text, the same each time the call is run.
fn new_uuid(call: &MethodCall<'_>) -> Name {
    let mut bytes = [0; 16];
    machine::Random::from_number(call.context.seed).fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    wire::types::Uuid(bytes).to_string().into()
}
