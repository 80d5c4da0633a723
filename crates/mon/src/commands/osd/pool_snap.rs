//! Snapshots of pools: those that the pool names itself, and those of clients (`self-managed`), which it only numbers. A pool has
//! one kind or the other, from its first snapshot on (`pg_pool_t`, `OSDMonitor::preprocess_pool_op`).

use super::pool::wanted;
use super::{change_of, step};
use crate::commands::{Answer, Ctx, Outcome};
use crate::osd_step::step_after;
use crate::proposal::Change;
use crate::state::State;
use command::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use std::collections::BTreeMap;
use wire::types::{OsdMap, OsdMapIncremental, PgPool, PoolFlags, PoolId, PoolSnap, SnapId, UTime};

/// A change of a pool's snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapChange<'a> {
    Create(&'a str),
    Remove(&'a str),
    /// The pool gives a number.
    CreateUnmanaged,
    RemoveUnmanaged(SnapId),
}

/// The step of a change and the number that it gives. No step: everything is as it should be.
pub(crate) type SnapStep = (Option<OsdMapIncremental>, Option<SnapId>);

/// The step that makes a change. Errors are errnos.
pub(crate) fn change(map: &OsdMap, id: PoolId, change: SnapChange<'_>, now: UTime) -> Result<SnapStep, i32> {
    let Some(pool) = map.pools.get(&id) else { return Err(ENOENT) };
    let is_own = pool.flags.has(PoolFlags::POOL_SNAPS);
    let is_unmanaged = pool.flags.has(PoolFlags::SELFMANAGED_SNAPS);
    let of_name = |name: &str| pool.snaps.values().find(|snap| snap.name == name).map(|snap| snap.id);
    let mut step = step_after(map, now);
    let mut next: PgPool = pool.clone();
    let mut given = None;
    match change {
        SnapChange::Create(_) | SnapChange::Remove(_) if is_unmanaged => return Err(EINVAL),
        SnapChange::CreateUnmanaged | SnapChange::RemoveUnmanaged(_) if is_own => return Err(EINVAL),
        // No pool of copies with shards has snapshots yet.
        SnapChange::Create(_) | SnapChange::CreateUnmanaged if pool.is_erasure() => return Err(EOPNOTSUPP),
        SnapChange::Create(name) => {
            if of_name(name).is_some() {
                return Ok((None, None));
            }
            next.flags.set(PoolFlags::POOL_SNAPS, true);
            next.snap_seq = SnapId(pool.snap_seq.0 + 1);
            let snap = PoolSnap { id: next.snap_seq, stamp: now, name: name.to_owned() };
            next.snaps.insert(next.snap_seq, snap);
        }
        SnapChange::Remove(name) => {
            let Some(snap) = of_name(name) else { return Ok((None, None)) };
            next.snaps.remove(&snap);
            next.snap_seq = SnapId(pool.snap_seq.0 + 1);
            step.new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
        }
        SnapChange::CreateUnmanaged => {
            next.flags.set(PoolFlags::SELFMANAGED_SNAPS, true);
            // The first one is 2, as in Ceph.
            next.snap_seq = SnapId(pool.snap_seq.0.max(1) + 1);
            given = Some(next.snap_seq);
        }
        SnapChange::RemoveUnmanaged(_) if !is_unmanaged => return Err(EOPNOTSUPP),
        SnapChange::RemoveUnmanaged(snap) if snap > pool.snap_seq || snap.0 == 0 => return Err(ENOENT),
        SnapChange::RemoveUnmanaged(snap) => {
            if map.removed_snaps_queue.get(&id).is_some_and(|queue| queue.contains(snap.0)) {
                return Ok((None, None));
            }
            next.snap_seq = SnapId(pool.snap_seq.0 + 1);
            step.new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
        }
    }
    next.snap_epoch = step.epoch;
    next.last_change = step.epoch;
    step.new_pools.insert(id, next);
    Ok((Some(step), given))
}

/// For requests by message: the changes, and the number that the pool gives.
pub(crate) fn changes(
    state: &State,
    id: PoolId,
    wanted: SnapChange<'_>,
    now: UTime,
) -> Result<(Vec<Change>, Option<SnapId>), Answer> {
    let (step, given) =
        change(state.osdmap(), id, wanted, now).map_err(|errno| Answer::error(errno, String::new()))?;
    Ok((step.map(|step| change_of(step, state)).transpose()?.into_iter().collect(), given))
}

/// The changes of a metadata server's `MRemoveSnaps`. Its pools number snapshots for clients from then on, and give no number that
/// it names. Pools that have snapshots of their own, or none at all, are passed over.
pub(crate) fn remove_by_message(
    state: &State,
    snaps: &BTreeMap<i32, Vec<SnapId>>,
    now: UTime,
) -> Result<Vec<Change>, Answer> {
    let step = remove_listed(state.osdmap(), snaps, now);
    Ok(step.map(|step| change_of(step, state)).transpose()?.into_iter().collect())
}

/// `None`: all of them are queued already.
fn remove_listed(map: &OsdMap, snaps: &BTreeMap<i32, Vec<SnapId>>, now: UTime) -> Option<OsdMapIncremental> {
    let mut step = step_after(map, now);
    for (id, snaps) in snaps {
        let id = PoolId::from(*id);
        let Some(pool) = map.pools.get(&id) else { continue };
        if pool.flags.has(PoolFlags::POOL_SNAPS) || pool.is_erasure() {
            continue;
        }
        let queue = map.removed_snaps_queue.get(&id);
        let is_new = |snap: &&SnapId| {
            let is_number = snap.0 != 0 && **snap < SnapId::HEAD;
            is_number && queue.is_none_or(|queue| !queue.contains(snap.0))
        };
        let new: Vec<SnapId> = snaps.iter().filter(is_new).copied().collect();
        let Some(newest) = new.iter().max() else { continue };
        let mut next: PgPool = pool.clone();
        next.flags.set(PoolFlags::SELFMANAGED_SNAPS, true);
        next.snap_seq = pool.snap_seq.max(*newest);
        (next.snap_epoch, next.last_change) = (step.epoch, step.epoch);
        step.new_pools.insert(id, next);
        step.new_removed_snaps.insert(id, new.iter().map(|snap| (snap.0, 1)).collect());
    }
    (!step.new_removed_snaps.is_empty()).then_some(step)
}

pub(super) fn mksnap(ctx: &mut Ctx<'_>) -> Outcome {
    let ((id, pool), snap) = (wanted(ctx)?, ctx.args.required("snap")?);
    match carry_out(ctx, id, &pool, SnapChange::Create(&snap))? {
        true => Ok(Answer::ok(format!("created pool {pool} snap {snap}"))),
        false => Ok(Answer::ok(format!("pool {pool} snap {snap} already exists"))),
    }
}

pub(super) fn rmsnap(ctx: &mut Ctx<'_>) -> Outcome {
    let ((id, pool), snap) = (wanted(ctx)?, ctx.args.required("snap")?);
    match carry_out(ctx, id, &pool, SnapChange::Remove(&snap))? {
        true => Ok(Answer::ok(format!("removed pool {pool} snap {snap}"))),
        false => Ok(Answer::ok(format!("pool {pool} snap {snap} does not exist"))),
    }
}

/// False: nothing is to be done.
fn carry_out(ctx: &mut Ctx<'_>, id: PoolId, pool: &str, wanted: SnapChange<'_>) -> Result<bool, Answer> {
    let now = step(ctx).modified;
    let (step, _) = change(ctx.state.osdmap(), id, wanted, now).map_err(|errno| match errno {
        EINVAL => Answer::error(EINVAL, format!("pool {pool} is in unmanaged snaps mode")),
        errno => Answer::error(errno, format!("pool {pool} takes no snapshots: it is erasure-coded")),
    })?;
    let Some(step) = step else { return Ok(false) };
    super::propose(ctx, step)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(map: &OsdMap, wanted: SnapChange<'_>) -> (OsdMap, Option<SnapId>) {
        let (step, given) = change(map, 1, wanted, UTime { sec: 9, nsec: 0 }).unwrap();
        (step.map_or_else(|| map.clone(), |step| map.apply(&step).unwrap()), given)
    }

    fn map() -> OsdMap {
        let mut map = OsdMap::default();
        map.pools.insert(1, PgPool { kind: wire::types::PoolKind::REPLICATED, ..PgPool::default() });
        map
    }

    #[test]
    fn pool_snapshots_are_named_numbered_and_queued() {
        let (one, _) = apply(&map(), SnapChange::Create("a"));
        let (two, _) = apply(&one, SnapChange::Create("b"));
        assert_eq!(two.pools[&1].snaps.keys().copied().collect::<Vec<_>>(), [SnapId(1), SnapId(2)]);
        assert!(two.pools[&1].flags.has(PoolFlags::POOL_SNAPS));
        assert_eq!(change(&two, 1, SnapChange::Create("b"), UTime::ZERO), Ok((None, None)));
        let (gone, _) = apply(&two, SnapChange::Remove("a"));
        assert_eq!(gone.pools[&1].snap_seq, SnapId(3));
        assert!(gone.removed_snaps_queue[&1].contains(1) && !gone.removed_snaps_queue[&1].contains(2));
        assert_eq!(change(&gone, 1, SnapChange::Remove("a"), UTime::ZERO), Ok((None, None)));
    }

    #[test]
    fn unmanaged_snapshots_are_numbered_from_two() {
        let (one, given) = apply(&map(), SnapChange::CreateUnmanaged);
        assert_eq!(given, Some(SnapId(2)));
        let (gone, _) = apply(&one, SnapChange::RemoveUnmanaged(SnapId(2)));
        assert!(gone.removed_snaps_queue[&1].contains(2));
        assert_eq!(change(&gone, 1, SnapChange::RemoveUnmanaged(SnapId(2)), UTime::ZERO), Ok((None, None)));
        assert_eq!(change(&gone, 1, SnapChange::RemoveUnmanaged(SnapId(9)), UTime::ZERO), Err(ENOENT));
        let (_, next) = apply(&gone, SnapChange::CreateUnmanaged);
        assert_eq!(next, Some(SnapId(4)), "a removal takes a number");
    }

    #[test]
    fn snapshots_removed_by_message_raise_the_number() {
        let listed = |snaps: &[u64]| {
            let snaps = snaps.iter().map(|snap| SnapId(*snap)).collect();
            BTreeMap::from([(1, snaps), (9, vec![SnapId(1)])])
        };
        let step = remove_listed(&map(), &listed(&[4, 7]), UTime::ZERO).unwrap();
        let gone = map().apply(&step).unwrap();
        let pool = &gone.pools[&1];
        assert!(pool.flags.has(PoolFlags::SELFMANAGED_SNAPS) && pool.snap_epoch == step.epoch);
        assert_eq!((pool.snap_seq, gone.removed_snaps_queue.len()), (SnapId(7), 1));
        assert_eq!(gone.removed_snaps_queue[&1].iter().collect::<Vec<_>>(), [(4, 1), (7, 1)]);
        assert_eq!(remove_listed(&gone, &listed(&[7, 4]), UTime::ZERO), None, "the message came twice");
        assert_eq!(remove_listed(&map(), &listed(&[0, u64::MAX - 1, u64::MAX]), UTime::ZERO), None);
        let (_, next) = apply(&gone, SnapChange::CreateUnmanaged);
        assert_eq!(next, Some(SnapId(8)));
        let (own, _) = apply(&map(), SnapChange::Create("a"));
        assert_eq!(remove_listed(&own, &listed(&[1]), UTime::ZERO), None);
    }

    #[test]
    fn kinds_of_snapshots_exclude_each_other() {
        let (own, _) = apply(&map(), SnapChange::Create("a"));
        let (unmanaged, _) = apply(&map(), SnapChange::CreateUnmanaged);
        for (map, wanted, errno) in [
            (&own, SnapChange::CreateUnmanaged, EINVAL),
            (&own, SnapChange::RemoveUnmanaged(SnapId(1)), EINVAL),
            (&unmanaged, SnapChange::Create("a"), EINVAL),
            (&unmanaged, SnapChange::Remove("a"), EINVAL),
            (&map(), SnapChange::RemoveUnmanaged(SnapId(1)), EOPNOTSUPP),
        ] {
            assert_eq!(change(map, 1, wanted, UTime::ZERO), Err(errno), "{wanted:?}");
        }
        assert_eq!(change(&own, 2, SnapChange::CreateUnmanaged, UTime::ZERO), Err(ENOENT));
    }
}
