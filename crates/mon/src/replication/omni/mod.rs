//! A log that several monitors agree on: OmniPaxos, driven by ticks and messages, with its disk as effects.
//!
//! OmniPaxos writes to its storage in the middle of a step and takes the write for done. Here a write is done when
//! the host says so; until then everything that the step let out (messages to the others, entries that now hold) is
//! held back. What leaves this machine therefore never promises what its disk does not have, and what a step
//! promises to itself is as good as on disk for everyone else. [`Log`] keeps the mirror that OmniPaxos reads.
//!
//! Snapshots are each monitor's own: a state on its disk from which it starts. OmniPaxos's are not used, because it
//! may merge overlapping pieces of them, which only suits states that do not mind. So the shared log is trimmed up
//! to what *every* monitor has accepted, and grows while one is away. One that comes back with an empty disk needs
//! a copy of another's first.

mod entry;
mod log;
#[cfg(test)]
mod story;
#[cfg(test)]
mod tests;

use super::{Recovered, Write};
use bytes::Bytes;
use entry::Entry;
use log::Log;
use machine::Tag;
use omnipaxos::messages::Message;
use omnipaxos::util::LogEntry;
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};
use std::collections::VecDeque;

/// The proposer of an entry and the number of its proposal. A proposer recognises its entries by it, since an entry's
/// place in the log is unknown when it is proposed.
pub type Ticket = (u64, u64);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Entries that now hold, in order, each with its number.
    pub committed: Vec<(u64, Ticket, Bytes)>,
    /// To other monitors, by rank.
    pub send: Vec<(u64, Bytes)>,
    pub write: Option<(Tag, Write)>,
}

/// The ticks (one a call of [`Quorum::tick`]) after which a silent leader is replaced, and lost messages repeated.
/// Ranks are numbered from 1, as OmniPaxos wants them.
const ELECTION_TICKS: u64 = 20;
const RESEND_TICKS: u64 = 40;

pub struct Quorum {
    rank: u64,
    paxos: OmniPaxos<Entry, Log>,
    log: log::Shared,
    serial: u64,
    next_tag: u64,
    /// The write under way, and what may go out when it is done.
    writing: Option<(Tag, Held)>,
    /// Output since that write started.
    held: Held,
    /// Output that may go out now.
    free: VecDeque<Held>,
    /// The number of the last entry that was handed out.
    delivered: u64,
    /// Entries since our snapshot that the shared log has let go: known to hold, handed out first.
    replay: Vec<(u64, Entry)>,
}

#[derive(Debug, Default)]
struct Held {
    messages: Vec<Message<Entry>>,
    decided: usize,
}

impl Quorum {
    /// `rank` of `monitors` (ranks 1 to `monitors`), continuing from what is on its disk. `incarnation` must differ
    /// between two lives of the same monitor: it keeps their tickets apart.
    ///
    /// # Panics
    /// With fewer than two monitors: one alone needs no agreement.
    pub fn recover(
        rank: u64,
        monitors: u64,
        incarnation: u32,
        disk: Recovered,
    ) -> Result<Quorum, CorruptLog> {
        let (log, known) = Log::recover(disk)?;
        let shared = log.share();
        let cluster =
            ClusterConfig { configuration_id: 1, nodes: (1..=monitors).collect(), flexible_quorum: None };
        let server = ServerConfig {
            pid: rank,
            election_tick_timeout: ELECTION_TICKS,
            resend_message_tick_timeout: RESEND_TICKS,
            ..ServerConfig::default()
        };
        let paxos =
            cluster.build_for_server(server, log).expect("at least two monitors, and a rank among them");
        Ok(Quorum {
            rank,
            paxos,
            log: shared,
            serial: u64::from(incarnation) << 32,
            next_tag: 1,
            writing: None,
            held: Held::default(),
            free: VecDeque::new(),
            delivered: known.snapshot,
            replay: known.decided,
        })
    }

    /// The rank of whom we follow, which may be us.
    pub fn leader(&self) -> Option<u64> {
        self.paxos.get_current_leader().map(|(rank, _)| rank)
    }

    /// Hand in an entry, here or on its way to the leader. It may be lost with a leader that dies: who proposed it
    /// proposes again when it does not come back in time.
    pub fn propose(&mut self, bytes: Bytes) -> Ticket {
        self.serial += 1;
        let ticket = (self.rank, self.serial);
        // Refused only while the set of monitors changes, which it does not under this machine.
        let _ = self.paxos.append(Entry { ticket, bytes });
        ticket
    }

    /// The state after entry `index`, which was handed out before: this monitor starts from it next time.
    pub fn snapshot(&mut self, index: u64, state: Bytes) {
        self.log.set_snapshot(index, state);
        // Refused where we do not lead, or while someone has not accepted so much: a later snapshot asks again.
        let _ = self.paxos.trim(usize::try_from(index).ok());
    }

    pub fn tick(&mut self) {
        self.paxos.tick();
    }

    /// A message from another monitor. One that cannot be read is as good as lost.
    pub fn receive(&mut self, bytes: &[u8]) {
        if let Ok(message) = postcard::from_bytes(bytes) {
            self.paxos.handle_incoming(message);
        }
    }

    /// The connection to another monitor is back: what was lost with the old one is asked for again.
    pub fn reconnected(&mut self, rank: u64) {
        self.paxos.reconnected(rank);
    }

    pub fn on_written(&mut self, tag: Tag) {
        if let Some((_, held)) = self.writing.take_if(|(under_way, _)| *under_way == tag) {
            self.free.push_back(held);
        }
    }

    /// Takes the pending output. Called after every other call.
    pub fn take(&mut self) -> Outcome {
        self.paxos.take_outgoing_messages(&mut self.held.messages);
        self.held.decided = self.paxos.get_decided_idx();
        let mut outcome = Outcome::default();
        if self.writing.is_none() {
            let held = std::mem::take(&mut self.held);
            match self.log.take_write() {
                None => self.free.push_back(held),
                Some(write) => {
                    let tag = Tag(self.next_tag);
                    self.next_tag += 1;
                    self.writing = Some((tag, held));
                    outcome.write = Some((tag, write));
                }
            }
        }
        while let Some(held) = self.free.pop_front() {
            self.release(held, &mut outcome);
        }
        outcome
    }

    fn release(&mut self, held: Held, outcome: &mut Outcome) {
        for message in held.messages {
            let bytes = postcard::to_allocvec(&message).expect("a message is plain data");
            outcome.send.push((message.get_receiver(), bytes.into()));
        }
        for (number, entry) in std::mem::take(&mut self.replay) {
            self.delivered = number;
            outcome.committed.push((number, entry.ticket, entry.bytes));
        }
        let from = usize::try_from(self.delivered).expect("entries are in memory");
        if held.decided <= from {
            return;
        }
        for entry in self.paxos.read_entries(from..held.decided).unwrap_or_default() {
            // Nothing that is not decided was asked for, and what is trimmed was handed out before.
            if let LogEntry::Decided(Entry { ticket, bytes }) = entry {
                self.delivered += 1;
                outcome.committed.push((self.delivered, ticket, bytes));
            }
        }
    }
}

/// The disk holds something that this monitor did not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptLog;
