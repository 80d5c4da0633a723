//! Real disks: [`BlockDevice`] on a file or a block device, past the page cache.
//!
//! [`Disk`] is the open, locked device. Each core has a [`Queue`] to it; queues share the file, or its lock, and flushes.
//!
//! ```text
//! submit ─▶ transfer (aligned memory) ─▶ ring      io_uring, one call per turn
//!                                      ├▶ threads   where io_uring is not allowed
//!                                      └▶ waiting   a blocking call on the core, for a single client
//! completion ─▶ wake (an eventfd) ─▶ turn of the reactor ─▶ poll ─▶ Done
//! ```

mod aligned;
mod arena;
mod blocking;
mod flushes;
mod open;
mod persistence;
mod ring;
mod rotation;
mod sysfs;
mod threads;
mod transfer;
mod waiting;
mod wake;

pub use open::{Disk, OpenError};
pub use persistence::{FlushPolicy, Persistence, WriteCache};
pub use rotation::{Rotation, RotationPolicy, of_device as rotation_of};
pub use wake::Wake;

use blocking::Blocking;
use device::{BlockDevice, DeviceError, Done, Request};
use ring::Ring;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use threads::Threads;
use transfer::{Completed, Transfer, Work};
use waiting::Waiting;

/// Environment variable that disables io_uring, whatever its value.
pub const NO_RING_VARIABLE: &str = "SHOAL_NO_IO_URING";
/// Threads of a queue without io_uring: its greatest number of requests in flight.
const THREADS: usize = 8;
/// Faults that are all logged; of later ones only the 64th, 128th, 256th … is.
const FAULTS_LOGGED: u64 = 32;

/// Path of requests to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Ring,
    Threads,
}

/// Requests of one core to a disk. It stays on the thread that made it. Clones are the same queue: the store has one, and
/// the host keeps one to ask for news.
///
/// Dropping the last clone waits for requests in flight. Their results are lost.
#[derive(Clone)]
pub struct Queue {
    size: u64,
    wake: Wake,
    state: Rc<RefCell<State>>,
}

struct State {
    disk: Disk,
    transport: Transport,
    /// Thread for discards beside a ring: io_uring has no discards of block devices before Linux 6.12, and uses a thread for
    /// those of files.
    discards: Option<Threads>,
    waiting: Waiting,
    wake: Wake,
    completed: Vec<Completed>,
    faults: u64,
}

enum Transport {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Disk {
    /// A queue for the calling thread: io_uring where the system allows it, threads elsewhere.
    pub fn queue(&self) -> io::Result<Queue> {
        self.queue_with(Wake::new()?)
    }

    /// A queue as [`Disk::queue`], which signals `wake`: several queues of a thread may share one.
    pub fn queue_with(&self, wake: Wake) -> io::Result<Queue> {
        if std::env::var_os(NO_RING_VARIABLE).is_some() {
            return self.queue_through(Method::Threads, wake);
        }
        match self.queue_through(Method::Ring, wake.clone()) {
            Err(error) => {
                tracing::info!("{}: io_uring is not available ({error}): using threads", self.path.display());
                self.queue_through(Method::Threads, wake)
            }
            ring => ring,
        }
    }

    pub fn queue_by(&self, method: Method) -> io::Result<Queue> {
        self.queue_through(method, Wake::new()?)
    }

    fn queue_through(&self, method: Method, wake: Wake) -> io::Result<Queue> {
        let disk = self.for_queue()?;
        let transport = match method {
            Method::Ring => {
                let ring = Ring::new(&disk, wake.clone())?;
                Transport::Ring(Box::new(ring))
            }
            Method::Threads => Transport::Threads(disk.threads(&wake, THREADS)?),
        };
        let state = State {
            transport,
            discards: None,
            waiting: Waiting::new(disk.blocking()),
            disk,
            wake: wake.clone(),
            completed: Vec::new(),
            faults: 0,
        };
        Ok(Queue { size: self.size(), wake, state: Rc::new(RefCell::new(state)) })
    }

    fn threads(&self, wake: &Wake, count: usize) -> io::Result<Threads> {
        Threads::start(self.blocking(), wake.clone(), count)
    }

    fn blocking(&self) -> Blocking {
        Blocking {
            file: self.file.clone(),
            is_block_device: self.is_block_device(),
            persistence: self.persistence,
            flushes: self.flushes.clone(),
            shares_flushes: self.shares_flushes,
        }
    }
}

impl Queue {
    pub fn method(&self) -> Method {
        match self.state.borrow().transport {
            Transport::Ring(_) => Method::Ring,
            Transport::Threads(_) => Method::Threads,
        }
    }

    /// Signalled when a request completes.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Allows the thread to block until a write is on the disk: there is no other client to serve.
    pub fn may_wait(&mut self, may_wait: bool) {
        self.state.borrow_mut().waiting.allow(may_wait);
    }

    /// True if a poll would find completions or submit requests. Makes no system call.
    pub fn has_news(&self) -> bool {
        let state = self.state.borrow();
        let main = match &state.transport {
            Transport::Ring(ring) => ring.has_news(),
            Transport::Threads(threads) => threads.has_news(),
        };
        main || !state.completed.is_empty()
            || state.waiting.has_one()
            || state.discards.as_ref().is_some_and(Threads::has_news)
    }
}

impl BlockDevice for Queue {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&mut self, token: u64, request: Request) {
        request.check(self.size);
        self.state.borrow_mut().submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        self.state.borrow_mut().poll(out)
    }
}

impl State {
    fn submit(&mut self, token: u64, request: Request) {
        if matches!(request, Request::Flush) && self.disk.persistence == Persistence::Completion {
            // Every write that has completed is durable.
            return self.completed.push(Completed { token, result: Ok(bytes::Bytes::new()) });
        }
        let arena = match &self.transport {
            Transport::Ring(ring) => ring.arena(),
            Transport::Threads(_) => None,
        };
        let transfer = Transfer::new(token, request, self.disk.alignment, arena);
        if let Some(other) = self.waiting.take() {
            self.hand_over(other);
        }
        if self.under_way() == 0 && self.waiting.wants(&transfer) {
            return self.waiting.put(transfer);
        }
        self.hand_over(transfer);
    }

    fn hand_over(&mut self, transfer: Transfer) {
        let is_discard = matches!(transfer.work, Work::Discard { .. });
        match &mut self.transport {
            Transport::Ring(_) if is_discard => self.discard(transfer),
            Transport::Ring(ring) => ring.submit(transfer),
            Transport::Threads(threads) => threads.submit(transfer),
        }
    }

    fn poll(&mut self, out: &mut Vec<Done>) -> bool {
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.waiting.carry_out());
        match &mut self.transport {
            Transport::Ring(ring) => ring.poll(&mut completed),
            Transport::Threads(threads) => threads.poll(&mut completed),
        }
        if let Some(discards) = &mut self.discards {
            discards.poll(&mut completed);
        }
        for Completed { token, result } in completed.drain(..) {
            let result = result.map_err(|fault| {
                self.log(&fault);
                DeviceError::from(fault)
            });
            out.push(Done { token, result });
        }
        self.completed = completed;
        self.under_way() > 0
    }

    fn under_way(&self) -> usize {
        let main = match &self.transport {
            Transport::Ring(ring) => ring.under_way(),
            Transport::Threads(threads) => threads.under_way(),
        };
        main + self.discards.as_ref().map_or(0, Threads::under_way)
    }

    fn discard(&mut self, transfer: Transfer) {
        if self.discards.is_none() {
            match self.disk.threads(&self.wake, 1) {
                Ok(threads) => self.discards = Some(threads),
                Err(error) => {
                    // A discard is a hint: it may be skipped.
                    tracing::warn!("cannot start the thread for discards, they are skipped: {error}");
                    self.completed.push(Completed { token: transfer.token, result: Ok(bytes::Bytes::new()) });
                    return self.wake.signal();
                }
            }
        }
        if let Some(threads) = &mut self.discards {
            threads.submit(transfer);
        }
    }

    fn log(&mut self, fault: &transfer::Fault) {
        self.faults += 1;
        if self.faults <= FAULTS_LOGGED || self.faults.is_power_of_two() {
            let transfer::Fault { operation, offset, errno } = fault;
            let path = self.disk.path.display();
            tracing::error!(
                "{path}: {operation} at byte {offset} failed: {errno} (fault {} of this queue)",
                self.faults
            );
        }
    }
}
