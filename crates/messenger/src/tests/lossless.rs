//! Lossless sessions: nothing is lost or seen twice, wherever a socket breaks.

use super::fixture::*;
use crate::Config;
use machine::ConnId;
use machine::net::*;
use proptest::prelude::*;
use std::time::Duration;
use wire::cephx::METHOD_NONE;
use wire::types::EntityKind;

const CONN: ConnId = ConnId::outgoing(1);

fn open(accept: bool) -> impl Fn(&mut Config) {
    move |c: &mut Config| {
        c.methods = vec![METHOD_NONE];
        c.accept_policy_default = if accept { Policy::LosslessPeer } else { Policy::LosslessServer };
    }
}

fn connect(w: &mut World, from: usize, to: usize, policy: Policy) {
    let (to, kind) = (w.addrs(to), w.nodes[to].endpoint.config().name.kind);
    let name = w.nodes[from].endpoint.config().name;
    let credentials = Credentials::None { auth_name: name.to_string(), global_id: name.num as u64 };
    w.role(from, NetEffect::Connect { conn: CONN, to, kind, policy, credentials: credentials.into() });
}

/// Two nodes talk both ways over a session of `policy`; one socket breaks at the given byte of all that is carried.
/// Says how many bytes were carried.
fn talk(seed: u64, policy: Policy, cut_at: Option<u64>) -> u64 {
    let mut w = World::new(seed);
    let a = w.add(EntityKind::OSD, 0, open(policy == Policy::LosslessPeer));
    let b = w.add(EntityKind::OSD, 1, open(policy == Policy::LosslessPeer));
    w.cut_at = cut_at;
    connect(&mut w, a, b, policy);
    for n in 0..4 {
        w.role(a, NetEffect::Send { conn: CONN, message: message(n, 50) });
    }
    w.run(Duration::from_secs(1));
    for n in 4..8 {
        w.role(a, NetEffect::Send { conn: CONN, message: message(n, 50) });
        if let Some((conn, _)) = w.nodes[b].peers().pop() {
            w.role(b, NetEffect::Send { conn, message: message(100 + n, 50) });
        }
        w.run(Duration::from_millis(1));
    }
    w.run(Duration::from_secs(60));
    assert_eq!(w.nodes[b].received(), (0..8).collect::<Vec<_>>(), "seed {seed} cut {cut_at:?}");
    assert_eq!(w.nodes[a].received(), (104..108).collect::<Vec<_>>(), "seed {seed} cut {cut_at:?}");
    assert_eq!((w.nodes[a].peers().len(), w.nodes[b].peers().len()), (1, 1), "ready once");
    assert!(w.nodes[a].closed().is_empty() && w.nodes[b].closed().is_empty(), "{:?}", w.nodes[a].closed());
    w.carried
}

#[test]
fn socket_broken_at_any_byte_loses_no_message() {
    for policy in [Policy::LosslessClient, Policy::LosslessPeer] {
        let carried = talk(1, policy, None);
        for cut in 0..carried {
            talk(1, policy, Some(cut));
        }
    }
}

#[test]
fn idle_lossless_session_reconnects_after_break() {
    let mut w = World::new(3);
    let a = w.add(EntityKind::CLIENT, 1, open(false));
    let b = w.add(EntityKind::MDS, 0, open(false));
    connect(&mut w, a, b, Policy::LosslessClient);
    w.run(Duration::from_secs(1));
    for round in 0..5 {
        w.cut_all();
        w.run(Duration::from_secs(1));
        w.role(a, NetEffect::Send { conn: CONN, message: message(round, 0) });
        w.run(Duration::from_secs(1));
    }
    assert_eq!(w.nodes[b].received(), (0..5).collect::<Vec<_>>());
    assert_eq!(w.nodes[b].peers().len(), 1);
}

#[test]
fn peer_without_the_session_resets_it_once() {
    let mut w = World::new(4);
    let a = w.add(EntityKind::CLIENT, 1, open(false));
    let b = w.add(EntityKind::MDS, 0, open(false));
    connect(&mut w, a, b, Policy::LosslessClient);
    w.run(Duration::from_secs(1));
    let (conn, _) = w.nodes[b].peers().pop().unwrap();
    w.role(b, NetEffect::Close { conn });
    w.run(Duration::from_secs(5));
    assert_eq!(w.nodes[a].closed(), [CloseReason::Reset]);
    assert_eq!(w.nodes[a].endpoint.session_count(), 0);
}

#[test]
fn client_starting_over_resets_server_session() {
    let mut w = World::new(5);
    let a = w.add(EntityKind::CLIENT, 1, open(false));
    let b = w.add(EntityKind::MDS, 0, open(false));
    connect(&mut w, a, b, Policy::LosslessClient);
    w.run(Duration::from_secs(1));
    w.role(a, NetEffect::Close { conn: CONN });
    connect(&mut w, a, b, Policy::LosslessClient);
    w.role(a, NetEffect::Send { conn: CONN, message: message(9, 0) });
    w.run(Duration::from_secs(5));
    assert_eq!(w.nodes[b].closed(), [CloseReason::Reset]);
    assert_eq!(w.nodes[b].peers().len(), 2);
    assert_eq!(w.nodes[b].received(), [9]);
    assert_eq!(w.nodes[b].endpoint.session_count(), 1);
}

#[test]
fn crossing_calls_become_one_session() {
    let mut w = World::new(6);
    let a = w.add(EntityKind::OSD, 0, open(true));
    let b = w.add(EntityKind::OSD, 1, open(true));
    connect(&mut w, a, b, Policy::LosslessPeer);
    connect(&mut w, b, a, Policy::LosslessPeer);
    for n in 0..4 {
        w.role(a, NetEffect::Send { conn: CONN, message: message(n, 10) });
        w.role(b, NetEffect::Send { conn: CONN, message: message(100 + n, 10) });
    }
    w.run(Duration::from_secs(60));
    assert_eq!(w.nodes[b].received(), [0, 1, 2, 3]);
    assert_eq!(w.nodes[a].received(), [100, 101, 102, 103]);
    for n in [a, b] {
        assert_eq!(w.nodes[n].endpoint.session_count(), 1);
        assert_eq!(w.nodes[n].peers().iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [CONN]);
        assert!(w.nodes[n].closed().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn repeated_breaks_lose_no_message(
        seed: u64,
        crossing: bool,
        breaks in proptest::collection::vec((0u64..3000, 0u64..400), 0..6),
    ) {
        let mut w = World::new(seed);
        let a = w.add(EntityKind::OSD, 0, open(true));
        let b = w.add(EntityKind::OSD, 1, open(true));
        connect(&mut w, a, b, Policy::LosslessPeer);
        if crossing {
            connect(&mut w, b, a, Policy::LosslessPeer);
        }
        let mut sent = 0;
        for (at, wait_ms) in breaks {
            w.cut_at = Some(w.carried + at);
            for _ in 0..3 {
                w.role(a, NetEffect::Send { conn: CONN, message: message(sent, 20) });
                if let Some((conn, _)) = w.nodes[b].peers().pop() {
                    w.role(b, NetEffect::Send { conn, message: message(1000 + sent, 20) });
                }
                sent += 1;
            }
            w.run(Duration::from_millis(wait_ms));
        }
        w.cut_at = None;
        w.run(Duration::from_secs(120));
        prop_assert_eq!(w.nodes[b].received(), (0..sent).collect::<Vec<_>>());
        let got = w.nodes[a].received();
        prop_assert!(got.windows(2).all(|p| p[0] < p[1]), "in order, once: {:?}", got);
        prop_assert!(w.nodes[a].closed().is_empty() && w.nodes[b].closed().is_empty());
    }
}
