//! Requests on threads that block: for systems that forbid io_uring, as many containers do, and for requests that io_uring
//! lacks.
//!
//! One lock and a wake submit all requests of a turn; one lock takes all completions.

use super::blocking::Blocking;
use super::transfer::{Completed, Transfer};
use super::wake::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Submitted with the next poll.
    pending: Vec<Transfer>,
    under_way: usize,
}

struct Shared {
    disk: Blocking,
    jobs: Mutex<Jobs>,
    work: Condvar,
    done: Mutex<Vec<Completed>>,
    has_done: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Transfer>,
    stop: bool,
}

impl Threads {
    pub fn start(disk: Blocking, wake: Wake, count: usize) -> io::Result<Threads> {
        let shared = Arc::new(Shared {
            disk,
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

    pub fn poll(&mut self, out: &mut Vec<Completed>) {
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
    /// Requests in flight end; queued ones are dropped.
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

/// No holder of these locks can panic half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn serve(&self) {
        while let Some(transfer) = self.next() {
            let completed = self.disk.carry_out(transfer);
            lock(&self.done).push(completed);
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
}
