//! Reports in, sums, warnings and answers out: a small cluster made by hand.

use crate::PgMap;
use crate::caps::Caps;
use crate::fixture::{answer_of, react_as, text};
use std::sync::Arc;
use wire::messages::{MPGStats, PaxosHeader};
use wire::types::{OsdInfo, OsdMap, OsdRow, OsdStat, OsdState, PgId, PgPool, PgStat, PgState, UTime, Uuid};

const NOW: UTime = UTime { sec: 1_800_000_000, nsec: 0 };

fn later(sec: u32) -> UTime {
    UTime { sec: NOW.sec + sec, ..NOW }
}

/// Pool 1 `data` with two PGs; `osds` of them up and in.
fn map(epoch: u32, up: &[bool]) -> Arc<OsdMap> {
    let row = |up: &bool| OsdRow {
        state: OsdState(OsdState::EXISTS | if *up { OsdState::UP } else { 0 }),
        weight: OsdMap::WEIGHT_IN,
        info: OsdInfo { up_from: 1, ..OsdInfo::default() },
        ..OsdRow::default()
    };
    Arc::new(OsdMap {
        epoch,
        pools: [(1, PgPool { pg_num: 2, size: 1, min_size: 1, ..PgPool::default() })].into(),
        pool_names: [(1, "data".to_owned())].into(),
        osds: up.iter().map(row).collect(),
        full_ratio: 0.95,
        ..OsdMap::default()
    })
}

fn report(osd: i32, seq: u64, seed: u32, objects: i64) -> MPGStats {
    let mut stat = PgStat {
        state: PgState::ACTIVE.with(PgState::CLEAN),
        reported_epoch: 2,
        reported_seq: seq,
        up: vec![osd],
        acting: vec![osd],
        up_primary: osd,
        acting_primary: osd,
        ..PgStat::unknown()
    };
    stat.stats.sum.num_objects = objects;
    stat.stats.sum.num_bytes = objects * 4096;
    let mut own = OsdStat { seq, num_osds: 1, ..OsdStat::default() };
    own.statfs.total = 1 << 30;
    own.statfs.available = (1 << 30) - (objects as u64) * 4096;
    MPGStats {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        osd: own,
        pgs: [(PgId { pool: 1, seed }, stat)].into(),
        epoch: 2,
        had_map_for: UTime::ZERO,
        pools: Default::default(),
    }
}

fn ask(map: &PgMap, command: &str) -> command::Answer {
    answer_of(react_as(map, later(10), &Caps::all(), command))
}

#[test]
fn sums_follow_the_reports() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true, true]));
    let blank = m.digest(later(10));
    assert_eq!((blank.num_pg, blank.num_pg_unknown, blank.num_pg_active), (2, 2, 0));

    m.ingest(later(1), 0, report(0, 1, 0, 10));
    m.ingest(later(2), 1, report(1, 1, 1, 5));
    let full = m.digest(later(10));
    assert_eq!((full.num_pg_unknown, full.num_pg_active, full.num_osd), (0, 2, 2));
    assert_eq!(full.pg_sum.stats.sum.num_objects, 15);
    assert_eq!(full.pool_sums[&1].stats.sum.num_bytes, 15 * 4096);
    assert_eq!(full.osd_sum.statfs.total, 2 << 30);
    assert_eq!(full.osd_sum.statfs.used(), 15 * 4096);

    m.ingest(later(3), 0, report(0, 2, 0, 3));
    assert_eq!(m.digest(later(10)).pg_sum.stats.sum.num_objects, 8, "a delete shows");
}

#[test]
fn an_old_report_does_not_undo_a_new_one() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true, true]));
    m.ingest(later(1), 0, report(0, 5, 0, 10));
    m.ingest(later(2), 0, report(0, 4, 0, 99));
    assert_eq!(m.digest(later(10)).pg_sum.stats.sum.num_objects, 10);
    assert_eq!(m.digest(later(10)).osd_last_seq, [5]);
}

#[test]
fn what_the_map_does_not_know_is_not_counted() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true]));
    m.ingest(later(1), 7, report(7, 1, 0, 10));
    m.ingest(later(1), 0, report(0, 1, 9, 10));
    let d = m.digest(later(10));
    assert_eq!((d.pg_sum.stats.sum.num_objects, d.num_pg, d.num_osd), (0, 2, 1));
}

#[test]
fn pgs_of_dead_osd_are_stale_and_health_reports_it() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true, true]));
    m.ingest(later(1), 0, report(0, 1, 0, 10));
    m.ingest(later(1), 1, report(1, 1, 1, 10));
    assert!(!m.health(later(2)).contains_key("PG_AVAILABILITY"));

    m.on_osd_map(later(3), map(3, &[true, false]));
    assert!(!m.health(later(63)).contains_key("PG_AVAILABILITY"), "for a minute it is no news");
    let health = m.health(later(64));
    let check = &health["PG_AVAILABILITY"];
    assert_eq!(check.summary, "Reduced data availability: 1 pg stale");
    assert_eq!(
        check.detail,
        ["pg 1.1 is stuck stale for 61s, current state stale+active+clean, last acting [1]"]
    );
    m.options.pg_stuck_threshold_s = 5;
    assert!(m.health(later(9)).contains_key("PG_AVAILABILITY"), "or as long as someone says");
    assert!(
        text(&ask(&m, r#"{"prefix":"pg stat"}"#))
            .starts_with("2 pgs: 1 active+clean, 1 stale+active+clean; ")
    );
}

#[test]
fn a_pg_that_nobody_reports_is_news_only_when_it_stays_so() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true]));
    assert!(m.health(later(60)).is_empty());
    assert_eq!(m.health(later(61))["PG_AVAILABILITY"].summary, "Reduced data availability: 2 pgs inactive");
}

#[test]
fn bad_questions_get_stocks_errno() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true, false]));
    let cases = [
        (r#"{"prefix":"pg ls","states":["bogus"]}"#, -22),
        (r#"{"prefix":"pg ls","pool":9}"#, -2),
        (r#"{"prefix":"pg ls-by-osd","osd":"osd.1"}"#, -11),
        (r#"{"prefix":"pg ls-by-pool","poolstr":"nope"}"#, -2),
        (r#"{"prefix":"osd pool stats","pool_name":"nope"}"#, -2),
        (r#"{"prefix":"osd df","filter":"nope"}"#, -22),
        (r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#, -11),
        (r#"{"prefix":"no such thing"}"#, -22),
        ("nonsense", -22),
    ];
    for (command, want) in cases {
        assert_eq!(ask(&m, command).result, want, "{command}");
    }
}

#[test]
fn stopping_the_only_holder_of_a_pg_is_not_ok() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true, true]));
    m.ingest(later(1), 0, report(0, 1, 0, 1));
    m.ingest(later(1), 0, report(0, 2, 1, 1));
    let holder = ask(&m, r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#);
    assert_eq!(holder.result, -16);
    assert!(
        text(&holder).starts_with(r#"{"ok_to_stop":false,"osds":[0],"num_ok_pgs":0,"num_not_ok_pgs":2,"#)
    );
    assert_eq!(ask(&m, r#"{"prefix":"osd ok-to-stop","ids":["osd.1"]}"#).result, 0);
    assert_eq!(ask(&m, r#"{"prefix":"osd safe-to-destroy","ids":["0"]}"#).result, -16);
    assert_eq!(ask(&m, r#"{"prefix":"osd safe-to-destroy","ids":["1"]}"#).result, 0);
}

#[test]
fn who_may_not_ask_is_told_so() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true]));
    let caps = Caps::parse("allow service osd r").unwrap();
    let result = |command| answer_of(react_as(&m, NOW, &caps, command)).result;
    assert_eq!(result(r#"{"prefix":"pg dump"}"#), -13);
    assert_eq!(result(r#"{"prefix":"osd perf"}"#), 0);
}

#[test]
fn a_dump_in_plain_text_and_in_json_shows_the_same_pgs() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, map(2, &[true]));
    m.ingest(later(1), 0, report(0, 1, 0, 7));
    let brief = ask(&m, r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#);
    assert_eq!(
        text(&brief),
        "PG_STAT  STATE         UP   UP_PRIMARY  ACTING  ACTING_PRIMARY\n\
         1.0      active+clean  [0]           0     [0]               0\n\
         1.1           unknown   []          -1      []              -1\n"
    );
    assert_eq!(brief.status, "dumped pgs_brief");
    let json = ask(&m, r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"],"format":"json"}"#);
    assert_eq!(
        text(&json),
        concat!(
            r#"{"pg_ready":true,"pg_stats":[{"pgid":"1.0","state":"active+clean","up":[0],"acting":[0],"up_primary":0,"#,
            r#""acting_primary":0},{"pgid":"1.1","state":"unknown","up":[],"acting":[],"up_primary":-1,"#,
            r#""acting_primary":-1}]}"#,
            "\n"
        )
    );
}
