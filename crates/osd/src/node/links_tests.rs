//! Links, effect by effect.

use super::*;
use machine::identity::Identity;
use machine::net::{Held, Peer};
use machine::{ConnId, CoreId};
use wire::types::*;

const PEER: OsdId = OsdId(1);
const CORE: CoreId = CoreId(2);

fn first() -> ConnId {
    ConnId::outgoing_on(CORE, LINK + 1)
}

fn nth(n: u64) -> ConnId {
    ConnId(first().0 + n - 1)
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn addrs(port: u16) -> EntityAddrVec {
    EntityAddr::msgr2(format!("10.0.0.2:{port}").parse().unwrap(), 7).into()
}

/// osd.0 and osd.1 are up, osd.1 at this port for its cluster address.
fn map(port: u16) -> OsdMap {
    let state = OsdState(OsdState::EXISTS | OsdState::UP);
    let row = OsdRow { state, ..OsdRow::default() };
    let mut map = OsdMap { osds: vec![row.clone(), row], ..OsdMap::default() };
    map.osds[1].addrs = OsdAddrs { client: addrs(1), cluster: addrs(port), ..OsdAddrs::default() };
    map
}

fn credentials() -> Option<Box<Credentials>> {
    Some(Box::new(Credentials::None { auth_name: "osd.0".into(), global_id: 5 }))
}

/// `n` tells statements apart.
fn statement(n: Epoch, data_len: usize) -> Outgoing {
    let pg = PgId { pool: 1, seed: 0 }.into();
    let data = bytes::Bytes::from(vec![0; data_len]).into();
    Outgoing::Statement(Box::new(MOSDPeer { pg, epoch: n, interval: 1, body: PeerBody::Probe, data }))
}

fn request() -> MOSDOp {
    MOSDOp {
        pg: PgId { pool: 1, seed: 0 }.into(),
        epoch: 1,
        flags: OsdFlags::READ,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime: UTime::ZERO,
        object: HObject::min(),
        ops: wire::messages::OsdOps::from_vec(vec![OsdOp::bare(OpCode::STAT)]),
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: u64::MAX,
    }
}

fn ready(conn: ConnId) -> NetEvent {
    let addr = EntityAddr::msgr2("10.0.0.2:6800".parse().unwrap(), 7);
    let peer = Peer {
        identity: Identity::of_service(EntityKind::OSD),
        claimed: machine::identity::ClaimedName::new(EntityName::new(EntityKind::OSD, 1)),
        addrs: addr.into(),
        socket: addr,
        features: codec::Features::ALL,
        secure: false,
    };
    NetEvent::Ready { conn, peer: Box::new(peer) }
}

fn closed(conn: ConnId) -> NetEvent {
    NetEvent::Closed { conn, why: CloseReason::Reset }
}

/// Links of core 2 and the map that they follow.
struct Bench {
    links: Links,
    map: OsdMap,
}

#[derive(Debug, PartialEq)]
enum Seen {
    Connect(ConnId, EntityAddrVec),
    Close(ConnId),
    /// The connection, and `n` of [`statement`].
    Sent(ConnId, Epoch),
    Ping(ConnId),
    /// A request's number.
    Asked(ConnId, u64),
    /// The acknowledgement of a backoff, by its number.
    Acknowledged(ConnId, u64),
}
use Seen::{Acknowledged, Asked, Close, Connect, Ping, Sent};

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench { links: Links::new(CORE), map: map(6800) };
        let seen = bench.run(|links, _, out| links.set_credentials(at_ms(0), credentials(), out));
        assert_eq!(seen, ((), vec![]));
        bench
    }

    fn run<R>(&mut self, run: impl FnOnce(&mut Links, &OsdMap, &mut Fx) -> R) -> (R, Vec<Seen>) {
        let mut out = Effects::new();
        let result = run(&mut self.links, &self.map, &mut out);
        self.links.check();
        let see = |effect| match effect {
            Effect::Net(NetEffect::Connect { conn, to, kind, policy, .. }) => {
                assert_eq!((kind, policy), (EntityKind::OSD, Policy::Lossy));
                Some(Connect(conn, to))
            }
            Effect::Net(NetEffect::Close { conn }) => Some(Close(conn)),
            Effect::Net(NetEffect::Send { conn, message }) if matches!(message.body, Body::MPing(_)) => {
                Some(Ping(conn))
            }
            Effect::Net(NetEffect::Send { conn, message }) if matches!(message.body, Body::MOSDOp(_)) => {
                Some(Asked(conn, message.tid))
            }
            Effect::Net(NetEffect::Send { conn, message })
                if matches!(message.body, Body::MOSDBackoff(_)) =>
            {
                let Body::MOSDBackoff(backoff) = message.body else { unreachable!("just seen") };
                assert_eq!(backoff.op, op_value::BACKOFF_ACK_BLOCK);
                Some(Acknowledged(conn, backoff.id))
            }
            Effect::Net(NetEffect::Send { conn, message }) => {
                let Body::MOSDPeer(statement) = &message.body else { panic!("{message:?}") };
                assert_eq!(message.tid, conn.0);
                Some(Sent(conn, statement.epoch))
            }
            Effect::Log { .. } => None,
            other => panic!("{other:?}"),
        };
        (result, out.take().into_iter().filter_map(see).collect())
    }

    fn send(&mut self, ms: u64, n: Epoch) -> Vec<Seen> {
        self.send_large(ms, n, 0)
    }

    fn send_large(&mut self, ms: u64, n: Epoch, len: usize) -> Vec<Seen> {
        self.run(|links, map, out| links.send(at_ms(ms), PEER, statement(n, len), map, out)).1
    }

    /// Returns whether a `LinkReset` is due, too.
    fn net(&mut self, ms: u64, event: NetEvent) -> (bool, Vec<Seen>) {
        let (reset, seen) = self.run(|links, _, out| links.on_net(at_ms(ms), event, out));
        let is_reset = |news: LinkNews| matches!(news, LinkNews::Reset(osd) if osd == PEER);
        (reset.is_some_and(is_reset), seen)
    }

    fn deadline(&mut self, ms: u64) -> Vec<Seen> {
        self.run(|links, _, out| links.on_deadline(at_ms(ms), out)).1
    }

    fn new_map(&mut self, map: OsdMap) -> Vec<Seen> {
        self.map = map;
        self.run(|links, map, out| links.on_map(map, out)).1
    }
}

#[test]
fn first_statement_connects_and_later_ones_keep_order() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(1, 1), [Connect(first(), addrs(6800))]);
    assert_eq!(bench.send(2, 2), []);
    assert_eq!(bench.net(3, ready(first())), (false, vec![Sent(first(), 1), Sent(first(), 2)]));
    assert_eq!(bench.send(4, 3), [Sent(first(), 3)]);
    assert_eq!(bench.links.next_deadline(), Some(at_ms(3) + PING_EVERY));
}

#[test]
fn request_is_answered_and_held_back_over_its_link() {
    let mut bench = Bench::new();
    let asked = Outgoing::Request { tid: 7, request: Box::new(request()) };
    let (_, seen) = bench.run(|links, map, out| links.send(at_ms(0), PEER, asked, map, out));
    assert_eq!(seen, [Connect(first(), addrs(6800))]);
    assert_eq!(bench.net(1, ready(first())), (false, vec![Asked(first(), 7)]));
    let mut take = |message: Message| {
        let event = NetEvent::Message { conn: first(), message, held: Held::default() };
        bench.run(|links, _, out| links.on_net(at_ms(2), event, out))
    };
    let backoff = |op| {
        let (begin, end) = (HObject::min(), HObject::max());
        let pg = PgId { pool: 1, seed: 0 }.into();
        Message::new(MOSDBackoff { pg, epoch: 3, op, id: 9, begin, end })
    };
    let (news, seen) = take(backoff(op_value::BACKOFF_BLOCK));
    assert_eq!((news.is_none(), seen), (true, vec![Acknowledged(first(), 9)]));
    let (news, _) = take(backoff(op_value::BACKOFF_UNBLOCK));
    assert!(matches!(news, Some(LinkNews::LetsGo(PEER))));
    let reply = request().reply(-2, 3, OsdFlags::ACK);
    let (news, _) = take(Message::with_tid(7, reply));
    assert!(matches!(news, Some(LinkNews::Answer { tid: 7, reply }) if reply.result == -2));
}

#[test]
fn ready_connection_is_pinged() {
    let mut bench = Bench::new();
    bench.send(0, 1);
    bench.net(0, ready(first()));
    for n in 1..4 {
        assert_eq!(bench.links.next_deadline(), Some(Time::ZERO + n * PING_EVERY));
        assert_eq!(bench.deadline(300_000 * u64::from(n)), [Ping(first())]);
    }
    bench.net(1_000_000, closed(first()));
    assert_eq!(bench.deadline(1_200_000), []);
    assert_eq!(bench.links.next_deadline(), None);
}

#[test]
fn connection_numbers_differ_from_the_control_machines() {
    let mut config = crate::control::testing::config(1).mon;
    config.monitors = vec![addrs(3300)];
    let mut mon = mon_client::MonSession::new(config, u16::MAX, machine::Random::from_number(1));
    let mut effects = Effects::new();
    mon.start(at_ms(0), &mut effects);
    let connects = effects.take().into_iter().filter_map(|effect| match effect {
        mon_client::Effect::Net(NetEffect::Connect { conn, .. }) => Some(conn),
        _ => None,
    });
    let of_monitor: Vec<ConnId> = connects.collect();
    assert!(!of_monitor.is_empty() && !of_monitor.into_iter().any(Links::owns));
    for n in [1, 2, 1 << 39] {
        assert!(!Links::owns(ConnId::outgoing(n)) && !Links::owns(ConnId::accepted_on(CORE, LINK + n)));
        assert!(!mon.owns(ConnId::outgoing_on(CoreId(0), LINK + n)));
        assert!(Links::owns(ConnId::outgoing_on(CoreId(0), LINK + n)));
    }
    assert_eq!(first().core(), CORE);
}

#[test]
fn statement_to_osd_that_is_down_is_dropped() {
    let mut bench = Bench::new();
    bench.map.osds[1].state = OsdState(OsdState::EXISTS);
    assert_eq!(bench.send(1, 1), []);
    assert!(bench.links.links.is_empty());
}

#[test]
fn break_resets_before_later_statements_leave() {
    let mut bench = Bench::new();
    bench.send(1, 1);
    bench.net(2, ready(first()));
    // After a sound connection the next is made at once, when there is something to send.
    let is_reset = true;
    assert_eq!(bench.net(5000, closed(first())), (is_reset, vec![]));
    assert_eq!(bench.links.retry_at, None);
    assert_eq!(bench.send(5001, 2), [Connect(nth(2), addrs(6800))]);
    assert_eq!(bench.net(5002, ready(nth(2))), (false, vec![Sent(nth(2), 2)]));
    // Events of a connection that has ended mean nothing.
    assert_eq!(bench.net(5003, closed(first())), (false, vec![]));
    assert_eq!(bench.net(5003, ready(first())), (false, vec![]));
}

#[test]
fn failed_connects_keep_the_queue_and_back_off() {
    let mut bench = Bench::new();
    bench.send(0, 1);
    let mut now = 0;
    for (n, pause) in (1..).zip([100, 200, 400, 800, 1600, 2000, 2000]) {
        assert_eq!(bench.net(now, closed(nth(n))), (false, vec![]), "nothing was lost");
        assert_eq!(bench.links.next_deadline(), Some(at_ms(now + pause)));
        assert_eq!(bench.deadline(now + pause - 1), []);
        now += pause;
        assert_eq!(bench.deadline(now), [Connect(nth(n + 1), addrs(6800))]);
    }
    assert_eq!(bench.net(now, ready(nth(8))), (false, vec![Sent(nth(8), 1)]));
}

#[test]
fn connection_that_breaks_early_counts_as_failure() {
    let mut bench = Bench::new();
    bench.send(0, 1);
    for (n, pause) in (1..).zip([0, 100, 200]) {
        bench.net(1000 * n, ready(nth(n)));
        assert_eq!(bench.net(1000 * n + 10, closed(nth(n))), (true, vec![]));
        let seen = bench.send(1000 * n + 10, 2);
        assert_eq!(seen.len(), usize::from(pause == 0), "{seen:?}");
        if pause > 0 {
            let at = 1000 * n + 10 + pause;
            assert_eq!(bench.links.next_deadline(), Some(at_ms(at)));
            assert_eq!(bench.deadline(at), [Connect(nth(n + 1), addrs(6800))]);
        }
    }
}

#[test]
fn overfull_queue_is_dropped_and_resets_when_ready() {
    let mut bench = Bench::new();
    bench.send_large(0, 1, QUEUE_LEN_MAX / 2);
    bench.send_large(1, 2, QUEUE_LEN_MAX / 2);
    assert!(bench.links.links[&PEER].has_overflowed);
    assert_eq!(bench.send(2, 3), []);
    // The link connects although its queue is empty: the LinkReset is due.
    assert_eq!(bench.net(3, closed(first())), (false, vec![]));
    assert_eq!(bench.deadline(103), [Connect(nth(2), addrs(6800))]);
    assert_eq!(bench.net(104, ready(nth(2))), (true, vec![]));
    assert_eq!(bench.send(104, 4), [Sent(nth(2), 4)]);
}

#[test]
fn queue_of_many_small_statements_is_bounded() {
    let mut bench = Bench::new();
    let mut send = |n| {
        // Without [`Bench::run`], whose check walks over all links.
        bench.links.send(at_ms(1), PEER, statement(n, 0), &bench.map, &mut Effects::new());
        bench.links.links[&PEER].has_overflowed
    };
    let fits = QUEUE_LEN_MAX as u32 / 512;
    assert!((0..fits).all(|n| !send(n)));
    assert!(send(fits));
}

#[test]
fn new_address_or_boot_closes_the_link() {
    let mut bench = Bench::new();
    bench.send(1, 1);
    assert_eq!(bench.new_map(map(6800)), [], "the same life");
    assert_eq!(bench.new_map(map(6801)), [Close(first())]);
    // The queue went with the link.
    assert_eq!(bench.send(2, 2), [Connect(nth(2), addrs(6801))]);
    assert_eq!(bench.net(3, ready(nth(2))), (false, vec![Sent(nth(2), 2)]));
    let mut again = map(6801);
    again.osds[1].info.up_from = 9;
    assert_eq!(bench.new_map(again.clone()), [Close(nth(2))]);
    assert_eq!(bench.send(4, 3), [Connect(nth(3), addrs(6801))]);
    again.osds[1].state = OsdState(OsdState::EXISTS);
    assert_eq!(bench.new_map(again), [Close(nth(3))]);
    assert_eq!(bench.net(5, closed(nth(3))), (false, vec![]), "the loss is the map's");
}

#[test]
fn link_waits_for_credentials() {
    let mut bench = Bench::new();
    bench.run(|links, _, out| links.set_credentials(at_ms(0), None, out));
    assert_eq!(bench.send(1, 1), []);
    assert_eq!(bench.links.next_deadline(), None);
    let (_, seen) = bench.run(|links, _, out| links.set_credentials(at_ms(2), credentials(), out));
    assert_eq!(seen, [Connect(first(), addrs(6800))]);
}

#[test]
fn message_from_the_called_osd_is_ignored() {
    let mut bench = Bench::new();
    bench.send(1, 1);
    bench.net(2, ready(first()));
    let message = Message::new(wire::messages::MPing);
    let event = NetEvent::Message { conn: first(), message, held: Held::default() };
    assert_eq!(bench.net(3, event), (false, vec![]));
}
