//! Comparisons of omap values with given ones, and changes of those that compare as asked.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::Reader;
use std::collections::BTreeMap;
use wire::types::cls::cmpomap::{CompareOp, CompareRemoveOp};
use wire::types::{Name, op_value};

/// Maximum keys of one call.
const KEYS_MAX: usize = 1000;

fn stored(
    call: &mut MethodCall<'_>,
    wanted: &BTreeMap<Name, Bytes>,
) -> Result<BTreeMap<Bytes, Bytes>, MethodStop> {
    let keys = wanted.keys().map(|key| Bytes::copy_from_slice(key)).collect();
    Ok(call.omap_values(keys)?.into_iter().collect())
}

/// `given OP stored`. `EIO` for a stored value that is no number, `EINVAL` for a given one.
fn holds(mode: u8, comparison: u8, given: &[u8], stored: &[u8]) -> Result<bool, MethodStop> {
    let ordering = match mode {
        op_value::CMP_MODE_STRING => given.cmp(stored),
        op_value::CMP_MODE_U64 => {
            let given = Reader::new(given).u64().map_err(|_| MethodStop::Failed(Errno::INVAL))?;
            // An empty value is zero.
            let stored = if stored.is_empty() { Ok(0) } else { Reader::new(stored).u64() };
            given.cmp(&stored.map_err(|_| MethodStop::Failed(Errno::IO))?)
        }
        _ => return Err(Errno::INVAL.into()),
    };
    match comparison {
        op_value::CMP_EQ => Ok(ordering.is_eq()),
        op_value::CMP_NE => Ok(ordering.is_ne()),
        op_value::CMP_GT => Ok(ordering.is_gt()),
        op_value::CMP_GTE => Ok(ordering.is_ge()),
        op_value::CMP_LT => Ok(ordering.is_lt()),
        op_value::CMP_LTE => Ok(ordering.is_le()),
        _ => Err(Errno::INVAL.into()),
    }
}

/// The same, for a change: a damaged stored value does not compare.
fn allows(mode: u8, comparison: u8, given: &[u8], stored: &[u8]) -> Result<bool, MethodStop> {
    match holds(mode, comparison, given, stored) {
        Err(MethodStop::Failed(Errno::IO)) => Ok(false),
        other => other,
    }
}

/// `ECANCELED` unless all compare as asked. A key that is not there needs a default.
pub(super) fn cmp_vals(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let CompareOp { mode, comparison, values, default } = call.argument()?;
    bounded(&values)?;
    let present = stored(call, &values)?;
    for (key, given) in &values {
        let Some(stored) = present.get(&key[..]).or(default.as_ref()) else {
            return Err(Errno::CANCELED.into());
        };
        if !holds(mode, comparison, given, stored)? {
            return Err(Errno::CANCELED.into());
        }
    }
    Ok(0)
}

/// Sets those that compare as asked.
pub(super) fn cmp_set_vals(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let CompareOp { mode, comparison, values, default } = call.argument()?;
    bounded(&values)?;
    let present = stored(call, &values)?;
    let mut changed = Vec::new();
    for (key, given) in values {
        let stored = present.get(&key[..]).or(default.as_ref());
        if let Some(stored) = stored
            && allows(mode, comparison, &given, stored)?
        {
            changed.push((Bytes::copy_from_slice(&key), given));
        }
    }
    if !changed.is_empty() {
        call.set_omap_values(&changed)?;
    }
    Ok(0)
}

/// Removes those that compare as asked.
pub(super) fn cmp_rm_keys(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let CompareRemoveOp { mode, comparison, values } = call.argument()?;
    bounded(&values)?;
    let present = stored(call, &values)?;
    let mut removed = Vec::new();
    for (key, given) in values {
        if let Some((key, stored)) = present.get_key_value(&key[..])
            && allows(mode, comparison, &given, stored)?
        {
            removed.push(key.clone());
        }
    }
    if !removed.is_empty() {
        call.remove_omap_keys(&removed)?;
    }
    Ok(0)
}

/// `E2BIG` for more keys than one call may name.
fn bounded(values: &BTreeMap<Name, Bytes>) -> Result<(), MethodStop> {
    if values.len() > KEYS_MAX { Err(Errno::TOOBIG.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::Object;

    fn number(n: u64) -> Bytes {
        Bytes::copy_from_slice(&n.to_le_bytes())
    }

    fn compare(comparison: u8, given: u64, default: Option<u64>) -> CompareOp {
        let values = BTreeMap::from([("k".into(), number(given))]);
        CompareOp { mode: op_value::CMP_MODE_U64, comparison, values, default: default.map(number) }
    }

    #[test]
    fn numbers_compare_given_with_stored() {
        use op_value::*;
        let mut o = Object::existing();
        o.put_omap("k", &number(5));
        for (comparison, holding) in [
            (CMP_EQ, vec![5]),
            (CMP_NE, vec![4, 6]),
            (CMP_GT, vec![6]),
            (CMP_GTE, vec![5, 6]),
            (CMP_LT, vec![4]),
            (CMP_LTE, vec![4, 5]),
        ] {
            for given in 4..=6 {
                let result = o.call("cmpomap", "cmp_vals", &compare(comparison, given, None));
                assert_eq!(result.is_ok(), holding.contains(&given), "{comparison} {given}");
            }
        }
        o.put_omap("k", b"x");
        assert_eq!(o.call("cmpomap", "cmp_vals", &compare(CMP_EQ, 5, None)), Err(Errno::IO));
        assert_eq!(o.call("cmpomap", "cmp_vals", &compare(9, 5, None)), Err(Errno::IO));
    }

    #[test]
    fn absent_key_needs_a_default() {
        let mut o = Object::existing();
        let eq = op_value::CMP_EQ;
        assert_eq!(o.call("cmpomap", "cmp_vals", &compare(eq, 0, None)), Err(Errno::CANCELED));
        o.call("cmpomap", "cmp_vals", &compare(eq, 3, Some(3))).unwrap();
        o.call("cmpomap", "cmp_set_vals", &compare(eq, 3, None)).unwrap();
        assert_eq!(o.omap("k"), None);
        o.call("cmpomap", "cmp_set_vals", &compare(eq, 3, Some(3))).unwrap();
        assert_eq!(o.omap("k").unwrap(), number(3));
    }

    #[test]
    fn only_what_compares_changes() {
        let mut o = Object::existing();
        o.put_omap("k", &number(5));
        o.call("cmpomap", "cmp_set_vals", &compare(op_value::CMP_GT, 4, None)).unwrap();
        assert_eq!(o.omap("k").unwrap(), number(5));
        o.call("cmpomap", "cmp_set_vals", &compare(op_value::CMP_GT, 6, None)).unwrap();
        assert_eq!(o.omap("k").unwrap(), number(6));
        let remove = |comparison| {
            let CompareOp { mode, comparison, values, .. } = compare(comparison, 6, None);
            CompareRemoveOp { mode, comparison, values }
        };
        o.call("cmpomap", "cmp_rm_keys", &remove(op_value::CMP_NE)).unwrap();
        assert!(o.omap("k").is_some());
        o.call("cmpomap", "cmp_rm_keys", &remove(op_value::CMP_EQ)).unwrap();
        assert!(o.omap("k").is_none());
    }
}
