//! From one core to another: batches, and one wake for each.

use machine::net::NetEffect;
use messenger::Moved;
use mio::Waker;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[allow(clippy::large_enum_variant, reason = "moving a few hundred bytes is cheaper than boxing each reply")]
pub(crate) enum Mail<H> {
    /// From a role to a role.
    Hop(H),
    /// For a connection that lives there.
    Net(NetEffect),
    /// A connection that shall live there.
    Moved {
        stream: TcpStream,
        session: Box<Moved>,
    },
    Stop,
}

/// Where mail for one core is left. Any thread may post; the core takes everything at once.
pub struct Mailbox<H> {
    shared: Arc<Shared<H>>,
}

struct Shared<H> {
    mail: Mutex<Vec<Mail<H>>>,
    /// The core knows that there is mail, or is about to look.
    noticed: AtomicBool,
    waker: Waker,
}

impl<H> Clone for Mailbox<H> {
    fn clone(&self) -> Self {
        Mailbox { shared: self.shared.clone() }
    }
}

impl<H> Mailbox<H> {
    pub(crate) fn new(waker: Waker) -> Mailbox<H> {
        let (mail, noticed) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Mailbox { shared: Arc::new(Shared { mail, noticed, waker }) }
    }

    /// From a thread that is no reactor: a disk's completion, an admin command.
    pub fn post(&self, hop: H) {
        self.post_all(&mut vec![Mail::Hop(hop)]);
    }

    /// Ask this core's role, and the reactor, to end.
    pub fn stop(&self) {
        self.post_all(&mut vec![Mail::Stop]);
    }

    /// Leave a batch. True when the core had to be woken.
    pub(crate) fn post_all(&self, batch: &mut Vec<Mail<H>>) -> bool {
        self.lock().append(batch);
        let wake = !self.shared.noticed.swap(true, Ordering::AcqRel);
        if wake && let Err(error) = self.shared.waker.wake() {
            tracing::error!("cannot wake a core: {error}");
        }
        wake
    }

    /// Everything that was left. `into` must be empty; its room is left in exchange.
    pub(crate) fn take_all(&self, into: &mut Vec<Mail<H>>) {
        // First lower the flag, then look: what is posted in between is taken now or wakes us again.
        if self.shared.noticed.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *self.lock(), into);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Mail<H>>> {
        // Nothing that holds the lock can panic half way through a change.
        self.shared.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
