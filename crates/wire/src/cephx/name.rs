//! The name that a key is filed under (`EntityName` of `common/entity_name.h`): `client.admin`, `osd.3`.

use crate::types::EntityKind;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// Not to be confused with [`crate::types::EntityName`], which numbers a running daemon or client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    pub kind: EntityKind,
    pub id: String,
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.id)
    }
}

impl fmt::Debug for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for AuthName {
    type Err = ();
    fn from_str(s: &str) -> Result<AuthName, ()> {
        let (kind, id) = s.split_once('.').ok_or(())?;
        Ok(AuthName { kind: EntityKind::from_name(kind).ok_or(())?, id: id.to_owned() })
    }
}

/// `u32 kind | string id`
impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind.0 as u32);
        w.string(&self.id);
    }
}

impl Decode for AuthName {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u32()?;
        let kind = u8::try_from(kind).map_err(|_| r.invalid("entity kind", kind))?;
        Ok(AuthName { kind: EntityKind(kind), id: r.string()? })
    }
}
