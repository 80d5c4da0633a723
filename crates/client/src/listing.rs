//! Walking the objects of a pool, PG by PG, page by page.

use crate::operation::{ObjectRef, Operation};
use crate::reply::Reply;
use bytes::Bytes;
use codec::{DecodeError, Encode, Features};
use smallvec::smallvec;
use wire::types::osd_op::PglsParams;
use wire::types::{HObject, ListPage, ListedObject, Name, OpCode, OsdFlags, OsdMap, OsdOp, PoolId};

/// A cursor over a pool: gives the operation for the next page, takes its reply.
///
/// When the number of PGs changes, the walk begins again, as Ceph's own listing does: objects may come twice.
#[derive(Clone, Debug)]
pub struct Listing {
    pool: PoolId,
    namespace: Name,
    page_max: u64,
    start_epoch: u32,
    pg_num: u32,
    pg: u32,
    cursor: HObject,
}

/// One page of a listing.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    pub objects: Vec<ListedObject>,
    /// Nothing follows.
    pub complete: bool,
}

impl Listing {
    /// All namespaces, for [`Listing::new`].
    pub const ALL_NAMESPACES: &str = "\u{1}";

    /// `None` when the map has no such pool.
    pub fn new(map: &OsdMap, pool: PoolId, namespace: impl Into<Name>, page_max: u64) -> Option<Listing> {
        let pg_num = map.pools.get(&pool)?.pg_num;
        let namespace = namespace.into();
        Some(Listing {
            pool,
            namespace,
            page_max,
            start_epoch: map.epoch,
            pg_num,
            pg: 0,
            cursor: HObject::min(),
        })
    }

    pub fn is_complete(&self) -> bool {
        self.pg >= self.pg_num
    }

    /// The operation for the next page. `map`: the newest that the client has.
    pub fn next_page(&mut self, map: &OsdMap) -> Operation {
        self.follow(map);
        let params = PglsParams { count: self.page_max, start_epoch: self.start_epoch };
        let input: Bytes = self.cursor.to_vec(Features::ALL).into();
        let object = ObjectRef::new(self.pool, "").in_namespace(self.namespace.clone());
        let step = OsdOp::new(OpCode::PGNLS, params, input);
        let flags = OsdFlags::READ | OsdFlags::PGOP | OsdFlags::IGNORE_OVERLAY;
        Operation { pg_seed: Some(self.pg), ..Operation::new(object, smallvec![step], flags) }
    }

    /// The objects of a PG that has split are partly in another one, perhaps one that was walked already.
    fn follow(&mut self, map: &OsdMap) -> bool {
        let pg_num = map.pools.get(&self.pool).map_or(self.pg_num, |pool| pool.pg_num);
        if pg_num == self.pg_num {
            return false;
        }
        (self.pg_num, self.start_epoch) = (pg_num, map.epoch);
        (self.pg, self.cursor) = (0, HObject::min());
        true
    }

    /// Takes the reply to [`Listing::next_page`]. A failed one leaves the cursor where it is, unless PGs have split since:
    /// a cursor behind its PG's new end is refused with EINVAL, and the listing begins again. `map`: the newest that the
    /// client has.
    pub fn take(&mut self, map: &OsdMap, reply: &Reply) -> Result<Page, DecodeError> {
        let is_split = self.follow(map);
        if is_split && !reply.is_ok() {
            return Ok(Page { objects: Vec::new(), complete: false });
        }
        let page: ListPage = reply.decode(0)?;
        if is_split {
            return Ok(Page { objects: page.entries, complete: false });
        }
        // The end of a PG is said by a result of 1, or by a cursor beyond every object.
        let pg_complete = reply.result == 1 || page.next.max || page.next.is_min();
        if pg_complete {
            self.pg += 1;
            self.cursor = HObject::min();
        } else {
            self.cursor = page.next;
        }
        Ok(Page { objects: page.entries, complete: self.is_complete() })
    }
}
