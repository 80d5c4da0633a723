//! Snapshots of pools: those that the pool names itself, and those of clients (`self-managed`), which it only numbers. A pool has
//! one kind or the other, from its first snapshot on (`pg_pool_t`, `OSDMonitor::preprocess_pool_op`).

use super::pool::wanted;
use super::{change_of, step};
use crate::commands::{Answer, Ctx, Outcome};
use crate::osd_step::step_after;
use crate::proposal::Change;
use crate::state::OsdHistory;
use crate::state::State;
use command::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use std::collections::BTreeMap;
use wire::types::{IntervalSet, OsdMapIncremental, PgPool, PoolFlags, PoolId, PoolSnap, SnapId, UTime};

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
pub(crate) fn change(
    history: &OsdHistory,
    id: PoolId,
    change: SnapChange<'_>,
    now: UTime,
) -> Result<SnapStep, i32> {
    let map = history.map();
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
        SnapChange::RemoveUnmanaged(snap) if history.is_removed_snap(id, snap.0) => return Ok((None, None)),
        SnapChange::RemoveUnmanaged(snap) => {
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
        change(&state.osd, id, wanted, now).map_err(|errno| Answer::error(errno, String::new()))?;
    Ok((step.map(|step| change_of(step, state)).transpose()?.into_iter().collect(), given))
}

/// The changes of a metadata server's `MRemoveSnaps`. Its pools number snapshots for clients from then on, and give no number that
/// it names. Pools that have snapshots of their own, or none at all, are passed over.
pub(crate) fn remove_by_message(
    state: &State,
    snaps: &BTreeMap<i32, Vec<SnapId>>,
    now: UTime,
) -> Result<Vec<Change>, Answer> {
    let step = remove_listed(&state.osd, snaps, now);
    Ok(step.map(|step| change_of(step, state)).transpose()?.into_iter().collect())
}

/// `None`: all of them are removed already.
fn remove_listed(
    history: &OsdHistory,
    snaps: &BTreeMap<i32, Vec<SnapId>>,
    now: UTime,
) -> Option<OsdMapIncremental> {
    let map = history.map();
    let mut step = step_after(map, now);
    for (id, snaps) in snaps {
        let id = PoolId::from(*id);
        let Some(pool) = map.pools.get(&id) else { continue };
        if pool.flags.has(PoolFlags::POOL_SNAPS) || pool.is_erasure() {
            continue;
        }
        let is_new = |snap: &&SnapId| {
            let is_number = snap.0 != 0 && **snap < SnapId::HEAD;
            is_number && !history.is_removed_snap(id, snap.0)
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

/// Queues removed snapshots once more, so that OSDs trim what is left of them. A snapshot that exists is never touched: only those
/// are taken that the monitors know to be purged.
pub(super) fn force_remove_snap(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, pool) = wanted(ctx)?;
    let history = &ctx.state.osd;
    let seq = history.map().pools.get(&id).map_or(0, |pool| pool.snap_seq.0);
    let bound = |given: Option<i64>, default: u64| given.map_or(default, |given| given.max(0) as u64);
    let lower = bound(ctx.args.int("lower_snapid_bound"), 1);
    let upper = bound(ctx.args.int("upper_snapid_bound"), seq.saturating_add(1));
    if lower > upper {
        return Err(Answer::error(EINVAL, format!("lower bound {lower} is above upper bound {upper}")));
    }
    if upper > seq.saturating_add(1) {
        let text = format!("upper bound {upper} is above the last snapshot of pool {pool}, {seq}");
        return Err(Answer::error(EINVAL, text));
    }
    let range = IntervalSet::of(lower, upper - lower);
    let again =
        history.purged_snaps.get(&id).map_or_else(IntervalSet::new, |purged| purged.intersection(&range));
    let listed: Vec<String> = again.iter().map(|(start, len)| format!("{start}~{len}")).collect();
    let text = format!("removed snapids: [{}]", listed.join(","));
    if ctx.args.flag("dry_run") {
        return Ok(Answer::ok(format!("dry run: {text}")));
    }
    if again.is_empty() {
        return Ok(Answer::ok(text));
    }
    let mut step = step(ctx);
    let mut next = history.map().pools[&id].clone();
    (next.snap_epoch, next.last_change) = (step.epoch, step.epoch);
    step.new_pools.insert(id, next);
    step.new_removed_snaps.insert(id, again);
    super::propose(ctx, step)?;
    Ok(Answer::ok(text))
}

/// False: nothing is to be done.
fn carry_out(ctx: &mut Ctx<'_>, id: PoolId, pool: &str, wanted: SnapChange<'_>) -> Result<bool, Answer> {
    let now = step(ctx).modified;
    let (step, _) = change(&ctx.state.osd, id, wanted, now).map_err(|errno| match errno {
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
    use crate::proposal::SealedStep;
    use std::sync::Arc;
    use wire::types::OsdMap;

    fn apply(history: &OsdHistory, wanted: SnapChange<'_>) -> (OsdHistory, Option<SnapId>) {
        let (step, given) = change(history, 1, wanted, UTime { sec: 9, nsec: 0 }).unwrap();
        (step.map_or_else(|| history.clone(), |step| after(history, step)), given)
    }

    fn after(history: &OsdHistory, step: OsdMapIncremental) -> OsdHistory {
        let mut next = history.clone();
        next.apply(&SealedStep::seal(step, history.map()).expect("it fits"));
        next
    }

    fn map() -> OsdHistory {
        let mut map = OsdMap::default();
        map.pools.insert(1, PgPool { kind: wire::types::PoolKind::REPLICATED, ..PgPool::default() });
        OsdHistory::starting_with(Arc::new(map))
    }

    /// Every PG has trimmed these snapshots.
    fn purge(history: &OsdHistory, snaps: &[u64]) -> OsdHistory {
        let mut step = step_after(history.map(), UTime::ZERO);
        step.new_purged_snaps.insert(1, snaps.iter().map(|snap| (*snap, 1)).collect());
        after(history, step)
    }

    #[test]
    fn purged_snapshot_is_not_removed_twice() {
        let (made, _) = apply(&map(), SnapChange::CreateUnmanaged);
        let (gone, _) = apply(&made, SnapChange::RemoveUnmanaged(SnapId(2)));
        let purged = purge(&gone, &[2]);
        assert!(purged.map().removed_snaps_queue.is_empty());
        assert_eq!(change(&purged, 1, SnapChange::RemoveUnmanaged(SnapId(2)), UTime::ZERO), Ok((None, None)));
        let listed = BTreeMap::from([(1, vec![SnapId(2)])]);
        assert_eq!(remove_listed(&purged, &listed, UTime::ZERO), None);
        // The number that the removal took makes the ranges touch.
        assert_eq!(purged.purged_snaps[&1].iter().collect::<Vec<_>>(), [(2, 2)]);
        let read: OsdHistory =
            codec::decode_exact(&codec::Encode::to_vec(&purged, codec::Features::ALL)).unwrap();
        assert_eq!(read.purged_snaps, purged.purged_snaps);
        let mut step = step_after(purged.map(), UTime::ZERO);
        step.old_pools.insert(1);
        assert!(after(&purged, step).purged_snaps.is_empty(), "the pool is gone");
    }

    #[test]
    fn pool_snapshots_are_named_numbered_and_queued() {
        let (one, _) = apply(&map(), SnapChange::Create("a"));
        let (two, _) = apply(&one, SnapChange::Create("b"));
        assert_eq!(two.map().pools[&1].snaps.keys().copied().collect::<Vec<_>>(), [SnapId(1), SnapId(2)]);
        assert!(two.map().pools[&1].flags.has(PoolFlags::POOL_SNAPS));
        assert_eq!(change(&two, 1, SnapChange::Create("b"), UTime::ZERO), Ok((None, None)));
        let (gone, _) = apply(&two, SnapChange::Remove("a"));
        assert_eq!(gone.map().pools[&1].snap_seq, SnapId(3));
        assert!(
            gone.map().removed_snaps_queue[&1].contains(1) && !gone.map().removed_snaps_queue[&1].contains(2)
        );
        assert_eq!(change(&gone, 1, SnapChange::Remove("a"), UTime::ZERO), Ok((None, None)));
    }

    #[test]
    fn unmanaged_snapshots_are_numbered_from_two() {
        let (one, given) = apply(&map(), SnapChange::CreateUnmanaged);
        assert_eq!(given, Some(SnapId(2)));
        let (gone, _) = apply(&one, SnapChange::RemoveUnmanaged(SnapId(2)));
        assert!(gone.map().removed_snaps_queue[&1].contains(2));
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
        let gone = after(&map(), step.clone());
        let pool = &gone.map().pools[&1];
        assert!(pool.flags.has(PoolFlags::SELFMANAGED_SNAPS) && pool.snap_epoch == step.epoch);
        assert_eq!((pool.snap_seq, gone.map().removed_snaps_queue.len()), (SnapId(7), 1));
        assert_eq!(gone.map().removed_snaps_queue[&1].iter().collect::<Vec<_>>(), [(4, 1), (7, 1)]);
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
