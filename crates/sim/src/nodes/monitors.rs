//! The monitors of a run as every node knows them, and what they share with the checkers.

use super::{Shared, addrs};
use crate::check::Promise;
use crate::check::commands::Commands;
use crate::check::monitors::Agreement;
use machine::Random;
use std::cell::RefCell;
use std::rc::Rc;
use wire::types::EntityAddrVec;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Monitors by place: the founders of the cluster come first, then those that join it later. `mon_host` names all of them.
#[derive(Clone)]
pub struct Monitors {
    addrs: Vec<EntityAddrVec>,
    founders: usize,
    /// Random numbers of the first state, which the founders have in common. `None`: there is one founder, with its own.
    pub(super) genesis: Option<Random>,
    /// `None`: a monitor alone has nobody to agree with.
    pub(super) checks: Option<Checks>,
}

/// The checkers of several monitors.
#[derive(Clone)]
pub struct Checks {
    pub(crate) agreement: Rc<RefCell<Agreement>>,
    pub(crate) commands: Rc<RefCell<Commands>>,
    history: Shared,
}

impl Checks {
    pub fn new(history: Shared) -> Checks {
        Checks { agreement: Rc::default(), commands: Rc::default(), history }
    }

    /// Takes the outcome of a check.
    pub(crate) fn take(&self, outcome: Result<(), (Promise, String)>) {
        if let Err((promise, words)) = outcome {
            self.history.borrow_mut().violation(promise, words);
        }
    }
}

impl Monitors {
    /// One monitor, which is node 0.
    pub fn one() -> Monitors {
        Monitors { addrs: vec![addrs(0, 0)], founders: 1, genesis: None, checks: None }
    }

    /// Monitors with these places in the world.
    pub fn several(nodes: &[usize], founders: usize, genesis: Random, checks: Checks) -> Monitors {
        assert!(founders <= nodes.len() && nodes.len() <= NAMES.len());
        let addrs = nodes.iter().map(|node| addrs(*node, 0)).collect();
        Monitors { addrs, founders, genesis: Some(genesis), checks: Some(checks) }
    }

    pub fn addrs(&self) -> &[EntityAddrVec] {
        &self.addrs
    }

    pub(crate) fn checks(&self) -> Option<&Checks> {
        self.checks.as_ref()
    }

    pub(super) fn founders(&self) -> Vec<(String, EntityAddrVec)> {
        let all = NAMES.iter().zip(&self.addrs).take(self.founders);
        all.map(|(name, addrs)| ((*name).to_owned(), addrs.clone())).collect()
    }

    /// The place of a monitor.
    pub(super) fn place_of(&self, own: &EntityAddrVec) -> usize {
        self.addrs.iter().position(|addrs| addrs == own).expect("a monitor of the run")
    }

    /// The name of the monitor with this place.
    pub(crate) fn name(place: usize) -> &'static str {
        NAMES[place]
    }

    /// The command that takes a monitor out of the cluster.
    pub(crate) fn removal(place: usize) -> String {
        format!(r#"{{"prefix":"mon rm","name":"{}"}}"#, NAMES[place])
    }

    /// A founder's disk is made with the cluster; the others begin with an empty one.
    pub(super) fn is_founder(&self, place: usize) -> bool {
        place < self.founders
    }

    /// The monitors that one of them asks while its disk is empty.
    pub(super) fn seeds_of(&self, place: usize) -> Vec<EntityAddrVec> {
        let others = self.addrs.iter().enumerate().filter(|(other, _)| *other != place);
        others.map(|(_, addrs)| addrs.clone()).collect()
    }
}
