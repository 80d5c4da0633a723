//! The name that a key belongs to (`EntityName`).

use super::EntityKind;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// `client.admin`, `osd.3`, `mon.`: a kind and a free name. Not an [`super::EntityName`], whose number is given
/// anew to each life of a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    pub kind: EntityKind,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityKind, id: impl Into<String>) -> AuthName {
        AuthName { kind, id: id.into() }
    }
}

impl Default for AuthName {
    /// Value of a field that is not set.
    fn default() -> AuthName {
        AuthName { kind: EntityKind(0), id: String::new() }
    }
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
        Ok(AuthName { kind: EntityKind::from_name(kind).ok_or(())?, id: id.into() })
    }
}

/// The kind takes four bytes here, unlike in an [`super::EntityName`].
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
        let kind = EntityKind(u8::try_from(kind).map_err(|_| r.invalid("entity kind", kind))?);
        Ok(AuthName { kind, id: r.string()? })
    }
}
