//! Functions that derived code calls.

use crate::{Decode, DecodeError, Reader};

/// One field of a derived struct: labelled for a trace, and absent before the version that introduced it.
pub fn field<T: Decode>(
    r: &mut Reader<'_>,
    name: &'static str,
    present: bool,
    default: impl FnOnce() -> T,
) -> Result<T, DecodeError> {
    if !present {
        return Ok(default());
    }
    r.label(name);
    T::decode(r)
}
