//! Sums over PGs as JSON: troubled objects, client traffic, recovery.

use command::Json;
use wire::text::{ObjectShare, RecoveryIo};
use wire::types::ObjectStatSum;

/// `degraded_objects`, `degraded_total`, `degraded_ratio`, for each trouble that there is.
pub(super) fn push_shares(object: &mut Json, sum: &ObjectStatSum) {
    for share in ObjectShare::all(sum) {
        let ObjectShare { trouble, part, whole } = share;
        object.push(format!("{trouble}_objects"), part);
        object.push(format!("{trouble}_total"), whole);
        object.push(format!("{trouble}_ratio"), share.ratio());
    }
}

pub(super) fn push_rates(object: &mut Json, io: Option<RecoveryIo>) {
    for (key, value) in io.into_iter().flat_map(|io| io.pairs()) {
        object.push(key, value);
    }
}
