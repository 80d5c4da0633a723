//! The rbd-mirror daemons of a pool.

use crate::classes::rbd::MethodResult;
use crate::classes::{MethodCall, omap};
use wire::types::Name;

const PREFIX: &str = "instance_";

pub fn mirror_instances_list(call: &mut MethodCall<'_>) -> MethodResult {
    let keys = call.omap_scan_keys(PREFIX)?;
    let ids: Vec<Name> = keys.iter().map(|key| omap::name_of(PREFIX, key).into()).collect();
    call.finish_with(&ids)
}

pub fn mirror_instances_add(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    call.set_omap_value(&omap::key(PREFIX, id), b"")?;
    Ok(0)
}

pub fn mirror_instances_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    call.remove_omap_key(omap::key(PREFIX, id))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    #[test]
    fn instances_come_and_go() {
        let mut o = Object::missing();
        for id in ["b", "a"] {
            o.call("rbd", "mirror_instances_add", &id.to_string()).unwrap();
        }
        o.call("rbd", "mirror_instances_remove", &"b".to_string()).unwrap();
        let ids: Vec<Name> = decode(&o.call_bare("rbd", "mirror_instances_list").unwrap());
        assert_eq!(ids, ["a"]);
    }
}
