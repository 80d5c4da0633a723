//! Requests carried out by threads that block, for systems where io_uring is not allowed (containers often forbid it),
//! and for what io_uring has no name for.
//!
//! One lock and a wake hand over a turn's requests, one lock takes back what has completed since.

use super::transfer::{Finished, Step, Transfer, Work};
use super::wake::Wake;
use engine::device::Durability;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// For the next poll.
    pending: Vec<Transfer>,
    under_way: usize,
}

struct Shared {
    file: Arc<File>,
    is_block_device: bool,
    jobs: Mutex<Jobs>,
    work: Condvar,
    done: Mutex<Vec<Finished>>,
    has_done: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Transfer>,
    stop: bool,
}

impl Threads {
    pub fn start(file: Arc<File>, is_block_device: bool, wake: Wake, count: usize) -> io::Result<Threads> {
        let shared = Arc::new(Shared {
            file,
            is_block_device,
            jobs: Mutex::default(),
            work: Condvar::new(),
            done: Mutex::default(),
            has_done: AtomicBool::new(false),
            wake,
        });
        let mut threads = Threads { shared, workers: Vec::new(), pending: Vec::new(), under_way: 0 };
        for n in 0..count {
            let shared = threads.shared.clone();
            let builder = std::thread::Builder::new().name(format!("disk-{n}"));
            threads.workers.push(builder.spawn(move || shared.serve())?);
        }
        Ok(threads)
    }

    pub fn submit(&mut self, transfer: Transfer) {
        self.under_way += 1;
        self.pending.push(transfer);
    }

    pub fn has_news(&self) -> bool {
        !self.pending.is_empty() || self.shared.has_done.load(Ordering::Acquire)
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    pub fn poll(&mut self, out: &mut Vec<Finished>) {
        if !self.pending.is_empty() {
            let count = self.pending.len();
            lock(&self.shared.jobs).queue.extend(self.pending.drain(..));
            (0..count.min(self.workers.len())).for_each(|_| self.shared.work.notify_one());
        }
        if self.shared.has_done.swap(false, Ordering::AcqRel) {
            let before = out.len();
            out.append(&mut lock(&self.shared.done));
            self.under_way -= out.len() - before;
        }
    }
}

impl Drop for Threads {
    /// What is under way ends; what has not begun never does.
    fn drop(&mut self) {
        let mut jobs = lock(&self.shared.jobs);
        jobs.stop = true;
        jobs.queue.clear();
        drop(jobs);
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// Nothing that holds these locks can panic half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn serve(&self) {
        while let Some(transfer) = self.next() {
            let finished = self.carry_out(transfer);
            lock(&self.done).push(finished);
            if !self.has_done.swap(true, Ordering::AcqRel) {
                self.wake.signal();
            }
        }
    }

    fn next(&self) -> Option<Transfer> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.stop {
                return None;
            }
            if let Some(transfer) = jobs.queue.pop_front() {
                return Some(transfer);
            }
            jobs = self.work.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, mut transfer: Transfer) -> Finished {
        loop {
            let result = self.call(&mut transfer);
            // SAFETY: a read's result is the system's own count of what it put into the spare room.
            #[allow(unsafe_code, reason = "see there")]
            let step = unsafe { transfer.on_result(result) };
            if let Step::Finished(result) = step {
                return Finished { token: transfer.token, result };
            }
        }
    }

    fn call(&self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let offset = transfer.offset;
        match &mut transfer.work {
            Work::Read { into } => {
                rustix::io::pread(&*self.file, into.spare(), offset).map(|(filled, _)| filled.len())
            }
            Work::Write { pieces, durability } => {
                let slices: Vec<IoSlice> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                let flags = match durability {
                    Durability::Later => ReadWriteFlags::empty(),
                    Durability::Flushed => ReadWriteFlags::DSYNC,
                };
                rustix::io::pwritev2(&*self.file, &slices, offset, flags)
            }
            Work::Flush => rustix::fs::fdatasync(&*self.file).map(|()| 0),
            Work::Discard { len } => self.discard(offset, *len).map(|()| 0),
        }
    }

    /// A disk that knows no discards keeps what it has, which is as good.
    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let result = if self.is_block_device {
            discard_blocks(&self.file, offset, len)
        } else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&*self.file, hole, offset, len)
        };
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => Ok(()),
            other => other,
        }
    }
}

/// `BLKDISCARD`.
fn discard_blocks(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset, len];
    // SAFETY: this request reads two 64-bit numbers, which live until it returns.
    #[allow(unsafe_code, reason = "the request has no safe name")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
