//! Clients that send more than may be in memory: they wait, in order, and all of it comes.

use super::fixture::{READ_LEN, World, message};
use crate::net::{Credentials, NetEffect, NetEvent, Policy};
use crate::{ConnId, Random};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::EntityKind;

const BUDGET: usize = 300_000;

/// Messages of all sizes from several clients to one OSD, which is done with a few of them now and then. The most that
/// was held at once.
fn flood(seed: u64, clients: usize, kind: EntityKind) -> usize {
    let mut w = World::new(seed);
    let mut random = Random::from_number(seed);
    let none = |c: &mut crate::session::Config| c.methods = vec![wire::cephx::METHOD_NONE];
    let osd = w.add(EntityKind::OSD, 0, |c| {
        none(c);
        c.held_len_max = BUDGET;
    });
    let (mut sent, mut lens) = (BTreeMap::<i64, Vec<u64>>::new(), BTreeMap::new());
    for n in 0..clients {
        let client = w.add(kind, n as i64 + 1, none);
        let credentials = Credentials::None { auth_name: "client.x".into(), global_id: n as u64 + 1 };
        let (to, conn) = (w.addrs(osd), ConnId::outgoing(n as u64));
        w.role(
            client,
            NetEffect::Connect { conn, to, kind: EntityKind::OSD, policy: Policy::Lossy, credentials },
        );
        for _ in 0..20 {
            let tid = lens.len() as u64 + 1;
            let len = [100, 5_000, 40_000, 120_000][random.below(4) as usize];
            lens.insert(tid, len);
            sent.entry(n as i64 + 1).or_default().push(tid);
            w.role(client, NetEffect::Send { conn, message: message(tid, len) });
        }
    }
    let (mut got, mut at_hand, mut most) = (BTreeMap::<i64, Vec<u64>>::new(), Vec::new(), 0);
    let mut peers = BTreeMap::new();
    for _ in 0..10_000 {
        w.run(Duration::from_secs(1));
        for event in std::mem::take(&mut w.nodes[osd].events) {
            match event {
                NetEvent::Ready { conn, peer } => drop(peers.insert(conn, peer.name.num)),
                NetEvent::Message { conn, message, held } => {
                    got.entry(peers[&conn]).or_default().push(message.tid);
                    at_hand.push((message.tid, held));
                }
                other => panic!("{other:?}"),
            }
        }
        most = most.max(at_hand.iter().map(|(tid, _)| lens[tid]).sum());
        let Some(last) = at_hand.len().checked_sub(1) else { break };
        for _ in 0..=random.below(3) {
            if !at_hand.is_empty() {
                at_hand.swap_remove(random.below(at_hand.len() as u64) as usize);
            }
        }
        assert!(last < 10_000);
        // A turn of the host in which nothing else happens.
        w.role(osd, NetEffect::HoldAtMost(BUDGET));
    }
    assert_eq!(got, sent, "everything came, in order");
    most
}

#[test]
fn clients_wait_for_room() {
    for seed in 0..20 {
        // What is read at once may be many small messages.
        let most = flood(seed, 5, EntityKind::CLIENT);
        let bound = BUDGET + READ_LEN;
        assert!((BUDGET / 2..=bound).contains(&most), "{most} bytes were held, with {BUDGET} allowed");
    }
}

/// A daemon may be what a client's request waits for.
#[test]
fn daemons_do_not_wait() {
    assert!(flood(1, 5, EntityKind::OSD) > 2 * BUDGET);
}
