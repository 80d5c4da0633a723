//! Keys of an index's omap.
//!
//! A plain entry has the object's name as its key. All others begin with byte 0x80, with which no UTF-8 text begins, so names
//! sort before and behind them:
//!
//! | Key | Entry |
//! |---|---|
//! | `NAME` | object, or placeholder of a versioned one |
//! | `NAME \0v ORDER \0i INSTANCE` | instance, in a listing's order: newest first |
//! | `0x80 0_ VERSION.CHANGE.NUMBER` | index log |
//! | `0x80 1000_ NAME \0i INSTANCE` | instance |
//! | `0x80 1000_ NAME \0i \0d` | delete marker without an instance |
//! | `0x80 1001_ NAME` | logical head |
//! | `0x80 2001_ KEY` | reshard log |

use bytes::Bytes;
use wire::types::cls::rgw::{DirEntry, ObjectKey};

pub(super) const SPECIAL: u8 = 0x80;
/// Behind all special keys.
pub(super) const SPECIAL_END: &[u8] = b"\x809999_";
/// The first byte behind special keys, as a start of a listing.
pub(super) const BEHIND_SPECIAL: &[u8] = b"\x81";
pub(super) const LOG: &[u8] = b"\x800_";
pub(super) const INSTANCE: &[u8] = b"\x801000_";
pub(super) const OLH: &[u8] = b"\x801001_";
pub(super) const RESHARD_LOG: &[u8] = b"\x802001_";

const PREFIXES: [&[u8]; 5] = [LOG, INSTANCE, OLH, RESHARD_LOG, SPECIAL_END];

pub(super) fn is_special(key: &[u8]) -> bool {
    key.first() == Some(&SPECIAL)
}

/// 0 for a plain key, else the position of its kind in the order of kinds; -1 for a special key of no kind.
pub(super) fn kind(key: &[u8]) -> i32 {
    if !is_special(key) {
        return 0;
    }
    PREFIXES.iter().position(|prefix| key.starts_with(prefix)).map_or(-1, |at| at as i32 + 1)
}

/// True if `first` is of a later kind, or of the same and greater.
pub(super) fn is_behind(first: &[u8], second: &[u8]) -> bool {
    (kind(first), first) > (kind(second), second)
}

/// Text that gets smaller as the number grows. Ceph 20.2's numbers from 4 Gi on are its own: negative.
fn descending(number: u64) -> String {
    match number {
        0..0x10 => format!("9{:02}", 0xf - number),
        0x10..0x100 => format!("8{:03}", 0xff - number),
        0x100..0x1000 => format!("7{:04}", 0xfff - number),
        0x1000..0x10000 => format!("6{:05}", 0xffff - number),
        0x10000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - number),
        _ => format!("4{:020}", (number as i64).wrapping_neg()),
    }
}

/// Key of an instance in the order of listings.
pub(super) fn list_key(entry: &DirEntry) -> Bytes {
    let order = descending(entry.versioned_epoch);
    [&entry.key.name[..], b"\0v", order.as_bytes(), b"\0i", &entry.key.instance].concat().into()
}

/// Key of an instance; that of a delete marker without an instance has an end of its own.
pub(super) fn instance_key(key: &ObjectKey, is_marker: bool) -> Bytes {
    let end: &[u8] = if is_marker { b"\0d" } else { b"" };
    [INSTANCE, &key.name, b"\0i", &key.instance, end].concat().into()
}

/// Key of an object: plain without an instance.
pub(super) fn object_key(key: &ObjectKey) -> Bytes {
    if key.instance.is_empty() { Bytes::copy_from_slice(&key.name) } else { instance_key(key, false) }
}

pub(super) fn olh_key(name: &[u8]) -> Bytes {
    [OLH, name].concat().into()
}

/// The object's name in a key of a listing. `None` if the key is damaged.
pub(super) fn listed_name(key: &[u8]) -> Option<&[u8]> {
    let Some(end) = key.iter().position(|byte| *byte == 0) else { return Some(key) };
    let rest = &key[end + 1..];
    let is_order = |order: &[u8]| !order.is_empty() && order.iter().all(|b| b.is_ascii_digit() || *b == b'-');
    let mut fields = rest.split(|byte| *byte == 0);
    let is_sound = fields.all(|field| field.strip_prefix(b"v").is_none_or(is_order));
    (!rest.is_empty() && is_sound).then_some(&key[..end])
}

/// Behind every version of an object.
pub(super) fn behind_versions(name: &[u8]) -> Bytes {
    [name, b"\x01"].concat().into()
}

/// Behind everything that starts with `path`, which ends with a delimiter: no UTF-8 text has byte 0xff.
pub(super) fn behind_prefix(path: &[u8]) -> Bytes {
    [path, b"\xff"].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_instances_sort_first() {
        let key = |versioned_epoch| {
            let key = ObjectKey { name: "o".into(), instance: "i".into() };
            list_key(&DirEntry { key, versioned_epoch, ..DirEntry::default() })
        };
        let epochs = [0, 1, 15, 16, 255, 256, 4095, 4096, 65535, 65536, u64::from(u32::MAX), 1 << 32];
        let keys: Vec<Bytes> = epochs.iter().map(|epoch| key(*epoch)).collect();
        assert!(keys.is_sorted_by(|older, newer| older > newer), "{keys:?}");
        assert_eq!(key(3), &b"o\0v912\0ii"[..]);
        assert_eq!(key(1 << 32), &b"o\0v4-0000000004294967296\0ii"[..]);
        assert!(keys.iter().all(|key| listed_name(key) == Some(b"o")));
    }

    #[test]
    fn damaged_keys_have_no_name() {
        for key in [&b"o\0"[..], b"o\0v\0ix", b"o\0vx\0i"] {
            assert_eq!(listed_name(key), None);
        }
        assert_eq!(listed_name(b"plain"), Some(&b"plain"[..]));
    }

    #[test]
    fn kinds_follow_each_other() {
        let keys = [&b"\xffz"[..], b"\x800_1", b"\x801000_a", b"\x801001_a", b"\x802001_a", b"\x809999_"];
        assert_eq!(keys.map(kind), [0, 1, 2, 3, 4, 5]);
        assert_eq!(kind(b"\x80x"), -1);
        assert!(is_behind(b"\x801001_a", b"\x801000_z") && !is_behind(b"\xff", b"\x801000_"));
    }
}
