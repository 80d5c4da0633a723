//! Stories of pacing: windows, pauses, waiting clients, and the report to the law.

mod harness;

use harness::cluster::Cluster;
use harness::*;
use machine::Time;
use osd::pace::{Class, PAUSE, PaceReport, PaceShare, STEP_LEAST, TICK, WINDOW_FIRST};
use osd::shard::{Input, PgOrder, ScrubWish, ToControl};
use std::time::Duration;
use store::{Collection, ObjectStore};
use wire::types::*;

const NAMES: [&str; 6] = ["o0", "o1", "o2", "o3", "o4", "o5"];
/// Longer than any story but for its end.
const LONG: Duration = Duration::from_secs(60);

fn paused() -> Input {
    Input::Pace(PaceShare { pause: Some((Time::ZERO, Time::ZERO + LONG)), ..PaceShare::default() })
}

fn window(window: u64) -> Input {
    Input::Pace(PaceShare { window, told: Some(window), pause: None })
}

/// OSDs 0 and 1 serve. `behind` was away while the objects were written.
fn cluster_with(behind: i32, data: &'static [u8]) -> Cluster {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let other = 1 - behind;
    let store = cluster.kill(behind);
    cluster.interval(vec![other], vec![other]);
    cluster.run();
    NAMES.iter().for_each(|name| cluster.put(name, data));
    cluster.start(behind, store);
    cluster
}

fn names_pushed(cluster: &Cluster) -> Vec<String> {
    let name = |body: &PeerBody| match body {
        PeerBody::Push(push) => Some(push.object.name.to_string()),
        _ => None,
    };
    cluster.pushes.iter().filter_map(|(.., message)| name(&message.body)).collect()
}

fn host(cluster: &mut Cluster, osd: i32) -> &mut Host {
    cluster.hosts.get_mut(&osd).expect("it runs")
}

/// The last report of an OSD to the law.
fn report_of(host: &Host) -> Option<PaceReport> {
    host.control.iter().rev().find_map(|said| match said {
        ToControl::Pace(report) => Some(PaceReport::clone(report)),
        _ => None,
    })
}

#[test]
fn waiting_write_passes_a_pause() {
    let mut cluster = cluster_with(1, b"text");
    host(&mut cluster, 0).step(paused());
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(names_pushed(&cluster), Vec::<String>::new());
    cluster.put("o3", b"new");
    assert_eq!(names_pushed(&cluster), ["o3"]);
    cluster.pass(LONG.as_millis() as u64);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(1, "o3").expect("it is there"), &b"new"[..]);
}

#[test]
fn waiting_read_passes_the_sources_pause() {
    let mut cluster = cluster_with(0, b"text");
    host(&mut cluster, 1).step(paused());
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(names_pushed(&cluster), Vec::<String>::new());
    assert_eq!(cluster.get("o3"), &b"text"[..]);
    assert_eq!(names_pushed(&cluster), ["o3"]);
    cluster.pass(LONG.as_millis() as u64);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn told_window_bounds_pushes_to_an_osd() {
    const DATA: &[u8] = &[7; 60_000];
    let mut most = Vec::new();
    for told in [None, Some(64 << 10)] {
        let mut cluster = cluster_with(1, DATA);
        let share = PaceShare { told, ..PaceShare::default() };
        host(&mut cluster, 1).step(Input::Pace(share));
        cluster.interval(vec![0, 1], vec![0, 1]);
        let (mut largest, mut answered) = (0, false);
        while cluster.step() {
            answered |= cluster.wires.iter().any(|(.., m)| matches!(m.body, PeerBody::Pushed(_)));
            let pushes = cluster.wires.iter().filter(|(.., m)| matches!(m.body, PeerBody::Push(_)));
            largest = largest.max(if answered { pushes.count() } else { 0 });
        }
        (0..20).for_each(|_| cluster.pass(1000));
        assert_eq!(cluster.state(), "active+clean");
        most.push(largest);
    }
    assert!(most[1] <= most[0], "{most:?}");
    assert!(most[1] <= 5, "{most:?}");
}

#[test]
fn small_window_sends_one_step_at_a_time() {
    let [small, large] = [1, WINDOW_FIRST].map(|bytes| {
        let mut cluster = cluster_with(1, b"text");
        host(&mut cluster, 0).step(window(bytes));
        cluster.interval(vec![0, 1], vec![0, 1]);
        let mut most = 0;
        while cluster.step() {
            most = most.max(host(&mut cluster, 0).shard.paced_bytes().0);
        }
        assert_eq!(cluster.state(), "active+clean", "no time passes, and so no rest is due");
        most
    });
    assert_eq!(small, STEP_LEAST);
    assert!(large > small, "{large}");
}

#[test]
fn removal_waits_for_the_window() {
    let mut host = Host::serving();
    host.step(paused());
    host.map(vec![PgOrder::Remove { pg: pg() }]);
    host.settle();
    let holds = |host: &Host| host.store.collections().iter().any(|(c, _)| *c == Collection::Pg(pg()));
    assert!(holds(&host));
    host.pass(TICK);
    let report = report_of(&host).expect("there is background work");
    let work = report.work[Class::Removal as usize];
    assert!(work.waiting > 0 && work.begun == 0 && work.starved == TICK, "{work:?}");
    host.pass(LONG);
    host.settle();
    assert!(!holds(&host));
    assert_eq!(host.shard.paced_bytes(), (0, 0));
}

#[test]
fn scrub_waits_for_the_window() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    NAMES.iter().for_each(|name| cluster.put(name, b"text"));
    let wish = ScrubWish { is_deep: true, is_repair: false, is_asked: true };
    let primary = host(&mut cluster, 0);
    primary.step(paused());
    primary.step(Input::Scrub { pg: pg().pg, wish });
    cluster.run();
    let primary = host(&mut cluster, 0);
    primary.pass(TICK);
    let work = report_of(primary).expect("there is background work").work[Class::Scrub as usize];
    assert!(work.waiting > 0 && work.begun == 0 && work.starved == TICK, "{work:?}");
    assert!(cluster.state().contains("scrubbing"), "{}", cluster.state());
    cluster.pass(LONG.as_millis() as u64);
    for _ in 0..100 {
        cluster.pass(50);
    }
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.report().scrub.objects, NAMES.len() as u64);
    assert_eq!(host(&mut cluster, 0).shard.paced_bytes(), (0, 0));
}

#[test]
fn report_ends_with_the_background_work() {
    let mut cluster = cluster_with(1, b"text");
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    let host = host(&mut cluster, 0);
    host.pass(TICK);
    let report = report_of(host).expect("it recovered");
    assert!(report.work[Class::Recovery as usize].begun > 0 && report.ended > 0, "{report:?}");
    host.control.clear();
    host.pass(TICK);
    host.control.clear();
    (0..10).for_each(|_| host.pass(TICK));
    assert_eq!(report_of(host), None);
}

#[test]
fn pause_tells_the_baseline_from_disturbed_requests() {
    let mut cluster = cluster_with(1, b"text");
    let pause = Some((Time::ZERO, Time::ZERO + PAUSE));
    host(&mut cluster, 0).step(Input::Pace(PaceShare { pause, ..PaceShare::default() }));
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    host(&mut cluster, 0).pass(PAUSE / 2);
    assert_eq!(cluster.get("o1"), &b"text"[..]);
    let host = host(&mut cluster, 0);
    host.pass(PAUSE);
    let report = report_of(host).expect("there is background work");
    assert!(report.undisturbed.total() > 0, "{report:?}");
    assert_eq!(report.disturbed.total(), 0);
}

/// A push under way when its interval ends: its bytes come back with the transfer.
fn bytes_after_interrupted_pushes() -> u64 {
    let mut cluster = cluster_with(1, b"text");
    host(&mut cluster, 0).step(window(WINDOW_FIRST));
    cluster.interval(vec![0, 1], vec![0, 1]);
    for _ in 0..1000 {
        cluster.step();
        if !cluster.pushes.is_empty() {
            cluster.stalled.insert(1);
        }
    }
    assert!(host(&mut cluster, 0).shard.paced_bytes().0 > 0, "pushes are under way");
    cluster.stalled.clear();
    cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    host(&mut cluster, 0).shard.paced_bytes().0
}

#[test]
fn interrupted_push_gives_its_bytes_back() {
    assert_eq!(bytes_after_interrupted_pushes(), 0);
}

/// OSD 1 stops in the middle of its recovery, with the whole window under way to it.
#[test]
fn frozen_member_holds_its_window_until_it_leaves() {
    const DATA: &[u8] = &[7; 60_000];
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    let stores = [1, 2].map(|osd| (osd, cluster.kill(osd)));
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    NAMES.iter().for_each(|name| cluster.put(name, DATA));
    for (osd, store) in stores {
        cluster.start(osd, store);
    }
    host(&mut cluster, 0).step(window(64 << 10));
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    for _ in 0..10_000 {
        cluster.step();
        if cluster.pushes.iter().any(|(_, to, _)| *to == 1) {
            cluster.stalled.insert(1);
        }
    }
    assert_ne!(cluster.state(), "active+clean");
    cluster.stalled.clear();
    cluster.kill(1);
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    (0..20).for_each(|_| cluster.pass(1000));
    let at_two = NAMES.iter().filter(|name| cluster.stored(2, name).as_deref() == Some(DATA));
    assert_eq!(at_two.count(), NAMES.len());
    assert_eq!(host(&mut cluster, 0).shard.paced_bytes(), (0, 0));
}

#[test]
fn small_windows_starve_no_class() {
    let mut cluster = cluster_with(1, &[7; 60_000]);
    host(&mut cluster, 0).step(window(1));
    cluster.interval(vec![0, 1], vec![0, 1]);
    (0..60).for_each(|_| cluster.pass(1000));
    assert_eq!(cluster.state(), "active+clean");
    let wish = ScrubWish { is_deep: true, is_repair: false, is_asked: true };
    host(&mut cluster, 0).step(Input::Scrub { pg: pg().pg, wish });
    (0..60).for_each(|_| cluster.pass(1000));
    assert_eq!(cluster.report().scrub.objects, NAMES.len() as u64);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn kept_bytes_are_seen() {
    use osd::planted::{PlantedBug, plant};
    plant(Some(PlantedBug::PaceBytesKept));
    let bytes = bytes_after_interrupted_pushes();
    plant(None);
    assert!(bytes > 0);
}
