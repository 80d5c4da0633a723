//! A set of semaphores: the gateway counts on them which shards of a log have entries.

use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::cls::sem_set::{DecrementOp, IncrementOp, ListOp, ListReply, ResetOp, Semaphore};
use wire::types::{Name, UTime};

const PREFIX: &str = "CLS_SEM_SET_";
/// Maximum semaphores of one change.
const KEYS_MAX: usize = 1000;

/// `E2BIG` for more than one change may name.
fn bounded(count: usize) -> Result<(), MethodStop> {
    if count > KEYS_MAX { Err(Errno::TOOBIG.into()) } else { Ok(()) }
}

fn stored(
    call: &mut MethodCall<'_>,
    names: &BTreeSet<Name>,
) -> Result<BTreeMap<Bytes, Semaphore>, MethodStop> {
    let keys = names.iter().map(|name| omap::key(PREFIX, name)).collect();
    let entries = call.omap_values(keys)?;
    entries.into_iter().map(|(key, value)| Ok((key, omap::stored(&value)?))).collect()
}

fn write(call: &mut MethodCall<'_>, values: Vec<(Bytes, Semaphore)>) -> Result<(), MethodStop> {
    let encoded = |(key, value): (Bytes, Semaphore)| (key, value.to_vec(Features::NONE).into());
    let entries: Vec<(Bytes, Bytes)> = values.into_iter().map(encoded).collect();
    if entries.is_empty() { Ok(()) } else { call.set_omap_values(&entries) }
}

/// A semaphore that is not there counts from zero.
pub(super) fn increment(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: IncrementOp = call.argument()?;
    bounded(op.keys.len())?;
    let mut present = stored(call, &op.keys)?;
    let raised = op.keys.iter().map(|name| {
        let key = omap::key(PREFIX, name);
        let mut semaphore = present.remove(&key).unwrap_or_default();
        semaphore.value = semaphore.value.wrapping_add(1);
        (key, semaphore)
    });
    let raised = raised.collect();
    write(call, raised)?;
    Ok(0)
}

/// The last decrement removes a semaphore; `ENOENT` for one that is not there.
pub(super) fn decrement(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: DecrementOp = call.argument()?;
    bounded(op.keys.len())?;
    let now = call.context.now;
    let present = stored(call, &op.keys)?;
    if present.len() < op.keys.len() {
        return Err(Errno::NOENT.into());
    }
    let (mut lowered, mut removed) = (Vec::new(), Vec::new());
    for (key, semaphore) in present {
        let age = now.as_nanos().checked_sub(semaphore.last_decrement.as_nanos());
        if age.is_none_or(|age| age < op.grace.as_nanos()) {
            continue;
        }
        match semaphore.value {
            0 | 1 => removed.push(key),
            value => lowered.push((key, Semaphore { value: value - 1, last_decrement: now })),
        }
    }
    write(call, lowered)?;
    if !removed.is_empty() {
        call.remove_omap_keys(&removed)?;
    }
    Ok(0)
}

pub(super) fn reset(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ResetOp = call.argument()?;
    bounded(op.values.len())?;
    let semaphore = |(name, value): (Name, u64)| {
        (omap::key(PREFIX, name), Semaphore { value, last_decrement: UTime::ZERO })
    };
    let values = op.values.into_iter().map(semaphore).collect();
    write(call, values)?;
    Ok(0)
}

pub(super) fn list(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ListOp = call.argument()?;
    // A semaphore with the cursor's name is not listed again.
    let after = [PREFIX.as_bytes(), &op.cursor, &[1]].concat();
    let (entries, more) = call.omap_list(&after, PREFIX, omap::reply_max(op.count), true)?;
    let cursor = match entries.last() {
        Some((last, _)) if more => omap::name_of(PREFIX, last).into(),
        _ => Name::EMPTY,
    };
    let value = |(key, value): &(Bytes, Bytes)| {
        let Semaphore { value, .. } = omap::stored(value)?;
        Ok::<_, MethodStop>((omap::name_of(PREFIX, key).into(), value))
    };
    let values = entries.iter().map(value).collect::<Result<_, _>>()?;
    call.finish_with(&ListReply { values, cursor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn keys(names: &[&str]) -> BTreeSet<Name> {
        names.iter().map(|name| Name::from(*name)).collect()
    }

    fn values(o: &mut Object, count: u64, cursor: &str) -> (Vec<(String, u64)>, String) {
        let op = ListOp { count, cursor: cursor.into() };
        let reply: ListReply = decode(&o.call("sem_set", "list", &op).unwrap());
        let values = reply.values.into_iter().map(|(name, value)| (name.to_string(), value));
        (values.collect(), reply.cursor.to_string())
    }

    #[test]
    fn semaphores_count_up_and_down() {
        let mut o = Object::missing();
        o.call("sem_set", "increment", &IncrementOp { keys: keys(&["a", "b"]) }).unwrap();
        o.call("sem_set", "increment", &IncrementOp { keys: keys(&["b"]) }).unwrap();
        assert_eq!(values(&mut o, 9, ""), (vec![("a".into(), 1), ("b".into(), 2)], "".into()));
        assert_eq!(values(&mut o, 1, ""), (vec![("a".into(), 1)], "a".into()));
        assert_eq!(values(&mut o, 1, "a"), (vec![("b".into(), 2)], "".into()));
        let down = DecrementOp { keys: keys(&["a", "b"]), grace: UTime { sec: 10, nsec: 0 } };
        o.call("sem_set", "decrement", &down).unwrap();
        assert_eq!(values(&mut o, 9, "").0, [("b".into(), 1)]);
        assert_eq!(o.call("sem_set", "decrement", &down), Err(Errno::NOENT));
        let down = DecrementOp { keys: keys(&["b"]), ..down };
        o.call("sem_set", "decrement", &down).unwrap();
        assert_eq!(values(&mut o, 9, "").0, [("b".into(), 1)], "within the grace time");
        o.now.sec += 10;
        o.call("sem_set", "decrement", &down).unwrap();
        assert_eq!(values(&mut o, 9, "").0, []);
    }

    #[test]
    fn reset_sets_a_value_and_too_many_keys_are_refused() {
        let mut o = Object::missing();
        let op = ResetOp { values: BTreeMap::from([("a".into(), 7)]) };
        o.call("sem_set", "reset", &op).unwrap();
        assert_eq!(values(&mut o, 9, "").0, [("a".into(), 7)]);
        let many: BTreeSet<Name> = (0..=KEYS_MAX).map(|i| i.to_string().into()).collect();
        assert_eq!(o.call("sem_set", "increment", &IncrementOp { keys: many }), Err(Errno::TOOBIG));
    }
}
