//! Reads through the read index: batched, retried, and answered when the host has caught up.
//!
//! One request is under way at a time and covers every read asked before it was issued. The library silently drops
//! repeats of a context, and requests before a leader's first commit, so a retry uses a new serial. An answer to any
//! serial of the same request serves it, because each was issued after the reads were asked.

use super::Event;
use super::guard::CONTEXT_LEN;
use super::planted::{Rule, is_broken};

const RETRY_TICKS: u64 = 4;

#[derive(Debug)]
struct Request {
    serial_first: u64,
    serial_last: u64,
    reads: Vec<u64>,
    ticks: u64,
}

#[derive(Debug)]
pub(super) struct Reads {
    member: u64,
    incarnation: u64,
    next_read: u64,
    next_serial: u64,
    waiting: Vec<u64>,
    request: Option<Request>,
    /// Reads by the index that the host's state must include.
    confirmed: Vec<(u64, u64)>,
}

impl Reads {
    pub(super) fn new(member: u64, incarnation: u64) -> Reads {
        Reads {
            member,
            incarnation,
            next_read: 1,
            next_serial: 1,
            waiting: Vec::new(),
            request: None,
            confirmed: Vec::new(),
        }
    }

    pub(super) fn ask(&mut self) -> u64 {
        let read = self.next_read;
        self.next_read += 1;
        self.waiting.push(read);
        read
    }

    pub(super) fn tick(&mut self) {
        if let Some(request) = &mut self.request {
            request.ticks += 1;
        }
    }

    /// The context of the request to issue now, if any.
    pub(super) fn next_request(&self) -> Option<Vec<u8>> {
        let is_due = match &self.request {
            Some(request) => request.ticks >= RETRY_TICKS && !is_broken(Rule::RetryReads),
            None => !self.waiting.is_empty(),
        };
        is_due.then(|| {
            let mut context = Vec::with_capacity(CONTEXT_LEN);
            context.extend(self.member.to_le_bytes());
            context.extend(self.incarnation.to_le_bytes());
            context.extend(self.next_serial.to_le_bytes());
            context
        })
    }

    /// The context of [`Reads::next_request`] goes to the library.
    pub(super) fn on_issued(&mut self) {
        let serial = self.next_serial;
        self.next_serial += 1;
        match &mut self.request {
            Some(request) => {
                request.serial_last = serial;
                request.ticks = 0;
            }
            None => {
                let reads = std::mem::take(&mut self.waiting);
                self.request = Some(Request { serial_first: serial, serial_last: serial, reads, ticks: 0 });
            }
        }
    }

    /// A leader confirmed the request with this context.
    pub(super) fn on_confirmed(&mut self, context: &[u8], index: u64) {
        let Some(rest) = context.strip_prefix(&self.member.to_le_bytes()) else { return };
        let Some(serial) = rest.strip_prefix(&self.incarnation.to_le_bytes()) else { return };
        let Ok(serial) = serial.try_into().map(u64::from_le_bytes) else { return };
        let is_current =
            |request: &mut Request| (request.serial_first..=request.serial_last).contains(&serial);
        if let Some(request) = self.request.take_if(is_current) {
            self.confirmed.extend(request.reads.into_iter().map(|read| (index, read)));
        }
    }

    /// Takes the reads that a state after `applied` serves.
    pub(super) fn answered(&mut self, applied: u64) -> Vec<Event> {
        let (ready, waiting) = self.confirmed.drain(..).partition(|(index, _)| *index <= applied);
        self.confirmed = waiting;
        let ready: Vec<(u64, u64)> = ready;
        ready.into_iter().map(|(index, read)| Event::Readable { read, index }).collect()
    }
}
