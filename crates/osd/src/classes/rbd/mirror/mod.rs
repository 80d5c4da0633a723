//! Mirroring of a pool's images to other clusters: the pool's own uuid and mode, and what the files beside this hold.

pub(in crate::classes) mod image_map;
pub(in crate::classes) mod images;
pub(in crate::classes) mod instances;
pub(in crate::classes) mod peers;
pub(in crate::classes) mod snapshots;
pub(in crate::classes) mod status;

use super::{MethodResult, ignore_missing};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;

const UUID: &str = "mirror_uuid";
const MODE: &str = "mirror_mode";
const REMOTE_NAMESPACE: &str = "mirror_remote_namespace";

const MODE_DISABLED: u32 = 0;
/// Image, pool, init-only.
const MODE_LAST: u32 = 3;

/// The pool's uuid.
fn stored_uuid(call: &mut MethodCall<'_>) -> Result<Option<Name>, MethodStop> {
    stored_text(call, UUID)
}

/// A text that is stored as it is, without a length.
fn stored_text(call: &mut MethodCall<'_>, key: &'static str) -> Result<Option<Name>, MethodStop> {
    Ok(call.omap_value(&Bytes::from_static(key.as_bytes()))?.map(|text| Name::from(&text[..])))
}

fn is_enabled(call: &mut MethodCall<'_>) -> Result<bool, MethodStop> {
    Ok(call.omap_as(MODE)?.unwrap_or(MODE_DISABLED) != MODE_DISABLED)
}

pub fn mirror_uuid_get(call: &mut MethodCall<'_>) -> MethodResult {
    let uuid = stored_uuid(call)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&uuid)
}

/// `EINVAL` while mirroring is enabled.
pub fn mirror_uuid_set(call: &mut MethodCall<'_>) -> MethodResult {
    let uuid: Name = call.argument()?;
    if uuid.is_empty() || is_enabled(call)? {
        return Err(Errno::INVAL.into());
    }
    call.set_omap_value(&Bytes::from_static(UUID.as_bytes()), &uuid)?;
    Ok(0)
}

/// Namespace of the remote pool whose images this pool's namespace mirrors.
pub fn mirror_remote_namespace_get(call: &mut MethodCall<'_>) -> MethodResult {
    let namespace = stored_text(call, REMOTE_NAMESPACE)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    call.finish_with(&namespace)
}

/// `EINVAL` while mirroring is enabled.
pub fn mirror_remote_namespace_set(call: &mut MethodCall<'_>) -> MethodResult {
    let namespace: Name = call.argument()?;
    if is_enabled(call)? {
        return Err(Errno::INVAL.into());
    }
    call.set_omap_value(&Bytes::from_static(REMOTE_NAMESPACE.as_bytes()), &namespace)?;
    Ok(0)
}

pub fn mirror_mode_get(call: &mut MethodCall<'_>) -> MethodResult {
    let mode: u32 = call.omap_must(MODE)?;
    call.finish_with(&mode)
}

/// Mirroring needs a uuid, and can be disabled only without peers.
pub fn mirror_mode_set(call: &mut MethodCall<'_>) -> MethodResult {
    let mode: u32 = call.argument()?;
    match mode {
        MODE_DISABLED if peers::all_peers(call)?.is_empty() => {
            ignore_missing(call.remove_omap_key(MODE))?;
            ignore_missing(call.remove_omap_key(UUID))?;
            ignore_missing(call.remove_omap_key(REMOTE_NAMESPACE))?;
        }
        MODE_DISABLED => return Err(Errno::BUSY.into()),
        1..=MODE_LAST if stored_uuid(call)?.is_some() => call.set_omap(MODE, &mode)?,
        _ => return Err(Errno::INVAL.into()),
    }
    Ok(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    pub(in crate::classes::rbd::mirror) fn mirroring() -> Object {
        let mut o = Object::missing();
        o.call("rbd", "mirror_uuid_set", &"pool-uuid".to_string()).unwrap();
        o.call("rbd", "mirror_mode_set", &2u32).unwrap();
        o
    }

    #[test]
    fn remote_namespace_goes_with_mirroring() {
        let mut o = Object::missing();
        o.call("rbd", "mirror_uuid_set", &"u".to_string()).unwrap();
        o.call("rbd", "mirror_remote_namespace_set", &"ns".to_string()).unwrap();
        o.call("rbd", "mirror_mode_set", &1u32).unwrap();
        assert_eq!(o.call("rbd", "mirror_remote_namespace_set", &"x".to_string()), Err(Errno::INVAL));
        assert_eq!(decode::<Name>(&o.call_bare("rbd", "mirror_remote_namespace_get").unwrap()), "ns");
        o.call("rbd", "mirror_mode_set", &0u32).unwrap();
        assert_eq!(o.call_bare("rbd", "mirror_remote_namespace_get"), Err(Errno::NOENT));
    }

    #[test]
    fn mode_needs_uuid_and_uuid_stays() {
        let mut o = Object::missing();
        assert_eq!(o.call("rbd", "mirror_mode_set", &1u32), Err(Errno::INVAL));
        assert_eq!(o.call("rbd", "mirror_uuid_set", &String::new()), Err(Errno::INVAL));
        let mut o = mirroring();
        assert_eq!(o.omap(UUID).unwrap(), "pool-uuid");
        assert_eq!(decode::<Name>(&o.call_bare("rbd", "mirror_uuid_get").unwrap()), "pool-uuid");
        assert_eq!(decode::<u32>(&o.call_bare("rbd", "mirror_mode_get").unwrap()), 2);
        assert_eq!(o.call("rbd", "mirror_uuid_set", &"x".to_string()), Err(Errno::INVAL));
        assert_eq!(o.call("rbd", "mirror_mode_set", &9u32), Err(Errno::INVAL));
        o.call("rbd", "mirror_mode_set", &0u32).unwrap();
        assert_eq!(o.call_bare("rbd", "mirror_mode_get"), Err(Errno::NOENT));
        assert_eq!(o.call_bare("rbd", "mirror_uuid_get"), Err(Errno::NOENT));
    }
}
