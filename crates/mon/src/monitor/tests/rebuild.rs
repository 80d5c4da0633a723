//! A monitor that starts from a rebuilt disk.

use super::*;
use crate::rebuild::{Found, Rebuild, Store};
use codec::{Encode, Features};
use std::collections::BTreeSet;
use wire::messages::{MOSDBoot, PaxosHeader};
use wire::types::OsdSuperblock;

const SKIPPED: u32 = 10;
const OSD: &str = "1c0ffee5-0000-4000-8000-000000000001";

fn boot(epoch: u32) -> MOSDBoot {
    MOSDBoot {
        paxos: PaxosHeader::default(),
        superblock: OsdSuperblock {
            cluster_fsid: FSID,
            osd_fsid: OSD.parse().unwrap(),
            current_epoch: epoch,
            ..OsdSuperblock::default()
        },
        heartbeat_back_addrs: addr(6801),
        cluster_addrs: addr(6802),
        boot_epoch: 0,
        heartbeat_front_addrs: addr(6803),
        metadata: BTreeMap::new(),
        features: wire::features::TENTACLE.0,
    }
}

/// A cluster with `osd.0` and two pools, the second of which is deleted.
fn lost() -> Fixture {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, &format!(r#"{{"prefix":"osd new","uuid":"{OSD}","id":0}}"#));
    let osd = f.connect("osd.0", 6800);
    f.send(osd, boot(0));
    for name in ["kept", "gone"] {
        f.ok(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":4}}"#));
    }
    let sure = r#""yes_i_really_really_mean_it":true"#;
    f.ok(admin, &format!(r#"{{"prefix":"osd pool delete","pool":"gone","pool2":"gone",{sure}}}"#));
    f.ok(admin, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"3"}"#);
    f
}

/// The monitor that is made from the store of `osd.0`.
fn rebuilt(lost: &Fixture) -> Fixture {
    let history = &lost.monitor.state().osd;
    let newest = history.map().epoch;
    let steps = (2..=newest).map(|epoch| {
        let step = history.step_to(epoch).unwrap();
        (epoch, Bytes::from(step.to_vec(Features(step.encode_features))))
    });
    let store = Store {
        name: "osd.0".into(),
        cluster: FSID,
        identity: OSD.parse().unwrap(),
        newest,
        map: Some(history.shared_map()),
        steps: steps.collect(),
    };
    let mut found = Found::default();
    assert_eq!(found.add(store), Ok(Vec::new()));
    let rebuild = Rebuild {
        name: "a".into(),
        addrs: addr(3300),
        entities: keys(),
        without: BTreeSet::new(),
        skipped: SKIPPED,
    };
    let made = rebuild.make(&found, START, &mut Random::from_number(8)).unwrap();
    let mut disk = Recovered::default();
    disk.apply(made.write);
    let mut f = Fixture::start(AuthMode::Cephx, disk, Time::ZERO);
    f.pass(Duration::from_secs(5));
    f.sent.clear();
    f
}

#[test]
fn rebuilt_monitor_serves_osds_and_clients() {
    let lost = lost();
    let newest = lost.monitor.state().osdmap().epoch;
    let mut f = rebuilt(&lost);
    let admin = f.connect("client.admin", 5000);
    let osd = f.connect("osd.0", 6810);
    f.send(osd, boot(newest + SKIPPED));
    f.pass(Duration::from_secs(2));
    let map = f.monitor.state().osdmap();
    assert!(map.is_up(0) && map.osds[0].info.up_from > newest + SKIPPED);
    assert_eq!(map.pool_names.values().collect::<Vec<_>>(), ["kept"]);
    // The deleted pool's number, and those of pools that no store showed, are not given again.
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"new","pg_num":4}"#);
    let map = f.monitor.state().osdmap();
    assert_eq!(map.pool_by_name("new"), Some(2 + i64::from(SKIPPED) + 1));
    assert_eq!(
        f.monitor
            .state()
            .config
            .resolve(&crate::config_target::Receiver {
                name: &"osd.0".parse().unwrap(),
                host: "h",
                device_class: "",
            })
            .len(),
        0,
        "options are gone"
    );
    assert_eq!(f.monitor.state().monmap.ranks, ["a"]);
}

#[test]
fn rebuilt_monitor_keeps_its_state_over_a_restart() {
    let mut f = rebuilt(&lost());
    let before = f.monitor.state().osdmap().clone();
    f.kill_and_restart();
    assert_eq!(*f.monitor.state().osdmap(), before);
}

#[test]
fn rebuilt_monitor_gives_clients_new_numbers() {
    let limit = |f: &Fixture| f.monitor.state().auth.global_id_limit;
    let lost = lost();
    let f = rebuilt(&lost);
    assert!(limit(&f) > limit(&lost) + 1_000_000, "{} after {}", limit(&f), limit(&lost));
}
