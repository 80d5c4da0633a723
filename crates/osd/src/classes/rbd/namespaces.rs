//! Namespaces of a pool that hold images.

use super::{MethodResult, list_names};
use crate::classes::{MethodCall, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;

const PREFIX: &str = "name_";

pub fn namespace_add(call: &mut MethodCall<'_>) -> MethodResult {
    let name: Name = call.argument()?;
    let key = omap::key(PREFIX, name);
    if call.omap_value(&key)?.is_some() {
        return Err(Errno::EXIST.into());
    }
    call.set_omap_value(&key, b"")?;
    Ok(0)
}

pub fn namespace_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let name: Name = call.argument()?;
    let key = omap::key(PREFIX, name);
    if call.omap_value(&key)?.is_none() {
        return Err(Errno::NOENT.into());
    }
    call.remove_omap_key(key)?;
    Ok(0)
}

pub fn namespace_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let names: Vec<Bytes> = list_names(call, PREFIX, &after, max)?.into_iter().map(|e| e.0).collect();
    call.finish_with(&names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn namespaces_are_added_once_and_listed() {
        let mut o = Object::missing();
        for name in ["b", "a"] {
            o.call("rbd", "namespace_add", &name.to_string()).unwrap();
        }
        assert_eq!(o.call("rbd", "namespace_add", &"a".to_string()), Err(Errno::EXIST));
        let names: Vec<Name> = decode(&o.call("rbd", "namespace_list", &(String::new(), 9u64)).unwrap());
        assert_eq!(names, ["a", "b"]);
        o.call("rbd", "namespace_remove", &"a".to_string()).unwrap();
        assert_eq!(o.call("rbd", "namespace_remove", &"a".to_string()), Err(Errno::NOENT));
    }
}
