//! The manager's digest of all PG and OSD reports (`PGMapDigest`), which the monitor answers `status` and `df` from.

use super::{OsdStat, PgId, PgState, PoolId, PoolStat, SnapId, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// PGs of an OSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct PgCount {
    pub acting: i32,
    pub up_not_acting: i32,
    pub primary: i32,
}

#[derive(Clone, PartialEq, Debug, Default, Encode, Decode)]
#[envelope(version = 5, compat = 1)]
pub struct PgMapDigest {
    pub num_pg: i64,
    pub num_pg_active: i64,
    pub num_pg_unknown: i64,
    pub num_osd: i64,
    pub pool_sums: BTreeMap<i32, PoolStat>,
    pub pg_sum: PoolStat,
    pub osd_sum: OsdStat,
    pub num_pg_by_state: BTreeMap<PgState, i32>,
    pub num_pg_by_osd: BTreeMap<i32, PgCount>,
    pub num_pg_by_pool: BTreeMap<PoolId, i64>,
    /// By OSD number, the last report's sequence (see `OsdStat::seq`).
    pub osd_last_seq: Vec<u64>,
    /// Changes over the last few intervals, and the end of the last of them (`per_pool_sum_delta`).
    pub pool_deltas: BTreeMap<PoolId, (PoolStat, UTime)>,
    /// The duration of those intervals (`per_pool_sum_deltas_stamps`, in spite of its name).
    pub pool_delta_over: BTreeMap<PoolId, UTime>,
    /// The change over all pools, and its duration.
    pub delta: PoolStat,
    pub delta_over: UTime,
    /// Bytes that still fit, by CRUSH rule.
    pub available_by_rule: BTreeMap<i32, i64>,
    pub purged_snaps: BTreeMap<PoolId, BTreeMap<SnapId, u64>>,
    pub osd_sum_by_class: BTreeMap<String, OsdStat>,
    /// Every pool has an entry, also without such PGs.
    #[since(5)]
    pub unavailable_pgs: BTreeMap<u64, Vec<PgId>>,
}

impl Encode for PgState {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}

impl Decode for PgState {
    const MIN_LEN: usize = 8;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u64().map(PgState)
    }
}

/// Something long that the manager watches, with how far it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProgressEvent {
    pub message: String,
    /// 0 to 1.
    pub progress: f32,
    pub add_to_status: bool,
}

impl Encode for ProgressEvent {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.string(&self.message);
            w.f32(self.progress);
            w.bool(self.add_to_status);
        });
    }
}

impl Decode for ProgressEvent {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("ProgressEvent", 2, |r, version| {
            let (message, progress) = (r.string()?, r.f32()?);
            let add_to_status = if version >= 2 { r.bool()? } else { !message.is_empty() };
            Ok(ProgressEvent { message, progress, add_to_status })
        })
    }
}
