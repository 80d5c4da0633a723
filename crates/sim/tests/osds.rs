//! OSDs and clients under faults, with a scripted monitor. No acknowledged write is lost or done twice, watches of dead
//! clients end, a lost disk is never taken for an empty one, and planted bugs are caught (`--features planted-bugs`).

mod support;

use sim::{ClusterChoice, Config, Level, LevelChoice, MonitorsChoice, Report, run_with};
use std::time::Duration;
use support::scripted_monitor::ScriptedMonitor;

fn config(level: Level, seconds: u64) -> Config {
    Config {
        level: LevelChoice::Always(level),
        monitor_crashes: false,
        cluster: ClusterChoice::one_copy(),
        monitors: MonitorsChoice::Begin(1),
        ..Config::new(Duration::from_secs(seconds))
    }
}

fn run(seed: u64, config: &Config) -> Report {
    let cluster = config.cluster.of(seed);
    run_with(
        seed,
        config,
        &|seat, quiet_after| Box::new(ScriptedMonitor::new(seat, quiet_after, &cluster)),
        &[],
    )
}

/// The first seed runs twice.
fn holds(seeds: std::ops::Range<u64>, config: &Config) {
    let first = seeds.start;
    for seed in seeds {
        let report = run(seed, config);
        println!("{report}");
        assert!(report.is_clean(), "seed {seed}");
        let summary = report.summary;
        // The watchers of a lost object cannot be listed.
        let looked = summary.looks > 0 || config.loses_a_disk;
        assert!(summary.answered > 300 && looked, "seed {seed}: {summary:?}");
        assert_eq!(summary.open > 0, config.loses_a_disk, "seed {seed}");
        if seed == first {
            assert_eq!(run(seed, config).trace_hash, report.trace_hash, "seed {seed} replays");
        }
    }
}

#[test]
fn osds_over_messages_keep_their_promises() {
    holds(0..2, &config(Level::Messages, 60));
}

#[test]
fn osds_over_sessions_keep_their_promises() {
    holds(0..2, &config(Level::Bytes { cephx: false }, 30));
}

/// Operations on lost objects wait. No answer says that the object never existed.
#[test]
fn lost_disk_is_not_taken_for_an_empty_one() {
    holds(0..2, &Config { loses_a_disk: true, ..config(Level::Messages, 60) });
}

/// `SHOAL_SIM_SEEDS=2000..2020` chooses other seeds.
#[test]
#[ignore = "long: 20 seeds of ten minutes"]
fn osds_over_many_seeds_keep_their_promises() {
    let wanted = std::env::var("SHOAL_SIM_SEEDS").unwrap_or_else(|_| "1000..1020".into());
    let (from, to) = wanted.split_once("..").expect("SHOAL_SIM_SEEDS is FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("SHOAL_SIM_SEEDS is FROM..TO");
    holds(number(from)..number(to), &config(Level::Messages, 600));
}

/// Each bug breaks its expected promise first, in a seed that holds without the bug.
#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use osd::planted::{PlantedBug, plant};
    use sim::check::Promise;
    use sim::{CoresChoice, FaultChoice};

    fn is_caught(bug: PlantedBug, promise: Promise, config: &Config) {
        is_caught_with(bug, promise, "", config);
    }

    /// The violation's text contains `words`.
    fn is_caught_with(bug: PlantedBug, promise: Promise, words: &str, config: &Config) {
        let mut others = Vec::new();
        for seed in 0..20 {
            plant(Some(bug));
            let report = run(seed, config);
            plant(None);
            match report.violations.first() {
                Some(violation) if violation.promise == promise && violation.to_string().contains(words) => {
                    println!("{bug:?}, seed {seed}: {violation}");
                    let without = run(seed, config);
                    assert!(without.is_clean(), "seed {seed} without the bug: {without}");
                    return;
                }
                violation => others.extend(violation.map(|v| format!("seed {seed}: {v}"))),
            }
        }
        panic!("{bug:?} does not break {promise:?}, but {others:#?}");
    }

    #[test]
    fn planted_reply_before_commit_is_caught() {
        let config = config(Level::Messages, 120);
        is_caught(PlantedBug::ReplyBeforeCommit, Promise::OnEveryMember, &config);
    }

    #[test]
    fn planted_lost_reqid_is_caught() {
        // Under all faults, what a repeated write replaces is often missed first.
        let faults = FaultChoice::Only(&["connection reset", "client pause", "slow network"]);
        let config = Config { faults, ..config(Level::Messages, 120) };
        is_caught(PlantedBug::LostReqid, Promise::DoneOnce, &config);
    }

    #[test]
    fn planted_stale_epoch_accepted_is_caught() {
        is_caught(PlantedBug::StaleEpochAccepted, Promise::NoStaleRequest, &config(Level::Messages, 120));
    }

    #[test]
    fn planted_watch_that_never_expires_is_caught() {
        is_caught(PlantedBug::WatchNeverExpires, Promise::DeadWatchersEnd, &config(Level::Messages, 120));
    }

    #[test]
    fn planted_pg_active_without_history_on_move_is_caught() {
        let config = config(Level::Messages, 120);
        is_caught(PlantedBug::ActiveWithoutHistory, Promise::KeptWhatWasAcknowledged, &config);
    }

    /// The disk loss comes before the monitor starts to move PGs.
    #[test]
    fn planted_pg_active_without_history_on_disk_loss_is_caught() {
        let config = Config { loses_a_disk: true, ..config(Level::Messages, 36) };
        is_caught(PlantedBug::ActiveWithoutHistory, Promise::KeptWhatWasAcknowledged, &config);
    }

    /// In the wiring of an OSD's cores: the shard of another core keeps the session of a client that is gone.
    #[test]
    fn planted_session_closed_on_core_zero_only_is_caught() {
        let config = Config { cores: CoresChoice::Always(2), ..config(Level::Messages, 120) };
        is_caught_with(
            PlantedBug::ClosedOnCoreZeroOnly,
            Promise::Invariant,
            "core 1 knows the sessions",
            &config,
        );
    }

    /// In the wiring of an OSD's cores: of two requests that another core serves, the later one arrives first.
    #[test]
    fn planted_request_mail_that_overtakes_is_caught() {
        let config = Config { cores: CoresChoice::Always(2), ..config(Level::Messages, 120) };
        is_caught(PlantedBug::RequestMailOvertakes, Promise::AnsweredInOrder, &config);
    }

    #[test]
    fn planted_reply_out_of_order_is_caught() {
        is_caught(PlantedBug::ReplyOutOfOrder, Promise::AnsweredInOrder, &config(Level::Messages, 120));
    }
}
