//! Requests of this monitor's sessions that only the leader can carry out, until what they changed is durable.
//!
//! A request goes to the leader once, and again to the next leader when the first one is gone before it has said that the
//! request is settled. So a client need not know that leaders change: it waits a little longer. A command that comes twice is
//! carried out once, because its answer is kept in the state ([`crate::state::Answers`]); the requests of daemons say how things
//! are, and may be repeated.

use machine::ConnId;
use std::collections::VecDeque;
use wire::messages::Message;

/// Requests that wait, and the bytes of their bodies as they came. A session whose request finds no room is closed.
const REQUESTS_MAX: usize = 20_000;
const BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Request {
    pub serial: u64,
    pub conn: ConnId,
    pub message: Message,
    bytes: usize,
    /// To whom it went: a leader's number and term.
    sent_to: Option<(u64, u64)>,
}

/// There is no room for a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// By serial number, in order.
    requests: VecDeque<Request>,
    last_serial: u64,
    bytes: usize,
}

impl Outbox {
    /// Takes a request of a session; `bytes` is its size. Returns its serial number.
    pub fn push(&mut self, conn: ConnId, message: Message, bytes: usize) -> Result<u64, Full> {
        if self.requests.len() >= REQUESTS_MAX || self.bytes + bytes > BYTES_MAX {
            return Err(Full);
        }
        self.last_serial += 1;
        self.bytes += bytes;
        self.requests.push_back(Request { serial: self.last_serial, conn, message, bytes, sent_to: None });
        Ok(self.last_serial)
    }

    /// The requests that this leader has not got, marked as sent to it. With new serial numbers where they went to another one:
    /// what that one still says of them is not said of this one's work.
    pub fn due(&mut self, leader: u64, term: u64) -> Vec<(u64, ConnId, Message)> {
        let to = Some((leader, term));
        if self.requests.iter().any(|request| request.sent_to.is_some() && request.sent_to != to) {
            for request in &mut self.requests {
                self.last_serial += 1;
                (request.serial, request.sent_to) = (self.last_serial, None);
            }
        }
        let unsent = self.requests.iter_mut().filter(|request| request.sent_to.is_none());
        unsent
            .map(|request| {
                request.sent_to = to;
                (request.serial, request.conn, request.message.clone())
            })
            .collect()
    }

    /// A connection with this member was lost, and with it what was under way: requests that went there go to the leader again.
    /// That may be the same member, though nobody seems to lead at the moment.
    pub fn resend(&mut self, member: u64) {
        if !self.requests.iter().any(|request| request.sent_to.is_some_and(|(to, _)| to == member)) {
            return;
        }
        for request in &mut self.requests {
            self.last_serial += 1;
            (request.serial, request.sent_to) = (self.last_serial, None);
        }
    }

    /// The requests up to this serial number are done for good.
    pub fn settle(&mut self, through: u64) {
        while let Some(request) = self.requests.pop_front_if(|request| request.serial <= through) {
            self.bytes -= request.bytes;
        }
    }

    /// Drops a session's requests: its end is gone, and repeats them elsewhere. True if one of them went to a leader.
    pub fn forget(&mut self, conn: ConnId) {
        let bytes = &mut self.bytes;
        self.requests.retain(|request| {
            let is_kept = request.conn != conn;
            *bytes -= if is_kept { 0 } else { request.bytes };
            is_kept
        });
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.requests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::messages::MPing;

    fn outbox(requests: u64) -> Outbox {
        let mut outbox = Outbox::default();
        for n in 0..requests {
            outbox.push(ConnId::accepted(n % 3), Message::with_tid(n, MPing), 10).unwrap();
        }
        outbox
    }

    fn tids(due: &[(u64, ConnId, Message)]) -> Vec<u64> {
        due.iter().map(|(.., message)| message.tid).collect()
    }

    #[test]
    fn a_request_goes_to_a_leader_once() {
        let mut outbox = outbox(4);
        let due = outbox.due(1, 7);
        assert_eq!(tids(&due), [0, 1, 2, 3]);
        assert!(outbox.due(1, 7).is_empty());
        outbox.settle(due[1].0);
        assert_eq!((outbox.len(), outbox.bytes), (2, 20));
    }

    #[test]
    fn the_next_leader_gets_what_is_not_settled() {
        let mut outbox = outbox(3);
        let first = outbox.due(1, 7);
        outbox.settle(first[0].0);
        let second = outbox.due(2, 8);
        assert_eq!(tids(&second), [1, 2]);
        outbox.settle(first[2].0);
        assert_eq!(outbox.len(), 2, "the word of the first leader comes too late");
        outbox.settle(second[1].0);
        assert_eq!((outbox.len(), outbox.bytes), (0, 0));
    }

    #[test]
    fn a_lost_connection_makes_everything_due_again_in_order() {
        let mut outbox = outbox(3);
        outbox.due(1, 7);
        outbox.resend(2);
        assert!(outbox.due(1, 7).is_empty(), "they went to another member");
        outbox.resend(1);
        outbox.settle(3);
        assert_eq!(outbox.len(), 3, "a word on the first delivery comes too late");
        outbox.push(ConnId::accepted(9), Message::with_tid(3, MPing), 10).unwrap();
        assert_eq!(tids(&outbox.due(1, 7)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_session_that_ends_takes_its_requests_along() {
        let mut outbox = outbox(6);
        outbox.forget(ConnId::accepted(1));
        assert_eq!(tids(&outbox.due(1, 7)), [0, 2, 3, 5]);
        assert_eq!(outbox.bytes, 40);
    }

    #[test]
    fn it_is_bounded_by_number_and_by_size() {
        let mut outbox = Outbox::default();
        let mut push = |bytes| outbox.push(ConnId::accepted(1), Message::new(MPing), bytes);
        assert!(push(BYTES_MAX).is_ok());
        assert_eq!(push(1), Err(Full));
        let mut outbox = outbox_of_all();
        assert_eq!(outbox.push(ConnId::accepted(1), Message::new(MPing), 0), Err(Full));
    }

    fn outbox_of_all() -> Outbox {
        outbox(REQUESTS_MAX as u64)
    }
}
