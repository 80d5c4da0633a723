//! The states of every machine and the transitions between them: the whole that a run's coverage is compared with.
//!
//! A state that a run shows and this file does not list fails the tests in `tests/cluster.rs`. Listed states and
//! transitions that no seed showed are printed in the summary of `shoal sim --seeds`.

use crate::Coverage;
use std::collections::BTreeSet;

/// One machine's states and transitions.
pub struct MachineStates {
    pub machine: &'static str,
    pub states: &'static [&'static str],
    pub transitions: &'static [(&'static str, &'static str)],
}

/// The states and transitions of every machine.
pub static MACHINES: &[MachineStates] = &[
    MachineStates {
        machine: "session",
        states: &[
            "opening",
            "hello",
            "authenticating to peer",
            "authenticating peer",
            "judging",
            "signing",
            "identifying to peer",
            "reconnecting",
            "identifying peer",
            "ready",
            "standby",
            "backoff",
        ],
        transitions: &[
            ("opening", "hello"),
            ("hello", "authenticating to peer"),
            ("hello", "authenticating peer"),
            ("authenticating to peer", "signing"),
            ("authenticating peer", "judging"),
            ("authenticating peer", "signing"),
            ("judging", "authenticating peer"),
            ("judging", "signing"),
            ("signing", "identifying to peer"),
            ("signing", "identifying peer"),
            ("identifying to peer", "ready"),
            ("identifying peer", "ready"),
        ],
    },
    MachineStates {
        machine: "monitor session",
        states: &["idle", "waiting", "calling", "up"],
        transitions: &[
            ("idle", "calling"),
            ("calling", "up"),
            ("calling", "waiting"),
            ("waiting", "calling"),
            ("up", "calling"),
        ],
    },
    MachineStates {
        machine: "client's OSD session",
        states: &["no ticket", "waiting", "calling", "open"],
        transitions: &[
            ("no ticket", "calling"),
            ("waiting", "calling"),
            ("calling", "open"),
            ("calling", "waiting"),
            ("open", "waiting"),
            ("open", "calling"),
        ],
    },
    MachineStates {
        machine: "OSD",
        states: &["loading", "booting", "up", "stopping", "stopped"],
        transitions: &[
            ("loading", "booting"),
            ("booting", "up"),
            ("up", "booting"),
            ("loading", "stopping"),
            ("loading", "stopped"),
            ("booting", "stopping"),
            ("up", "stopping"),
            ("stopping", "stopped"),
        ],
    },
    MachineStates {
        machine: "PG",
        states: &[
            "loading",
            "peering",
            "down",
            "incomplete",
            "peered",
            "active",
            "replica",
            "stray",
            "unreadable",
            "removing",
            "departing",
            "departed",
            "arriving",
        ],
        transitions: &[
            ("loading", "stray"),
            ("loading", "peering"),
            ("loading", "replica"),
            ("loading", "unreadable"),
            ("replica", "unreadable"),
            ("stray", "peering"),
            ("stray", "replica"),
            ("stray", "removing"),
            ("peering", "active"),
            ("peering", "down"),
            ("peering", "incomplete"),
            ("peering", "peered"),
            ("peering", "stray"),
            ("down", "peering"),
            ("incomplete", "peering"),
            ("active", "peering"),
            ("active", "replica"),
            ("active", "stray"),
            ("replica", "peering"),
            ("replica", "stray"),
            ("active", "departing"),
            ("replica", "departing"),
            ("departing", "active"),
            ("departing", "replica"),
            ("departing", "peering"),
            ("departing", "departed"),
            ("arriving", "active"),
            ("arriving", "replica"),
        ],
    },
    MachineStates {
        machine: "migration",
        states: &["none", "copying", "crossing", "clearing"],
        transitions: &[
            ("none", "copying"),
            ("copying", "crossing"),
            ("copying", "clearing"),
            ("crossing", "clearing"),
            ("clearing", "none"),
        ],
    },
    MachineStates {
        machine: "manager",
        states: &["has news", "has no news"],
        transitions: &[("has no news", "has news"), ("has news", "has no news")],
    },
    MachineStates {
        machine: "monitor",
        states: &["at rest", "writing"],
        transitions: &[("at rest", "writing"), ("writing", "at rest")],
    },
    MachineStates {
        machine: "monitor's part",
        states: &["probing", "synchronizing", "electing", "peon", "leader", "shutdown"],
        transitions: &[
            ("probing", "synchronizing"),
            ("synchronizing", "peon"),
            ("electing", "peon"),
            ("electing", "leader"),
            ("peon", "electing"),
            ("leader", "peon"),
        ],
    },
    MachineStates {
        machine: "OSD in the map",
        states: &["up, in", "up, out", "down, in", "down, out"],
        transitions: &[
            ("down, in", "up, in"),
            ("down, out", "up, out"),
            ("up, in", "up, out"),
            ("up, in", "down, in"),
            ("up, out", "up, in"),
            ("up, out", "down, out"),
            ("down, in", "down, out"),
            ("down, out", "down, in"),
        ],
    },
];

/// Listed states and transitions that were not seen: one line per machine.
pub fn gaps(seen: &Coverage) -> Vec<String> {
    MACHINES.iter().map(|listed| gaps_of(listed, seen)).collect()
}

fn gaps_of(listed: &MachineStates, seen: &Coverage) -> String {
    let MachineStates { machine, states, transitions } = listed;
    let missed_states = states.iter().filter(|state| !seen.states.contains_key(&(*machine, **state)));
    let missed_states: Vec<String> = missed_states.map(|state| (*state).to_owned()).collect();
    let is_missed =
        |(from, to): &&(&'static str, &'static str)| !seen.transitions.contains_key(&(*machine, *from, *to));
    let missed: Vec<String> =
        transitions.iter().filter(is_missed).map(|(from, to)| format!("{from} → {to}")).collect();
    let counts = format!(
        "{machine}: {} of {} states, {} of {} transitions",
        states.len() - missed_states.len(),
        states.len(),
        transitions.len() - missed.len(),
        transitions.len(),
    );
    match [missed_states, missed].concat() {
        all if all.is_empty() => counts,
        never => format!("{counts}; never: {}", never.join(", ")),
    }
}

/// Seen states that are not listed: machine and state.
pub fn unlisted(seen: &Coverage) -> BTreeSet<(&'static str, &'static str)> {
    let is_listed = |machine: &str, state: &str| {
        MACHINES.iter().any(|listed| listed.machine == machine && listed.states.contains(&state))
    };
    seen.states.keys().copied().filter(|(machine, state)| !is_listed(machine, state)).collect()
}
