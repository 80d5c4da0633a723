//! The memory budget for clients' requests, on one core.
//!
//! A client may have any number of requests under way, and there may be thousands of clients. Without a limit a daemon that
//! is slower than its network would fill the host's memory. The budget:
//!
//! - A message counts from its arrival until its [`Held`] is dropped, which is when it has been answered or discarded. It
//!   counts its own length and the bytes that it asks to be read.
//! - A large frame counts from its first byte on: a hundred half-received messages need as much memory as whole ones. It
//!   must arrive at a minimum rate; see [`super::Config::frame_window`].
//! - When the budget is used up, no more frames are taken from any session and sockets are not read: TCP tells the clients.
//!   Sessions go on in the order in which they began to wait, with one frame each while others wait. A request that is
//!   larger than the whole budget goes through alone.
//! - Replies that a client has not fetched are outside the budget: a client that fetches nothing would block all others.
//!   But when requests and replies together exceed the budget, a session with more than its even share (replies, and bytes
//!   that it has asked to be read) is paused until it has half of that. Requests and replies together therefore take at
//!   most about twice the budget. A client that has the daemon to itself may use all of it.
//!
//! The budget applies to clients only. A daemon that waits for another daemon's reply must not wait for clients whose
//! requests wait for it. (Stock: `osd_client_message_size_cap`, the throttler of the client policy.)

use machine::{ConnId, Held, HeldBytes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of a message besides its payload: the decoded request, table entries, the reply.
const MESSAGE_OVERHEAD: usize = 2 << 10;

/// Minimum share of a session: enough unfetched replies to keep its socket busy.
const FAIR_SHARE_MIN: usize = 1 << 20;

/// One session's part of the budget.
#[derive(Default)]
pub(super) struct Share {
    /// The number of the present or next frame on the socket.
    frame: u64,
    /// Length of that frame, while it is a large one that is being received.
    receiving: Option<usize>,
    /// It may take this frame though others wait, because it has waited itself.
    is_called: bool,
    /// It is in the queue.
    waits: bool,
    /// Bytes that its requests under way ask to be read.
    asked: Arc<AtomicUsize>,
    /// Bytes of its replies that it had not fetched at the last look.
    unwritten: usize,
    /// It is paused for having more than its share.
    is_choked: bool,
}

pub(super) struct Inflow {
    len_max: usize,
    held: Arc<AtomicUsize>,
    /// Bytes of large frames that were admitted and are not complete.
    receiving: usize,
    waiting: VecDeque<ConnId>,
    /// Unfetched replies of all sessions, in bytes.
    unwritten: usize,
    /// Sessions that are paused until they have less than their share.
    choked: Vec<ConnId>,
    sessions: usize,
}

impl Inflow {
    pub fn new(len_max: usize) -> Inflow {
        Inflow {
            len_max,
            held: Arc::default(),
            receiving: 0,
            waiting: VecDeque::new(),
            unwritten: 0,
            choked: Vec::new(),
            sessions: 0,
        }
    }

    pub fn set_len_max(&mut self, len_max: usize) {
        self.len_max = len_max;
    }

    /// Number of sessions that share the budget.
    pub fn set_sessions(&mut self, sessions: usize) {
        self.sessions = sessions;
    }

    fn fair_share(&self) -> usize {
        (self.len_max / self.sessions.max(1)).max(FAIR_SHARE_MIN)
    }

    /// Count a complete message of `len` bytes, which asks for `asked` bytes to be read.
    pub fn hold(&mut self, share: &Share, len: usize, asked: usize) -> Held {
        let of_all = HeldBytes::new(&self.held, len.saturating_add(asked).saturating_add(MESSAGE_OVERHEAD));
        let asked = if asked > 0 { HeldBytes::new(&share.asked, asked) } else { HeldBytes::default() };
        Held::new(of_all, asked)
    }

    /// Note the unfetched bytes of a session's replies.
    pub fn note_unwritten(&mut self, share: &mut Share, len: usize) {
        self.unwritten = self.unwritten - share.unwritten + len;
        share.unwritten = len;
    }

    /// True if the session must pause: it has more than its share, and all together more than the budget. It resumes
    /// through [`Inflow::take_choked`].
    pub fn chokes(&mut self, conn: ConnId, share: &mut Share, unwritten: usize, is_reading: bool) -> bool {
        // Called for each frame. Usually there is room, and the share need not be computed.
        if self.used().saturating_add(self.unwritten) <= self.len_max {
            return false;
        }
        let own = unwritten.saturating_add(share.asked.load(Ordering::Relaxed));
        // Hysteresis: stop at the share, go on at half of it.
        let chokes = own > self.fair_share() / if is_reading { 1 } else { 2 };
        if chokes && !share.is_choked {
            share.is_choked = true;
            self.choked.push(conn);
        }
        chokes
    }

    /// Take the paused sessions, to be looked at again.
    pub fn take_choked(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.choked)
    }

    fn used(&self) -> usize {
        self.held.load(Ordering::Relaxed).saturating_add(self.receiving)
    }

    fn has_room(&self, len: usize) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(len) <= self.len_max
    }

    /// Begin the session's frame of this number. The one before is complete and counts as a message.
    pub fn begin_frame(&mut self, share: &mut Share, frame: u64) {
        if share.frame != frame {
            self.give_up(share);
            share.frame = frame;
            share.is_called = false;
        }
    }

    /// True if the session may take this frame. `large`: the length of a frame that has a buffer of its own.
    pub fn admits(&mut self, conn: ConnId, share: &mut Share, frame: u64, large: Option<usize>) -> bool {
        self.begin_frame(share, frame);
        if share.receiving.is_some() {
            return true;
        }
        let is_its_turn = share.is_called || self.waiting.is_empty();
        if is_its_turn && self.has_room(large.unwrap_or(0)) {
            share.receiving = large;
            self.receiving += large.unwrap_or(0);
            return true;
        }
        if !share.waits {
            share.waits = true;
            match std::mem::take(&mut share.is_called) {
                true => self.waiting.push_front(conn),
                false => self.waiting.push_back(conn),
            }
        }
        false
    }

    /// The session has ended, or migrated to another core.
    pub fn forget(&mut self, share: &mut Share) {
        self.give_up(share);
        self.note_unwritten(share, 0);
        share.is_choked = false;
    }

    /// The session's socket is gone: its half-received frame is dropped.
    pub fn give_up(&mut self, share: &mut Share) {
        self.receiving -= share.receiving.take().unwrap_or(0);
    }

    /// Take the session that has waited longest, if there is any room at all.
    pub fn call_next(&mut self) -> Option<ConnId> {
        if self.used() > 0 && self.used() >= self.len_max { None } else { self.waiting.pop_front() }
    }

    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Check the sums against `shares`, those of every session.
    pub fn check<'a>(&self, shares: impl Iterator<Item = &'a Share> + Clone) {
        let receiving: usize = shares.clone().filter_map(|share| share.receiving).sum();
        assert_eq!(receiving, self.receiving, "what is being received is counted");
        let unwritten: usize = shares.map(|share| share.unwritten).sum();
        assert_eq!(unwritten, self.unwritten, "what is not fetched is counted");
    }
}

impl Share {
    pub fn call(&mut self) {
        self.waits = false;
        self.is_called = true;
    }

    pub fn unchoke(&mut self) {
        self.is_choked = false;
    }

    pub fn frame(&self) -> u64 {
        self.frame
    }

    pub fn waits(&self) -> bool {
        self.waits
    }

    /// A large frame was admitted and is not complete.
    pub fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    /// Admit waiting sessions as the endpoint does; returns those that were admitted.
    fn call(inflow: &mut Inflow, shares: &mut [Share], frames: &[(u64, Option<usize>)]) -> Vec<u64> {
        let mut admitted = Vec::new();
        while let Some(conn) = inflow.call_next() {
            let at = conn.0 as usize;
            shares[at].call();
            let (number, large) = frames[at];
            if !inflow.admits(conn, &mut shares[at], number, large) {
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
        let mut frames = [(1, Some(60 * KIB)), (1, Some(60 * KIB)), (1, Some(10 * KIB)), (0, None)];
        let ask = |inflow: &mut Inflow, shares: &mut [Share], n: usize, (number, large)| {
            inflow.admits(ConnId(n as u64), &mut shares[n], number, large)
        };
        assert!(ask(&mut inflow, &mut shares, 0, frames[0]));
        assert!(ask(&mut inflow, &mut shares, 0, frames[0]), "asked again: the same frame");
        assert!(!ask(&mut inflow, &mut shares, 1, frames[1]));
        assert!(!ask(&mut inflow, &mut shares, 1, frames[1]), "waits once");
        assert!(!ask(&mut inflow, &mut shares, 2, frames[2]), "there is room, and somebody was before it");
        assert!(!ask(&mut inflow, &mut shares, 3, frames[3]), "nor does anything small overtake");
        assert_eq!(call(&mut inflow, &mut shares, &frames), [] as [u64; 0]);
        // The first is whole: it counts as a message until that is done with.
        let held = inflow.hold(&shares[0], 60 * KIB, 0);
        frames[0] = (2, None);
        assert!(!ask(&mut inflow, &mut shares, 0, frames[0]), "others wait");
        assert_eq!(call(&mut inflow, &mut shares, &frames), [] as [u64; 0]);
        drop(held);
        assert_eq!(call(&mut inflow, &mut shares, &frames), [1, 2, 3, 0]);
        assert!(!inflow.is_waited_for());
        inflow.check(shares.iter());
        shares.iter_mut().for_each(|share| inflow.give_up(share));
        assert_eq!(inflow.used(), 0);
    }

    #[test]
    fn frame_larger_than_budget_goes_alone() {
        let mut inflow = Inflow::new(10 * KIB);
        let (mut large, mut small) = (Share::default(), Share::default());
        let held = inflow.hold(&large, 0, 0);
        assert!(!inflow.admits(ConnId(0), &mut large, 7, Some(90 * KIB)));
        drop(held);
        assert_eq!(inflow.call_next(), Some(ConnId(0)));
        large.call();
        assert!(inflow.admits(ConnId(0), &mut large, 7, Some(90 * KIB)));
        assert_eq!(inflow.call_next(), None);
        assert!(!inflow.admits(ConnId(1), &mut small, 0, None));
        inflow.give_up(&mut large);
        assert_eq!(inflow.call_next(), Some(ConnId(1)));
    }
}
