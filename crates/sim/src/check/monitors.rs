//! Several monitors agree: their states are equal, and each client's global id is its own.

use super::Promise;
use super::elections::MonitorSight;
use crate::node::NodeId;
use machine::ConnId;
use mon::state::State;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Versions of the state whose digest is compared: multiples of this, and others that some monitor has shown already. A digest
/// costs about as much as a snapshot.
const SAMPLED: u64 = 16;
/// Versions whose digest is remembered.
const REMEMBERED_MAX: usize = 1024;

/// Facts that all monitors of a run must share.
#[derive(Debug, Default)]
pub struct Agreement {
    /// The digest of the first monitor that showed a version.
    digests: BTreeMap<u64, [u8; 32]>,
    /// The address of the client that has a global id.
    ids: BTreeMap<u64, SocketAddr>,
    /// Clients in the course of their authentication: the monitor's place, and the connection.
    callers: BTreeMap<(usize, ConnId), SocketAddr>,
    compared: u64,
}

impl Agreement {
    /// A monitor has come to this state.
    pub fn on_state(&mut self, name: &str, state: &State) -> Result<(), (Promise, String)> {
        if !state.version.is_multiple_of(SAMPLED) && !self.digests.contains_key(&state.version) {
            return Ok(());
        }
        self.compare(name, state)
    }

    /// Compares a state whatever its version.
    pub fn compare(&mut self, name: &str, state: &State) -> Result<(), (Promise, String)> {
        let digest = state.digest();
        match self.digests.get(&state.version) {
            Some(first) if *first == digest => self.compared += 1,
            Some(_) => {
                let words =
                    format!("mon.{name} has another state {} than the first to show it", state.version);
                return Err((Promise::MonitorsAgree, words));
            }
            None => drop(self.digests.insert(state.version, digest)),
        }
        while self.digests.len() > REMEMBERED_MAX {
            self.digests.pop_first();
        }
        Ok(())
    }

    /// States that were compared with an earlier one.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    pub fn on_caller(&mut self, place: usize, conn: ConnId, from: SocketAddr) {
        self.callers.insert((place, conn), from);
    }

    /// A monitor lets the caller in under this id.
    pub fn on_id(&mut self, place: usize, conn: ConnId, id: u64) -> Result<(), (Promise, String)> {
        let Some(from) = self.callers.remove(&(place, conn)) else { return Ok(()) };
        let owner = *self.ids.entry(id).or_insert(from);
        if owner == from {
            return Ok(());
        }
        Err((Promise::IdsDiffer, format!("{owner} and {from} both have the global id {id}")))
    }
}

/// At the end of a run: one monitor leads, all that were ever started vote, and all have come as far. `leaving` may have been taken
/// out. Returns the leader's state.
pub fn at_rest<'a>(
    running: &[(MonitorSight, &'a State)],
    started: &[NodeId],
    leaving: Option<NodeId>,
) -> Result<&'a State, (Promise, String)> {
    /// Versions that may be on their way.
    const BEHIND_MAX: u64 = 64;
    let sights: Vec<&MonitorSight> = running.iter().map(|(sight, _)| sight).collect();
    let broken = |words: String| Err((Promise::MonitorsSettle, words));
    let leading: Vec<_> = running.iter().filter(|(sight, _)| sight.standing.is_leading).collect();
    let [(leader, newest)] = leading[..] else {
        return broken(format!("{} monitors lead: {sights:?}", leading.len()));
    };
    let members = &leader.standing.members;
    let (voting, others): (Vec<_>, Vec<_>) =
        running.iter().partition(|(sight, _)| members.voters.contains(&sight.standing.member));
    let are_out = others.iter().all(|(sight, _)| Some(sight.node) == leaving);
    let all_vote = running.len() == started.len() && are_out && members.voters.len() == voting.len();
    if !all_vote || !members.learners.is_empty() || newest.monmap.ranks.len() != voting.len() {
        let ranks = &newest.monmap.ranks;
        return broken(format!(
            "{started:?} were started, {ranks:?} are in the map, and these run: {sights:?}"
        ));
    }
    match voting.iter().find(|(_, state)| state.version + BEHIND_MAX < newest.version) {
        Some((sight, state)) => {
            broken(format!("{sight:?} has version {}, the leader {}", state.version, newest.version))
        }
        None => Ok(newest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_at_one_version_are_found() {
        let mut agreement = Agreement::default();
        let state = |version, key: &str| {
            let config_keys = [(key.to_owned(), Default::default())].into();
            State { version, config_keys, ..State::default() }
        };
        assert_eq!(agreement.on_state("a", &state(SAMPLED, "x")), Ok(()));
        assert_eq!(agreement.on_state("b", &state(SAMPLED, "x")), Ok(()));
        assert!(agreement.on_state("c", &state(SAMPLED, "y")).is_err());
        assert_eq!(agreement.on_state("a", &state(SAMPLED + 1, "x")), Ok(()));
        assert_eq!(agreement.on_state("b", &state(SAMPLED + 1, "y")), Ok(()), "not sampled");
        assert_eq!(agreement.compared(), 1);
        assert_eq!(agreement.compare("a", &state(SAMPLED + 1, "x")), Ok(()));
        assert!(agreement.compare("b", &state(SAMPLED + 1, "y")).is_err());
    }

    #[test]
    fn one_id_of_two_clients_is_found() {
        let mut agreement = Agreement::default();
        let addr = |port| SocketAddr::from(([10, 0, 0, 1], port));
        for (place, port, is_right) in [(0, 1, true), (1, 1, true), (2, 2, false)] {
            let conn = ConnId::accepted(1);
            agreement.on_caller(place, conn, addr(port));
            assert_eq!(agreement.on_id(place, conn, 4100).is_ok(), is_right);
        }
    }
}
