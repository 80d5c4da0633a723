//! The table of options against the code: each option either acts where the table says, or its setter is warned.

use command::options::table::{self, Definition};
use command::options::{Consumed, Daemon, When};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every `option_set!` of the workspace.
fn consumed() -> Vec<Consumed> {
    let mut all = vec![
        client_host::ClientOptions::CONSUMED,
        command::panics::PanicOptions::CONSUMED,
        mgr::options::MgrOptions::CONSUMED,
        mon::options::MonOptions::CONSUMED,
        osd::options::BenchOptions::CONSUMED,
        osd::options::ControlOptions::CONSUMED,
        osd::options::LimitOptions::CONSUMED,
        osd::options::TrackingOptions::CONSUMED,
    ];
    all.extend(shoal::config::CONSUMED);
    all
}

fn reads(consumed: &[Consumed], row: &Definition, daemon: Daemon, when: When) -> bool {
    consumed
        .iter()
        .any(|set| set.when == when && set.daemons.contains(&daemon) && set.names.contains(&row.name))
}

/// Options that stand in the default of another: `$run_dir/…`.
fn referred() -> BTreeSet<&'static str> {
    let acts = table::all().iter().filter(|row| !row.acts.is_empty());
    let words = acts.flat_map(|row| row.default_text.split('$').skip(1));
    words
        .map(|word| word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(word))
        .collect()
}

#[test]
fn every_actor_of_the_table_reads_its_option() {
    let (consumed, referred) = (consumed(), referred());
    let rows =
        table::all().iter().flat_map(|row| row.acts.iter().map(move |(daemon, when)| (row, *daemon, *when)));
    let idle: Vec<String> = rows
        .filter(|(row, daemon, when)| !reads(&consumed, row, *daemon, *when) && !referred.contains(row.name))
        .map(|(row, daemon, when)| format!("{} {} {when:?}", row.name, daemon.name()))
        .collect();
    assert!(idle.is_empty(), "the table says that these act, and no option_set! reads them: {idle:#?}");
}

#[test]
fn every_option_read_is_in_the_table() {
    for set in consumed() {
        assert_eq!(set.not_in_table(), Vec::<&str>::new(), "{:?} {:?}", set.daemons, set.when);
    }
}

/// Whoever sets an option hears when it does not act at once.
#[test]
fn no_option_is_accepted_silently() {
    for row in table::all() {
        let sections =
            Daemon::ALL.iter().map(|daemon| daemon.name()).chain(["global", "mds", "client.rgw.a", "osd.3"]);
        for who in sections {
            let kind = who.split('.').next().and_then(Daemon::parse);
            let is_live = |daemon: Daemon| row.acts_on(daemon) == Some(When::Live);
            let acts = match (kind, who) {
                (Some(daemon), _) => is_live(daemon),
                (None, "global") => {
                    !row.acts.is_empty() && row.acts.iter().all(|(daemon, _)| is_live(*daemon))
                }
                (None, _) => false,
            };
            assert_eq!(row.warning(who).is_none(), acts, "{} for {who}: {:?}", row.name, row.warning(who));
        }
    }
}

/// A set that is missing above would hide an option from these tests.
#[test]
fn every_option_set_is_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: Vec<PathBuf> = vec![crates.to_owned()];
    let mut sets = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            sets += text.lines().filter(|line| *line == "option_set! {").count();
        }
    }
    assert_eq!(sets, consumed().len(), "option_set! invocations and the list in this file");
}
