//! Identities of collections and objects.

use std::cmp::Ordering;
use std::fmt;
use wire::types::{HObject, SpgId};

/// A group of objects that one transaction may change (`coll_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Collection {
    /// The daemon's own collection: superblock, maps.
    Meta,
    Pg(SpgId),
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collection::Meta => f.write_str("meta"),
            Collection::Pg(id) => write!(f, "{id}_head"),
        }
    }
}

/// Identity of an object within a collection (`ghobject_t` without the shard, which the collection has).
///
/// Ordered as [`HObject`], then by generation, so the objects of a PG are listed in hash order.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectId {
    pub object: HObject,
    /// Version of an erasure-coded object that a rollback may need; [`ObjectId::NO_GENERATION`] for all others.
    pub generation: u64,
}

impl ObjectId {
    pub const NO_GENERATION: u64 = u64::MAX;

    /// The object with a PG's log, info, duplicates and snapshot index. It sorts before every client object of the PG: it has
    /// the smallest hash of the PG, and an empty name, which clients cannot use.
    pub fn pg_meta(pg: SpgId) -> ObjectId {
        let object = HObject { pool: pg.pg.pool, hash: pg.pg.seed, ..HObject::min() };
        ObjectId { object, generation: ObjectId::NO_GENERATION }
    }

    pub fn is_pg_meta(&self) -> bool {
        self.object.name.is_empty() && self.object.namespace.is_empty() && !self.object.max
    }
}

impl From<HObject> for ObjectId {
    fn from(object: HObject) -> ObjectId {
        ObjectId { object, generation: ObjectId::NO_GENERATION }
    }
}

impl Ord for ObjectId {
    fn cmp(&self, o: &ObjectId) -> Ordering {
        self.object.cmp(&o.object).then_with(|| self.generation.cmp(&o.generation))
    }
}

impl PartialOrd for ObjectId {
    fn partial_cmp(&self, o: &ObjectId) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation {
            ObjectId::NO_GENERATION => write!(f, "{}", self.object),
            g => write!(f, "{}#{g:x}", self.object),
        }
    }
}
