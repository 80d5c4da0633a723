//! Requests through io_uring: those of one turn go to the kernel in one call, and what has completed is found in shared
//! memory, without one.
//!
//! - A write that must be on stable storage is one request with `RWF_DSYNC` where the disk can write through its cache
//!   (FUA) or has none: no flush at all. Elsewhere it is a write with an fdatasync linked to it. `RWF_DSYNC` would do the
//!   same there in one request and a third less CPU (measured on a disk without FUA: 23 against 37 us for 4 KiB), but
//!   the kernel does its flush on the worker that is bound to the processor on which the write completed; where that is
//!   busy, as a storage server's is, the flush waits for its turn (median 2 ms against 90 us).
//! - `DEFER_TASKRUN`, where the kernel has it: completions are prepared when we look for them, not whenever an
//!   interrupt finds us in the middle of something else, and a flag in shared memory says that there are some.
//! - No fixed buffers: they would have to be one pool for network and disk, and what they save (pinning a page) is
//!   some 100 ns a request. No registered file: the kernel lets go of it some time after the ring has ended, and with it
//!   of the lock that keeps two processes apart.

use super::transfer::{Finished, Step, Transfer, Work};
use super::wake::Wake;
use device::Durability;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Requests that one call hands over.
const SUBMISSIONS_MAX: u32 = 256;
/// Requests under way in the kernel. More wait here: a disk has no use for them yet.
const UNDER_WAY_MAX: usize = 1024;
/// A single call transfers less than 2 GiB.
const CALL_LEN_MAX: usize = 1 << 30;

pub(super) struct Ring {
    ring: IoUring,
    file: Arc<File>,
    /// By the ring's `user_data`.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    under_way: usize,
    waiting: VecDeque<Transfer>,
    completions: Vec<(u64, i32)>,
    wake: Wake,
    is_quiet: bool,
    /// The kernel's flag says that there are completions to prepare, and there were none when we last looked.
    flag_is_stale: bool,
    /// See [`super::Disk`].
    writes_through: bool,
}

/// What the kernel works on: it must stay where it is until the completion has come. Everything that the kernel is
/// given addresses of lies on the heap, so the slot itself may move.
struct Slot {
    transfer: Transfer,
    iovecs: Vec<libc::iovec>,
    /// The write's result while the sync that is linked to it is still to come.
    written: Option<i32>,
}

/// Beside a slot's number in `user_data`: it is the completion of the linked sync.
const OF_SYNC: u64 = 1 << 32;

impl Ring {
    /// The ring is for the thread that calls this.
    pub fn new(file: Arc<File>, writes_through: bool, wake: Wake) -> io::Result<Ring> {
        let (ring, is_quiet) = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_eventfd(wake.as_fd().as_raw_fd())?;
        Ok(Ring {
            ring,
            file,
            slots: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            waiting: VecDeque::new(),
            completions: Vec::new(),
            wake,
            is_quiet,
            flag_is_stale: false,
            writes_through,
        })
    }

    pub fn submit(&mut self, transfer: Transfer) {
        if self.under_way == UNDER_WAY_MAX {
            return self.waiting.push_back(transfer);
        }
        self.under_way += 1;
        let slot = Some(Slot { transfer, iovecs: Vec::new(), written: None });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.push(at);
    }

    pub fn under_way(&self) -> usize {
        self.under_way + self.waiting.len()
    }

    /// Whether a poll would find something, or has something to hand over: looks at shared memory only.
    #[allow(unsafe_code, reason = "a look at the queue from a shared reference")]
    pub fn has_news(&self) -> bool {
        // SAFETY: this thread owns the ring, and every other view of this queue ends within the method that makes it.
        let is_pending = unsafe { !self.ring.submission_shared().is_empty() };
        is_pending || self.has_completions()
    }

    #[allow(unsafe_code, reason = "a look at the queues from a shared reference")]
    fn has_completions(&self) -> bool {
        // SAFETY: as above.
        let (is_ready, flag) =
            unsafe { (!self.ring.completion_shared().is_empty(), self.ring.submission_shared().taskrun()) };
        is_ready || flag && !self.flag_is_stale
    }

    pub fn poll(&mut self, out: &mut Vec<Finished>) {
        self.flag_is_stale = false;
        loop {
            self.set_signals(false);
            self.reap(out);
            self.set_signals(true);
            // What came in between was not signalled.
            if !self.has_completions() {
                return;
            }
            // With signals on, whatever comes after this call is signalled. The kernel sets its flag after it has queued
            // the work, so it may do so when we have just run that work: then the flag stays until the next completion,
            // and to wait for it to go away would be to wait for ever.
            self.enter();
            if self.ring.completion().is_empty() {
                self.flag_is_stale = true;
                return;
            }
        }
    }

    /// Completions are signalled when the kernel has them, and again when it hands them over in our own call; that
    /// second signal would make every turn with completions be followed by an empty one.
    fn set_signals(&mut self, on: bool) {
        if !self.is_quiet {
            return;
        }
        let queue = self.ring.completion();
        if on {
            queue.enable_eventfd();
            // Before the look at what has come. The kernel has its own between announcing and signalling.
            fence(Ordering::SeqCst);
        } else {
            queue.disable_eventfd();
        }
    }

    fn reap(&mut self, out: &mut Vec<Finished>) {
        loop {
            self.enter();
            self.ring
                .completion()
                .for_each(|entry| self.completions.push((entry.user_data(), entry.result())));
            if self.completions.is_empty() {
                return;
            }
            let mut completions = std::mem::take(&mut self.completions);
            for (at, result) in completions.drain(..) {
                self.on_completion(at, result, out);
            }
            self.completions = completions;
            while self.under_way < UNDER_WAY_MAX
                && let Some(next) = self.waiting.pop_front()
            {
                self.submit(next);
            }
        }
    }

    fn on_completion(&mut self, user_data: u64, result: i32, out: &mut Vec<Finished>) {
        let at = (user_data & !OF_SYNC) as usize;
        let slot = self.slots[at].as_mut().expect("a completion is of something under way");
        let (result, sync) = if user_data & OF_SYNC != 0 {
            // A linked request completes after the one that it waits for.
            (slot.written.take().expect("the write came first"), outcome(result))
        } else if slot.has_link(self.writes_through) {
            slot.written = Some(result);
            return;
        } else {
            (result, Ok(0))
        };
        // SAFETY: a read's result is the kernel's own count of what it put into the spare room.
        #[allow(unsafe_code, reason = "see there")]
        let step = unsafe { slot.transfer.on_result(outcome(result)) };
        match step {
            // A write that was cut short has cancelled its sync, and what is left of it brings another.
            Step::Again => self.push(at),
            Step::Finished(result) => {
                let fault = |errno| slot.transfer.fault(errno);
                let result = result.and_then(|bytes| sync.map(|_| bytes).map_err(fault));
                out.push(Finished { token: slot.transfer.token, result });
                self.slots[at] = None;
                self.free.push(at);
                self.under_way -= 1;
            }
        }
    }

    /// What is left of the transfer goes to the kernel with the next call.
    fn push(&mut self, at: usize) {
        let queue = self.ring.submission();
        let is_full = queue.capacity() - queue.len() < 2;
        drop(queue);
        if is_full {
            self.enter();
        }
        let file = types::Fd(self.file.as_raw_fd());
        let slot = self.slots[at].as_mut().expect("it was just put there");
        let mut entry = slot.entry(file, self.writes_through).user_data(at as u64);
        let mut sync = None;
        if slot.has_link(self.writes_through) {
            entry = entry.flags(squeue::Flags::IO_LINK);
            sync = Some(flush(file).user_data(at as u64 | OF_SYNC));
        }
        for entry in [Some(entry), sync].into_iter().flatten() {
            // SAFETY: what the entry points to is on the heap and owned by the slot, which stays until the completion.
            #[allow(unsafe_code, reason = "the kernel is given addresses")]
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the kernel has taken what was queued");
        }
    }

    /// One call, if there is anything to tell the kernel or to be told.
    fn enter(&mut self) {
        let queue = self.ring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return;
        }
        drop(queue);
        while let Err(error) = self.ring.submit() {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The kernel lacks memory, or we must fetch completions first. What is queued stays queued, and the
                // next turn tries again.
                Some(libc::EAGAIN | libc::EBUSY) => return self.wake.signal(),
                _ => panic!("io_uring refuses a well-formed call: {error}"),
            }
        }
    }
}

fn outcome(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

fn flush(file: types::Fd) -> squeue::Entry {
    opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build()
}

impl Slot {
    /// Whether its transfer is a write that needs a sync of its own.
    fn has_link(&self, writes_through: bool) -> bool {
        self.transfer.needs_sync() && !writes_through
    }

    fn entry(&mut self, file: types::Fd, writes_through: bool) -> squeue::Entry {
        let offset = self.transfer.offset;
        match &mut self.transfer.work {
            Work::Read { into } => {
                let room = into.spare();
                let len = room.len().min(CALL_LEN_MAX) as u32;
                opcode::Read::new(file, room.as_mut_ptr().cast(), len).offset(offset).build()
            }
            Work::Write { pieces, durability } => {
                let flags = match durability {
                    Durability::Flushed if writes_through => libc::RWF_DSYNC,
                    _ => 0,
                };
                if let [only] = pieces.make_contiguous() {
                    let len = only.len().min(CALL_LEN_MAX) as u32;
                    return opcode::Write::new(file, only.as_ptr(), len)
                        .offset(offset)
                        .rw_flags(flags)
                        .build();
                }
                self.iovecs.clear();
                self.iovecs.extend(pieces.iter().map(|piece| libc::iovec {
                    iov_base: piece.as_ptr().cast_mut().cast(),
                    iov_len: piece.len(),
                }));
                opcode::Writev::new(file, self.iovecs.as_ptr(), self.iovecs.len() as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            Work::Flush => flush(file),
            Work::Discard { .. } => unreachable!("discards have a thread of their own"),
        }
    }
}

impl Drop for Ring {
    /// The kernel writes into memory that the slots own, so they stay until it has done so.
    fn drop(&mut self) {
        self.waiting.clear();
        let mut finished = Vec::new();
        while self.under_way > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("cannot wait for the disk: {error}");
                return std::mem::forget(std::mem::take(&mut self.slots));
            }
            self.poll(&mut finished);
        }
    }
}

/// The best ring that this kernel makes, and whether its signals may be turned off for a moment: where completions are
/// announced by one locked instruction, so that a look after turning them on misses nothing.
fn build() -> io::Result<(IoUring, bool)> {
    let builder = || {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(2 * UNDER_WAY_MAX as u32);
        builder
    };
    let is_unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    // Linux 6.1.
    let mut deferred = builder();
    deferred.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    match deferred.build(SUBMISSIONS_MAX) {
        Ok(ring) => return Ok((ring, cfg!(target_arch = "x86_64"))),
        Err(error) if !is_unknown(&error) => return Err(error),
        Err(_) => {}
    }
    // Linux 5.19.
    match builder().setup_coop_taskrun().setup_taskrun_flag().build(SUBMISSIONS_MAX) {
        Err(error) if is_unknown(&error) => Ok((builder().build(SUBMISSIONS_MAX)?, false)),
        other => Ok((other?, false)),
    }
}
