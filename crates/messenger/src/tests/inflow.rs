//! Clients that exceed the memory budget: they wait in order, and every request arrives.

use super::fixture::{READ_LEN, World, message};
use crate::inflow::{Inflow, Share};
use bytes::Bytes;
use machine::net::{Credentials, NetEffect, NetEvent, Policy};
use machine::{ConnId, Random};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{Body, MOSDOp, Message, OsdOps};
use wire::types::{EntityKind, EntityName, HObject, OpCode, OsdFlags, OsdOp, PgId, ReqId, SnapId, UTime};

const BUDGET: usize = 300_000;

/// An OSD with a memory budget for requests, and a limit of unfetched replies for each client.
fn osd_with(w: &mut World, budget: usize, unwritten_len_max: usize) -> usize {
    w.add(EntityKind::OSD, 0, |c| {
        c.methods = vec![wire::cephx::METHOD_NONE];
        c.held_len_max = budget;
        c.unwritten_len_max = unwritten_len_max;
    })
}

/// A node that calls the OSD; its connection there is the one with number `n`.
fn connect(w: &mut World, osd: usize, n: u64, kind: EntityKind) -> usize {
    let node = w.add(kind, n as i64, |c| c.methods = vec![wire::cephx::METHOD_NONE]);
    let auth_name = format!("{}.{n}", kind.name());
    let credentials = Credentials::None { auth_name, global_id: n };
    let (to, conn, policy) = (w.addrs(osd), ConnId::outgoing(n), Policy::Lossy);
    w.role(
        node,
        NetEffect::Connect { conn, to, kind: EntityKind::OSD, policy, credentials: credentials.into() },
    );
    node
}

fn ask(w: &mut World, node: usize, n: u64, message: Message) {
    w.role(node, NetEffect::Send { conn: ConnId::outgoing(n), message });
}

/// Messages of all sizes from several clients to one OSD, which is done with a few of them now and then. The most that
/// was held at once.
fn flood(seed: u64, clients: usize, kind: EntityKind) -> usize {
    let mut w = World::new(seed);
    let mut random = Random::from_number(seed);
    let osd = osd_with(&mut w, BUDGET, 16 << 20);
    let (mut sent, mut lens) = (BTreeMap::<i64, Vec<u64>>::new(), BTreeMap::new());
    for n in 1..=clients as u64 {
        let client = connect(&mut w, osd, n, kind);
        for _ in 0..20 {
            let tid = lens.len() as u64 + 1;
            let len = [100, 5_000, 40_000, 120_000][random.below(4) as usize];
            lens.insert(tid, len);
            sent.entry(n as i64).or_default().push(tid);
            ask(&mut w, client, n, message(tid, len));
        }
    }
    let (mut got, mut at_hand, mut most) = (BTreeMap::<i64, Vec<u64>>::new(), Vec::new(), 0);
    let mut peers = BTreeMap::new();
    for _ in 0..10_000 {
        w.run(Duration::from_secs(1));
        for event in std::mem::take(&mut w.nodes[osd].events) {
            match event {
                NetEvent::Ready { conn, peer } => drop(peers.insert(conn, peer.identity.entity().num)),
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
fn clients_wait_when_budget_is_used_up() {
    for seed in 0..20 {
        // What is read at once may be many small messages.
        let most = flood(seed, 5, EntityKind::CLIENT);
        let bound = BUDGET + READ_LEN;
        assert!((BUDGET / 2..=bound).contains(&most), "{most} bytes were held, with {BUDGET} allowed");
    }
}

/// A daemon may be what a client's request waits for.
#[test]
fn daemons_are_outside_the_budget() {
    assert!(flood(1, 5, EntityKind::OSD) > 2 * BUDGET);
}

fn read(tid: u64, len: u64) -> Message {
    let op = MOSDOp {
        pg: PgId { pool: 1, seed: 0 }.into(),
        epoch: 1,
        flags: OsdFlags::ONDISK,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime: UTime { sec: 0, nsec: 0 },
        object: HObject::min(),
        ops: OsdOps::from_iter([OsdOp::extent(OpCode::READ, 0, len, Bytes::new())]),
        snap_seq: SnapId(0),
        snaps: vec![],
        retry_attempt: 0,
        features: 0,
    };
    Message { tid, priority: 127, body: Body::MOSDOp(Box::new(op)) }
}

/// An OSD answers faster than its clients fetch: queued replies stay within bounds, and every client is served.
#[test]
fn clients_that_fetch_nothing_hold_two_budgets_at_most() {
    const CLIENTS: u64 = 4;
    const READS: u64 = 60;
    const LEN: usize = 100 << 10;
    const BUDGET: usize = 4 << 20;
    let mut w = World::new(1);
    let osd = osd_with(&mut w, BUDGET, 16 << 20);
    let clients: Vec<usize> = (1..=CLIENTS).map(|n| connect(&mut w, osd, n, EntityKind::CLIENT)).collect();
    w.run(Duration::from_secs(1));
    w.nodes[osd].is_unheard = true;
    for (n, client) in (1..).zip(clients) {
        for tid in 0..READS {
            ask(&mut w, client, n, read(tid, LEN as u64));
        }
    }
    let mut answered = BTreeMap::<ConnId, usize>::new();
    let mut answer_all = |w: &mut World| {
        loop {
            w.run(Duration::from_secs(1));
            let events = std::mem::take(&mut w.nodes[osd].events);
            let asked = events.into_iter().filter_map(|event| match event {
                NetEvent::Message { conn, message, held } => Some((conn, message.tid, held)),
                _ => None,
            });
            let asked: Vec<_> = asked.collect();
            if asked.is_empty() {
                return answered.clone();
            }
            for (conn, tid, held) in asked {
                drop(held);
                *answered.entry(conn).or_default() += 1;
                w.role(osd, NetEffect::Send { conn, message: message(tid, LEN) });
            }
        }
    };
    let while_unheard = answer_all(&mut w);
    assert_eq!(while_unheard.len(), CLIENTS as usize, "nobody is left out: {while_unheard:?}");
    let bytes = while_unheard.values().sum::<usize>() * LEN;
    // One answer more than its share for each.
    let bound = 2 * BUDGET + CLIENTS as usize * LEN;
    assert!((BUDGET..=bound).contains(&bytes), "{bytes} bytes wait to be fetched, with {BUDGET} allowed");

    w.nodes[osd].is_unheard = false;
    w.role(osd, NetEffect::HoldAtMost(BUDGET));
    let all = answer_all(&mut w);
    assert!(all.len() == CLIENTS as usize && all.values().all(|n| *n == READS as usize), "{all:?}");
}

/// Where there is room, a client has all of it, however many others are connected.
#[test]
fn single_reader_among_idle_clients_has_whole_budget() {
    let mut inflow = Inflow::new(100 << 20);
    inflow.set_sessions(1000);
    let (mut reader, mut other) = (Share::default(), Share::default());
    let _held = inflow.hold(&reader, 0, 60 << 20);
    inflow.note_unwritten(&mut reader, 30 << 20);
    assert!(!inflow.chokes(ConnId(1), &mut reader, 30 << 20, true));
    let _more = inflow.hold(&reader, 0, 20 << 20);
    assert!(inflow.chokes(ConnId(1), &mut reader, 30 << 20, true));
    assert!(!inflow.chokes(ConnId(2), &mut other, 0, true), "it has nothing yet");
    assert_eq!(inflow.take_choked(), [ConnId(1)]);
}

/// Reads and writes of all sizes, an OSD that answers in no order, and clients that fetch its answers now and then:
/// nobody waits for ever.
#[test]
fn waiting_sessions_always_resume() {
    for seed in 0..20 {
        let mut w = World::new(seed);
        let mut random = Random::from_number(seed);
        let osd = osd_with(&mut w, BUDGET, 2 * BUDGET);
        let mut asked = BTreeMap::new();
        for n in 1..=4 {
            let client = connect(&mut w, osd, n, EntityKind::CLIENT);
            for _ in 0..20 {
                let tid = asked.len() as u64 + 1;
                let len = [100, 5_000, 120_000, 500_000][random.below(4) as usize];
                let is_read = random.below(2) == 0;
                asked.insert(tid, if is_read { len } else { 100 });
                let request = if is_read { read(tid, len as u64) } else { message(tid, len) };
                ask(&mut w, client, n, request);
            }
        }
        let (mut at_hand, mut left) = (Vec::new(), asked.len());
        for turn in 0.. {
            assert!(turn < 10_000, "seed {seed}: {left} are never answered");
            w.run(Duration::from_secs(1));
            for event in std::mem::take(&mut w.nodes[osd].events) {
                if let NetEvent::Message { conn, message, held } = event {
                    at_hand.push((conn, message.tid, held));
                }
            }
            if left == 0 {
                break;
            }
            w.nodes[osd].is_unheard = random.below(3) == 0;
            for _ in 0..random.below(4).min(at_hand.len() as u64) {
                let (conn, tid, held) = at_hand.swap_remove(random.below(at_hand.len() as u64) as usize);
                drop(held);
                left -= 1;
                // Now and then a request comes to nothing.
                if random.below(10) > 0 {
                    w.role(osd, NetEffect::Send { conn, message: message(tid, asked[&tid]) });
                }
            }
            // A turn of the host in which nothing else happens.
            w.role(osd, NetEffect::HoldAtMost(BUDGET));
        }
    }
}

/// A client's requests come to nothing, without any answer: the rest of them is looked at all the same.
#[test]
fn dropped_requests_free_the_budget() {
    const READS: u64 = 60;
    const BUDGET: usize = 4 << 20;
    const LEN: usize = 100 << 10;
    let mut w = World::new(1);
    let osd = osd_with(&mut w, BUDGET, 16 << 20);
    let client = connect(&mut w, osd, 1, EntityKind::CLIENT);
    for idle in 2..=4 {
        connect(&mut w, osd, idle, EntityKind::CLIENT);
    }
    (0..READS).for_each(|tid| ask(&mut w, client, 1, read(tid, LEN as u64)));
    let mut come = Vec::new();
    while come.len() < READS as usize {
        w.run(Duration::from_secs(1));
        let mut held_now = Vec::new();
        for event in std::mem::take(&mut w.nodes[osd].events) {
            if let NetEvent::Message { message, held, .. } = event {
                come.push(message.tid);
                held_now.push(held);
            }
        }
        assert!(!held_now.is_empty(), "{} came, and no more", come.len());
        assert!(held_now.len() <= BUDGET / LEN + 1, "{} are more than the budget", held_now.len());
        drop(held_now);
        w.role(osd, NetEffect::HoldAtMost(BUDGET));
    }
    assert!(come.into_iter().eq(0..READS), "in order");
}
