//! Groups of images: the pool's directory of groups, the images of a group, and an image's link to its group.

use super::header::{OP_GROUP, set_op_features};
use super::{MethodResult, directory};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use wire::types::cls::rbd::{GroupImageSpec, GroupImageStatus, GroupSpec};

const IMAGE_PREFIX: &str = "image_";
/// Key of an image's link to its group.
const LINK: &str = "rbd_group_ref";

pub fn group_dir_list(call: &mut MethodCall<'_>) -> MethodResult {
    directory::dir_list(call)
}

pub fn group_dir_add(call: &mut MethodCall<'_>) -> MethodResult {
    directory::dir_add_image(call)
}

pub fn group_dir_remove(call: &mut MethodCall<'_>) -> MethodResult {
    directory::dir_remove_image(call)
}

pub fn group_dir_rename(call: &mut MethodCall<'_>) -> MethodResult {
    directory::dir_rename_image(call)
}

/// Pool in sixteen hexadecimal digits, then the image's id. Empty without a pool.
fn image_key(spec: &GroupImageSpec) -> Vec<u8> {
    match spec.pool {
        -1 => Vec::new(),
        pool => [format!("{IMAGE_PREFIX}{pool:016x}_").as_bytes(), &spec.image].concat(),
    }
}

fn image_of(key: &[u8]) -> Option<GroupImageSpec> {
    let (pool, image) = omap::name_of(IMAGE_PREFIX, key).split_at_checked(16)?;
    let pool = u64::from_str_radix(std::str::from_utf8(pool).ok()?, 16).ok()?;
    Some(GroupImageSpec { image: image.strip_prefix(b"_")?.into(), pool: pool as i64 })
}

pub fn group_image_set(call: &mut MethodCall<'_>) -> MethodResult {
    let GroupImageStatus { spec, state } = call.argument()?;
    call.set_omap(image_key(&spec), &state)?;
    Ok(0)
}

pub fn group_image_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let spec: GroupImageSpec = call.argument()?;
    call.remove_omap_key(image_key(&spec))?;
    Ok(0)
}

pub fn group_image_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (GroupImageSpec, u64) = call.argument()?;
    let (entries, _) = call.omap_list(&image_key(&after), IMAGE_PREFIX, omap::reply_max(max), true)?;
    let status = |(key, value): &omap::Entry| {
        let state = omap::stored(value)?;
        let spec = image_of(key).ok_or(MethodStop::Failed(Errno::IO))?;
        Ok::<_, MethodStop>(GroupImageStatus { spec, state })
    };
    let images = entries.iter().map(status).collect::<Result<Vec<_>, _>>()?;
    call.finish_with(&images)
}

/// The group of an image. `EINVAL` when its link is damaged.
fn stored_link(call: &mut MethodCall<'_>) -> Result<Option<GroupSpec>, MethodStop> {
    match call.omap_as(LINK) {
        Err(MethodStop::Failed(Errno::IO)) => Err(Errno::INVAL.into()),
        other => other,
    }
}

pub fn image_group_add(call: &mut MethodCall<'_>) -> MethodResult {
    let group: GroupSpec = call.argument()?;
    match stored_link(call)? {
        Some(present) if present == group => return Ok(0),
        Some(_) => return Err(Errno::EXIST.into()),
        None => {}
    }
    set_op_features(call, OP_GROUP, OP_GROUP)?;
    call.set_omap(LINK, &group)?;
    Ok(0)
}

/// `EBADF` for another group than the image's.
pub fn image_group_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let group: GroupSpec = call.argument()?;
    let present = stored_link(call)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    if present != group {
        return Err(Errno::BADF.into());
    }
    call.remove_omap_key(LINK)?;
    set_op_features(call, 0, OP_GROUP)?;
    Ok(0)
}

/// Pool -1 for an image without a group.
pub fn image_group_get(call: &mut MethodCall<'_>) -> MethodResult {
    let group = stored_link(call)?.unwrap_or_default();
    call.finish_with(&group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn spec(image: &str, pool: i64) -> GroupImageSpec {
        GroupImageSpec { image: image.into(), pool }
    }

    #[test]
    fn images_are_listed_by_pool_and_id() {
        let mut o = Object::missing();
        for (image, pool) in [("b", 1), ("a", 1), ("c", 0)] {
            let status = GroupImageStatus { spec: spec(image, pool), state: 0 };
            o.call("rbd", "group_image_set", &status).unwrap();
        }
        assert!(o.omap("image_0000000000000001_a").is_some());
        let mut list = |after: GroupImageSpec, max: u64| -> Vec<GroupImageSpec> {
            let got: Vec<GroupImageStatus> =
                decode(&o.call("rbd", "group_image_list", &(after, max)).unwrap());
            got.into_iter().map(|s| s.spec).collect()
        };
        assert_eq!(list(spec("", -1), 9), [spec("c", 0), spec("a", 1), spec("b", 1)]);
        assert_eq!(list(spec("c", 0), 1), [spec("a", 1)]);
        o.call("rbd", "group_image_remove", &spec("a", 1)).unwrap();
        assert_eq!(o.omap("image_0000000000000001_a"), None);
    }

    #[test]
    fn image_belongs_to_one_group() {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (1u64, "p".to_string()))).unwrap();
        let group = |pool| GroupSpec { pool, group: "g".into() };
        o.call("rbd", "image_group_add", &group(1)).unwrap();
        o.call("rbd", "image_group_add", &group(1)).unwrap();
        assert_eq!(o.call("rbd", "image_group_add", &group(2)), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "image_group_remove", &group(2)), Err(Errno::BADF));
        assert_eq!(decode::<GroupSpec>(&o.call_bare("rbd", "image_group_get").unwrap()), group(1));
        assert_eq!(decode::<u64>(&o.call_bare("rbd", "op_features_get").unwrap()), OP_GROUP);
        o.call("rbd", "image_group_remove", &group(1)).unwrap();
        assert_eq!(o.call("rbd", "image_group_remove", &group(1)), Err(Errno::NOENT));
        assert_eq!(decode::<GroupSpec>(&o.call_bare("rbd", "image_group_get").unwrap()).pool, -1);
    }

    #[test]
    fn group_directory_is_a_directory() {
        let mut o = Object::missing();
        let pair = |name: &str, id: &str| (name.to_string(), id.to_string());
        o.call("rbd", "group_dir_add", &pair("g", "1")).unwrap();
        o.call("rbd", "group_dir_rename", &("g".to_string(), "h".to_string(), "1".to_string())).unwrap();
        let groups: Vec<(String, String)> =
            decode(&o.call("rbd", "group_dir_list", &(String::new(), 9u64)).unwrap());
        assert_eq!(groups, [pair("h", "1")]);
        o.call("rbd", "group_dir_remove", &pair("h", "1")).unwrap();
    }
}
