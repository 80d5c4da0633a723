//! Requests through io_uring. One system call submits all requests of a turn; completions are found in shared memory,
//! without a call.
//!
//! - A flushed write is one request with `RWF_DSYNC` where the disk has FUA or no volatile cache: no flush at all. On other
//!   disks it is a write with a linked fdatasync. `RWF_DSYNC` would take one request and a third less CPU there (23 against
//!   37 us for 4 KiB, on a disk without FUA), but the kernel then flushes on the worker that is bound to the processor on
//!   which the write completed. On a busy storage server that worker waits for its processor (median 2 ms against 90 us).
//! - `DEFER_TASKRUN`, where the kernel has it: completions are prepared when the ring is polled, not by an interrupt, and a
//!   flag in shared memory announces them.
//! - No fixed buffers: network and disk would have to share one pool, to save some 100 ns per request (pinning a page). No
//!   registered file: the kernel keeps it open for some time after the ring has ended, and with it the lock on the disk.

use super::transfer::{Completed, Progress, Transfer, Work};
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

/// Requests of one system call.
const SUBMISSIONS_MAX: u32 = 256;
/// Requests in flight in the kernel. Others are queued here: no disk uses a deeper queue.
const UNDER_WAY_MAX: usize = 1024;
/// A single call transfers less than 2 GiB.
const CALL_LEN_MAX: usize = 1 << 30;

pub(super) struct Ring {
    ring: IoUring,
    file: Arc<File>,
    /// Requests in the kernel, by the ring's `user_data`.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    under_way: usize,
    waiting: VecDeque<Transfer>,
    completions: Vec<(u64, i32)>,
    wake: Wake,
    is_quiet: bool,
    /// The kernel's flag announces completions, and the last look found none.
    flag_is_stale: bool,
    /// See [`super::Disk`].
    writes_through: bool,
}

/// A request in the kernel. The memory that the kernel has addresses of lives until the completion. It lies on the heap, so
/// the slot itself may move.
struct Slot {
    transfer: Transfer,
    iovecs: Vec<libc::iovec>,
    /// The write's result, until its linked sync completes.
    written: Option<i32>,
}

/// Flag beside a slot's number in `user_data`: the completion is that of the linked sync.
const OF_SYNC: u64 = 1 << 32;

impl Ring {
    /// A ring for the calling thread.
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

    /// True if a poll would find completions or submit requests. Reads shared memory only.
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

    pub fn poll(&mut self, out: &mut Vec<Completed>) {
        self.flag_is_stale = false;
        loop {
            self.set_signals(false);
            self.reap(out);
            self.set_signals(true);
            // Completions that came in between were not signalled.
            if !self.has_completions() {
                return;
            }
            // With signals on, completions after this call are signalled. The kernel sets its flag after it has queued the
            // work, perhaps when that work has just run here. The flag then stays until the next completion: a loop that
            // waits for it to clear would never end.
            self.enter();
            if self.ring.completion().is_empty() {
                self.flag_is_stale = true;
                return;
            }
        }
    }

    /// Turns signals off during the poll. The kernel signals a completion when it has it, and again when this thread's call
    /// takes it; after every turn with completions the second signal would cause an empty turn.
    fn set_signals(&mut self, on: bool) {
        if !self.is_quiet {
            return;
        }
        let queue = self.ring.completion();
        if on {
            queue.enable_eventfd();
            // Before completions are looked for. The kernel has its own fence between announcing and signalling.
            fence(Ordering::SeqCst);
        } else {
            queue.disable_eventfd();
        }
    }

    fn reap(&mut self, out: &mut Vec<Completed>) {
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

    fn on_completion(&mut self, user_data: u64, result: i32, out: &mut Vec<Completed>) {
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
        // SAFETY: a read's result is the kernel's count of the bytes that it put into the spare room.
        #[allow(unsafe_code, reason = "only the kernel knows what it filled")]
        let progress = unsafe { slot.transfer.on_result(outcome(result)) };
        match progress {
            // A short write has cancelled its sync; its remainder has another.
            Progress::Again => self.push(at),
            Progress::Ended(result) => {
                let fault = |errno| slot.transfer.fault(errno);
                let result = result.and_then(|bytes| sync.map(|_| bytes).map_err(fault));
                out.push(Completed { token: slot.transfer.token, result });
                self.slots[at] = None;
                self.free.push(at);
                self.under_way -= 1;
            }
        }
    }

    /// Queues the rest of a transfer for the next system call.
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
            // SAFETY: the entry points to the heap, to memory that the slot owns until the completion.
            #[allow(unsafe_code, reason = "the kernel gets addresses")]
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("there is room: the queue was just submitted");
        }
    }

    /// One system call, if there are requests to submit or completions to fetch.
    fn enter(&mut self) {
        let queue = self.ring.submission();
        if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return;
        }
        drop(queue);
        while let Err(error) = self.ring.submit() {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The kernel lacks memory, or completions must be fetched first. Queued requests stay queued, and the next
                // turn tries again.
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
    /// True for a flushed write on a disk that cannot write through its cache.
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
    /// Waits for the kernel: it writes into memory that the slots own.
    fn drop(&mut self) {
        self.waiting.clear();
        let mut completed = Vec::new();
        while self.under_way > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("cannot wait for requests in flight, their memory is leaked: {error}");
                return std::mem::forget(std::mem::take(&mut self.slots));
            }
            self.poll(&mut completed);
        }
    }
}

/// The best ring that this kernel supports, and whether its signals may be turned off for a moment. They may where the
/// kernel announces completions with a locked instruction: a look after turning them on then misses none.
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
