use super::*;
use crate::crush::edit::{Mode, NewRule, add_rule, insert, new_map};
use crate::{Mapper, map_pg};
use std::sync::Arc;
use wire::types::crush::Rule;
use wire::types::{OsdInfo, OsdRow, OsdState, PgPool, PoolFlags, PoolKind};

pub(super) const TB: u32 = 0x1_0000;
const LIMITS: Limits = Limits { deviation_max: 1, changes_max: usize::MAX };

/// Hosts in racks of four, with the sizes of their OSDs in TB. Rule 0 separates hosts, rule 1 racks, for erasure-coded pools.
pub(super) fn cluster(hosts: &[&[u32]]) -> OsdMap {
    let mut crush = new_map("host");
    let mut osd = 0;
    for (host, sizes) in hosts.iter().enumerate() {
        for size in *sizes {
            let location = [
                ("root".to_owned(), "default".to_owned()),
                ("rack".to_owned(), format!("rack{}", host / 4)),
                ("host".to_owned(), format!("host{host}")),
            ];
            insert(&mut crush, osd, size * TB, &format!("osd.{osd}"), &location.into(), false).unwrap();
            osd += 1;
        }
    }
    let by_rack = NewRule {
        name: "racks",
        root: "default",
        failure_domain: "rack",
        failure_domains: 0,
        device_class: "",
    };
    add_rule(&mut crush, by_rack, Mode::Indep, Rule::ERASURE).unwrap();
    let row = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        info: OsdInfo { up_from: 1, ..OsdInfo::default() },
        ..OsdRow::default()
    };
    OsdMap { epoch: 7, crush: Arc::new(crush), osds: vec![row; osd as usize], ..OsdMap::default() }
}

pub(super) fn pool(pg_num: u32, size: u8) -> PgPool {
    PgPool {
        kind: PoolKind::REPLICATED,
        pg_num,
        pgp_num: pg_num,
        size,
        min_size: 1,
        object_hash: 2,
        flags: PoolFlags(PoolFlags::HASHPSPOOL),
        ..PgPool::default()
    }
}

pub(super) fn coded(pg_num: u32, size: u8) -> PgPool {
    PgPool { kind: PoolKind::ERASURE, crush_rule: 1, ..pool(pg_num, size) }
}

/// The map with the plan's exceptions.
fn with(map: &OsdMap, plan: &Plan) -> OsdMap {
    let mut next = OsdMap { epoch: map.epoch + 1, ..map.clone() };
    apply(&plan.upmaps, &mut next);
    next
}

pub(super) fn pgs_of(map: &OsdMap) -> impl Iterator<Item = PgId> {
    map.pools.iter().flat_map(|(pool, info)| (0..info.pg_num).map(|seed| PgId { pool: *pool, seed }))
}

/// The up sets, as every OSD and client computes them, are whole, and no two copies share a bucket of the pool's failure domain.
pub(super) fn assert_sound(map: &OsdMap) {
    let mut mapper = Mapper::default();
    for pg in pgs_of(map) {
        let info = &map.pools[&pg.pool];
        let layout = Layout::of(map, map.crush.rule(info.crush_rule.into()).unwrap());
        let up = mapper.map(map, pg).up.clone();
        assert_eq!(up.len(), usize::from(info.size), "{pg:?}");
        let domains: BTreeSet<i32> = up.iter().map(|osd| layout.places[osd].domain).collect();
        assert_eq!(domains.len(), up.len(), "{pg:?}: {up:?}");
    }
}

#[test]
fn pools_of_several_sizes_come_within_one_pg() {
    let hosts: Vec<&[u32]> =
        (0..20).map(|n| if n % 2 == 0 { &[4, 4, 8][..] } else { &[4, 8, 8][..] }).collect();
    let mut map = cluster(&hosts);
    map.pools = [(1, pool(256, 3)), (2, pool(512, 2)), (3, coded(128, 5))].into();
    let first = plan(&map, &|_| true, LIMITS);
    assert!(first.before.all.deviation() > 10.0, "{:?}", first.before);
    let deviations = first.after.pools.values().chain([&first.after.all]).map(Extremes::deviation);
    deviations.for_each(|by| assert!(by <= 1.0, "{:?}", first.after));
    let balanced = with(&map, &first);
    assert_sound(&balanced);
    // The clients' own computation moves what the plan says, and nothing is left to do.
    let moved = |pg: &PgId| {
        let (before, after) = (map_pg(&map, *pg).up, map_pg(&balanced, *pg).up);
        after.iter().filter(|osd| !before.contains(osd)).count()
    };
    assert!(pgs_of(&map).map(|pg| moved(&pg)).sum::<usize>() <= first.moves);
    let again = plan(&balanced, &|_| true, LIMITS);
    assert_eq!((again.moves, again.upmaps.len()), (0, 0));
    assert_eq!(again.before, first.after);
}

#[test]
fn plan_ends_exceptions_when_their_reason_is_gone() {
    let mut map = cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4], &[4, 4]]);
    map.pools = [(1, pool(256, 2))].into();
    let narrow = plan(&map, &|_| true, LIMITS);
    assert!(narrow.upmaps.len() > 10);
    // Exceptions that fill one OSD are taken back before others are made.
    let mut filled = map.clone();
    for seed in 0..256 {
        let up = map_pg(&map, PgId { pool: 1, seed }).up;
        if !up.iter().any(|osd| [8, 9].contains(osd)) {
            filled.pg_upmap_items.insert(PgId { pool: 1, seed }, vec![(up[1], 9)]);
        }
    }
    let emptied = plan(&filled, &|_| true, LIMITS);
    let ended = emptied.upmaps.values().filter(|items| items.is_empty()).count();
    assert!(emptied.after.all.deviation() <= 1.0);
    assert!(ended > filled.pg_upmap_items.len() / 3, "{ended} of {}", filled.pg_upmap_items.len());
}

#[test]
fn exceptions_without_effect_end() {
    let mut map = cluster(&[&[4, 4], &[4, 4], &[4, 4]]);
    map.pools = [(1, pool(8, 2))].into();
    let pg = |seed| PgId { pool: 1, seed };
    let up = map_pg(&map, pg(3)).up;
    let others: Vec<i32> = (0..6).filter(|osd| !up.contains(osd)).collect();
    // CRUSH chooses neither of these; one pair of the other PG counts.
    map.pg_upmap_items.insert(pg(3), vec![(others[0], others[1])]);
    let of_other = map_pg(&map, pg(5)).up;
    let sibling = of_other[0] ^ 1;
    map.pg_upmap_items.insert(pg(5), vec![(sibling, sibling), (of_other[0], sibling)]);
    let loose = Limits { deviation_max: 100, ..LIMITS };
    let tidied = plan(&map, &|_| true, loose);
    let kept = vec![(of_other[0], sibling)];
    assert_eq!(tidied.upmaps, [(pg(3), Vec::new()), (pg(5), kept)].into());
    assert_eq!(tidied.moves, 0);
    assert_eq!(plan(&map, &|_| true, Limits { changes_max: 1, ..loose }).upmaps.len(), 1);
    assert!(plan(&with(&map, &tidied), &|_| true, loose).upmaps.is_empty());
}

#[test]
fn limits_hold() {
    let mut map = cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4]]);
    map.pools = [(1, pool(256, 2)), (2, pool(256, 2))].into();
    let few = plan(&map, &|_| true, Limits { changes_max: 5, ..LIMITS });
    assert_eq!(few.upmaps.len(), 5);
    let one = plan(&map, &|pool| pool == 2, LIMITS);
    assert!(one.upmaps.keys().all(|pg| pg.pool == 2) && !one.upmaps.is_empty());
    let loose = plan(&map, &|_| true, Limits { deviation_max: 1000, ..LIMITS });
    assert_eq!((loose.moves, &loose.before), (0, &loose.after));
}

/// A whole set and the OSDs that are out are an administrator's choice.
#[test]
fn administrators_choices_stay() {
    let mut map = cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4]]);
    map.pools = [(1, pool(128, 2))].into();
    map.osds[3].weight = 0;
    for seed in 0..40 {
        map.pg_upmap.insert(PgId { pool: 1, seed }, vec![0, 2]);
    }
    let plan = plan(&map, &|_| true, LIMITS);
    assert!(plan.upmaps.keys().all(|pg| pg.seed >= 40));
    let balanced = with(&map, &plan);
    assert!(pgs_of(&balanced).all(|pg| !map_pg(&balanced, pg).up.contains(&3)));
    assert_sound(&balanced);
}

/// Three hosts of unequal weight and three copies: each host has one of each PG, whatever it weighs.
#[test]
fn host_that_weighs_too_much_is_full() {
    let mut map = cluster(&[&[4, 4], &[4, 4], &[16, 16]]);
    map.pools = [(1, pool(100, 3))].into();
    let plan = plan(&map, &|_| true, LIMITS);
    assert!(plan.after.all.deviation() <= 1.0, "{:?}", plan.after);
    let first_of_large = pgs_of(&map).filter(|pg| map_pg(&with(&map, &plan), *pg).up.contains(&4)).count();
    assert!((49..=51).contains(&first_of_large), "{first_of_large}");
}

/// Two racks, two hosts of each: a copy stays in its rack.
#[test]
fn copies_stay_in_their_group_of_a_rule_with_two_steps() {
    use wire::types::crush::{RuleStep, step};
    let mut map = cluster(&[&[4, 4][..]; 16]);
    let steps = vec![
        RuleStep::new(step::TAKE, map.crush.rule(0).unwrap().steps[0].arg1, 0),
        RuleStep::new(step::CHOOSE_FIRSTN, 2, 3),
        RuleStep::new(step::CHOOSELEAF_FIRSTN, 2, 1),
        RuleStep::new(step::EMIT, 0, 0),
    ];
    let rule = Rule { kind: Rule::REPLICATED, min_size: 1, max_size: 100, steps };
    Arc::make_mut(&mut map.crush).rules.push(Some(rule));
    map.pools = [(1, PgPool { crush_rule: 2, ..pool(512, 4) })].into();
    let plan = plan(&map, &|_| true, LIMITS);
    assert!(plan.moves > 0 && plan.after.pools[&1].deviation() <= 1.0, "{:?}", plan.after);
    let balanced = with(&map, &plan);
    assert_sound(&balanced);
    let rack = |osd: &i32| osd / 8;
    for pg in pgs_of(&map) {
        let racks = |map: &OsdMap| map_pg(map, pg).up.iter().map(rack).collect::<Vec<_>>();
        assert_eq!(racks(&map), racks(&balanced));
    }
}

/// 630 OSDs on 68 hosts and 262,144 PGs. Prints the moves.
#[test]
#[ignore = "long: a large cluster"]
fn large_cluster_comes_within_one_pg() {
    let of_host = |n: usize| match n {
        0 => &[15; 11][..],
        n if n % 4 == 0 => &[15; 10],
        n if n % 2 == 0 => &[7; 9],
        _ => &[15; 9],
    };
    let mut map = cluster(&(0..68).map(of_host).collect::<Vec<_>>());
    map.pools = [
        (1, pool(131_072, 3)),
        (2, pool(65_536, 3)),
        (3, coded(32_768, 6)),
        (4, pool(16_384, 2)),
        (5, pool(8_192, 3)),
        (6, coded(4_096, 11)),
        (7, pool(4_096, 3)),
    ]
    .into();
    let plan = plan(&map, &|_| true, LIMITS);
    let copies: u64 = map.pools.values().map(|pool| u64::from(pool.pg_num) * u64::from(pool.size)).sum();
    println!(
        "{} OSDs, {} PGs: from {:.1} to {:.2} PGs of their share, {} of {copies} copies moved, {} exceptions",
        map.osds.len(),
        pgs_of(&map).count(),
        plan.before.all.deviation(),
        plan.after.all.deviation(),
        plan.moves,
        plan.upmaps.len()
    );
    let deviations = plan.after.pools.values().chain([&plan.after.all]).map(Extremes::deviation);
    deviations.for_each(|by| assert!(by <= 1.0, "{:?}", plan.after));
}
