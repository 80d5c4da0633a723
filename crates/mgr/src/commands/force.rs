//! `pg force-recovery`, `osd pool force-backfill` and their like: which PGs recover before all others.

use super::{Reaction, View};
use command::{Answer, Args, errno};
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::MOSDForceRecovery;
use wire::types::{PgId, PgState, SpgId};

/// An order as its command names it, and the states without which it means nothing.
struct Order {
    name: &'static str,
    options: u8,
    /// A PG in none of these states has nothing to do.
    needs: &'static [PgState],
    /// The state of a PG that has the order already.
    forced: PgState,
    /// Of a PG that needs nothing, and of one that has the order already.
    useless: &'static str,
    repeated: &'static str,
}

const RECOVERY: Order = Order {
    name: "force-recovery",
    options: MOSDForceRecovery::RECOVERY,
    needs: &[PgState::DEGRADED, PgState::RECOVERY_WAIT, PgState::RECOVERING],
    forced: PgState::FORCED_RECOVERY,
    useless: "doesn't require recovery",
    repeated: "recovery already forced",
};

const BACKFILL: Order = Order {
    name: "force-backfill",
    options: MOSDForceRecovery::BACKFILL,
    needs: &[PgState::DEGRADED, PgState::BACKFILL_WAIT, PgState::BACKFILLING],
    forced: PgState::FORCED_BACKFILL,
    useless: "doesn't require backfilling",
    repeated: "backfill already forced",
};

/// A PG that was not forced needs no cancelling, and a forced one cannot have been cancelled before.
const CANCEL_RECOVERY: Order = Order {
    name: "cancel-force-recovery",
    options: MOSDForceRecovery::RECOVERY | MOSDForceRecovery::CANCEL,
    needs: &[PgState::FORCED_RECOVERY],
    forced: PgState::FORCED_RECOVERY,
    useless: "recovery not forced",
    repeated: "",
};

const CANCEL_BACKFILL: Order = Order {
    name: "cancel-force-backfill",
    options: MOSDForceRecovery::BACKFILL | MOSDForceRecovery::CANCEL,
    needs: &[PgState::FORCED_BACKFILL],
    forced: PgState::FORCED_BACKFILL,
    useless: "backfill not forced",
    repeated: "",
};

pub(super) fn pg_recovery(view: &View<'_>, args: &Args) -> Reaction {
    pgs(view, args, &RECOVERY)
}

pub(super) fn pg_backfill(view: &View<'_>, args: &Args) -> Reaction {
    pgs(view, args, &BACKFILL)
}

pub(super) fn pg_cancel_recovery(view: &View<'_>, args: &Args) -> Reaction {
    pgs(view, args, &CANCEL_RECOVERY)
}

pub(super) fn pg_cancel_backfill(view: &View<'_>, args: &Args) -> Reaction {
    pgs(view, args, &CANCEL_BACKFILL)
}

pub(super) fn pool_recovery(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, &RECOVERY)
}

pub(super) fn pool_backfill(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, &BACKFILL)
}

pub(super) fn pool_cancel_recovery(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, &CANCEL_RECOVERY)
}

pub(super) fn pool_cancel_backfill(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, &CANCEL_BACKFILL)
}

fn pgs(view: &View<'_>, args: &Args, order: &Order) -> Reaction {
    let mut chosen = BTreeSet::new();
    for word in args.texts("pgid") {
        match word.parse::<PgId>() {
            Ok(pg) => drop(chosen.insert(pg)),
            Err(()) => return Answer::invalid(format!("invalid pgid '{word}'")).into(),
        }
    }
    give(view, &chosen, order)
}

fn pools(view: &View<'_>, args: &Args, order: &Order) -> Reaction {
    let chosen = match view.pgs_of_pools(args) {
        Ok(chosen) => chosen,
        Err(answer) => return answer.into(),
    };
    give(view, &chosen, order)
}

/// One message to each primary. The answer is an error only when no PG is left that the order is for.
fn give(view: &View<'_>, chosen: &BTreeSet<PgId>, order: &Order) -> Reaction {
    let (mut status, mut result) = (String::new(), 0);
    let mut by_primary: BTreeMap<i32, Vec<SpgId>> = BTreeMap::new();
    let is_cancel = order.options & MOSDForceRecovery::CANCEL != 0;
    for pg in chosen {
        let Some(stat) = view.pg_map.pgs.get(pg) else {
            status += &format!("pg {pg} does not exist; ");
            result = -errno::ENOENT;
            continue;
        };
        if !order.needs.iter().any(|state| stat.state.has(*state)) {
            // A script may race with the cluster: no error.
            status += &format!("pg {pg} {}; ", order.useless);
        } else if !is_cancel && stat.state.has(order.forced) {
            status += &format!("pg {pg} {}; ", order.repeated);
            result = -errno::EINVAL;
        } else {
            let primary = placement::map_pg(&view.pg_map.map, *pg).acting_primary;
            by_primary.entry(primary).or_default().push((*pg).into());
        }
    }
    if !by_primary.is_empty() {
        result = 0;
    }
    by_primary.retain(|osd, _| view.pg_map.map.is_up(*osd));
    let mut orders = Vec::new();
    for (osd, pgs) in by_primary {
        if !view.connected.contains(&osd) {
            status += &format!("osd.{osd} is not currently connected");
            result = -errno::EAGAIN;
            continue;
        }
        let names: Vec<String> = pgs.iter().map(|pg| pg.pg.to_string()).collect();
        status += &format!("instructing pg(s) [{}] on osd.{osd} to {}; ", names.join(","), order.name);
        orders.push((osd, MOSDForceRecovery { fsid: view.fsid, pgs, options: order.options }));
    }
    Reaction::Orders { orders, answer: Answer { result, status: status + "\n", ..Answer::default() } }
}
