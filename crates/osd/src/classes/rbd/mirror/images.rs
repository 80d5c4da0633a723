//! The images of a pool that are mirrored: by image, and by the global id under which all sites know it.

use super::status;
use crate::classes::rbd::{MethodResult, ignore_missing, list_names};
use crate::classes::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rbd::{IMAGE_DISABLING, MirrorImage};

pub(super) const PREFIX: &str = "image_";
const GLOBAL_PREFIX: &str = "global_";

pub(super) fn stored_image(call: &mut MethodCall<'_>, id: &Name) -> Result<Option<MirrorImage>, MethodStop> {
    call.omap_as(omap::key(PREFIX, id))
}

/// Image that a global id names.
pub(super) fn image_id(call: &mut MethodCall<'_>, global: &Name) -> Result<Option<Name>, MethodStop> {
    call.omap_as(omap::key(GLOBAL_PREFIX, global))
}

/// Images by id, at most `max`, from the first after `after`.
pub(super) fn list(
    call: &mut MethodCall<'_>,
    after: &Name,
    max: u64,
) -> Result<Vec<(Bytes, MirrorImage)>, MethodStop> {
    super::super::decode_values(list_names(call, PREFIX, after, max)?)
}

/// Ids with global ids.
pub fn mirror_image_list(call: &mut MethodCall<'_>) -> MethodResult {
    let (after, max): (Name, u64) = call.argument()?;
    let images: Vec<_> =
        list(call, &after, max)?.into_iter().map(|(id, image)| (id, image.global_id)).collect();
    call.finish_with(&images)
}

pub fn mirror_image_get_image_id(call: &mut MethodCall<'_>) -> MethodResult {
    let global: Name = call.argument()?;
    let id = image_id(call, &global)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&id)
}

pub fn mirror_image_get(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    let image = stored_image(call, &id)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&image)
}

/// `EEXIST` for a global id in use, `ENOENT` for a new image that is being disabled, `EINVAL` for a change of the
/// global id.
pub fn mirror_image_set(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, image): (Name, MirrorImage) = call.argument()?;
    match stored_image(call, &id)? {
        Some(present) if present.global_id != image.global_id => return Err(Errno::INVAL.into()),
        Some(_) => {}
        None if image_id(call, &image.global_id)?.is_some() => return Err(Errno::EXIST.into()),
        None if image.state == IMAGE_DISABLING => return Err(Errno::NOENT.into()),
        None => {}
    }
    call.set_omap(omap::key(PREFIX, &id), &image)?;
    call.set_omap(omap::key(GLOBAL_PREFIX, &image.global_id), &id)?;
    Ok(0)
}

/// `EBUSY` unless the image is being disabled.
pub fn mirror_image_remove(call: &mut MethodCall<'_>) -> MethodResult {
    let id: Name = call.argument()?;
    let image = stored_image(call, &id)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    if image.state != IMAGE_DISABLING {
        return Err(Errno::BUSY.into());
    }
    call.remove_omap_key(omap::key(PREFIX, &id))?;
    ignore_missing(call.remove_omap_key(omap::key(GLOBAL_PREFIX, &image.global_id)))?;
    status::remove_all(call, &image.global_id)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::rbd::IMAGE_ENABLED;

    fn image(id: &str, global: &str, state: u8) -> (String, MirrorImage) {
        (id.to_string(), MirrorImage { global_id: global.into(), state, mode: 1 })
    }

    #[test]
    fn images_are_found_by_both_ids() {
        let mut o = Object::missing();
        assert_eq!(o.call("rbd", "mirror_image_set", &image("1", "g1", IMAGE_DISABLING)), Err(Errno::NOENT));
        o.call("rbd", "mirror_image_set", &image("1", "g1", IMAGE_ENABLED)).unwrap();
        o.call("rbd", "mirror_image_set", &image("2", "g2", IMAGE_ENABLED)).unwrap();
        assert_eq!(o.call("rbd", "mirror_image_set", &image("3", "g1", IMAGE_ENABLED)), Err(Errno::EXIST));
        assert_eq!(o.call("rbd", "mirror_image_set", &image("1", "g3", IMAGE_ENABLED)), Err(Errno::INVAL));
        let global = "g2".to_string();
        assert_eq!(decode::<Name>(&o.call("rbd", "mirror_image_get_image_id", &global).unwrap()), "2");
        let list: Vec<(Name, Name)> =
            decode(&o.call("rbd", "mirror_image_list", &("1".to_string(), 9u64)).unwrap());
        assert_eq!(list, [("2".into(), "g2".into())]);
        let one = "1".to_string();
        assert_eq!(o.call("rbd", "mirror_image_remove", &one), Err(Errno::BUSY));
        o.call("rbd", "mirror_image_set", &image("1", "g1", IMAGE_DISABLING)).unwrap();
        assert_eq!(decode::<MirrorImage>(&o.call("rbd", "mirror_image_get", &one).unwrap()).state, 0);
        o.call("rbd", "mirror_image_remove", &one).unwrap();
        assert_eq!(o.call("rbd", "mirror_image_get", &one), Err(Errno::NOENT));
        assert_eq!(o.omap("global_g1"), None);
    }
}
