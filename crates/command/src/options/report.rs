//! A daemon's configuration as the manager learns of it: `md_config_t::get_config_bl` in `src/common/config.cc`.

use super::table;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Of each option that is not at its default: its values by level, see [`super::Source::name_of`].
    pub values: BTreeMap<String, BTreeMap<i32, String>>,
    /// Values of the monitors' database that the daemon does not use.
    pub ignored: BTreeMap<String, String>,
}

impl Encode for Reported {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.values);
        w.put(&self.ignored);
    }
}

impl Decode for Reported {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Reported { values: r.get()?, ignored: r.get()? })
    }
}

/// The defaults, for `ceph config show-with-defaults`.
pub fn defaults() -> BTreeMap<String, String> {
    table::all().iter().map(|row| (row.name.to_owned(), row.default().to_string())).collect()
}
