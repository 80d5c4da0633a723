//! PendingAnswers that wait: for the change that they speak of to hold, or, where nothing changed, for a proof that this monitor still
//! leads. Without that proof a leader that was cut off would answer from a state that others have changed since.
//!
//! PendingAnswers leave in the order of their requests.

use machine::ConnId;
use machine::net::NetEffect;
use std::collections::VecDeque;

#[derive(Debug)]
pub(in crate::monitor) enum Outgoing {
    Answer(NetEffect),
    /// The requests of this member up to the serial number are done.
    Settle {
        member: u64,
        serial: u64,
    },
}

#[derive(Debug)]
struct Waiting {
    /// The version of the state that must hold.
    version: u64,
    /// The proof of leadership that must have come. `None`: that the version comes to hold is the proof.
    proof: Option<u64>,
    out: Outgoing,
}

#[derive(Debug, Default)]
pub(in crate::monitor) struct PendingAnswers {
    queue: VecDeque<Waiting>,
    /// Proofs are numbered. The one that was asked for last, and the newest that has come.
    asked: u64,
    proved: u64,
    /// The log's number of the read that is to be the proof.
    read: Option<u64>,
}

impl PendingAnswers {
    /// `version` is the newest one that was proposed, `held` the newest that holds. A monitor that is `alone` needs no proof.
    pub fn push(&mut self, version: u64, held: u64, alone: bool, out: Outgoing) {
        let proof = (version <= held && !alone).then_some(self.asked + 1);
        self.queue.push_back(Waiting { version, proof, out });
    }

    /// True where answers wait for a proof that was not asked for, and none is under way.
    pub fn wants_proof(&self) -> bool {
        let wants = self.queue.iter().any(|waiting| waiting.proof.is_some_and(|proof| proof > self.asked));
        wants && self.read.is_none()
    }

    /// The proof is a read of the log under this number.
    pub fn on_asked(&mut self, read: u64) {
        self.asked += 1;
        self.read = Some(read);
    }

    /// The log has answered a read. False if it was for something else.
    pub fn on_read(&mut self, read: u64) -> bool {
        let is_ours = self.read.take_if(|asked| *asked == read).is_some();
        if is_ours {
            self.proved = self.asked;
        }
        is_ours
    }

    /// The answers that may go out.
    pub fn take(&mut self, held: u64) -> Vec<Outgoing> {
        let mut out = Vec::new();
        let proved = self.proved;
        let is_due = |waiting: &mut Waiting| {
            waiting.version <= held && waiting.proof.is_none_or(|proof| proof <= proved)
        };
        while let Some(waiting) = self.queue.pop_front_if(is_due) {
            out.push(waiting.out);
        }
        out
    }

    /// Drops what was to be said of a member's requests and to its sessions: the connection is gone, and they come again.
    pub fn forget(&mut self, member: u64, sessions: &[ConnId]) {
        self.queue.retain(|waiting| match &waiting.out {
            Outgoing::Settle { member: of, .. } => *of != member,
            Outgoing::Answer(NetEffect::Send { conn, .. }) => !sessions.contains(conn),
            Outgoing::Answer(_) => true,
        });
    }

    /// This monitor leads no more: its answers would say what may not be so.
    pub fn drop_all(&mut self) {
        self.queue.clear();
        self.read = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(serial: u64) -> Outgoing {
        Outgoing::Settle { member: 1, serial }
    }

    fn serials(out: Vec<Outgoing>) -> Vec<u64> {
        let serial = |out| match out {
            Outgoing::Settle { serial, .. } => serial,
            Outgoing::Answer(_) => panic!("an answer"),
        };
        out.into_iter().map(serial).collect()
    }

    #[test]
    fn an_answer_waits_for_its_version() {
        let mut answers = PendingAnswers::default();
        answers.push(5, 4, false, settle(1));
        assert!(!answers.wants_proof(), "the version is the proof");
        assert!(answers.take(4).is_empty());
        assert_eq!(serials(answers.take(5)), [1]);
    }

    #[test]
    fn an_answer_to_a_question_waits_for_a_later_proof() {
        let mut answers = PendingAnswers::default();
        answers.push(4, 4, false, settle(1));
        assert!(answers.wants_proof());
        answers.on_asked(70);
        answers.push(4, 4, false, settle(2));
        assert!(!answers.wants_proof(), "one at a time");
        assert!(!answers.on_read(69), "of somebody else");
        assert!(answers.take(4).is_empty());
        assert!(answers.on_read(70));
        assert_eq!(serials(answers.take(4)), [1]);
        assert!(answers.wants_proof());
        answers.on_asked(71);
        answers.on_read(71);
        assert_eq!(serials(answers.take(4)), [2]);
    }

    #[test]
    fn answers_keep_their_order() {
        let mut answers = PendingAnswers::default();
        answers.push(4, 4, false, settle(1));
        answers.push(5, 4, false, settle(2));
        assert!(answers.take(5).is_empty(), "the first has no proof");
        answers.on_asked(1);
        answers.on_read(1);
        assert_eq!(serials(answers.take(5)), [1, 2]);
    }

    #[test]
    fn a_monitor_that_is_alone_needs_no_proof() {
        let mut answers = PendingAnswers::default();
        answers.push(4, 4, true, settle(1));
        assert_eq!(serials(answers.take(4)), [1]);
    }

    #[test]
    fn a_former_leader_says_nothing_and_can_lead_again() {
        let mut answers = PendingAnswers::default();
        answers.push(4, 4, false, settle(1));
        answers.on_asked(1);
        answers.drop_all();
        assert!(answers.take(9).is_empty());
        answers.push(4, 4, false, settle(2));
        assert!(answers.wants_proof());
        answers.on_asked(2);
        assert!(!answers.on_read(1), "a read of the term before proves nothing now");
        assert!(answers.on_read(2));
        assert_eq!(serials(answers.take(4)), [2]);
    }
}
