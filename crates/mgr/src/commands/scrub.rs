//! `pg scrub`, `osd scrub`, `osd pool scrub` and their like: scrubs and repairs that an operator asks for.

use super::{Reaction, View};
use command::{Answer, Args, errno};
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::MOSDScrub2;
use wire::types::{PgId, SpgId};

#[derive(Clone, Copy)]
struct Order {
    name: &'static str,
    is_repair: bool,
    is_deep: bool,
}

const SCRUB: Order = Order { name: "scrub", is_repair: false, is_deep: false };
const DEEP_SCRUB: Order = Order { name: "deep-scrub", is_repair: false, is_deep: true };
const REPAIR: Order = Order { name: "repair", is_repair: true, is_deep: true };

pub(super) fn pg_scrub(view: &View<'_>, args: &Args) -> Reaction {
    pg(view, args, SCRUB)
}

pub(super) fn pg_deep_scrub(view: &View<'_>, args: &Args) -> Reaction {
    pg(view, args, DEEP_SCRUB)
}

pub(super) fn pg_repair(view: &View<'_>, args: &Args) -> Reaction {
    pg(view, args, REPAIR)
}

pub(super) fn osd_scrub(view: &View<'_>, args: &Args) -> Reaction {
    osds(view, args, SCRUB)
}

pub(super) fn osd_deep_scrub(view: &View<'_>, args: &Args) -> Reaction {
    osds(view, args, DEEP_SCRUB)
}

pub(super) fn osd_repair(view: &View<'_>, args: &Args) -> Reaction {
    osds(view, args, REPAIR)
}

pub(super) fn pool_scrub(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, SCRUB)
}

pub(super) fn pool_deep_scrub(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, DEEP_SCRUB)
}

pub(super) fn pool_repair(view: &View<'_>, args: &Args) -> Reaction {
    pools(view, args, REPAIR)
}

fn pg(view: &View<'_>, args: &Args, order: Order) -> Reaction {
    let word = args.text("pgid").unwrap_or_default();
    let Ok(pg) = word.parse::<PgId>() else {
        return Answer::invalid(format!("invalid pgid '{word}'")).into();
    };
    if view.pg_map.map.pools.get(&pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num) {
        return Answer::error(errno::ENOENT, format!("pg {pg} does not exist")).into();
    }
    let primary = placement::map_pg(&view.pg_map.map, pg).acting_primary;
    if primary < 0 {
        return Answer::error(errno::EAGAIN, format!("pg {pg} has no primary osd")).into();
    }
    if !view.connected.contains(&primary) {
        let status = format!("pg {pg} primary osd.{primary} is not currently connected");
        return Answer::error(errno::EAGAIN, status).into();
    }
    let status = format!("instructing pg {pg} on osd.{primary} to {}", order.name);
    give(view, [(primary, vec![pg.into()])].into(), order, status)
}

/// The PGs of which these OSDs are the primaries.
fn osds(view: &View<'_>, args: &Args, order: Order) -> Reaction {
    let map = &view.pg_map.map;
    let word = args.text("who").unwrap_or_default();
    let chosen: BTreeSet<i32> = match &word[..] {
        "*" | "all" | "any" => (0..map.max_osd()).filter(|osd| map.is_up(*osd)).collect(),
        _ => {
            let Ok(osd) = word.strip_prefix("osd.").unwrap_or(&word).parse::<i32>() else {
                return Answer::invalid(format!("invalid osd id '{word}'")).into();
            };
            if !map.is_up(osd) {
                return Answer::error(errno::EAGAIN, format!("osd.{osd} is not up")).into();
            }
            [osd].into()
        }
    };
    let every = map.pools.iter();
    let every = every.flat_map(|(pool, info)| (0..info.pg_num).map(|seed| PgId { pool: *pool, seed }));
    let mut by_primary = by_primary(view, every);
    by_primary.retain(|osd, _| chosen.contains(osd));
    let names: Vec<String> = chosen.iter().map(|osd| osd.to_string()).collect();
    let status = format!("instructed osd(s) {} to {}", names.join(","), order.name);
    give(view, by_primary, order, status)
}

fn pools(view: &View<'_>, args: &Args, order: Order) -> Reaction {
    let chosen = match view.pgs_of_pools(args) {
        Ok(chosen) => chosen,
        Err(answer) => return answer.into(),
    };
    let by_primary = by_primary(view, chosen);
    give(view, by_primary, order, String::new())
}

fn by_primary(view: &View<'_>, pgs: impl IntoIterator<Item = PgId>) -> BTreeMap<i32, Vec<SpgId>> {
    let mut out: BTreeMap<i32, Vec<SpgId>> = BTreeMap::new();
    for pg in pgs {
        let primary = placement::map_pg(&view.pg_map.map, pg).acting_primary;
        out.entry(primary).or_default().push(pg.into());
    }
    out
}

/// One message to each primary that is connected.
fn give(
    view: &View<'_>,
    mut by_primary: BTreeMap<i32, Vec<SpgId>>,
    order: Order,
    status: String,
) -> Reaction {
    by_primary.retain(|osd, _| view.connected.contains(osd));
    let (epoch, Order { is_repair, is_deep, .. }) = (view.pg_map.map.epoch, order);
    let scrub = |(osd, pgs)| (osd, MOSDScrub2 { fsid: view.fsid, epoch, pgs, is_repair, is_deep });
    let orders = by_primary.into_iter().map(scrub).collect();
    Reaction::Scrubs { orders, answer: Answer { status, ..Answer::default() } }
}
