//! What a daemon implements, and what it may do.

use crate::counters::Counters;
use crate::device::Wake;
use machine::net::{NetEffect, NetEvent};
use machine::{CoreId, Time};
use std::sync::Arc;

/// A daemon's part on one core: the wiring between the network and its machines.
///
/// Every method runs to its end on the reactor's thread and must not block (but see [`Turn::is_caller_alone`]). What it wants is said through [`Turn`]
/// and done when it returns, in order.
pub trait Role: 'static {
    /// What this daemon's roles say to each other across cores, and what other threads say to them.
    type Hop: Send + 'static;

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Self::Hop>);

    fn on_hop(&mut self, hop: Self::Hop, turn: &mut Turn<Self::Hop>);

    /// Called once, before anything else.
    fn on_start(&mut self, _: &mut Turn<Self::Hop>) {}

    /// Called when [`Role::next_deadline`] has passed.
    fn on_deadline(&mut self, turn: &mut Turn<Self::Hop>);

    fn next_deadline(&self) -> Option<Time>;

    /// Called once a turn, after everything that came in it and before anything is written: the place to start
    /// what is better done for many at once.
    fn on_turn_end(&mut self, _: &mut Turn<Self::Hop>) {}

    /// What wakes the reactor besides the network, other cores and deadlines: the role's disks. Asked once, after
    /// [`Role::on_start`]. However much has completed, it is one turn, and [`Role::on_turn_end`] takes it all.
    fn wakes(&self) -> Vec<Wake> {
        Vec::new()
    }

    /// Whether one of them has something to take or to be given, found without a system call: asked before the reactor
    /// sleeps, and while it looks around for a moment.
    fn has_news(&self) -> bool {
        false
    }

    /// The reactor ends after this. What is sent here is still written, as far as sockets take it at once.
    fn on_stop(&mut self, _: &mut Turn<Self::Hop>) {}
}

/// What a role may do while it is called.
pub struct Turn<H> {
    pub(crate) now: Time,
    pub(crate) core: CoreId,
    pub(crate) core_count: u16,
    pub(crate) net: Vec<NetEffect>,
    pub(crate) hops: Vec<(CoreId, H)>,
    pub(crate) is_caller_alone: bool,
    pub(crate) stop: bool,
    pub(crate) counters: Arc<Counters>,
}

impl<H> Turn<H> {
    /// Read once a turn.
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn core(&self) -> CoreId {
        self.core
    }

    pub fn core_count(&self) -> u16 {
        self.core_count
    }

    /// For a connection on any core.
    pub fn net(&mut self, effect: NetEffect) {
        self.net.push(effect);
    }

    /// To the role on another core, or to this one in its next turn.
    pub fn hop(&mut self, to: CoreId, hop: H) {
        self.hops.push((to, hop));
    }

    /// End this core's reactor after the turn.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// Whether, as far as one can tell, what comes to this core comes from one caller, who waits for each answer. While
    /// the turn ends, nobody else is kept waiting then. Known in [`Role::on_turn_end`].
    pub fn is_caller_alone(&self) -> bool {
        self.is_caller_alone
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
