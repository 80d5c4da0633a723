//! Pulses of OSDs, and reports of OSDs that share placement groups.

use super::Input;
use super::cluster::Cluster;
use machine::net::{CloseReason, NetEvent};
use std::time::Duration;
use wire::messages::{MOSDFailure, MOSDPulse};

const PULSE: Duration = Duration::from_millis(200);

impl Cluster {
    fn pulse(&mut self, osd: i32, number: u64, heard: u64) {
        let up_from = self.map().osds[osd as usize].info.up_from;
        let conn = self.osds[osd as usize];
        self.send(conn, MOSDPulse { up_from, number, heard, device_stall_ms: 0, core_stall_ms: 0 });
    }

    /// A pulse that is answered, of an OSD that has stalled.
    fn stalled_pulse(&mut self, osd: i32, number: u64, device_stall_ms: u32, core_stall_ms: u32) {
        let up_from = self.map().osds[osd as usize].info.up_from;
        let (conn, heard) = (self.osds[osd as usize], number - 1);
        self.send(conn, MOSDPulse { up_from, number, heard, device_stall_ms, core_stall_ms });
    }

    fn health_detail(&mut self) -> String {
        self.done(r#"{"prefix":"health","detail":"detail"}"#)
    }

    /// These OSDs pulse for so many rounds, and hear the answers.
    fn rounds(&mut self, rounds: u64, osds: &[i32]) {
        for number in 1..=rounds {
            osds.iter().for_each(|osd| self.pulse(*osd, number, number - 1));
            self.pass(PULSE);
        }
    }

    /// Time in which others may contradict a report.
    fn hear(&mut self) {
        self.pass(Duration::from_secs(2));
    }

    /// `reporter` shares an acting set with `target`, and has missed it for long enough.
    fn report_partner(&mut self, reporter: i32, target: i32) {
        let flags = MOSDFailure::FAILED | MOSDFailure::PARTNER;
        self.report_with(reporter, target, flags, Duration::from_secs(2));
    }
}

#[test]
fn osd_whose_pulses_stop_is_down_after_the_grace() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(10, &[0, 1, 2]);
    assert_eq!(c.up(), [0, 1, 2]);
    c.rounds(3, &[1, 2]);
    assert_eq!(c.up(), [0, 1, 2]);
    c.rounds(2, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
    assert_eq!(c.logged("osd.0 marked down after no sign of life for 1.").len(), 1);
}

#[test]
fn osd_that_never_pulsed_is_not_judged_by_pulses() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(20, &[0, 1]);
    assert_eq!(c.up(), [0, 1, 2]);
}

#[test]
fn pulse_grace_is_an_option_and_zero_turns_it_off() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.set_option("shoal_pulse_grace", "3");
    c.rounds(2, &[0, 1, 2]);
    c.rounds(13, &[1, 2]);
    assert_eq!(c.up(), [0, 1, 2]);
    c.set_option("shoal_pulse_grace", "0");
    c.rounds(20, &[1, 2]);
    assert_eq!(c.up(), [0, 1, 2]);
    c.set_option("shoal_pulse_grace", "3");
    c.rounds(1, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
}

#[test]
fn monitor_that_was_paused_gives_everybody_more_time() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    // One step of time: no deadline was met on the way.
    c.now = c.now + Duration::from_secs(30);
    c.rounds(1, &[0]);
    assert_eq!(c.up(), [0, 1, 2]);
    c.rounds(6, &[0, 1]);
    assert_eq!(c.up(), [0, 1]);
}

#[test]
fn pulse_of_an_osd_that_hears_no_answers_is_none() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    for number in 4..20 {
        c.pulse(0, number, 3);
        c.pulse(1, number, number - 1);
        c.pulse(2, number, number - 1);
        c.pass(PULSE);
    }
    assert_eq!(c.up(), [1, 2]);
}

#[test]
fn pulses_of_an_earlier_process_keep_nobody_up() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    let old = c.map().osds[0].info.up_from;
    c.take_down(0);
    c.boot(0);
    let conn = c.osds[0];
    c.pulse(0, 1, 0);
    for number in 2..10 {
        let heard = number - 1;
        c.send(conn, MOSDPulse { up_from: old, number, heard, device_stall_ms: 0, core_stall_ms: 0 });
        c.rounds(1, &[1, 2]);
    }
    assert_eq!(c.up(), [1, 2]);
}

/// A host without processor time: each markdown is a mistake, and makes the next silence.
#[test]
fn osd_that_was_only_late_gets_more_time() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    c.rounds(6, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
    // The late pulse is one of the process that was up.
    c.pulse(0, 4, 3);
    c.boot_with(0, |boot| boot.boot_epoch = 1);
    c.rounds(1, &[0, 1, 2]);
    assert_eq!(c.logged("osd.0 was marked down too early: it may be silent for 3.0 s now").len(), 1);
    c.rounds(13, &[1, 2]);
    assert_eq!(c.up(), [0, 1, 2], "it has three seconds");
    c.rounds(4, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
    // A new process is judged as all are.
    c.boot(0);
    c.rounds(1, &[0, 1, 2]);
    c.rounds(6, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
}

#[test]
fn osd_that_was_silent_for_long_gets_no_more_time() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    c.rounds(15, &[1, 2]);
    c.pulse(0, 4, 3);
    c.boot_with(0, |boot| boot.boot_epoch = 1);
    c.rounds(60, &[0, 1, 2]);
    c.rounds(6, &[1, 2]);
    assert_eq!(c.up(), [1, 2]);
}

/// Its first peering makes the OSD silent again, to the monitor or to its partners.
#[test]
fn osd_that_comes_back_to_be_silent_again_gets_more_time() {
    for is_missed_by_partners in [false, true] {
        let mut c = Cluster::of(&["a", "b", "c"]);
        c.rounds(3, &[0, 1, 2]);
        for silent in [15, 6] {
            c.rounds(silent, &[1, 2]);
            assert_eq!(c.up(), [1, 2]);
            c.boot_with(0, |boot| boot.boot_epoch = 1);
            c.rounds(1, &[0, 1, 2]);
        }
        if !is_missed_by_partners {
            c.rounds(13, &[1, 2]);
            assert_eq!(c.up(), [0, 1, 2]);
            continue;
        }
        [1, 2].into_iter().for_each(|reporter| c.report_partner(reporter, 0));
        c.rounds(15, &[0, 1, 2]);
        assert_eq!(c.up(), [0, 1, 2], "6 seconds");
        c.rounds(10, &[0, 1, 2]);
        assert_eq!(c.up(), [1, 2]);
    }
}

#[test]
fn flags_and_ratios_hold_pulses_back() {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.rounds(3, &[0, 1, 2, 3]);
    c.done(r#"{"prefix":"osd set","key":"nodown"}"#);
    c.rounds(20, &[1, 2, 3]);
    assert_eq!(c.up(), [0, 1, 2, 3]);
    c.done(r#"{"prefix":"osd unset","key":"nodown"}"#);
    c.set_option("mon_osd_min_up_ratio", "0.75");
    // A monitor that misses nearly everybody is itself in doubt.
    c.rounds(20, &[3]);
    assert_eq!(c.up().len(), 2, "{:?}", c.up());
}

#[test]
fn refused_connection_of_a_pulsing_osd_waits_for_its_session() {
    let refused = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.rounds(3, &[0, 1, 2, 3]);
    // A firewall of host b.
    c.report_with(1, 0, refused, Duration::ZERO);
    c.rounds(10, &[0, 1, 2, 3]);
    assert_eq!(c.up(), [0, 1, 2, 3]);
    let conn = c.osds[0];
    c.step(Input::Net(NetEvent::Closed { conn, why: CloseReason::Broken("it ended".into()) }));
    assert_eq!(c.up(), [1, 2, 3]);
}

#[test]
fn partners_of_two_other_hosts_take_an_osd_down() {
    let mut c = Cluster::of(&["a", "a", "b", "b", "c"]);
    c.report_partner(1, 0);
    c.report_partner(2, 0);
    c.report_partner(3, 0);
    c.hear();
    assert!(c.up().contains(&0), "one host besides its own");
    c.report_partner(4, 0);
    assert!(c.up().contains(&0), "nobody has had time to contradict");
    c.hear();
    assert_eq!(c.up(), [1, 2, 3, 4]);
}

#[test]
fn in_a_cluster_of_one_host_partners_count_one_by_one() {
    let mut c = Cluster::of(&["a", "a", "a"]);
    c.report_partner(1, 0);
    c.hear();
    assert_eq!(c.up(), [0, 1, 2]);
    c.report_partner(2, 0);
    c.hear();
    assert_eq!(c.up(), [1, 2]);
}

#[test]
fn of_osds_that_miss_each_other_the_lonelier_goes() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    // osd.2 is cut off from the others, and speaks first.
    c.report_partner(2, 0);
    c.report_partner(2, 1);
    assert_eq!(c.up(), [0, 1, 2]);
    c.report_partner(0, 2);
    c.report_partner(1, 2);
    c.hear();
    assert_eq!(c.up(), [0, 1]);
    // Its accusations do not outlive it.
    c.hear();
    assert_eq!(c.up(), [0, 1]);

    let mut two = Cluster::of(&["a", "b"]);
    two.report_partner(1, 0);
    two.report_partner(0, 1);
    two.hear();
    assert_eq!(two.up(), [0], "there is no second witness");
}

#[test]
fn stall_is_a_warning_until_its_osd_tells_of_none() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    assert!(!c.health_detail().contains("STALLED"));
    c.stalled_pulse(1, 4, 1600, 0);
    c.stalled_pulse(2, 4, 0, 2400);
    let shown = c.health_detail();
    for line in [
        "OSD_DEVICE_STALLED: 1 osds have a device that does not answer",
        "osd.1 has a device that has answered nothing for 1.6 s",
        "OSD_CORE_STALLED: 1 osds have a core that does not run",
        "osd.2 has a core that has not run for 2.4 s",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    c.pulse(1, 5, 4);
    let shown = c.health_detail();
    assert!(!shown.contains("OSD_DEVICE_STALLED") && shown.contains("OSD_CORE_STALLED"), "{shown}");
}

#[test]
fn stall_of_an_osd_that_went_down_for_it_is_shown_while_told() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.rounds(3, &[0, 1, 2]);
    c.stalled_pulse(1, 4, 10_000, 0);
    c.take_down(1);
    c.stalled_pulse(1, 5, 10_200, 0);
    assert_eq!(c.up(), [0, 2], "its pulse does not bring it back");
    assert!(c.health_detail().contains("answered nothing for 10.2 s"));
    // Its process has gone.
    c.pass(Duration::from_secs(4));
    assert!(!c.health_detail().contains("STALLED"));
}

#[test]
fn domain_without_an_osd_that_is_up_needs_no_reporter() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.report_partner(1, 0);
    c.hear();
    assert_eq!(c.up(), [0, 1, 2], "host c has an OSD that is up, and it reports nothing");
    c.take_down(2);
    c.report_partner(1, 0);
    c.hear();
    assert_eq!(c.up(), [1]);
}
