//! An object's full name, and its place in a PG's order (`hobject_t`).

use super::{Name, PoolId, SnapId};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;

/// Identity of an object: pool, namespace, name (and locator key, when it differs from the name), snapshot, hash.
///
/// Objects are ordered by the *bit-reversed* hash first, so that the objects of one PG are one range, and stay
/// one range in each child when a PG splits. Then come namespace, locator key (or name), name and snapshot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    pub pool: PoolId,
    pub hash: u32,
    pub snap: SnapId,
    pub namespace: Name,
    /// Empty unless the client placed the object by a key other than its name.
    pub key: Name,
    pub name: Name,
    /// Beyond every object: the end of a listing.
    pub max: bool,
}

impl HObject {
    /// Before every object: the start of a listing.
    pub fn min() -> HObject {
        HObject {
            pool: i64::MIN,
            hash: 0,
            snap: SnapId(0),
            namespace: Name::EMPTY,
            key: Name::EMPTY,
            name: Name::EMPTY,
            max: false,
        }
    }

    pub fn max() -> HObject {
        HObject { max: true, ..HObject::min() }
    }

    pub fn is_min(&self) -> bool {
        *self == HObject::min()
    }

    /// Input of the placement hash: the key, or the name when there is no key.
    pub fn effective_key(&self) -> &Name {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// The live object, whose snapshot this is.
    pub fn head(&self) -> HObject {
        HObject { snap: SnapId::HEAD, ..self.clone() }
    }

    /// The same object, or another snapshot of it.
    pub fn is_same_but_snap(&self, o: &HObject) -> bool {
        self.hash == o.hash
            && self.name == o.name
            && self.namespace == o.namespace
            && self.key == o.key
            && self.pool == o.pool
            && self.max == o.max
    }

    /// The range of the order that has the object and its clones, both ends included.
    pub fn with_clones(&self) -> RangeInclusive<HObject> {
        HObject { snap: SnapId(0), ..self.clone() }..=self.head()
    }

    /// The position in a PG's order.
    pub fn reversed_hash(&self) -> u32 {
        self.hash.reverse_bits()
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &HObject) -> Ordering {
        self.max
            .cmp(&o.max)
            .then_with(|| self.pool.cmp(&o.pool))
            .then_with(|| self.reversed_hash().cmp(&o.reversed_hash()))
            .then_with(|| self.namespace.cmp(&o.namespace))
            .then_with(|| self.effective_key().cmp(o.effective_key()))
            .then_with(|| self.name.cmp(&o.name))
            .then_with(|| self.snap.cmp(&o.snap))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, o: &HObject) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

/// `POOL:REVERSED_HASH:NAMESPACE:KEY:NAME:SNAP`, escaped as Ceph's logs and admin commands show it.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        let HObject { pool, namespace, key, name, snap, .. } = self;
        write!(f, "{pool}:{:08x}:", self.reversed_hash())?;
        for part in [namespace, key, name] {
            part.write_escaped(f)?;
            f.write_str(":")?;
        }
        write!(f, "{snap:?}")
    }
}

impl fmt::Debug for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            w.put(&self.key);
            w.put(&self.name);
            w.put(&self.snap);
            w.u32(self.hash);
            w.bool(self.max);
            w.put(&self.namespace);
            w.i64(self.pool);
        });
    }
}

impl Decode for HObject {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope_legacy("hobject_t", 4, 3, 3, |r, v| {
            let key = if v >= 1 { r.get()? } else { Name::EMPTY };
            let name: Name = r.get()?;
            let (snap, hash) = (r.get()?, r.u32()?);
            let max = if v >= 2 { r.bool()? } else { false };
            let (namespace, pool) = if v >= 4 { (r.get()?, r.i64()?) } else { (Name::EMPTY, -1) };
            let mut out = HObject { pool, hash, snap, namespace, key, name, max };
            // Some writers stored MIN with pool -1 instead of the least number.
            let blank = out.key.is_empty() && out.name.is_empty() && out.namespace.is_empty();
            if v < 4 || (pool == -1 && snap == SnapId(0) && hash == 0 && !max && blank) {
                out.pool = if blank && snap == SnapId(0) && hash == 0 && !max { i64::MIN } else { pool };
            }
            // Some writers stored MAX with other fields of an object.
            Ok(if max { HObject::max() } else { out })
        })
    }
}
