//! A PG's log as Ceph writes it: `pg_log_entry_t`, `pg_log_dup_t`, `pg_log_op_return_item_t`, `ObjectModDesc`,
//! `ObjectCleanRegions`.

use super::{Eversion, HObject, IntervalSet, ReqId, UTime};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Event of an entry (`pg_log_entry_t::MODIFY` …).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogOp(pub i32);

impl LogOp {
    pub const MODIFY: LogOp = LogOp(1);
    pub const CLONE: LogOp = LogOp(2);
    pub const DELETE: LogOp = LogOp(3);
    pub const LOST_REVERT: LogOp = LogOp(5);
    pub const LOST_DELETE: LogOp = LogOp(6);
    pub const LOST_MARK: LogOp = LogOp(7);
    pub const PROMOTE: LogOp = LogOp(8);
    pub const CLEAN: LogOp = LogOp(9);
    /// A write that failed, remembered so that its resend gets the same answer.
    pub const ERROR: LogOp = LogOp(10);

    pub const fn name(self) -> &'static str {
        match self {
            LogOp::MODIFY => "modify",
            LogOp::CLONE => "clone",
            LogOp::DELETE => "delete",
            LogOp::LOST_REVERT => "l_revert",
            LogOp::LOST_DELETE => "l_delete",
            LogOp::LOST_MARK => "l_mark",
            LogOp::PROMOTE => "promote",
            LogOp::CLEAN => "clean",
            LogOp::ERROR => "error",
            _ => "unknown",
        }
    }
}

impl std::fmt::Debug for LogOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One operation's result and output, kept for a resend of a `RETURNVEC` write (`pg_log_op_return_item_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct OpReturn {
    pub result: i32,
    pub output: Bytes,
}

/// Undo record of an entry (`ObjectModDesc`); erasure-coded pools need it, the rest carry the default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModDesc {
    /// Written as both the version and the least version that may read it.
    pub version: u8,
    pub can_local_rollback: bool,
    pub rollback_info_completed: bool,
    /// The steps, encoded.
    pub steps: Bytes,
}

impl ModDesc {
    /// Nothing that could be undone.
    pub const UNROLLBACKABLE: ModDesc = ModDesc {
        version: 1,
        can_local_rollback: false,
        rollback_info_completed: false,
        steps: Bytes::new(),
    };
}

impl Default for ModDesc {
    fn default() -> ModDesc {
        ModDesc { can_local_rollback: true, ..ModDesc::UNROLLBACKABLE }
    }
}

impl Encode for ModDesc {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.version, self.version, |w| {
            w.bool(self.can_local_rollback);
            w.bool(self.rollback_info_completed);
            w.blob(&self.steps);
        });
    }
}

impl Decode for ModDesc {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("ObjectModDesc", 2, |r, version| {
            Ok(ModDesc {
                // What a newer version means is lost with the fields that were skipped.
                version: version.min(2),
                can_local_rollback: r.bool()?,
                rollback_info_completed: r.bool()?,
                steps: r.get()?,
            })
        })
    }
}

/// Parts of an object that an entry left unchanged (`ObjectCleanRegions`): recovery may skip them.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CleanRegions {
    pub offsets: IntervalSet,
    pub omap: bool,
    pub new_object: bool,
}

impl Default for CleanRegions {
    /// All clean.
    fn default() -> CleanRegions {
        CleanRegions { offsets: IntervalSet::of(0, u64::MAX), omap: true, new_object: false }
    }
}

impl CleanRegions {
    /// Nothing clean: an entry from before this was kept.
    pub fn all_dirty() -> CleanRegions {
        CleanRegions { offsets: IntervalSet::new(), omap: false, new_object: true }
    }
}

/// A set of shard numbers below 128 (`shard_id_set`): two words of variable length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardSet(pub [u64; 2]);

impl Encode for ShardSet {
    fn encode(&self, w: &mut Writer) {
        for mut word in self.0 {
            while word >= 0x80 {
                w.u8(word as u8 | 0x80);
                word >>= 7;
            }
            w.u8(word as u8);
        }
    }
}

impl Decode for ShardSet {
    const MIN_LEN: usize = 2;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut word = || -> Result<u64, DecodeError> {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let byte = r.u8()?;
                value |= (byte as u64 & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    return Ok(value);
                }
            }
            Err(r.invalid("variable-length integer", value))
        };
        Ok(ShardSet([word()?, word()?]))
    }
}

/// One change of a PG (`pg_log_entry_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgLogEntry {
    pub op: LogOp,
    pub object: HObject,
    pub version: Eversion,
    pub prior_version: Eversion,
    /// Only of [`LogOp::LOST_REVERT`].
    pub reverting_to: Eversion,
    pub reqid: ReqId,
    pub mtime: UTime,
    /// Of a clone: its snapshots, encoded.
    pub snaps: Bytes,
    pub user_version: u64,
    pub mod_desc: ModDesc,
    /// Other requests that this change answers, each with its user version.
    pub extra_reqids: Vec<(ReqId, u64)>,
    /// By index in `extra_reqids`. Not written when that is empty.
    pub extra_reqid_results: BTreeMap<u32, i32>,
    pub clean_regions: CleanRegions,
    pub result: i32,
    pub op_returns: Vec<OpReturn>,
    pub written_shards: ShardSet,
}

impl Encode for PgLogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(15, 4, |w| {
            w.i32(self.op.0);
            w.put(&self.object);
            w.put(&self.version);
            // Where `prior_version` is, older readers look for what is reverted to.
            if self.op == LogOp::LOST_REVERT {
                w.put(&self.reverting_to);
            } else {
                w.put(&self.prior_version);
            }
            w.put(&self.reqid);
            w.put(&self.mtime);
            if self.op == LogOp::LOST_REVERT {
                w.put(&self.prior_version);
            }
            w.blob(&self.snaps);
            w.u64(self.user_version);
            w.put(&self.mod_desc);
            w.put(&self.extra_reqids);
            if self.op == LogOp::ERROR {
                w.i32(self.result);
            }
            if !self.extra_reqids.is_empty() {
                w.put(&self.extra_reqid_results);
            }
            w.put(&self.clean_regions);
            if self.op != LogOp::ERROR {
                w.i32(self.result);
            }
            w.put(&self.op_returns);
            w.put(&self.written_shards);
            // A second set that was never used.
            w.put(&ShardSet::default());
        });
    }
}

impl Decode for PgLogEntry {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Below version 5 an object's hash or pool is missing: no release that shoal meets wrote that.
        r.envelope("pg_log_entry_t", 15, |r, v| {
            if v < 8 {
                return Err(DecodeError::TooOld { what: "pg_log_entry_t", version: v });
            }
            let op = LogOp(r.i32()?);
            let object = r.get()?;
            let version = r.get()?;
            let before_reqid: Eversion = r.get()?;
            let reqid = r.get()?;
            let mtime = r.get()?;
            let (prior_version, reverting_to) = match op {
                LogOp::LOST_REVERT => (r.get()?, before_reqid),
                _ => (before_reqid, Eversion::ZERO),
            };
            let mut out = PgLogEntry {
                op,
                object,
                version,
                prior_version,
                reverting_to,
                reqid,
                mtime,
                snaps: r.get()?,
                user_version: r.u64()?,
                mod_desc: if v >= 9 { r.get()? } else { ModDesc::UNROLLBACKABLE },
                extra_reqids: if v >= 10 { r.get()? } else { Vec::new() },
                extra_reqid_results: BTreeMap::new(),
                clean_regions: CleanRegions::all_dirty(),
                result: 0,
                op_returns: Vec::new(),
                written_shards: ShardSet::default(),
            };
            if v >= 11 && op == LogOp::ERROR {
                out.result = r.i32()?;
            }
            if v >= 12 && !out.extra_reqids.is_empty() {
                out.extra_reqid_results = r.get()?;
            }
            if v >= 13 {
                out.clean_regions = r.get()?;
            }
            if v >= 14 {
                if op != LogOp::ERROR {
                    out.result = r.i32()?;
                }
                out.op_returns = r.get()?;
            }
            if v >= 15 {
                out.written_shards = r.get()?;
                r.get::<ShardSet>()?;
            }
            Ok(out)
        })
    }
}

/// Remainder of an entry that the log has dropped, to recognise a late resend (`pg_log_dup_t`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct PgLogDup {
    pub reqid: ReqId,
    pub version: Eversion,
    pub user_version: u64,
    pub result: i32,
    #[since(2)]
    pub op_returns: Vec<OpReturn>,
}
