//! For tests: a cluster of three OSDs and one pool of three copies, made by hand.

use crate::PgMap;
use crate::balancer::Balancer;
use crate::caps::Caps;
use crate::commands::{self, Asker, Reaction, View};
use crate::configs::Configs;
use crate::crashes::Crashes;
use crate::progress::ProgressEvents;
use command::Answer;
use machine::Random;
use placement::crush::edit::{insert, new_map};
use std::sync::Arc;
use wire::messages::{MPGStats, PaxosHeader};
use wire::types::{
    AuthName, EntityAddr, EntityKind, OsdInfo, OsdMap, OsdRow, OsdStat, OsdState, PgId, PgPool, PgStat,
    PgState, UTime, Uuid,
};

pub(crate) const NOW: UTime = UTime { sec: 1_800_000_000, nsec: 0 };

pub(crate) fn ago(sec: u32) -> UTime {
    UTime { sec: NOW.sec - sec, nsec: 0 }
}

/// Pool 1 `data`, size 3, with four PGs of ten objects on OSDs 0 to 2, all of them active+clean.
pub(crate) fn pg_map() -> PgMap {
    let row = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        info: OsdInfo { up_from: 1, ..OsdInfo::default() },
        ..OsdRow::default()
    };
    let pool = PgPool { pg_num: 4, size: 3, min_size: 2, ..PgPool::default() };
    let map = OsdMap {
        epoch: 2,
        pools: [(1, pool)].into(),
        pool_names: [(1, "data".to_owned())].into(),
        osds: vec![row; 3],
        ..OsdMap::default()
    };
    let mut pg_map = PgMap::default();
    pg_map.on_osd_map(ago(600), Arc::new(map));
    for seed in 0..4 {
        report(&mut pg_map, seed, &[0, 1, 2], "active+clean", |_| {});
    }
    pg_map
}

pub(crate) fn state(text: &str) -> PgState {
    text.split('+').fold(PgState::UNKNOWN, |state, word| state.with(PgState::from_word(word).unwrap()))
}

/// The primary reports a PG that changed to its state 61 seconds ago.
pub(crate) fn report(
    pg_map: &mut PgMap,
    seed: u32,
    acting: &[i32],
    words: &str,
    edit: impl FnOnce(&mut PgStat),
) {
    let pg = PgId { pool: 1, seed };
    let seq = pg_map.pgs[&pg].reported_seq + 1;
    let mut stat = PgStat {
        state: state(words),
        reported_epoch: 2,
        reported_seq: seq,
        up: acting.to_vec(),
        acting: acting.to_vec(),
        up_primary: acting[0],
        acting_primary: acting[0],
        last_change: ago(61),
        last_active: ago(61),
        last_peered: ago(61),
        last_unstale: ago(61),
        last_fullsized: ago(61),
        ..PgStat::unknown()
    };
    stat.stats.sum.num_objects = 10;
    stat.stats.sum.num_object_copies = 30;
    edit(&mut stat);
    let osd = OsdStat { seq: seq << 8 | u64::from(seed), num_osds: 1, ..OsdStat::default() };
    let message = MPGStats {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        osd,
        pgs: [(pg, stat)].into(),
        epoch: 2,
        had_map_for: UTime::ZERO,
        pools: Default::default(),
    };
    pg_map.ingest(NOW, acting[0], message);
}

/// The OSD goes down, or comes up.
pub(crate) fn set_up(pg_map: &mut PgMap, now: UTime, osd: i32, is_up: bool) {
    let mut map = (*pg_map.map).clone();
    map.epoch += 1;
    map.osds[osd as usize].state = OsdState(OsdState::EXISTS | if is_up { OsdState::UP } else { 0 });
    pg_map.on_osd_map(now, Arc::new(map));
}

/// Gives OSDs their hosts and CRUSH weights, under stock's rule 0.
pub(crate) fn place(pg_map: &mut PgMap, osds: &[(i32, &str, f64)]) {
    let mut map = (*pg_map.map).clone();
    let mut crush = new_map("host");
    for (osd, host, weight) in osds {
        let location = [("root", "default"), ("host", host)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let weight = (weight * 65_536.0) as u32;
        insert(&mut crush, *osd, weight, &format!("osd.{osd}"), &location.into(), false).unwrap();
    }
    map.crush = Arc::new(crush);
    pg_map.on_osd_map(NOW, Arc::new(map));
}

/// The reaction to a command in JSON, of somebody who may do everything. OSDs 0 and 1 are connected.
pub(crate) fn react(pg_map: &PgMap, command: &str) -> Reaction {
    react_as(pg_map, NOW, &Caps::all(), command)
}

pub(crate) fn react_as(pg_map: &PgMap, now: UTime, caps: &Caps, command: &str) -> Reaction {
    let (configs, connected) = (Configs::default(), [0, 1].into());
    let progress = ProgressEvents::new(Random::from_number(1));
    let view = View {
        osd_rates: &|_| Default::default(),
        now,
        fsid: Uuid([7; 16]),
        pg_map,
        configs: &configs,
        progress: &progress,
        crashes: &Crashes::default(),
        balancer: &Balancer::default(),
        services: &Default::default(),
        connected: &connected,
        input: b"",
    };
    let name = AuthName::new(EntityKind::CLIENT, "admin");
    let asker = Asker { name: &name, caps, addr: EntityAddr::default() };
    commands::react(&view, &asker, command)
}

/// The answer to a command that only reads.
pub(crate) fn ask(pg_map: &PgMap, command: &str) -> Answer {
    answer_of(react(pg_map, command))
}

pub(crate) fn answer_of(reaction: Reaction) -> Answer {
    match reaction {
        Reaction::Answer(answer) => answer,
        _ => panic!("the command acts"),
    }
}

pub(crate) fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}
