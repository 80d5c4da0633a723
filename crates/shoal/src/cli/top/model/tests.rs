//! Screens of recorded answers: 16.2.15 with an OSD down and its PGs degraded, 20.2.4 likewise; and answers that are missing.

use super::super::ask::{Answers, OsdAnswers};
use super::recovery::Standing;
use super::*;
use serde_json::json;

/// Commands and their answers, of a 16.2.15 cluster of three OSDs with `noout` set and osd.2 killed. The rates and the
/// operations in flight were recorded before, under `rados bench`.
const PACIFIC: &str = include_str!("../../../../tests/recorded/top-16.2.15.json");
/// The manager's: see `crates/mgr/src/stock_tests.rs`.
const TENTACLE: &str = include_str!("../../../../../mgr/tests/recorded/answers-20.2.4");

pub fn pacific() -> Answers {
    let recorded: Value = serde_json::from_str(PACIFIC).unwrap();
    let answer = |command: &str| {
        let answer = recorded[command].clone();
        assert!(!answer.is_null(), "{command} was recorded");
        Some(answer)
    };
    let osd = OsdAnswers { ops_in_flight: answer("tell osd.0 dump_ops_in_flight"), process: None };
    Answers {
        status: answer("status"),
        health_detail: answer("health detail"),
        df: answer("df"),
        osd_df: answer("osd df tree"),
        osd_perf: answer("osd perf"),
        pool_stats: answer("osd pool stats"),
        osds: BTreeMap::from([(0, osd)]),
        ..Answers::default()
    }
}

fn tentacle(command: &str) -> Value {
    let items = TENTACLE.split('\u{1e}').skip(1);
    let mut answers = items.filter_map(|item| {
        let (asked, rest) = item.split_once('\u{1f}')?;
        let (_, body) = rest.split_once('\u{1f}')?;
        (asked == format!("{command} --format json")).then(|| serde_json::from_str(body).unwrap())
    });
    answers.next().expect("the command was recorded")
}

fn show(osds: &[OsdRow]) -> Vec<String> {
    osds.iter().map(|row| format!("{}{}", " ".repeat(row.depth), row.name)).collect()
}

#[test]
fn screen_of_16_2_says_what_its_tools_say() {
    let answers = pacific();
    let screen = Model::default().screen(&answers);
    let status = answers.status.as_ref().unwrap();
    let s = &screen.summary;
    assert_eq!(s.fsid.as_deref(), status["fsid"].as_str());
    assert_eq!((s.mons, s.osds, s.osds_up, s.osds_in), (Some(1), Some(3), Some(2), Some(3)));
    assert_eq!((s.quorum.as_slice(), s.has_manager), (&["a".to_owned()][..], Some(true)));
    assert_eq!(s.health.as_deref(), Some("HEALTH_WARN"));
    let codes: Vec<&str> = screen.health.iter().map(|check| check.code.as_str()).collect();
    for code in ["OSDMAP_FLAGS", "OSD_DOWN", "PG_DEGRADED"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    let down = screen.health.iter().find(|check| check.code == "OSD_DOWN").unwrap();
    let remedy = down.remedy.as_ref().unwrap();
    assert_eq!(remedy.command, "ceph osd tree down");
    assert!(remedy.hint.starts_with("start osd.2 on "), "{}", remedy.hint);
    let flags = screen.health.iter().find(|check| check.code == "OSDMAP_FLAGS").unwrap();
    assert_eq!(flags.remedy.as_ref().unwrap().command, "ceph osd unset noout");

    let states = screen.pgs.as_ref().unwrap();
    assert_eq!(Some(states.iter().map(|state| state.count).sum()), s.pgs);
    assert!(states.iter().any(|state| state.standing == Standing::Active));
    assert_eq!(Some(screen.recovery.degraded), status["pgmap"]["degraded_objects"].as_u64());
    assert!(screen.recovery.degraded > 0);
    assert_eq!(screen.recovery.left_s, None, "without a rate no time is known");

    assert_eq!(show(&screen.osds)[2..], ["  osd.0", "  osd.1", "  osd.2"]);
    assert_eq!((screen.osds[0].depth, screen.osds[0].name.as_str()), (0, "default"));
    let osd = |n: i32| screen.osds.iter().find(|row| row.osd == Some(n)).unwrap();
    assert_eq!((osd(0).is_up, osd(2).is_up), (Some(true), Some(false)));
    assert!(osd(0).commit_ms.is_some() && osd(2).commit_ms.is_none(), "a down OSD has no latency");
    assert_eq!(osd(0).cpu_percent, None, "stock does not tell it");
    assert!(osd(0).pgs > Some(0) && osd(0).bytes > Some(1e9));

    let pool = screen.pools.iter().find(|pool| pool.name == "wide").unwrap();
    assert_eq!((pool.objects, pool.rates.is_some()), (Some(20.0), true));
    assert!(pool.rates.unwrap().writes > 0.0, "the pool was written to");
    let clients = screen.clients.as_ref().unwrap();
    assert_eq!(clients.len(), 1, "one client had operations in flight: {clients:?}");
    assert!(clients[0].name.starts_with("client.") && clients[0].in_flight > 0);
}

#[test]
fn osds_of_20_2_are_in_the_order_of_the_tree() {
    let (tree, perf) = (tentacle("osd df tree"), tentacle("osd perf"));
    let cpu = BTreeMap::from([(0, 12.0), (2, 90.0)]);
    let rows = osds::rows(Some(&tree), Some(&perf), &cpu);
    assert_eq!(show(&rows), ["default", " vm", "  osd.0", "  osd.1", "  osd.2"]);
    let states: Vec<_> = rows.iter().map(|row| (row.is_up, row.class.as_str(), row.cpu_percent)).collect();
    let osds = [(Some(true), "ssd", Some(12.0)), (Some(true), "hdd", None), (Some(false), "hdd", None)];
    assert_eq!(states[..2], [(None, "", None); 2]);
    assert_eq!(states[2..], osds, "a down OSD uses no processor");
    assert_eq!(rows[3].pgs, Some(11));
    assert!((rows[3].used_percent.unwrap() - 0.03798).abs() < 1e-4);
    let stats = pools::rows(None, Some(&tentacle("osd pool stats")));
    let names: Vec<&str> = stats.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, [".mgr", "alpha", "beta"]);
    assert_eq!(stats[1].stored, None, "df did not answer");
}

#[test]
fn missing_answers_are_unknown() {
    let mut model = Model::default();
    let problem = Some("the monitor does not answer".to_owned());
    let screen = model.screen(&Answers { problem: problem.clone(), ..Answers::default() });
    let summary = Summary { problem, ..Summary::default() };
    assert_eq!(screen, Screen { summary, ..Screen::default() });
    // Without a manager, the monitor's tree has the OSDs, without their usage.
    let tree = json!({"nodes": [
        {"id": -1, "name": "default", "type": "root", "children": [0]},
        {"id": 0, "name": "osd.0", "type": "osd", "status": "up", "reweight": 0},
    ], "stray": []});
    let screen =
        model.screen(&Answers { osd_tree: Some(tree), status: Some(json!({})), ..Answers::default() });
    let osd = &screen.osds[1];
    assert_eq!((osd.is_up, osd.is_in, osd.used_percent, osd.pgs), (Some(true), false, None, None));
    assert_eq!((screen.pgs, screen.operations, screen.clients), (None, None, None));
}

#[test]
fn samples_last_until_the_next_or_until_the_osd_is_down() {
    let mut answers = pacific();
    let mut model = Model::default();
    let process = Some(json!({"cpu_ms": 900, "cpu_recent_percent": 37}));
    answers.osds.get_mut(&0).unwrap().process = process;
    let cpu = |screen: &Screen| screen.osds.iter().find(|row| row.osd == Some(0)).unwrap().cpu_percent;
    assert_eq!(cpu(&model.screen(&answers)), Some(37.0));
    // Another OSD is asked: the sample stays, but its operations may be over.
    answers.osds =
        BTreeMap::from([(1, OsdAnswers { ops_in_flight: Some(json!({"ops": []})), process: None })]);
    let screen = model.screen(&answers);
    assert_eq!((cpu(&screen), screen.sampled, screen.clients.as_ref().unwrap().len()), (Some(37.0), 2, 1));
    assert_eq!(screen.operations, Some(Vec::new()));
    let nodes = answers.osd_df.as_mut().unwrap()["nodes"].as_array_mut().unwrap();
    nodes.iter_mut().find(|node| node["id"] == 0).unwrap()["status"] = json!("down");
    let screen = model.screen(&answers);
    assert_eq!((cpu(&screen), screen.sampled, screen.clients), (None, 1, Some(Vec::new())));
}

#[test]
fn old_operations_and_clients_are_ordered() {
    let op = |client: &str, age: f64| {
        json!({
            "description": "osd_op(…)", "age": age,
            "type_data": {"flag_point": "delayed", "client_info": {"client": client, "client_addr": "1.2.3.4:0/9"},
                          "events": [{"event": "initiated"}, {"event": "waiting for peered"}]},
        })
    };
    let dump =
        json!({"ops": [op("client.7", 0.2), op("client.9", 31.0), op("client.9", 1.5), op("osd.3", 50.0)]});
    let all = operations::of_dump(4, &dump);
    let old = operations::oldest(all.iter());
    let ages: Vec<(f64, bool)> = old.iter().map(|op| (op.age_s, op.is_slow())).collect();
    assert_eq!(ages, [(50.0, true), (31.0, true), (1.5, false)]);
    assert_eq!(old[1].stage, "waiting for peered");
    let clients = operations::clients(all.iter());
    let load: Vec<(&str, usize)> = clients.iter().map(|c| (c.name.as_str(), c.in_flight)).collect();
    assert_eq!(load, [("client.9", 2), ("client.7", 1)], "OSDs are no clients");
}

#[test]
fn time_left_follows_from_the_rate() {
    let status = json!({
        "pgmap": {"degraded_objects": 300, "misplaced_objects": 100, "recovering_objects_per_sec": 20},
        "progress_events": {"a": {"message": "Rebalancing", "progress": 0.25}},
    });
    let r = recovery::recovery(Some(&status), None, 1000.0);
    assert_eq!((r.left_s, r.events[0].part, r.events[0].left_s), (Some(20.0), 0.25, None));
    let progress = json!({"events": [{"message": "Rebalancing", "progress": 0.25, "started_at": 970.0}]});
    let r = recovery::recovery(Some(&status), Some(&progress), 1000.0);
    assert_eq!(r.events[0].left_s, Some(90.0), "a quarter took 30 s");
}

#[test]
fn bad_pgs_come_last_in_the_bar() {
    let states = json!({"pgmap": {"pgs_by_state": [
        {"state_name": "down", "count": 1}, {"state_name": "active+undersized+degraded", "count": 4},
        {"state_name": "active+clean", "count": 3}, {"state_name": "active+clean+scrubbing", "count": 9},
        {"state_name": "active+clean+inconsistent", "count": 2},
    ]}});
    let states = recovery::pg_states(Some(&states)).unwrap();
    let order: Vec<(Standing, u64)> = states.iter().map(|state| (state.standing, state.count)).collect();
    use Standing::{Active, Bad, Clean};
    assert_eq!(order, [(Clean, 9), (Clean, 3), (Active, 4), (Bad, 2), (Bad, 1)]);
}
