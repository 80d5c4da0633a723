//! Requests that are carried out once, however often they come: a client whose monitor died sends its request again, over another
//! one. The answer is a part of the entry that makes the change, under the client's global id and its number of the request.

use super::Monitor;
use crate::answered::{CommandId, Given};
use crate::proposal::Change;
use crate::replication::quorum::planted::{Rule, is_broken};
use command::Answer;
use machine::ConnId;

/// A client counts each kind of its requests by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Commands = 0,
    Tells = 1,
    PoolOps = 2,
}

impl Counter {
    /// Clients count from 1; the highest bits are free.
    fn id(self, client: u64, tid: u64) -> Option<CommandId> {
        let is_numbered = client != 0 && tid != 0 && tid >> 62 == 0;
        is_numbered.then_some(CommandId { client, tid: tid | (self as u64) << 62 })
    }
}

/// A request by its number, with a hash of what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Once {
    id: CommandId,
    hash: u64,
}

impl Once {
    /// The change that keeps its answer.
    pub fn keep(self, answer: &Answer) -> Change {
        let (result, status, body) = (answer.result, answer.status.clone(), answer.body.clone());
        Change::Answered { given: Given { id: self.id, command: self.hash, result, status, body } }
    }
}

impl Monitor {
    /// `parts` are what the request asks, in full. `None`: the client does not count its requests.
    pub(super) fn once(&self, conn: ConnId, counter: Counter, tid: u64, parts: &[&[u8]]) -> Option<Once> {
        let client = self.sessions.get(&conn)?.peer.identity.global_id();
        Some(Once { id: counter.id(client, tid)?, hash: hash_of(parts) })
    }

    /// The answer that it earned when it came first.
    pub(super) fn given(&self, once: Once) -> Option<Answer> {
        let given = self.states.head().answers.find(once.id, once.hash);
        let given = given.filter(|_| !is_broken(Rule::RepeatsAreKnown))?;
        Some(Answer { result: given.result, status: given.status.clone(), body: given.body.clone() })
    }
}

/// Tells two requests apart that a client sends under one number.
fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    let digest = context.finish();
    u64::from_le_bytes(digest.as_ref()[..8].try_into().expect("SHA-256 is 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_request_has_numbers_of_its_own() {
        let ids =
            [Counter::Commands, Counter::Tells, Counter::PoolOps].map(|counter| counter.id(4100, 7).unwrap());
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_eq!(Counter::Tells.id(4100, 0), None, "the client does not count");
        assert_eq!(Counter::Tells.id(0, 1), None, "the client has no number");
        assert_eq!(Counter::Commands.id(1, 1 << 62), None);
    }

    #[test]
    fn a_request_is_known_by_what_it_asks() {
        assert_eq!(hash_of(&[b"ab", b"c"]), hash_of(&[b"ab", b"c"]));
        assert_ne!(hash_of(&[b"ab", b"c"]), hash_of(&[b"a", b"bc"]));
    }
}
