//! Migration of an image to another pool or format: which image it goes to or comes from, and how far it is.

use super::header::MIGRATING;
use super::old_format::{HEADER_TEXT, MIGRATING_TEXT};
use super::{MethodResult, ignore_missing};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::Name;
use wire::types::cls::rbd::{MIGRATION_SOURCE, MIGRATION_TARGET, MigrationSpec};

const KEY: &str = "migration";

/// Form of an image's header.
enum Header {
    New { features: u64 },
    Old { migrating: bool },
}

impl Header {
    /// `ENXIO` for an object that is no header.
    fn of(call: &mut MethodCall<'_>) -> Result<Header, MethodStop> {
        if let Some(features) = call.omap_as("features")? {
            return Ok(Header::New { features });
        }
        // The text ends with a zero byte.
        let start = call.data(0, HEADER_TEXT.len() as u64 + 1)?.to_bytes();
        match start.strip_suffix(&[0]) {
            Some(text) if text == HEADER_TEXT => Ok(Header::Old { migrating: false }),
            Some(text) if text == MIGRATING_TEXT => Ok(Header::Old { migrating: true }),
            _ => Err(Errno::NXIO.into()),
        }
    }
}

/// `EEXIST` if a migration is set. An image of the old format can only be migrated away from.
pub fn migration_set(call: &mut MethodCall<'_>) -> MethodResult {
    let spec: MigrationSpec = call.argument()?;
    if call.omap_value(&Bytes::from_static(KEY.as_bytes()))?.is_some() {
        return Err(Errno::EXIST.into());
    }
    match Header::of(call)? {
        Header::Old { migrating: true } => return Err(Errno::EXIST.into()),
        Header::Old { .. } if spec.header_type != MIGRATION_SOURCE => return Err(Errno::INVAL.into()),
        Header::Old { .. } => call.write(0, Bytes::from_static(MIGRATING_TEXT))?,
        Header::New { features } if features & MIGRATING == 0 => {
            call.set_omap("features", &(features | MIGRATING))?;
        }
        Header::New { .. } if spec.header_type != MIGRATION_TARGET => return Err(Errno::EXIST.into()),
        Header::New { .. } => {}
    }
    call.set_omap(KEY, &spec)?;
    Ok(0)
}

/// `EINVAL` if the image does not migrate.
fn stored(call: &mut MethodCall<'_>) -> Result<MigrationSpec, MethodStop> {
    match Header::of(call)? {
        Header::Old { migrating: true } => {}
        Header::New { features } if features & MIGRATING != 0 => {}
        _ => return Err(Errno::INVAL.into()),
    }
    call.omap_must(KEY)
}

pub fn migration_set_state(call: &mut MethodCall<'_>) -> MethodResult {
    let (state, state_description): (u8, Name) = call.argument()?;
    let spec = stored(call)?;
    call.set_omap(KEY, &MigrationSpec { state, state_description, ..spec })?;
    Ok(0)
}

pub fn migration_get(call: &mut MethodCall<'_>) -> MethodResult {
    let spec = stored(call)?;
    call.finish_with(&spec)
}

pub fn migration_remove(call: &mut MethodCall<'_>) -> MethodResult {
    ignore_missing(call.remove_omap_key(KEY))?;
    match Header::of(call)? {
        Header::Old { migrating: true } => call.write(0, Bytes::from_static(HEADER_TEXT))?,
        Header::Old { migrating: false } => return Err(Errno::INVAL.into()),
        Header::New { features } if features & MIGRATING != 0 => {
            call.set_omap("features", &(features & !MIGRATING))?;
        }
        Header::New { .. } => {}
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn spec(header_type: u8) -> MigrationSpec {
        MigrationSpec { header_type, pool: 4, image: "id".into(), state: 1, ..MigrationSpec::default() }
    }

    #[test]
    fn migration_shows_in_features() {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (1u64, "p".to_string()))).unwrap();
        assert_eq!(o.call_bare("rbd", "migration_get"), Err(Errno::INVAL));
        o.call("rbd", "migration_set", &spec(MIGRATION_SOURCE)).unwrap();
        assert_eq!(o.call("rbd", "migration_set", &spec(MIGRATION_TARGET)), Err(Errno::EXIST));
        assert_eq!(o.omap("features").unwrap(), (1 | MIGRATING).to_le_bytes()[..]);
        o.call("rbd", "migration_set_state", &(3u8, "half".to_string())).unwrap();
        let got: MigrationSpec = decode(&o.call_bare("rbd", "migration_get").unwrap());
        assert_eq!((got.state, &got.state_description[..], got.pool), (3, &b"half"[..], 4));
        o.call_bare("rbd", "migration_remove").unwrap();
        assert_eq!(o.omap("features").unwrap(), 1u64.to_le_bytes()[..]);
        assert_eq!(o.omap(KEY), None);
    }

    #[test]
    fn old_header_changes_its_text() {
        let mut o = Object::existing();
        assert_eq!(o.call("rbd", "migration_set", &spec(MIGRATION_SOURCE)), Err(Errno::NXIO));
        o.put_data(&[&HEADER_TEXT[..], b"\0rest"].concat());
        assert_eq!(o.call("rbd", "migration_set", &spec(MIGRATION_TARGET)), Err(Errno::INVAL));
        o.call("rbd", "migration_set", &spec(MIGRATION_SOURCE)).unwrap();
        assert_eq!(o.data(), [&MIGRATING_TEXT[..], b"\0rest"].concat());
        o.call_bare("rbd", "migration_get").unwrap();
        o.call_bare("rbd", "migration_remove").unwrap();
        assert_eq!(o.data(), [&HEADER_TEXT[..], b"\0rest"].concat());
        assert_eq!(o.call_bare("rbd", "migration_remove"), Err(Errno::INVAL));
    }
}
