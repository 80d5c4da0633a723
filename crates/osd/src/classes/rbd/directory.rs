//! The directory of a pool's images, by name and by id, and the object that holds one image's id.
//!
//! The directories of images and of groups have the same form.

use super::{MethodResult, is_valid_id, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features};
use wire::types::Name;

const NAME_PREFIX: &str = "name_";
const ID_PREFIX: &str = "id_";

/// [`dir_state_set`]'s ordinary state.
const STATE_READY: u8 = 0;
/// No image can be added; only an empty directory gets there.
const STATE_ADD_DISABLED: u8 = 1;

pub fn get_id(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    if call.context.size == 0 {
        return Err(Errno::NOENT.into());
    }
    let bytes = call.data(0, call.context.size.min(1 << 16))?.to_bytes();
    let id: Name = omap::stored(&bytes)?;
    call.finish_with(&id)
}

pub fn set_id(call: &mut MethodCall<'_>) -> MethodResult {
    call.must_exist()?;
    let id: Name = call.argument()?;
    if !is_valid_id(&id) {
        return Err(Errno::INVAL.into());
    }
    if call.context.size != 0 {
        return Err(Errno::EXIST.into());
    }
    call.write(0, id.to_vec(Features::NONE).into())?;
    Ok(0)
}

/// `EEXIST` for a name in use, `EBADF` for an id in use unless `may_have_id`.
fn add(call: &mut MethodCall<'_>, name: &Name, id: &Name, may_have_id: bool) -> Result<(), MethodStop> {
    if name.is_empty() || !is_valid_id(id) {
        return Err(Errno::INVAL.into());
    }
    let (name_key, id_key) = (omap::key(NAME_PREFIX, name), omap::key(ID_PREFIX, id));
    if call.omap_value(&name_key)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    if !may_have_id && call.omap_value(&id_key)?.is_some() {
        return Err(Errno::BADF.into());
    }
    let entries =
        [(id_key, name.to_vec(Features::NONE).into()), (name_key, id.to_vec(Features::NONE).into())];
    call.set_omap_values(&entries)
}

/// `ESTALE` if name and id do not belong together.
fn remove(call: &mut MethodCall<'_>, name: &Name, id: &Name) -> Result<(), MethodStop> {
    let (name_key, id_key) = (omap::key(NAME_PREFIX, name), omap::key(ID_PREFIX, id));
    let stored_id: Name = call.omap_must(&name_key)?;
    let stored_name: Name = call.omap_must(&id_key)?;
    if stored_name != *name || stored_id != *id {
        return Err(Errno::STALE.into());
    }
    call.remove_omap_keys(&[name_key, id_key])
}

pub fn dir_add_image(call: &mut MethodCall<'_>) -> MethodResult {
    call.create(false)?;
    let (name, id): (Name, Name) = call.argument()?;
    add(call, &name, &id, false)?;
    Ok(0)
}

pub fn dir_remove_image(call: &mut MethodCall<'_>) -> MethodResult {
    let (name, id): (Name, Name) = call.argument()?;
    remove(call, &name, &id)?;
    Ok(0)
}

pub fn dir_rename_image(call: &mut MethodCall<'_>) -> MethodResult {
    let (source, target, id): (Name, Name, Name) = call.argument()?;
    remove(call, &source, &id)?;
    add(call, &target, &id, true)?;
    Ok(0)
}

pub fn dir_get_id(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored(call, NAME_PREFIX)
}

pub fn dir_get_name(call: &mut MethodCall<'_>) -> MethodResult {
    finish_with_stored(call, ID_PREFIX)
}

fn finish_with_stored(call: &mut MethodCall<'_>, prefix: &str) -> MethodResult {
    let name: Name = call.argument()?;
    let found: Name = call.omap_must(omap::key(prefix, &name))?;
    call.finish_with(&found)
}

/// Names with their ids, ascending.
pub fn dir_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let images: Vec<(Bytes, Name)> = super::decode_values(list_names(call, NAME_PREFIX, &after, max)?)?;
    call.finish_with(&images)
}

pub fn dir_state_assert(call: &mut MethodCall<'_>) -> MethodResult {
    let expected: u8 = call.argument()?;
    match call.omap_must::<u8>("state")? == expected {
        true => Ok(0),
        false => Err(Errno::NOENT.into()),
    }
}

pub fn dir_state_set(call: &mut MethodCall<'_>) -> MethodResult {
    let state: u8 = call.argument()?;
    match state {
        STATE_READY => {}
        STATE_ADD_DISABLED => {
            call.must_exist()?;
            let (images, _) = call.omap_page(NAME_PREFIX.as_bytes(), NAME_PREFIX, 1, false)?;
            if !images.is_empty() {
                return Err(Errno::BUSY.into());
            }
        }
        _ => return Err(Errno::INVAL.into()),
    }
    call.set_omap("state", &state)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn pair(name: &str, id: &str) -> (String, String) {
        (name.to_string(), id.to_string())
    }

    fn list(o: &mut Object, after: &str, max: u64) -> Vec<(Name, Name)> {
        decode(&o.call("rbd", "dir_list", &(after.to_string(), max)).unwrap())
    }

    #[test]
    fn id_is_one_string_of_the_object() {
        let mut o = Object::existing();
        assert_eq!(o.call_bare("rbd", "get_id"), Err(Errno::NOENT));
        assert_eq!(o.call("rbd", "set_id", &"no good".to_string()), Err(Errno::INVAL));
        o.call("rbd", "set_id", &"1234".to_string()).unwrap();
        assert_eq!(o.call("rbd", "set_id", &"5".to_string()), Err(Errno::EXIST));
        assert_eq!(decode::<Name>(&o.call_bare("rbd", "get_id").unwrap()), "1234");
        o.put_data(b"not a string");
        assert_eq!(o.call_bare("rbd", "get_id"), Err(Errno::IO));
        assert_eq!(Object::missing().call("rbd", "set_id", &"5".to_string()), Err(Errno::NOENT));
    }

    #[test]
    fn images_are_found_by_name_and_by_id() {
        let mut o = Object::missing();
        o.call("rbd", "dir_add_image", &pair("b", "2")).unwrap();
        o.call("rbd", "dir_add_image", &pair("a", "1")).unwrap();
        assert_eq!(o.call("rbd", "dir_add_image", &pair("a", "3")), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "dir_add_image", &pair("c", "1")), Err(Errno::BADF));
        assert_eq!(o.call("rbd", "dir_add_image", &pair("", "1")), Err(Errno::INVAL));
        assert_eq!(decode::<Name>(&o.call("rbd", "dir_get_id", &"a".to_string()).unwrap()), "1");
        assert_eq!(decode::<Name>(&o.call("rbd", "dir_get_name", &"2".to_string()).unwrap()), "b");
        assert_eq!(list(&mut o, "", 9), [("a".into(), "1".into()), ("b".into(), "2".into())]);
        assert_eq!(list(&mut o, "a", 9), [("b".into(), "2".into())]);
        assert_eq!(list(&mut o, "", 1), [("a".into(), "1".into())]);
        assert_eq!(list(&mut o, "", 0), []);
    }

    #[test]
    fn rename_wants_name_and_id_of_one_image() {
        let mut o = Object::missing();
        o.call("rbd", "dir_add_image", &pair("a", "1")).unwrap();
        o.call("rbd", "dir_add_image", &pair("b", "2")).unwrap();
        let rename =
            |source: &str, target: &str, id: &str| (source.to_string(), target.to_string(), id.to_string());
        assert_eq!(o.call("rbd", "dir_rename_image", &rename("a", "c", "2")), Err(Errno::STALE));
        assert_eq!(o.call("rbd", "dir_rename_image", &rename("a", "b", "1")), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "dir_rename_image", &rename("x", "c", "1")), Err(Errno::NOENT));
        o.call("rbd", "dir_rename_image", &rename("a", "c", "1")).unwrap();
        assert_eq!(list(&mut o, "", 9), [("b".into(), "2".into()), ("c".into(), "1".into())]);
        assert_eq!(o.call("rbd", "dir_remove_image", &pair("b", "1")), Err(Errno::STALE));
        o.call("rbd", "dir_remove_image", &pair("b", "2")).unwrap();
        assert_eq!(o.call("rbd", "dir_get_name", &"2".to_string()), Err(Errno::NOENT));
    }

    #[test]
    fn only_empty_directory_can_be_closed() {
        let mut o = Object::missing();
        assert_eq!(o.call("rbd", "dir_state_set", &STATE_ADD_DISABLED), Err(Errno::NOENT));
        o.call("rbd", "dir_state_set", &STATE_READY).unwrap();
        o.call("rbd", "dir_add_image", &pair("a", "1")).unwrap();
        assert_eq!(o.call("rbd", "dir_state_set", &STATE_ADD_DISABLED), Err(Errno::BUSY));
        o.call("rbd", "dir_state_assert", &STATE_READY).unwrap();
        assert_eq!(o.call("rbd", "dir_state_assert", &STATE_ADD_DISABLED), Err(Errno::NOENT));
        o.call("rbd", "dir_remove_image", &pair("a", "1")).unwrap();
        o.call("rbd", "dir_state_set", &STATE_ADD_DISABLED).unwrap();
        assert_eq!(o.call("rbd", "dir_state_set", &9u8), Err(Errno::INVAL));
    }
}
