//! Where a client says an object is (`object_locator_t`), and where an OSD sends it instead (`request_redirect_t`).

use super::{Name, PoolId};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Pool, namespace, and either a key that places the object instead of its name, or a bare hash that names a
/// place without an object (as listings do).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectLocator {
    pub pool: PoolId,
    pub key: Name,
    pub namespace: Name,
    /// `-1`: none.
    pub hash: i64,
}

impl Default for ObjectLocator {
    fn default() -> ObjectLocator {
        ObjectLocator { pool: -1, key: Name::EMPTY, namespace: Name::EMPTY, hash: -1 }
    }
}

impl ObjectLocator {
    /// Names no pool: a redirect that is not one.
    pub fn is_empty(&self) -> bool {
        self.pool == -1
    }

    pub(crate) fn encode_parts(w: &mut Writer, pool: PoolId, key: &Name, namespace: &Name, hash: i64) {
        // Only a reader that understands the hash may act on a locator that has one.
        let compat = if hash == -1 { 3 } else { 6 };
        w.envelope(6, compat, |w| {
            w.i64(pool);
            w.i32(-1);
            w.put(key);
            w.put(namespace);
            w.i64(hash);
        });
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        ObjectLocator::encode_parts(w, self.pool, &self.key, &self.namespace, self.hash);
    }
}

impl Decode for ObjectLocator {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("object_locator_t", 6, 3, 3, |r, v| {
            let pool = if v < 2 {
                let pool = r.i32()? as PoolId;
                r.i16()?;
                pool
            } else {
                let pool = r.i64()?;
                r.i32()?;
                pool
            };
            let key: Name = r.get()?;
            let namespace = if v >= 5 { r.get()? } else { Name::EMPTY };
            let hash = if v >= 6 { r.i64()? } else { -1 };
            let out = ObjectLocator { pool, key, namespace, hash };
            if hash != -1 && !out.key.is_empty() {
                return Err(r.invalid("object_locator_t with both key and hash", hash));
            }
            Ok(out)
        })
    }
}

/// "Ask again there": a new locator and, when not empty, a new object name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestRedirect {
    pub locator: ObjectLocator,
    pub object: Name,
}

impl RequestRedirect {
    pub fn is_empty(&self) -> bool {
        self.locator.is_empty() && self.object.is_empty()
    }
}

impl Encode for RequestRedirect {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.locator);
            w.put(&self.object);
            // Instructions that no release ever gave.
            w.u32(0);
        });
    }
}

impl Decode for RequestRedirect {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("request_redirect_t", 1, |r, _| {
            let (locator, object) = (r.get()?, r.get()?);
            r.blob()?;
            Ok(RequestRedirect { locator, object })
        })
    }
}
