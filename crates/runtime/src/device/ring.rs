//! Requests through io_uring. One system call submits all requests of a turn; completions are found in shared memory,
//! without a call.
//!
//! - A flushed write is one request with `RWF_DSYNC` where the disk has FUA: no flush at all. On disks without it, it is a
//!   write with a linked fdatasync, or, where the operator wants it, with a flush that queues share (see
//!   [`super::flushes`]). `RWF_DSYNC` would take one request and a third less CPU there (23 against
//!   37 us for 4 KiB, on a disk without FUA), but the kernel then flushes on the worker that is bound to the processor on
//!   which the write completed. On a busy storage server that worker waits for its processor (median 2 ms against 90 us).
//! - `DEFER_TASKRUN`, where the kernel has it: completions are prepared when the ring is polled, not by an interrupt, and a
//!   flag in shared memory announces them.
//! - The file is registered, and so is the memory of copied writes (see [`super::arena`]). Dropping the ring takes the file's
//!   registration back, so that the lock on the disk ends with the queue and not when the kernel tidies up. Where the kernel
//!   refuses a registration (a low limit on locked memory), requests do without it.

use super::arena::Arena;
use super::flushes::{Flushes, Inbox};
use super::open::Disk;
use super::persistence::Persistence;
use super::transfer::{Completed, Fault, Progress, Transfer, Work};
use super::wake::Wake;
use bytes::Bytes;
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
    file: RingFile,
    /// Registered memory.
    arena: Option<Arc<Arena>>,
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
    persistence: Persistence,
    flushes: Arc<Flushes>,
    shares_flushes: bool,
    inbox: Arc<Inbox>,
    /// Its requests that flush, and those of them that wait for a shared flush and are not in the kernel.
    flushing: usize,
    sharing: usize,
}

/// The file as entries name it.
struct RingFile {
    file: Arc<File>,
    /// It is number 0 of the ring's files.
    is_registered: bool,
}

/// A request in the kernel. The memory that the kernel has addresses of lives until the completion. It lies on the heap, so
/// the slot itself may move.
struct Slot {
    transfer: Transfer,
    iovecs: Vec<libc::iovec>,
    flush: Option<SlotFlush>,
    /// The write's result, until its linked sync completes.
    written: Option<i32>,
}

/// Maker of a request's flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotFlush {
    /// By an entry of this ring, linked to that of the write.
    Own,
    /// Behind the write, with those of other queues.
    Shared,
}

/// Number of the arena among the ring's registered buffers.
const ARENA_INDEX: u16 = 0;

/// Flag beside a slot's number in `user_data`: the completion is that of the linked sync.
const OF_SYNC: u64 = 1 << 32;

impl Ring {
    /// A ring for the calling thread.
    pub fn new(disk: &Disk, wake: Wake) -> io::Result<Ring> {
        let (ring, is_quiet) = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_eventfd(wake.as_fd().as_raw_fd())?;
        let file = disk.file.clone();
        let registered = ring.submitter().register_files(&[file.as_raw_fd()]);
        if let Err(error) = &registered {
            tracing::info!("the disk's file cannot be registered with io_uring: {error}");
        }
        let file = RingFile { file, is_registered: registered.is_ok() };
        let arena = probe.is_supported(opcode::WriteFixed::CODE).then(|| registered_arena(&ring)).flatten();
        Ok(Ring {
            ring,
            file,
            arena,
            slots: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            waiting: VecDeque::new(),
            completions: Vec::new(),
            inbox: Inbox::new(wake.clone()),
            wake,
            is_quiet,
            flag_is_stale: false,
            persistence: disk.persistence,
            flushes: disk.flushes.clone(),
            shares_flushes: disk.shares_flushes,
            flushing: 0,
            sharing: 0,
        })
    }

    pub fn submit(&mut self, transfer: Transfer) {
        if self.under_way == UNDER_WAY_MAX {
            return self.waiting.push_back(transfer);
        }
        self.under_way += 1;
        let flush = self.plan_flush(&transfer);
        let slot = Some(Slot { transfer, iovecs: Vec::new(), flush, written: None });
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

    /// A flush is shared when another queue of the disk flushes, too, and the operator wants it.
    fn plan_flush(&mut self, transfer: &Transfer) -> Option<SlotFlush> {
        let is_flush = matches!(transfer.work, Work::Flush);
        let has_flush = transfer.needs_sync() && self.persistence == Persistence::Flush;
        if !is_flush && !has_flush {
            return None;
        }
        let is_alone = self.flushes.begin() == self.flushing;
        self.flushing += 1;
        Some(if is_alone || !self.shares_flushes { SlotFlush::Own } else { SlotFlush::Shared })
    }

    /// Memory for copies of a write's bytes.
    pub fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.as_ref()
    }

    pub fn under_way(&self) -> usize {
        self.under_way + self.waiting.len()
    }

    /// True if a poll would find completions or submit requests. Reads shared memory only.
    #[allow(unsafe_code, reason = "a look at the queue from a shared reference")]
    pub fn has_news(&self) -> bool {
        // SAFETY: this thread owns the ring, and every other view of this queue ends within the method that makes it.
        let is_pending = unsafe { !self.ring.submission_shared().is_empty() };
        is_pending || self.inbox.has_ended() || self.has_completions()
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
            self.take_shared(out);
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
        } else if slot.has_link() {
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
            Progress::Ended(Ok(_)) if slot.flush == Some(SlotFlush::Shared) => self.share_flush(at),
            Progress::Ended(result) => {
                let fault = |errno| slot.transfer.fault(errno);
                let result = match slot.flush {
                    Some(_) if matches!(slot.transfer.work, Work::Flush) => {
                        let flushed = result.map(drop).map_err(|fault| fault.errno);
                        self.flushes.judge(flushed).map(|()| Bytes::new()).map_err(fault)
                    }
                    Some(_) => result
                        .and_then(|bytes| self.flushes.judge(sync.map(drop)).map(|()| bytes).map_err(fault)),
                    None => result,
                };
                self.end(at, result, out);
            }
        }
    }

    /// The write is done, if it is one.
    fn share_flush(&mut self, at: usize) {
        self.sharing += 1;
        self.flushes.join(&self.inbox, at);
    }

    fn take_shared(&mut self, out: &mut Vec<Completed>) {
        for (at, result) in self.inbox.take() {
            self.sharing -= 1;
            let transfer = &self.slots[at].as_ref().expect("it waits for its flush").transfer;
            let result = result.map(|()| Bytes::new()).map_err(|errno| transfer.fault(errno));
            self.end(at, result, out);
        }
    }

    fn end(&mut self, at: usize, result: Result<Bytes, Fault>, out: &mut Vec<Completed>) {
        let slot = self.slots[at].take().expect("it was under way");
        if slot.flush.is_some() {
            self.flushes.end();
            self.flushing -= 1;
        }
        out.push(Completed { token: slot.transfer.token, result });
        self.free.push(at);
        self.under_way -= 1;
    }

    /// Queues the rest of a transfer for the next system call.
    fn push(&mut self, at: usize) {
        let slot = self.slots[at].as_ref().expect("it was just put there");
        if slot.flush == Some(SlotFlush::Shared) && matches!(slot.transfer.work, Work::Flush) {
            return self.share_flush(at);
        }
        let queue = self.ring.submission();
        let is_full = queue.capacity() - queue.len() < 2;
        drop(queue);
        if is_full {
            self.enter();
        }
        let file = self.file.number();
        let slot = self.slots[at].as_mut().expect("it was just put there");
        let arena = self.arena.as_deref();
        let mut entry = slot.entry(file, arena, self.persistence).user_data(at as u64);
        let mut sync = None;
        if slot.has_link() {
            entry = entry.flags(squeue::Flags::IO_LINK);
            sync = Some(flush(file).user_data(at as u64 | OF_SYNC));
        }
        let flags = self.file.flags();
        for entry in [Some(entry), sync].into_iter().flatten() {
            let entry = entry.flags(flags);
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

impl RingFile {
    fn number(&self) -> types::Fd {
        types::Fd(if self.is_registered { 0 } else { self.file.as_raw_fd() })
    }

    fn flags(&self) -> squeue::Flags {
        if self.is_registered { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() }
    }
}

/// An arena that the kernel has registered as buffer 0, if it allows one.
fn registered_arena(ring: &IoUring) -> Option<Arc<Arena>> {
    let arena = Arena::new();
    // SAFETY: the ring's owner keeps the arena for as long as the ring.
    #[allow(unsafe_code, reason = "the kernel gets an address")]
    let registered = unsafe { ring.submitter().register_buffers(&[arena.iovec()]) };
    match registered {
        Ok(()) => Some(arena),
        Err(error) => {
            tracing::info!("no memory is registered with io_uring, as for its limit (ulimit -l): {error}");
            None
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
    /// True for a write with a linked flush.
    fn has_link(&self) -> bool {
        self.flush == Some(SlotFlush::Own) && self.transfer.needs_sync()
    }

    fn entry(&mut self, file: types::Fd, arena: Option<&Arena>, persistence: Persistence) -> squeue::Entry {
        let offset = self.transfer.offset;
        match &mut self.transfer.work {
            Work::Read { into } => {
                let room = into.spare();
                let len = room.len().min(CALL_LEN_MAX) as u32;
                opcode::Read::new(file, room.as_mut_ptr().cast(), len).offset(offset).build()
            }
            Work::Write { pieces, durability } => {
                let flags = match durability {
                    Durability::Flushed if persistence == Persistence::WriteThrough => libc::RWF_DSYNC,
                    _ => 0,
                };
                if let [only] = pieces.make_contiguous() {
                    let len = only.len().min(CALL_LEN_MAX) as u32;
                    let start = only.as_ptr();
                    return match arena.is_some_and(|arena| arena.contains(only)) {
                        true => opcode::WriteFixed::new(file, start, len, ARENA_INDEX)
                            .offset(offset)
                            .rw_flags(flags)
                            .build(),
                        false => opcode::Write::new(file, start, len).offset(offset).rw_flags(flags).build(),
                    };
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
    /// Waits for the kernel: it writes into memory that the slots own. Nothing waits for shared flushes.
    fn drop(&mut self) {
        self.waiting.clear();
        let mut completed = Vec::new();
        while self.under_way > self.sharing {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("cannot wait for requests in flight, their memory is leaked: {error}");
                return std::mem::forget(std::mem::take(&mut self.slots));
            }
            self.poll(&mut completed);
        }
        (0..self.flushing).for_each(|_| self.flushes.end());
        if self.file.is_registered
            && let Err(error) = self.ring.submitter().unregister_files()
        {
            tracing::warn!("the disk stays locked until the kernel has ended its ring: {error}");
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
