//! How much of what clients send may be in memory at once, on one core?
//!
//! A client may have as many requests under way as it likes, and there may be thousands of clients. Without a bound a
//! daemon that is slower than its network for a while takes all the memory that the host has. So there is a budget:
//!
//! - A message counts from its arrival until whoever carries it out lets go of its [`Held`], which is when it has been
//!   answered or dropped.
//! - A large frame counts before its data is read: a hundred half-received messages are as much memory as whole ones.
//! - When the budget is used up, sockets are not read from, and TCP tells the clients. They go on in the order in which
//!   they had to wait. A request that is larger than the whole budget goes through alone.
//!
//! Only connections of clients wait. A daemon that waits for another daemon's answer must not be kept waiting by
//! requests that wait for it. (Stock: `osd_client_message_size_cap`, the throttler of the client policy.)

use crate::ConnId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a message takes besides its payload: the decoded request, its place in tables, its reply.
const MESSAGE_OVERHEAD: usize = 2 << 10;

/// A message's part of the budget; given back when this is dropped, on whatever core that happens.
#[derive(Debug, Default)]
pub struct Held(Option<(Arc<AtomicUsize>, usize)>);

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((account, len)) = &self.0 {
            // Nothing else is published by it.
            account.fetch_sub(*len, Ordering::Relaxed);
        }
    }
}

/// A large frame whose data is being received, or waits to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LargeFrame {
    /// Among the frames of its socket.
    pub number: u64,
    pub len: usize,
}

/// One session's part.
#[derive(Default)]
pub(super) struct Share {
    admitted: Option<LargeFrame>,
    /// It is in the queue.
    waits: bool,
}

pub(super) struct Inflow {
    len_max: usize,
    held: Arc<AtomicUsize>,
    /// Of frames that were admitted and are not whole yet.
    receiving: usize,
    waiting: VecDeque<ConnId>,
    /// The first of those that waited: its turn has come.
    next: Option<ConnId>,
}

impl Inflow {
    pub fn new(len_max: usize) -> Inflow {
        Inflow { len_max, held: Arc::default(), receiving: 0, waiting: VecDeque::new(), next: None }
    }

    pub fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    /// A whole message has come.
    pub fn hold(&mut self, payload_len: usize) -> Held {
        let len = payload_len + MESSAGE_OVERHEAD;
        self.held.fetch_add(len, Ordering::Relaxed);
        Held(Some((self.held.clone(), len)))
    }

    fn used(&self) -> usize {
        self.held.load(Ordering::Relaxed) + self.receiving
    }

    fn has_room(&self, conn: ConnId, len: usize) -> bool {
        let is_its_turn = self.next == Some(conn) || self.waiting.is_empty() && self.next.is_none();
        let used = self.used();
        is_its_turn && (used == 0 || used.saturating_add(len) <= self.len_max)
    }

    /// Whether this session may be read from. `frame`: what it is receiving now.
    pub fn admits(&mut self, conn: ConnId, share: &mut Share, frame: Option<LargeFrame>) -> bool {
        if share.admitted != frame {
            // What it was receiving is whole, and counts as a message.
            self.give_up(share);
        }
        if share.admitted.is_some() {
            return true;
        }
        let len = frame.map_or(0, |frame| frame.len);
        if !self.has_room(conn, len) {
            if !share.waits {
                share.waits = true;
                match self.next == Some(conn) {
                    true => self.waiting.push_front(conn),
                    false => self.waiting.push_back(conn),
                }
            }
            return false;
        }
        share.admitted = frame;
        self.receiving += len;
        true
    }

    /// The session receives nothing any more.
    pub fn give_up(&mut self, share: &mut Share) {
        if let Some(frame) = share.admitted.take() {
            self.receiving -= frame.len;
        }
    }

    /// Who has waited longest, if there is any room at all. Ask whether it is admitted, and then for the next; the last
    /// answer is `None`.
    pub fn call_next(&mut self) -> Option<ConnId> {
        let has_room = self.used() == 0 || self.used() < self.len_max;
        self.next = if has_room { self.waiting.pop_front() } else { None };
        self.next
    }

    /// The one that was called has to wait on.
    pub fn call_none(&mut self) {
        self.next = None;
    }

    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// `shares`: of every session.
    pub fn check<'a>(&self, shares: impl Iterator<Item = &'a Share>) {
        let receiving: usize = shares.filter_map(|s| s.admitted).map(|frame| frame.len).sum();
        assert_eq!(receiving, self.receiving, "what is being received is counted");
        assert_eq!(self.next, None, "nobody's turn goes on");
    }
}

impl Share {
    pub fn is_called(&mut self) {
        self.waits = false;
    }

    pub fn waits(&self) -> bool {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn frame(number: u64, len: usize) -> Option<LargeFrame> {
        Some(LargeFrame { number, len })
    }

    /// As the endpoint does it: those that are admitted now.
    fn call(inflow: &mut Inflow, shares: &mut [Share], frames: &[Option<LargeFrame>]) -> Vec<u64> {
        let mut admitted = Vec::new();
        while let Some(conn) = inflow.call_next() {
            let at = conn.0 as usize;
            shares[at].is_called();
            if !inflow.admits(conn, &mut shares[at], frames[at]) {
                inflow.call_none();
                break;
            }
            admitted.push(conn.0);
        }
        admitted
    }

    #[test]
    fn large_frames_wait_for_room_in_their_order() {
        let mut inflow = Inflow::new(100 * KIB);
        let mut shares: Vec<Share> = (0..4).map(|_| Share::default()).collect();
        let frames = [frame(1, 60 * KIB), frame(1, 60 * KIB), frame(1, 10 * KIB), None];
        assert!(inflow.admits(ConnId(0), &mut shares[0], frames[0]));
        assert!(inflow.admits(ConnId(0), &mut shares[0], frames[0]), "asked again: the same frame");
        assert!(!inflow.admits(ConnId(1), &mut shares[1], frames[1]));
        assert!(!inflow.admits(ConnId(1), &mut shares[1], frames[1]), "waits once");
        assert!(
            !inflow.admits(ConnId(2), &mut shares[2], frames[2]),
            "there is room, and somebody was before it"
        );
        assert!(!inflow.admits(ConnId(3), &mut shares[3], frames[3]), "nor does anything small overtake");
        assert_eq!(call(&mut inflow, &mut shares, &frames), [] as [u64; 0]);
        // The first is whole: it counts as a message until that is done with.
        let held = inflow.hold(60 * KIB);
        assert!(!inflow.admits(ConnId(0), &mut shares[0], None), "others wait");
        assert_eq!(call(&mut inflow, &mut shares, &frames), [] as [u64; 0]);
        drop(held);
        let mut frames = frames;
        frames[0] = None;
        assert_eq!(call(&mut inflow, &mut shares, &frames), [1, 2, 3, 0]);
        assert!(!inflow.is_waited_for());
        inflow.check(shares.iter());
        shares.iter_mut().for_each(|share| inflow.give_up(share));
        assert_eq!(inflow.used(), 0);
    }

    #[test]
    fn what_is_larger_than_the_budget_goes_alone() {
        let mut inflow = Inflow::new(10 * KIB);
        let (mut large, mut small) = (Share::default(), Share::default());
        let held = inflow.hold(0);
        assert!(!inflow.admits(ConnId(0), &mut large, frame(7, 90 * KIB)));
        drop(held);
        assert_eq!(inflow.call_next(), Some(ConnId(0)));
        large.is_called();
        assert!(inflow.admits(ConnId(0), &mut large, frame(7, 90 * KIB)));
        assert_eq!(inflow.call_next(), None);
        assert!(!inflow.admits(ConnId(1), &mut small, None));
        inflow.give_up(&mut large);
        assert_eq!(inflow.call_next(), Some(ConnId(1)));
    }
}
