//! Images that are removed later, and can be restored until then.

use super::{MethodResult, decode_values, is_valid_id, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rbd::TrashSpec;

const PREFIX: &str = "id_";

pub fn trash_add(call: &mut MethodCall<'_>) -> MethodResult {
    call.create(false)?;
    let (id, spec): (Name, TrashSpec) = call.argument()?;
    if !is_valid_id(&id) {
        return Err(Errno::INVAL.into());
    }
    let key = omap::key(PREFIX, id);
    if call.omap_as::<TrashSpec>(&key)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    call.set_omap(&key, &spec)?;
    Ok(0)
}

pub fn trash_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let (key, _) = stored(call)?;
    call.remove_omap_key(key)?;
    Ok(0)
}

pub fn trash_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let images: Vec<(Bytes, TrashSpec)> = decode_values(list_names(call, PREFIX, &after, max)?)?;
    call.finish_with(&images)
}

/// The entry as it is stored.
pub fn trash_get(call: &mut MethodCall<'_>) -> MethodResult {
    let (_, value) = stored(call)?;
    call.reply(value);
    Ok(0)
}

/// Key and value of the image that the argument names.
fn stored(call: &mut MethodCall<'_>) -> Result<(Bytes, Bytes), MethodStop> {
    let id: Name = call.argument()?;
    let key = omap::key(PREFIX, id);
    let value = call.omap_value(&key)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    Ok((key, value))
}

/// `ESTALE` if the image is neither in the expected state nor in the new one.
pub fn trash_state_set(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, state, expected): (Name, u8, u8) = call.argument()?;
    let key = omap::key(PREFIX, id);
    let spec: TrashSpec = call.omap_must(&key)?;
    if spec.state == expected {
        call.set_omap(&key, &TrashSpec { state, ..spec })?;
    } else if spec.state != state {
        return Err(Errno::STALE.into());
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use std::collections::BTreeMap;

    fn spec(name: &str) -> TrashSpec {
        TrashSpec { name: name.into(), ..TrashSpec::default() }
    }

    #[test]
    fn trash_is_listed_by_id() {
        let mut o = Object::missing();
        for id in ["1", "2"] {
            o.call("rbd", "trash_add", &(id.to_string(), spec("name"))).unwrap();
        }
        assert_eq!(o.call("rbd", "trash_add", &("1".to_string(), spec("x"))), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "trash_add", &("-".to_string(), spec("x"))), Err(Errno::INVAL));
        let got: BTreeMap<Name, TrashSpec> =
            decode(&o.call("rbd", "trash_list", &("1".to_string(), 9u64)).unwrap());
        assert_eq!(got.into_iter().collect::<Vec<_>>(), [("2".into(), spec("name"))]);
        let one = "1".to_string();
        assert_eq!(decode::<TrashSpec>(&o.call("rbd", "trash_get", &one).unwrap()), spec("name"));
        o.call("rbd", "trash_remove", &one).unwrap();
        assert_eq!(o.call("rbd", "trash_remove", &one), Err(Errno::NOENT));
        assert_eq!(o.call("rbd", "trash_get", &one), Err(Errno::NOENT));
    }

    #[test]
    fn state_moves_only_from_the_expected_one() {
        let mut o = Object::missing();
        o.call("rbd", "trash_add", &("1".to_string(), spec("name"))).unwrap();
        let set = |state: u8, expected: u8| ("1".to_string(), state, expected);
        o.call("rbd", "trash_state_set", &set(2, 0)).unwrap();
        o.call("rbd", "trash_state_set", &set(2, 0)).unwrap();
        assert_eq!(o.call("rbd", "trash_state_set", &set(3, 1)), Err(Errno::STALE));
    }
}
