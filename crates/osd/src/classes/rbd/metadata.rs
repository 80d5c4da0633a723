//! Key and value pairs that users and settings put on an image.

use super::{MethodResult, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::types::Name;

const PREFIX: &str = "metadata_";
/// Entries for a client that asks for 0.
const LIST_DEFAULT: u64 = 64;

pub fn metadata_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let max = if max == 0 { LIST_DEFAULT } else { max };
    let entries = list_names(call, PREFIX, &after, max)?;
    call.finish_with(&entries)
}

pub fn metadata_set(call: &mut MethodCall<'_>) -> MethodResult {
    let entries: BTreeMap<Name, Bytes> = call.argument()?;
    let entries: Vec<_> = entries.into_iter().map(|(name, value)| (omap::key(PREFIX, name), value)).collect();
    call.set_omap_values(&entries)?;
    Ok(0)
}

pub fn metadata_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let name: Name = call.argument()?;
    call.remove_omap_key(omap::key(PREFIX, name))?;
    Ok(0)
}

pub fn metadata_get(call: &mut MethodCall<'_>) -> MethodResult {
    let name: Name = call.argument()?;
    let value = call.omap_value(&omap::key(PREFIX, name))?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn pairs_are_set_listed_and_removed() {
        let mut o = Object::existing();
        let pairs: BTreeMap<Name, Bytes> =
            (0..100).map(|i| (format!("key{i:03}").into(), Bytes::from(i.to_string()))).collect();
        o.call("rbd", "metadata_set", &pairs).unwrap();
        let mut list = |after: &str, max: u64| -> BTreeMap<Name, Bytes> {
            decode(&o.call("rbd", "metadata_list", &(after.to_string(), max)).unwrap())
        };
        assert_eq!(list("", 1000), pairs);
        assert_eq!(list("", 0).len(), 64);
        assert_eq!(list("key097", 0).len(), 2);
        let key = "key007".to_string();
        assert_eq!(decode::<Bytes>(&o.call("rbd", "metadata_get", &key).unwrap()), "7");
        o.call("rbd", "metadata_remove", &key).unwrap();
        assert_eq!(o.call("rbd", "metadata_get", &key), Err(Errno::NOENT));
        o.call("rbd", "metadata_remove", &key).unwrap();
        assert_eq!(Object::missing().call("rbd", "metadata_remove", &key), Err(Errno::NOENT));
    }
}
