//! Mail between cores: batches, with at most one wake for each.

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
    /// For a connection of that core.
    Net(NetEffect),
    /// A connection that moves to that core.
    Moved {
        stream: TcpStream,
        session: Box<Moved>,
    },
    Stop,
}

/// Mailbox of one core. Any thread may post; the core takes everything at once.
pub struct Mailbox<H> {
    shared: Arc<Shared<H>>,
}

struct Shared<H> {
    mail: Mutex<Vec<Mail<H>>>,
    /// The core was woken for the mail that is there.
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

    /// Posts from a thread that is not a reactor, such as an admin command.
    pub fn post(&self, hop: H) {
        self.post_all(&mut vec![Mail::Hop(hop)]);
    }

    /// Asks the core's role and reactor to end.
    pub fn stop(&self) {
        self.post_all(&mut vec![Mail::Stop]);
    }

    /// Posts a batch. Returns true when the core had to be woken.
    pub(crate) fn post_all(&self, batch: &mut Vec<Mail<H>>) -> bool {
        self.lock().append(batch);
        let wake = !self.shared.noticed.swap(true, Ordering::AcqRel);
        if wake && let Err(error) = self.shared.waker.wake() {
            tracing::error!("cannot wake a core, its mail waits for its next turn: {error}");
        }
        wake
    }

    /// Takes all mail. `into` must be empty; its allocation is left in exchange.
    pub(crate) fn take_all(&self, into: &mut Vec<Mail<H>>) {
        // Lower the flag before taking: mail posted in between is taken now, or wakes the core again.
        if self.shared.noticed.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *self.lock(), into);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Mail<H>>> {
        // No holder of the lock can panic half way through a change.
        self.shared.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
