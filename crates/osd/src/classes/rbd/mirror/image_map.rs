//! Assignment of mirrored images to rbd-mirror daemons.

use crate::classes::rbd::{MethodResult, ignore_missing, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rbd::MirrorImageMap;

const PREFIX: &str = "image_map_";

/// `EINVAL` when an entry is damaged.
pub fn mirror_image_map_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let entries = list_names(call, PREFIX, &after, max)?;
    let decoded: Result<Vec<(Bytes, MirrorImageMap)>, _> = super::super::decode_values(entries);
    call.finish_with(&decoded.map_err(|_| MethodStop::Failed(Errno::INVAL))?)
}

pub fn mirror_image_map_update(call: &mut MethodCall<'_>) -> MethodResult {
    let (global, map): (Name, MirrorImageMap) = call.argument()?;
    call.set_omap(omap::key(PREFIX, global), &map)?;
    Ok(0)
}

pub fn mirror_image_map_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let global: Name = call.argument()?;
    ignore_missing(call.remove_omap_key(omap::key(PREFIX, global)))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::UTime;

    #[test]
    fn map_is_listed_by_global_id() {
        let mut o = Object::missing();
        let map = MirrorImageMap { instance: "i".into(), mapped_time: UTime::ZERO, data: "d".into() };
        for global in ["g1", "g2"] {
            o.call("rbd", "mirror_image_map_update", &(global.to_string(), map.clone())).unwrap();
        }
        o.call("rbd", "mirror_image_map_remove", &"g1".to_string()).unwrap();
        let got: Vec<(Name, MirrorImageMap)> =
            decode(&o.call("rbd", "mirror_image_map_list", &(String::new(), 9u64)).unwrap());
        assert_eq!(got, [("g2".into(), map)]);
    }
}
