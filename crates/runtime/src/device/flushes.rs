//! Flushes of a disk: their failures are known to all queues to it, and queues may share them.
//!
//! A flush makes durable all that the disk has, whichever queue wrote it. At most one shared flush is under way. Waiters that
//! come meanwhile wait for the next one, which begins after their writes have completed, and all of them share it:
//!
//! ```text
//! queue 1  write ▏────flush 1────▏
//! queue 2     write ▏┄┄waits┄┄┄┄┄▏────flush 2────▏
//! queue 3          write ▏┄waits┄▏────flush 2────▏
//! ```
//!
//! Sharing is the operator's choice: a shared flush takes two wake-ups more and waits for the one under way, which pays where
//! flushes are slow or the kernel does not join them. A queue that alone has something to flush makes the flush itself, linked to its write: that saves a turn of its core (see
//! [`super::ring`]). With several, a thread of the disk makes the flushes, because a core may be busy when one ends and the
//! next one is due. Threads that block take the thread's part when they find no flush under way.
//!
//! **A failed flush is the last one.** The kernel reports a lost write once and then forgets it, so after a failure no later
//! flush can vouch for anything. It and all later ones fail, of every queue.

use super::blocking::sync_file;
use super::wake::Wake;
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Shared by the queues of one disk.
pub(super) struct Flushes {
    shared: Arc<Shared>,
    /// Started when the first queue has to wait for others.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// Calls `fdatasync`; tests put something else here.
    sync: Box<dyn Fn() -> Result<(), Errno> + Send + Sync>,
    /// Flushes and flushed writes of all queues that have not ended, shared or not.
    under_way: AtomicUsize,
    /// Error number of the first failed flush, or 0.
    failure: AtomicI32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of the last shared flush that began, and of the last one that ended.
    begun: u64,
    ended: u64,
    waiting: Vec<Waiting>,
    stop: bool,
}

/// A request of a queue that waits for a flush.
struct Waiting {
    /// The first flush that began after it came.
    flush: u64,
    inbox: Arc<Inbox>,
    request: usize,
}

/// Ended flushes of one queue.
pub(super) struct Inbox {
    ended: Mutex<Vec<(usize, Result<(), Errno>)>>,
    has_ended: AtomicBool,
    wake: Wake,
}

/// No holder of these locks can panic half way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Flushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flushes").field("under_way", &self.shared.under_way).finish_non_exhaustive()
    }
}

impl Flushes {
    pub fn of(file: Arc<File>) -> Flushes {
        Flushes::by(move || sync_file(&file))
    }

    fn by(sync: impl Fn() -> Result<(), Errno> + Send + Sync + 'static) -> Flushes {
        let shared = Shared {
            sync: Box::new(sync),
            under_way: AtomicUsize::new(0),
            failure: AtomicI32::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Flushes { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// A flush or a flushed write of a queue begins. Returns the number of them that were under way.
    pub fn begin(&self) -> usize {
        self.shared.under_way.fetch_add(1, Ordering::Relaxed)
    }

    /// It has ended.
    pub fn end(&self) {
        self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// The result of a flush that a queue made by itself: a failure, if any flush of the disk has failed.
    pub fn judge(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        self.shared.judge(result)
    }

    /// Asks for a flush that begins after this call. The inbox gets its result.
    pub fn join(&self, inbox: &Arc<Inbox>, request: usize) {
        if let Err(error) = self.start_thread() {
            // Blocks this core instead. It happens at the limit of threads only.
            tracing::warn!("cannot start the thread for flushes: {error}");
            return inbox.put([(request, self.flush())]);
        }
        let mut state = lock(&self.shared.state);
        let flush = state.begun + 1;
        state.waiting.push(Waiting { flush, inbox: inbox.clone(), request });
        let is_idle = !state.is_running();
        drop(state);
        if is_idle {
            self.shared.changed.notify_all();
        }
    }

    /// A flush that begins after this call, on the calling thread or with others.
    pub fn flush(&self) -> Result<(), Errno> {
        let mut state = lock(&self.shared.state);
        let needed = state.begun + 1;
        while state.ended < needed {
            state = match state.is_running() {
                true => self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                false => self.shared.lead(state),
            };
        }
        drop(state);
        self.judge(Ok(()))
    }

    fn start_thread(&self) -> io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("disk-flush".into());
            *thread = Some(builder.spawn(move || shared.serve())?);
        }
        Ok(())
    }
}

impl Drop for Flushes {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn is_running(&self) -> bool {
        self.begun > self.ended
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        while !state.stop {
            state = match state.waiting.is_empty() || state.is_running() {
                true => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                false => self.lead(state),
            };
        }
    }

    /// Makes one flush, for all that wait now. None is under way.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.begun += 1;
        let number = state.begun;
        drop(state);
        let result = self.judge((self.sync)());
        let mut state = lock(&self.state);
        state.ended = number;
        // Those that came during a failed flush fail as well: it may have dropped their writes.
        let is_over = |waiting: &Waiting| waiting.flush <= number || result.is_err();
        let (over, left) = std::mem::take(&mut state.waiting).into_iter().partition(is_over);
        state.waiting = left;
        drop(state);
        self.changed.notify_all();
        deliver(over, result);
        lock(&self.state)
    }

    fn judge(&self, result: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(errno) = result {
            // The first one stays.
            let _ =
                self.failure.compare_exchange(0, errno.raw_os_error(), Ordering::AcqRel, Ordering::Acquire);
        }
        match self.failure.load(Ordering::Acquire) {
            0 => result,
            failure => Err(Errno::from_raw_os_error(failure)),
        }
    }
}

/// Puts the results into the queues' inboxes, with one wake for each queue.
fn deliver(mut over: Vec<Waiting>, result: Result<(), Errno>) {
    while let Some(first) = over.first() {
        let inbox = first.inbox.clone();
        let (own, others) = over.into_iter().partition(|waiting| Arc::ptr_eq(&waiting.inbox, &inbox));
        let own: Vec<Waiting> = own;
        inbox.put(own.into_iter().map(|waiting| (waiting.request, result)));
        over = others;
    }
}

impl Inbox {
    pub fn new(wake: Wake) -> Arc<Inbox> {
        Arc::new(Inbox { ended: Mutex::default(), has_ended: AtomicBool::new(false), wake })
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Requests whose flush has ended, with its result.
    pub fn take(&self) -> Vec<(usize, Result<(), Errno>)> {
        match self.has_ended.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut *lock(&self.ended)),
            false => Vec::new(),
        }
    }

    fn put(&self, ended: impl IntoIterator<Item = (usize, Result<(), Errno>)>) {
        lock(&self.ended).extend(ended);
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.wake.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Flushes that begin when they are called and end when the test says so.
    fn held() -> (Flushes, Receiver<()>, Sender<Result<(), Errno>>) {
        let ((has_begun, begun), (end, ends)) = (channel(), channel());
        let (has_begun, ends) = (Mutex::new(has_begun), Mutex::new(ends));
        let flushes = Flushes::by(move || {
            lock(&has_begun).send(()).expect("the test listens");
            lock(&ends).recv_timeout(PATIENCE).expect("the test ends every flush")
        });
        (flushes, begun, end)
    }

    fn inbox() -> Arc<Inbox> {
        Inbox::new(Wake::new().unwrap())
    }

    fn taken(inbox: &Inbox) -> Vec<(usize, Result<(), Errno>)> {
        inbox.wake.wait(PATIENCE).unwrap();
        inbox.take()
    }

    #[test]
    fn waiters_during_a_flush_share_the_next_one() {
        let (flushes, begun, end) = held();
        let (first, second, third) = (inbox(), inbox(), inbox());
        flushes.join(&first, 1);
        begun.recv_timeout(PATIENCE).unwrap();
        flushes.join(&second, 2);
        flushes.join(&third, 3);
        flushes.join(&third, 4);
        end.send(Ok(())).unwrap();
        assert_eq!(taken(&first), [(1, Ok(()))]);
        begun.recv_timeout(PATIENCE).unwrap();
        // The flush that ended had begun before they came.
        assert!(!second.has_ended() && !third.has_ended());
        end.send(Ok(())).unwrap();
        assert_eq!(taken(&second), [(2, Ok(()))]);
        assert_eq!(taken(&third), [(3, Ok(())), (4, Ok(()))]);
        assert!(begun.try_recv().is_err(), "two flushes for four requests");
    }

    #[test]
    fn queue_goes_on_after_the_flush_of_a_blocked_thread() {
        let (flushes, begun, end) = held();
        let inbox = inbox();
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| flushes.flush());
            begun.recv_timeout(PATIENCE).unwrap();
            flushes.join(&inbox, 1);
            end.send(Ok(())).unwrap();
            assert_eq!(blocked.join().unwrap(), Ok(()));
        });
        begun.recv_timeout(PATIENCE).unwrap();
        assert!(!inbox.has_ended());
        end.send(Ok(())).unwrap();
        assert_eq!(taken(&inbox), [(1, Ok(()))]);
    }

    #[test]
    fn failed_flush_fails_those_that_came_during_it_and_later() {
        let (flushes, begun, end) = held();
        let (first, second) = (inbox(), inbox());
        flushes.join(&first, 1);
        begun.recv_timeout(PATIENCE).unwrap();
        flushes.join(&second, 2);
        end.send(Err(Errno::IO)).unwrap();
        assert_eq!(taken(&first), [(1, Err(Errno::IO))]);
        assert_eq!(taken(&second), [(2, Err(Errno::IO))]);
        // The kernel has forgotten the error.
        end.send(Ok(())).unwrap();
        assert_eq!(flushes.flush(), Err(Errno::IO));
        assert_eq!(flushes.judge(Ok(())), Err(Errno::IO));
    }

    #[test]
    fn failure_of_a_queue_s_own_flush_is_known_to_all() {
        let flushes = Flushes::by(|| Ok(()));
        assert_eq!(flushes.flush(), Ok(()));
        assert_eq!(flushes.judge(Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(flushes.judge(Err(Errno::IO)), Err(Errno::NOSPC), "the first one");
        assert_eq!(flushes.flush(), Err(Errno::NOSPC));
    }

    #[test]
    fn count_tells_whether_others_flush() {
        let flushes = Flushes::by(|| Ok(()));
        assert_eq!((flushes.begin(), flushes.begin()), (0, 1));
        flushes.end();
        assert_eq!(flushes.begin(), 1);
    }
}
