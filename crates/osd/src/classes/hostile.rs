//! Bytes of an attacker as the argument of an object class method, and as what the object holds: called by the fuzz target
//! and by the replay of its corpus.

use super::registry;
use super::{CallContext, MethodCall, MethodStatus};
use bytes::Bytes;
use codec::Features;
use std::collections::BTreeMap;
use store::{Answer, Query};
use wire::frames::crc32c;
use wire::types::{EntityAddr, EntityKind, EntityName, UTime};

/// No method asks more often: each run ends or asks for something that it has not asked for before.
const RUNS_MAX: usize = 1000;
/// Flags of the third byte.
const EXISTS: u8 = 1;
const ATTRS_ARE_ABSENT: u8 = 2;
const OMAP_IS_EMPTY: u8 = 4;

/// The two bytes that stand for a method in the input of [`call`]: the same however the table grows.
pub fn method_tag(class: &str, name: &str) -> u16 {
    crc32c(format!("{class}.{name}").as_bytes()) as u16
}

/// Tags of all methods with their names.
pub fn methods() -> impl Iterator<Item = (String, u16)> {
    registry::methods().map(|m| (format!("{}.{}", m.class, m.name), method_tag(m.class, m.name)))
}

/// Two bytes choose a method, one holds flags, one the length of the argument; the rest is every value that the object
/// holds: its data, each attribute and each omap value.
///
/// # Panics
/// If a method panics, waits for nothing, changes an object although it may only read, or never ends.
pub fn call(data: &[u8]) {
    let Some((&[low, high, flags, argument_len], rest)) = data.split_first_chunk::<4>() else { return };
    let tag = u16::from_le_bytes([low, high]);
    let chosen = registry::methods().find(|m| method_tag(m.class, m.name) == tag);
    let any = || registry::methods().nth(usize::from(tag) % registry::methods().count());
    let method = chosen.or_else(any).expect("there are methods");
    let (argument, held) = rest.split_at(rest.len().min(argument_len.into()));
    let (argument, held) = (Bytes::copy_from_slice(argument), Bytes::copy_from_slice(held));
    let exists = flags & EXISTS != 0;
    let watchers = BTreeMap::new();
    let mut known = Vec::new();
    for _ in 0..RUNS_MAX {
        let context = CallContext {
            argument: &argument,
            client: EntityName::new(EntityKind::CLIENT, 1),
            client_addr: EntityAddr::msgr2(([127, 0, 0, 1], 0).into(), 1),
            features: Features::ALL,
            now: UTime { sec: 1000, nsec: 0 },
            seed: 7,
            exists,
            size: if exists { held.len() as u64 } else { 0 },
            mtime: UTime::ZERO,
            stored: exists,
            watchers: &watchers,
            snapset_seq: 0,
            pg_user_version: 5,
            position: 0,
            known: &known,
        };
        match MethodCall::run(method, &context) {
            MethodStatus::NeedsReads(queries) => {
                assert!(!queries.is_empty() && method.reads, "{method:?} waits for nothing");
                known.extend(queries.into_iter().map(|query| {
                    let answer = answer(&query, flags, &held);
                    (query, answer)
                }));
            }
            MethodStatus::Done(outcome) => {
                assert!(outcome.operations.is_empty() || method.writes, "{method:?} changes the object");
                return;
            }
        }
    }
    panic!("{method:?} does not end");
}

fn answer(query: &Query, flags: u8, held: &Bytes) -> Answer {
    match query {
        Query::Stat => Answer::Stat { size: held.len() as u64 },
        Query::Data { offset, len } => {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX).min(held.len());
            let end = start.saturating_add(usize::try_from(*len).unwrap_or(usize::MAX)).min(held.len());
            Answer::Data(held.slice(start..end).into())
        }
        Query::Attr { .. } if flags & ATTRS_ARE_ABSENT != 0 => Answer::Attr(None),
        Query::Attr { .. } => Answer::Attr(Some(held.clone())),
        Query::Attrs => Answer::Attrs(vec![("_lock.a".into(), held.clone())]),
        Query::OmapGet { .. } if flags & OMAP_IS_EMPTY != 0 => Answer::OmapGet(Vec::new()),
        Query::OmapGet { keys } => Answer::OmapGet(keys.iter().map(|k| (k.clone(), held.clone())).collect()),
        Query::OmapList { .. } if flags & OMAP_IS_EMPTY != 0 => {
            Answer::OmapList { entries: Vec::new(), more: false }
        }
        Query::OmapList { after, prefix, max, .. } => omap_page(after.as_ref(), prefix, *max, held),
        Query::OmapHeader => Answer::OmapHeader(held.clone()),
        other => panic!("no class asks {other:?}"),
    }
}

/// Three keys with the prefix, each with the same value; the last one is damaged text.
fn omap_page(after: Option<&Bytes>, prefix: &Bytes, max: usize, held: &Bytes) -> Answer {
    let keys =
        [&b"0000000000000001_a"[..], b"a_b", b"\xff"].map(|end| Bytes::from([&prefix[..], end].concat()));
    let mut rest = keys.into_iter().filter(|key| after.is_none_or(|after| key > after));
    let entries: Vec<_> = rest.by_ref().take(max).map(|key| (key, held.clone())).collect();
    Answer::OmapList { more: rest.next().is_some(), entries }
}
