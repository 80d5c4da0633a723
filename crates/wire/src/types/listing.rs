//! Pages of a pool's listing: `pg_nls_response_t`, and `pg_ls_response_t` for clients older than namespaces.

use super::{HObject, Name};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// One object of a listing (`librados::ListObjectImpl`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ListedObject {
    pub namespace: Name,
    pub name: Name,
    /// The key that placed it, when not its name.
    pub locator: Name,
}

/// The answer of `pgnls`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListPage {
    /// Where the next page starts; the end of the PG when it is complete.
    pub next: HObject,
    pub entries: Vec<ListedObject>,
}

/// The answer of `pgls`: objects of one namespace, as name and locator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegacyListPage {
    pub next: HObject,
    pub entries: Vec<(Name, Name)>,
}

impl Encode for LegacyListPage {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.next);
        w.put(&self.entries);
    }
}

impl Decode for LegacyListPage {
    const MIN_LEN: usize = 11;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(LegacyListPage { next: r.get()?, entries: r.get()? }),
            v => Err(r.invalid("pg_ls_response_t version", v)),
        }
    }
}
