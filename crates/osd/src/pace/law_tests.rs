//! The law with made-up devices and clients.

use super::*;

const MS: u64 = 1_000_000;

/// An OSD whose clients' latency grows with the window, and whose background throughput ends at a knee.
struct Device {
    law: Law,
    now: Time,
    shares: Vec<(CoreId, PaceShare)>,
    requests: u64,
    /// Undisturbed latency.
    calm_ns: u64,
    /// Additional latency for each MiB of the window.
    ns_per_mib: u64,
    /// Largest window that makes background work quicker.
    knee: u64,
    risk: Risk,
}

impl Device {
    fn new(requests: u64) -> Device {
        Device {
            law: Law::default(),
            now: Time(MS),
            shares: Vec::new(),
            requests,
            calm_ns: MS,
            ns_per_mib: 200_000,
            knee: 16 << 20,
            risk: Risk::Misplaced,
        }
    }

    fn latency(&self) -> u64 {
        self.calm_ns + self.law.window() * self.ns_per_mib / (1 << 20)
    }

    fn report(&self) -> PaceReport {
        let mut report = PaceReport {
            ended: self.law.window().min(self.knee) * 10,
            under_way: self.law.window(),
            waiting: 1 << 20,
            risk: self.risk,
            ..PaceReport::default()
        };
        let share = self.shares.first().map(|(_, share)| *share).unwrap_or_default();
        for n in 0..self.requests {
            let received = Time(self.now.0 - TICK.as_nanos() as u64 * n / self.requests.max(1));
            match share.is_undisturbed(received) {
                true => report.undisturbed.record(self.calm_ns),
                false => report.disturbed.record(self.latency()),
            }
        }
        report
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        let report = self.report();
        let shares = self.law.on_report(self.now, self.now.0, CoreId(0), report);
        self.shares = shares.expect("a decision is due");
    }

    fn run(&mut self, ticks: usize) -> Vec<u64> {
        (0..ticks)
            .map(|_| {
                self.tick();
                self.law.window()
            })
            .collect()
    }

    /// A device whose law knows the baseline.
    fn with_baseline(requests: u64) -> Device {
        let mut device = Device::new(requests);
        device.run(250);
        device
    }
}

#[test]
fn window_converges_to_the_target() {
    let mut device = Device::with_baseline(100);
    // 1.25 times 1 ms, at 0.2 ms for each MiB.
    let fits = 5 * (1 << 20) / 4;
    let windows = device.run(300);
    let most = *windows.iter().max().expect("there are some");
    let mean = windows.iter().sum::<u64>() / windows.len() as u64;
    assert!(most < fits + fits / 3, "{most} of {fits}");
    assert!(mean > fits / 2, "{mean} of {fits}");
    assert!(device.law.figures().halvings > 5 && device.law.figures().pauses > 2);
}

#[test]
fn profile_sets_the_target() {
    let mut windows = Vec::new();
    for profile in ["high_client_ops", "balanced", "high_recovery_ops"] {
        let mut device = Device::with_baseline(100);
        device.law.set_target_percent(super::super::target_percent(profile));
        device.run(200);
        windows.push(device.run(300).iter().sum::<u64>() / 300);
    }
    assert!(windows.is_sorted_by(|one, next| one * 3 < next * 2), "{windows:?}");
}

#[test]
fn floor_follows_the_risk() {
    for (risk, percent) in [(Risk::Misplaced, 1), (Risk::Degraded, 10), (Risk::NoRedundancy, 50)] {
        let mut device = Device::with_baseline(100);
        // Whatever the window is, clients are slow.
        (device.risk, device.ns_per_mib) = (risk, 1000 * MS);
        let least = *device.run(200).last().expect("it ran");
        let floor = (device.law.figures().full_window * percent / 100).max(WINDOW_STEP);
        assert!((floor..=floor + WINDOW_STEP).contains(&least), "{risk:?}: {least} and not {floor}");
    }
}

#[test]
fn idle_window_grows_to_the_knee() {
    let mut device = Device::new(0);
    let windows = device.run(300);
    let last = *windows.last().expect("it ran");
    assert!((device.knee * 3 / 4..=device.knee * 8 / 5).contains(&last), "{last}");
    let before = device.law.window();
    device.knee = 60 << 20;
    device.run(400);
    assert!(device.law.window() > before * 2, "a device that became quicker is found out");
}

#[test]
fn unused_window_does_not_grow() {
    let mut device = Device::with_baseline(100);
    let window = device.law.window();
    for _ in 0..50 {
        device.now = device.now + TICK;
        device.law.on_report(device.now, device.now.0, CoreId(0), PaceReport::default());
    }
    assert_eq!(device.law.window(), window);
}

#[test]
fn single_slow_request_changes_nothing() {
    let mut device = Device::with_baseline(100);
    device.ns_per_mib = 0;
    let halvings = device.law.figures().halvings;
    for _ in 0..50 {
        device.now = device.now + TICK;
        let mut report = PaceReport { waiting: 1, ..PaceReport::default() };
        (0..5).for_each(|_| report.disturbed.record(MS));
        report.disturbed.record(100 * MS);
        device.law.on_report(device.now, device.now.0, CoreId(0), report);
    }
    assert_eq!(device.law.figures().halvings, halvings);
}

#[test]
fn pauses_are_at_multiples_of_the_wall_clock() {
    let mut law = Law::default();
    let wall = |now: Time| 7_777_000_000_000_123 + now.0;
    let (mut now, mut pauses) = (Time(5), Vec::new());
    for _ in 0..350 {
        now = now + TICK;
        let shares = law.on_report(now, wall(now), CoreId(0), PaceReport::default()).expect("it is due");
        pauses.extend(shares[0].1.pause);
    }
    pauses.dedup();
    assert_eq!(pauses.len(), 4);
    for (from, until) in pauses {
        assert_eq!((wall(from) % (10_000 * MS), until.since(from)), (0, PAUSE));
    }
}

#[test]
fn shares_follow_the_demand_of_cores() {
    let mut law = Law::default();
    let report = |waiting| PaceReport { waiting, ..PaceReport::default() };
    law.on_report(Time(MS), MS, CoreId(0), report(0));
    assert_eq!(law.on_report(Time(2 * MS), MS, CoreId(1), report(3 << 20)), None, "too soon");
    let shares = law.on_report(Time(150 * MS), MS, CoreId(0), report(1 << 20)).expect("it is due");
    let [(CoreId(0), zero), (CoreId(1), one)] = shares[..] else { panic!("{shares:?}") };
    assert!(one.window > zero.window && zero.window >= law.window() / 4);
    assert!(zero.window + one.window <= law.window());
    // The other core has ended its work.
    let shares = law.on_report(Time(1200 * MS), MS, CoreId(0), report(1 << 20)).expect("it is due");
    assert_eq!(shares.len(), 1);
    assert_eq!(shares[0].1.window, law.window());
}

#[test]
fn starved_class_is_counted() {
    let mut law = Law::default();
    let mut report = PaceReport::default();
    report.work[Class::Scrub as usize] = Work { begun: 0, waiting: 4096, starved: TICK };
    report.work[Class::Recovery as usize].begun = 1 << 20;
    law.on_report(Time(MS), MS, CoreId(0), report.clone());
    law.on_report(Time(200 * MS), MS, CoreId(0), report);
    let work = law.figures().work;
    assert_eq!(work[Class::Scrub as usize].starved, TICK * 2);
    assert_eq!(work[Class::Recovery as usize].begun, 2 << 20);
}
