//! shoal's messenger against stock Ceph: its client gets into stock monitors, and stock clients get into it, with
//! every kind of key and in both modes.
//!
//! Uses `ceph-mon`, `ceph-osd` and `ceph` on the `PATH`, and those in the folders that `SHOAL_CEPH18` and `SHOAL_CEPH20`
//! name (entered with `chroot`, so only root can). A release that is not here is skipped with its reason.

mod called;
mod calling;
mod release;

use machine::net::{NetEffect, NetEvent};
use machine::{ConnId, Time};
use messenger::{Config, ModeLists};
use runtime::{Options, Reactors, Role, Turn};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;
use wire::types::{AddrKind, EntityAddr, EntityKind, EntityName};

/// A role that a test drives from outside: events out by a channel, effects in by the mailbox.
struct Remote {
    events: mpsc::Sender<NetEvent>,
}

impl Role for Remote {
    type Hop = NetEffect;

    fn on_net(&mut self, event: NetEvent, _: &mut Turn<NetEffect>) {
        // The test may be over.
        let _ = self.events.send(event);
    }

    fn on_hop(&mut self, effect: NetEffect, turn: &mut Turn<NetEffect>) {
        turn.net(effect);
    }

    fn on_deadline(&mut self, _: &mut Turn<NetEffect>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

struct Node {
    reactors: Reactors<NetEffect>,
    events: mpsc::Receiver<NetEvent>,
}

impl Node {
    fn start(name: EntityName, listener: Option<TcpListener>, change: impl FnOnce(&mut Config)) -> Node {
        let blank = EntityAddr { kind: AddrKind::MSGR2, nonce: std::process::id(), socket: None };
        let addr = listener.as_ref().map_or(blank, |l| EntityAddr::msgr2(l.local_addr().unwrap(), 0));
        let mut session = Config::new(name, addr.into());
        change(&mut session);
        let (sender, events) = mpsc::channel();
        let options = Options {
            idle_poll: std::time::Duration::ZERO,
            cores: 1,
            listeners: listener.into_iter().collect(),
            session,
            seed: rand_seed(),
            name: "test".into(),
        };
        let reactors = Reactors::start(options, move |_, _| Remote { events: sender.clone() }).unwrap();
        Node { reactors, events }
    }

    fn client(modes: &[u32]) -> Node {
        Node::start(EntityName::new(EntityKind::CLIENT, -1), None, |c| c.modes = ModeLists::all(modes))
    }

    fn effect(&self, effect: NetEffect) {
        self.reactors.mailboxes()[0].post(effect);
    }

    fn next(&self) -> NetEvent {
        self.events.recv_timeout(Duration::from_secs(20)).expect("an event in time")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.reactors.stop();
    }
}

const CONN: ConnId = ConnId::outgoing(1);

/// Not secret: these are tests.
fn rand_seed() -> [u8; 32] {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&nanos.to_le_bytes());
    seed
}
