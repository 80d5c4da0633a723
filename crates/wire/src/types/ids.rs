//! The small numbers that name things: pools, placement groups, epochs, versions, requests.

use super::EntityName;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// A map's version (`epoch_t`).
pub type Epoch = u32;
/// A pool's number; negative numbers are Ceph's internal pools.
pub type PoolId = i64;

/// An OSD's number. `-1` is nobody (`CRUSH_ITEM_NONE` is written by CRUSH, not here).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OsdId(pub i32);

impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "osd.{}", self.0)
    }
}

/// Erasure-coded shard; `NONE` for a replicated PG (`shard_id_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardId(pub i8);

impl ShardId {
    pub const NONE: ShardId = ShardId(-1);
}

impl Encode for ShardId {
    fn encode(&self, w: &mut Writer) {
        w.i8(self.0);
    }
}

impl Decode for ShardId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.i8().map(ShardId)
    }
}

/// A snapshot's number (`snapid_t`); 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The live object (`CEPH_NOSNAP`).
    pub const HEAD: SnapId = SnapId(u64::MAX - 1);
    /// An object's directory of snapshots (`CEPH_SNAPDIR`).
    pub const DIR: SnapId = SnapId(u64::MAX);
}

impl fmt::Debug for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SnapId::HEAD => write!(f, "head"),
            SnapId::DIR => write!(f, "snapdir"),
            SnapId(n) => write!(f, "{n:x}"),
        }
    }
}

impl Encode for SnapId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}

impl Decode for SnapId {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u64().map(SnapId)
    }
}

/// A placement group (`pg_t`): written `POOL.SEED`, the seed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

impl std::str::FromStr for PgId {
    type Err = ();
    fn from_str(s: &str) -> Result<PgId, ()> {
        let (pool, seed) = s.split_once('.').ok_or(())?;
        Ok(PgId { pool: pool.parse().map_err(drop)?, seed: u32::from_str_radix(seed, 16).map_err(drop)? })
    }
}

/// `u8 1, i64 pool, u32 seed, i32 preferred` — the last is a feature long gone, always -1.
impl Encode for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.i64(self.pool);
        w.u32(self.seed);
        w.i32(-1);
    }
}

impl Decode for PgId {
    const MIN_LEN: usize = 17;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        let (pool, seed) = (r.i64()?, r.u32()?);
        let _preferred = r.i32()?;
        Ok(PgId { pool, seed })
    }
}

/// A placement group's shard (`spg_t`): written `POOL.SEEDsSHARD` when it has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpgId {
    pub pg: PgId,
    pub shard: ShardId,
}

impl From<PgId> for SpgId {
    fn from(pg: PgId) -> SpgId {
        SpgId { pg, shard: ShardId::NONE }
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            ShardId::NONE => write!(f, "{}", self.pg),
            ShardId(n) => write!(f, "{}s{n}", self.pg),
        }
    }
}

impl Encode for SpgId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.pg);
            w.put(&self.shard);
        });
    }
}

impl Decode for SpgId {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("spg_t", 1, |r, _| Ok(SpgId { pg: r.get()?, shard: r.get()? }))
    }
}

/// A PG log version (`eversion_t`): the epoch of the interval, then a counter. Shown `EPOCH'VERSION`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Eversion {
    pub epoch: Epoch,
    pub version: u64,
}

impl Eversion {
    pub const ZERO: Eversion = Eversion { epoch: 0, version: 0 };
    pub const MAX: Eversion = Eversion { epoch: u32::MAX, version: u64::MAX };
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl fmt::Debug for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Encode for Eversion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.u32(self.epoch);
    }
}

impl Decode for Eversion {
    const MIN_LEN: usize = 12;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        Ok(Eversion { epoch: r.u32()?, version })
    }
}

/// Client and number of a request (`osd_reqid_t`): a resent write is recognised by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReqId {
    pub name: EntityName,
    pub tid: u64,
    /// The client's incarnation.
    pub incarnation: i32,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.incarnation, self.tid)
    }
}

impl Encode for ReqId {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.name);
            w.u64(self.tid);
            w.i32(self.incarnation);
        });
    }
}

impl Decode for ReqId {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("osd_reqid_t", 2, |r, _| {
            Ok(ReqId { name: r.get()?, tid: r.u64()?, incarnation: r.i32()? })
        })
    }
}

/// Sixteen bytes; a cluster's fsid, an OSD's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for Uuid {
    type Err = ();
    fn from_str(s: &str) -> Result<Uuid, ()> {
        let groups: Vec<&str> = s.split('-').collect();
        if groups.iter().map(|g| g.len()).ne([8, 4, 4, 4, 12]) {
            return Err(());
        }
        let hex = groups.concat();
        let mut out = [0; 16];
        for (i, b) in out.iter_mut().enumerate() {
            let pair = hex.get(2 * i..2 * i + 2).ok_or(())?;
            *b = u8::from_str_radix(pair, 16).map_err(drop)?;
        }
        Ok(Uuid(out))
    }
}

impl Encode for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Uuid {
    const MIN_LEN: usize = 16;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.get().map(Uuid)
    }
}
