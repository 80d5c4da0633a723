//! [`Role`], a daemon's code on one core, and [`Turn`], its access to the reactor.

use crate::counters::Counters;
use crate::device::Wake;
use machine::net::{NetEffect, NetEvent};
use machine::{CoreId, Time};
use std::sync::Arc;
use std::time::Instant;

/// A daemon's code on one core: the wiring between the network and its machines.
///
/// Every method runs to its end on the reactor's thread and must not block (but see [`Turn::is_caller_alone`]). Effects
/// are queued in [`Turn`] and carried out, in order, when the method returns.
pub trait Role: 'static {
    /// Messages between this daemon's cores, and from other threads to a core.
    type Hop: Send + 'static;

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Self::Hop>);

    fn on_hop(&mut self, hop: Self::Hop, turn: &mut Turn<Self::Hop>);

    /// Called once, before every other method.
    fn on_start(&mut self, _: &mut Turn<Self::Hop>) {}

    /// Called when [`Role::next_deadline`] has passed.
    fn on_deadline(&mut self, turn: &mut Turn<Self::Hop>);

    fn next_deadline(&self) -> Option<Time>;

    /// Called once per turn, after all input and before the sockets are written: the place to submit batches.
    fn on_turn_end(&mut self, _: &mut Turn<Self::Hop>) {}

    /// Called when a turn's messages were written to the sockets and mailed to the other cores, with the time of then. For
    /// figures: effects wait for the next turn.
    fn on_sent(&mut self, _: &mut Turn<Self::Hop>) {}

    /// Wakes of the role's disks. Asked once, after [`Role::on_start`]. All completions at the time of a wake belong to one
    /// turn, and [`Role::on_turn_end`] takes them.
    fn wakes(&self) -> Vec<Wake> {
        Vec::new()
    }

    /// True if a disk has completions, or accepts queued requests. Makes no system call: the reactor asks before it sleeps and
    /// while it polls.
    fn has_news(&self) -> bool {
        false
    }

    /// The reactor ends after this. Messages sent here are written as far as sockets take them at once.
    fn on_stop(&mut self, _: &mut Turn<Self::Hop>) {}
}

/// Access to the reactor while a role is called.
pub struct Turn<H> {
    pub(crate) now: Time,
    /// Time zero of `now`.
    pub(crate) started: Instant,
    pub(crate) core: CoreId,
    pub(crate) core_count: u16,
    pub(crate) net: Vec<NetEffect>,
    pub(crate) hops: Vec<(CoreId, H)>,
    pub(crate) is_caller_alone: bool,
    pub(crate) stop: bool,
    pub(crate) counters: Arc<Counters>,
}

impl<H> Turn<H> {
    /// Time of the turn's start, or of the last [`Turn::read_clock`].
    pub fn now(&self) -> Time {
        self.now
    }

    /// Reads the clock again. For durations that would otherwise end before a long turn began, not for each event.
    pub fn read_clock(&mut self) {
        self.now = time_since(self.started).max(self.now);
    }

    pub fn core(&self) -> CoreId {
        self.core
    }

    pub fn core_count(&self) -> u16 {
        self.core_count
    }

    /// Queues an effect for a connection on any core.
    pub fn net(&mut self, effect: NetEffect) {
        self.net.push(effect);
    }

    /// Posts to the role on another core, or to this one in its next turn.
    pub fn hop(&mut self, to: CoreId, hop: H) {
        self.hops.push((to, hop));
    }

    /// Ends this core's reactor after the turn.
    pub fn stop(&mut self) {
        self.stop = true;
    }

    /// True if recent turns show a single client that waits for each reply; blocking at the end of the turn delays no other
    /// client then. Known in [`Role::on_turn_end`].
    pub fn is_caller_alone(&self) -> bool {
        self.is_caller_alone
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Never [`Time::ZERO`].
pub(crate) fn time_since(started: Instant) -> Time {
    Time((started.elapsed().as_nanos() as u64).saturating_add(1))
}
