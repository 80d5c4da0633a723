//! The session against a scripted monitor, in virtual time.

use super::*;
use machine::identity::Proof;
use machine::net::{Grant, Held};
use std::net::SocketAddr;
use wire::cephx::{
    AuthCaps, AuthTicket, GET_PRINCIPAL_SESSION_KEY, GET_ROTATING_KEY, KeyKind, NewTicket, RequestHeader,
    ResponseHeader, RotatingSecret, ServiceTicket, TicketInfo, Usage, seal_to, write_tickets,
};
use wire::messages::{
    MAuthReply, MMonCommand, MMonCommandAck, MMonGetVersion, MMonGetVersionReply, MMonSubscribe, PaxosHeader,
};
use wire::types::{EntityAddr, EntityName, MonInfo, UTime};

/// A session and a clock; what the session wants is looked at by each test.
struct World {
    session: MonSession,
    now: Time,
    random: Random,
}

fn addr(n: u16) -> EntityAddrVec {
    EntityAddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], n)), 0)])
}

fn key(random: &mut Random) -> Key {
    Key { kind: 2, created: UTime::ZERO, secret: random.bytes::<32>().to_vec().into() }
}

fn config(monitors: u16, key: Option<Key>) -> Config {
    Config {
        auth_name: AuthName::new(EntityKind::OSD, "3"),
        key,
        services: EntityKind::OSD.0 as u32,
        rotating_keys: true,
        hostname: "here".into(),
        monitors: (1..=monitors).map(addr).collect(),
        timing: Timing::default(),
    }
}

fn monmap(monitors: u16, epoch: u32) -> MonMap {
    let name = |n: u16| format!("m{n}");
    MonMap {
        fsid: Uuid([7; 16]),
        epoch,
        mons: (1..=monitors)
            .map(|n| (name(n), MonInfo { name: name(n), addrs: addr(n), ..MonInfo::default() }))
            .collect(),
        ranks: (1..=monitors).map(name).collect(),
        ..MonMap::default()
    }
}

fn peer() -> Peer {
    let proof = Proof::none("mon.".parse().unwrap(), 0);
    Peer::identified(proof, EntityName::new(EntityKind::MON, 0), addr(1).0[0]).unwrap()
}

fn validity(seconds: u32) -> UTime {
    UTime { sec: seconds, nsec: 0 }
}

impl World {
    fn new(config: Config) -> World {
        World {
            session: MonSession::new(config, 0, Random::from_number(1)),
            now: Time(5),
            random: Random::from_number(2),
        }
    }

    fn start(&mut self) -> Vec<Effect> {
        let mut fx = Effects::new();
        self.session.start(self.now, &mut fx);
        fx.take()
    }

    fn net(&mut self, event: NetEvent) -> Vec<Effect> {
        let mut fx = Effects::new();
        self.session.step(self.now, Input::Net(event), &mut fx);
        fx.take()
    }

    fn message(&mut self, conn: ConnId, message: Message) -> Vec<Effect> {
        self.net(NetEvent::Message { conn, message, held: Held::default() })
    }

    /// Let time pass to the session's own deadline.
    fn pass_until_deadline(&mut self) -> Vec<Effect> {
        let deadline = self.session.next_deadline().expect("the session waits for something");
        assert!(deadline >= self.now, "a deadline that is past is never dealt with");
        self.now = deadline;
        let mut fx = Effects::new();
        self.session.step(self.now, Input::Deadline, &mut fx);
        fx.take()
    }

    fn ticket(&mut self, service: EntityKind, seconds: u32) -> ServiceTicket {
        let session_key = key(&mut self.random);
        let blob = bytes::Bytes::from_static(b"sealed");
        ServiceTicket {
            service: service.0 as u32,
            session_key,
            blob,
            secret_id: 1,
            validity: validity(seconds),
        }
    }

    /// Let the session in, with an AUTH ticket of three days and an OSD ticket of an hour.
    fn admit(&mut self, conn: ConnId, global_id: u64) -> (Vec<Effect>, Key) {
        let tickets = vec![
            self.ticket(EntityKind::AUTH, 3 * 86400),
            self.ticket(EntityKind::MON, 3 * 86400),
            self.ticket(EntityKind::OSD, 3600),
        ];
        let auth_key = tickets[0].session_key.clone();
        let mut out = self.net(NetEvent::Granted { conn, grant: Grant { global_id, tickets } });
        out.extend(self.net(NetEvent::Ready { conn, peer: Box::new(peer()) }));
        (out, auth_key)
    }

    fn admit_without_keys(&mut self, conn: ConnId) -> Vec<Effect> {
        self.net(NetEvent::Granted { conn, grant: Grant { global_id: 9, tickets: Vec::new() } });
        self.net(NetEvent::Ready { conn, peer: Box::new(peer()) })
    }

    fn give_monmap(&mut self, conn: ConnId, monitors: u16) -> Vec<Effect> {
        let map = MMonMap::new(&monmap(monitors, 4), wire::features::TENTACLE);
        self.message(conn, Message::new(map))
    }
}

fn called(effects: &[Effect]) -> Option<(ConnId, EntityAddrVec, &Credentials)> {
    effects.iter().find_map(|e| match e {
        Effect::Net(NetEffect::Connect { conn, to, credentials, .. }) => {
            Some((*conn, to.clone(), &**credentials))
        }
        _ => None,
    })
}

fn sent(effects: &[Effect]) -> Vec<&Message> {
    let message = |e| match e {
        &Effect::Net(NetEffect::Send { ref message, .. }) => Some(message),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

fn subscription(effects: &[Effect]) -> Vec<(String, u64, bool)> {
    let messages = sent(effects);
    let subscribe = |m: &&Message| match &m.body {
        Body::MMonSubscribe(m) => Some((**m).clone()),
        _ => None,
    };
    let found: Vec<MMonSubscribe> = messages.iter().filter_map(subscribe).collect();
    assert!(found.len() <= 1, "one subscription message at a time");
    found.into_iter().flat_map(|m| m.what).map(|(name, item)| (name, item.start, item.is_onetime())).collect()
}

fn connected(world: &mut World, monitors: u16) -> ConnId {
    let effects = world.start();
    let (conn, ..) = called(&effects).expect("a monitor is called at once");
    world.admit_without_keys(conn);
    world.give_monmap(conn, monitors);
    conn
}

#[test]
fn hunt_calls_every_monitor_and_doubles_the_pause() {
    let mut world = World::new(config(3, None));
    let mut effects = world.start();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let mut round = Vec::new();
        while let Some((conn, to, _)) = called(&effects) {
            assert!(world.session.owns(conn));
            round.push(to);
            effects = world.net(NetEvent::Closed { conn, why: CloseReason::Broken("refused".into()) });
        }
        round.sort_by_key(|a| a.0[0].socket.map(|s| s.port()));
        assert_eq!(round, (1..=3).map(addr).collect::<Vec<_>>());
        let before = world.now;
        effects = world.pass_until_deadline();
        pauses.push((world.now - before).as_millis());
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
}

#[test]
fn silent_monitor_is_given_up_after_timeout() {
    let mut world = World::new(config(2, None));
    let effects = world.start();
    let (first, first_addr, _) = called(&effects).unwrap();
    let effects = world.pass_until_deadline();
    assert_eq!(world.now, Time(5) + Duration::from_secs(3));
    assert!(matches!(effects[0], Effect::Net(NetEffect::Close { conn }) if conn == first));
    let (second, second_addr, _) = called(&effects).unwrap();
    assert_ne!(first_addr, second_addr);
    // What the first one still says is ignored.
    assert!(world.net(NetEvent::Ready { conn: first, peer: Box::new(peer()) }).is_empty());
    assert!(!world.session.is_connected());
    world.admit_without_keys(second);
    assert!(world.session.is_connected());
}

#[test]
fn global_id_is_reclaimed_with_its_ticket() {
    let mut random = Random::from_number(3);
    let mut world = World::new(config(1, Some(key(&mut random))));
    let effects = world.start();
    let (conn, _, credentials) = called(&effects).unwrap();
    let Credentials::Key { reclaim: None, want_services, .. } = credentials else {
        panic!("{credentials:?}")
    };
    assert_eq!(*want_services, (EntityKind::OSD.0 | EntityKind::MON.0) as u32);
    let (effects, auth_key) = world.admit(conn, 4711);
    assert!(effects.iter().any(|e| matches!(e, Effect::Event(Event::Connected { global_id: 4711, .. }))));

    let effects = world.net(NetEvent::Closed { conn, why: CloseReason::Broken("gone".into()) });
    assert!(matches!(effects[0], Effect::Event(Event::Disconnected)));
    let (conn, _, credentials) = called(&effects).unwrap();
    let Credentials::Key { reclaim: Some((4711, ticket)), .. } = credentials else {
        panic!("{credentials:?}")
    };
    assert_eq!(ticket.session_key, auth_key);

    // Denied with the old ticket: the next call shows the key alone.
    let effects = world.net(NetEvent::Closed { conn, why: CloseReason::Denied("no".into()) });
    assert!(matches!(&effects[0], Effect::Event(Event::Denied(why)) if why == "no"));
    let effects = world.pass_until_deadline();
    let (_, _, credentials) = called(&effects).unwrap();
    assert!(matches!(credentials, Credentials::Key { reclaim: None, .. }));
}

#[test]
fn subscriptions_resume_after_reconnect() {
    let mut world = World::new(config(1, None));
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    let mut fx = Effects::new();
    world.session.subscribe("osdmap", 0, &mut fx);
    assert!(fx.is_empty(), "nothing is sent before there is a connection");
    let effects = world.admit_without_keys(conn);
    assert_eq!(subscription(&effects), [("monmap".into(), 0, false), ("osdmap".into(), 0, false)]);

    world.give_monmap(conn, 1);
    world.session.subscribe("mgrmap", 0, &mut fx);
    world.session.subscribe_once("config", 0, &mut fx);
    let effects = fx.take();
    assert_eq!(subscription(&effects[..1]), [("mgrmap".into(), 0, false)]);
    assert_eq!(subscription(&effects[1..]), [("config".into(), 0, true)]);
    let map = MOSDMap { maps: [(12, bytes::Bytes::new())].into(), ..MOSDMap::default() };
    let effects = world.message(conn, Message::new(map));
    assert!(matches!(&effects[..], [Effect::Event(Event::OsdMap(m))] if m.last() == Some(12)));
    world.session.got("config", 0);

    let effects = world.net(NetEvent::Closed { conn, why: CloseReason::Reset });
    let (conn, ..) = called(&effects).unwrap();
    let effects = world.admit_without_keys(conn);
    let expected = [("mgrmap".into(), 0, false), ("monmap".into(), 5, false), ("osdmap".into(), 13, false)];
    assert_eq!(subscription(&effects), expected);
}

fn command() -> MMonCommand {
    MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: Uuid::default(),
        command: vec!["{\"prefix\": \"status\"}".into()],
        input: bytes::Bytes::new(),
    }
}

fn command_ack() -> MMonCommandAck {
    MMonCommandAck {
        paxos: PaxosHeader::default(),
        result: 0,
        status: "fine".into(),
        command: Vec::new(),
        output: bytes::Bytes::new(),
    }
}

#[test]
fn requests_wait_for_fsid_and_are_answered_once() {
    let mut world = World::new(config(1, None));
    let mut fx = Effects::new();
    let id = world.session.request(world.now, command(), None, &mut fx);
    assert!(fx.is_empty());
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    let effects = world.admit_without_keys(conn);
    assert!(!sent(&effects).iter().any(|m| matches!(m.body, Body::MMonCommand(_))));
    let effects = world.give_monmap(conn, 1);
    let is_command =
        |m: &&Message| m.tid == id.0 && matches!(&m.body, Body::MMonCommand(c) if c.fsid == Uuid([7; 16]));
    assert_eq!(sent(&effects).iter().filter(|m| is_command(m)).count(), 1);

    let effects = world.net(NetEvent::Closed { conn, why: CloseReason::Reset });
    let (conn, ..) = called(&effects).unwrap();
    let effects = world.admit_without_keys(conn);
    assert_eq!(sent(&effects).iter().filter(|m| is_command(m)).count(), 1);
    let effects = world.message(conn, Message::with_tid(id.0, command_ack()));
    assert!(
        matches!(&effects[..], [Effect::Event(Event::Answer { id: answered, answer: Ok(_) })] if *answered == id)
    );
    assert!(world.message(conn, Message::with_tid(id.0, command_ack())).is_empty());
}

#[test]
fn request_times_out_without_monitor() {
    let mut world = World::new(config(0, None));
    world.start();
    let mut fx = Effects::new();
    let id = world.session.request(world.now, command(), Some(Duration::from_secs(2)), &mut fx);
    let mut seen = Vec::new();
    while world.now < Time(5) + Duration::from_secs(3) {
        seen.extend(world.pass_until_deadline());
    }
    let expired =
        |e: &&Effect| matches!(e, Effect::Event(Event::Answer { id: i, answer: Err(TimedOut) }) if *i == id);
    assert_eq!(seen.iter().filter(expired).count(), 1);
}

#[test]
fn silent_session_is_pinged_then_left() {
    let mut world = World::new(config(1, None));
    let conn = connected(&mut world, 2);
    let up_at = world.now;
    let effects = world.pass_until_deadline();
    let is_ping = |m: &&Message| matches!(&m.body, Body::MMonGetVersion(m) if m.handle == 0);
    assert_eq!(world.now, up_at + Duration::from_secs(10));
    assert_eq!(sent(&effects).iter().filter(|m| is_ping(m)).count(), 1);
    // An answer keeps it.
    let answer = MMonGetVersionReply { handle: 0, version: 1, oldest_version: 1 };
    assert!(world.message(conn, Message::new(answer)).is_empty());
    let heard_at = world.now;
    let mut pings = 0;
    loop {
        let effects = world.pass_until_deadline();
        pings += sent(&effects).iter().filter(|m| is_ping(m)).count();
        if let Some((_, to, _)) = called(&effects) {
            assert!([addr(1), addr(2)].contains(&to));
            break;
        }
    }
    assert_eq!(world.now, heard_at + Duration::from_secs(30));
    assert_eq!(pings, 2);
}

#[test]
fn left_monitor_is_called_last() {
    let mut world = World::new(config(3, None));
    let mut effects = world.start();
    for _ in 0..20 {
        let (conn, left, _) = called(&effects).unwrap();
        world.admit_without_keys(conn);
        world.give_monmap(conn, 3);
        let mut fx = Effects::new();
        assert!(world.session.leave_monitor(world.now, &mut fx));
        effects = fx.take();
        assert!(matches!(effects[0], Effect::Net(NetEffect::Close { conn: closed }) if closed == conn));
        assert!(matches!(effects[1], Effect::Event(Event::Disconnected)));
        for _ in 0..2 {
            let (conn, other, _) = called(&effects).unwrap();
            assert_ne!(other, left);
            effects = world.net(NetEvent::Closed { conn, why: CloseReason::Broken("refused".into()) });
        }
        assert_eq!(called(&effects).unwrap().1, left);
    }
}

#[test]
fn only_monitor_is_not_left() {
    let mut world = World::new(config(1, None));
    let conn = connected(&mut world, 1);
    let mut fx = Effects::new();
    assert!(!world.session.leave_monitor(world.now, &mut fx));
    assert!(fx.take().is_empty() && world.session.is_connected());
    // Nor is one that is being called.
    world.give_monmap(conn, 2);
    world.net(NetEvent::Closed { conn, why: CloseReason::Broken("gone".into()) });
    assert!(!world.session.leave_monitor(world.now, &mut fx));
    assert!(fx.take().is_empty());
}

#[test]
fn version_request_is_answered() {
    let mut world = World::new(config(1, None));
    let conn = connected(&mut world, 1);
    let mut fx = Effects::new();
    let ask = MMonGetVersion { handle: 0, what: "osdmap".into() };
    let id = world.session.request(world.now, ask, None, &mut fx);
    let effects = fx.take();
    assert!(matches!(&sent(&effects)[0].body, Body::MMonGetVersion(m) if m.handle == id.0));
    let answer = MMonGetVersionReply { handle: id.0, version: 17, oldest_version: 1 };
    let effects = world.message(conn, Message::new(answer));
    let [Effect::Event(Event::Answer { answer: Ok(Body::MMonGetVersionReply(reply)), .. })] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(reply.version, 17);
}

/// The `MAuth` of this kind among the sent messages, read as the monitor reads it.
fn auth_request(effects: &[Effect], kind: u16) -> Option<bytes::Bytes> {
    sent(effects).into_iter().find_map(|m| match &m.body {
        Body::MAuth(m) => {
            let header: RequestHeader = codec::Reader::new(&m.payload).get().unwrap();
            (header.0 == kind).then(|| m.payload.clone())
        }
        _ => None,
    })
}

fn auth_reply(kind: u16, body: impl FnOnce(&mut codec::Writer)) -> Message {
    let mut w = codec::Writer::new(codec::Features::ALL);
    w.put(&ResponseHeader { request: kind, status: 0 });
    body(&mut w);
    Message::new(MAuthReply {
        protocol: 2,
        result: 0,
        global_id: 0,
        payload: w.into_bytes(),
        result_message: String::new(),
    })
}

#[test]
fn service_ticket_renews_with_a_quarter_left() {
    let mut random = Random::from_number(3);
    let own_key = key(&mut random);
    let mut config = config(1, Some(own_key));
    config.rotating_keys = false;
    let mut world = World::new(config);
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    let (effects, auth_key) = world.admit(conn, 4711);
    assert!(
        auth_request(&effects, GET_PRINCIPAL_SESSION_KEY).is_none(),
        "the handshake brought all that was wanted"
    );
    let granted_at = world.now;
    let request = loop {
        let effects = world.pass_until_deadline();
        if let Some(request) = auth_request(&effects, GET_PRINCIPAL_SESSION_KEY) {
            break request;
        }
        let alive = MMonGetVersionReply { handle: 0, version: 1, oldest_version: 1 };
        world.message(conn, Message::new(alive));
    };
    assert_eq!(world.now, granted_at + Duration::from_secs(2700));
    assert_eq!(request[request.len() - 5..], [1, EntityKind::OSD.0, 0, 0, 0], "only what is due");

    let old = match world.session.credentials(world.now, EntityKind::OSD) {
        Some(Credentials::Ticket { ticket, global_id: 4711, .. }) => ticket,
        other => panic!("{other:?}"),
    };
    let caps = AuthCaps::default();
    let name = AuthName::new(EntityKind::OSD, "3").to_string().parse().unwrap();
    let ticket =
        AuthTicket { name, global_id: 4711, created: UTime::ZERO, expires: UTime::ZERO, caps, flags: 0 };
    let fresh = NewTicket {
        service: EntityKind::OSD.0 as u32,
        info: TicketInfo { ticket, session_key: key(&mut random) },
        service_secret: key(&mut random),
        secret_id: 2,
        validity: validity(3600),
    };
    let reply = auth_reply(GET_PRINCIPAL_SESSION_KEY, |w| {
        write_tickets(w, &auth_key, std::slice::from_ref(&fresh), None, &mut random).unwrap();
    });
    let effects = world.message(conn, reply);
    assert!(matches!(&effects[..], [Effect::Event(Event::TicketsRenewed)]));
    match world.session.credentials(world.now, EntityKind::OSD) {
        Some(Credentials::Ticket { ticket, .. }) => {
            assert_ne!(ticket.session_key, old.session_key);
            assert_eq!(ticket.secret_id, 2);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn expired_ticket_is_not_presented() {
    let mut random = Random::from_number(3);
    let mut world = World::new(config(1, Some(key(&mut random))));
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    world.admit(conn, 4711);
    let end = world.now + Duration::from_secs(3600);
    assert!(world.session.credentials(Time(end.0 - 1), EntityKind::OSD).is_some());
    assert!(world.session.credentials(end, EntityKind::OSD).is_none());
    assert!(world.session.credentials(world.now, EntityKind::MDS).is_none());
}

#[test]
fn rotating_keys_are_refetched_within_their_life() {
    let mut random = Random::from_number(3);
    let own_key = key(&mut random);
    assert_eq!(own_key.usable(), Ok(KeyKind::Aes256k));
    let mut world = World::new(config(1, Some(own_key.clone())));
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    let (effects, _) = world.admit(conn, 4711);
    assert!(auth_request(&effects, GET_ROTATING_KEY).is_some());

    // No answer: asked again.
    let asked_at = world.now;
    let effects = world.pass_until_deadline();
    assert_eq!(world.now, asked_at + Duration::from_secs(5));
    assert!(auth_request(&effects, GET_ROTATING_KEY).is_some());

    let mut keys = RotatingKeys::default();
    for expires in [1000, 1040, 1080] {
        keys.rotate(RotatingSecret { key: key(&mut random), expires: validity(expires) });
    }
    let reply = auth_reply(GET_ROTATING_KEY, |w| {
        seal_to(w, &own_key, Usage::RotatingSecret, &keys, &mut random).unwrap();
    });
    let effects = world.message(conn, reply);
    assert!(matches!(&effects[0], Effect::Net(NetEffect::ServiceKeys(k)) if *k == keys));
    assert!(matches!(&effects[1], Effect::Event(Event::RotatingKeys(k)) if *k == keys));
    let got_at = world.now;
    let effects = world.pass_until_deadline();
    assert_eq!(world.now, got_at + Duration::from_secs(10), "four times in the 40 seconds that a key lasts");
    assert!(auth_request(&effects, GET_ROTATING_KEY).is_some());
}

#[test]
fn missing_service_ticket_is_requested_rarely() {
    let mut random = Random::from_number(3);
    let mut config = config(1, Some(key(&mut random)));
    config.services |= EntityKind::MDS.0 as u32;
    config.rotating_keys = false;
    let mut world = World::new(config);
    let effects = world.start();
    let (conn, ..) = called(&effects).unwrap();
    let (effects, auth_key) = world.admit(conn, 4711);
    let request = auth_request(&effects, GET_PRINCIPAL_SESSION_KEY).expect("the handshake did not bring it");
    assert_eq!(request[request.len() - 5..], [1, EntityKind::MDS.0, 0, 0, 0]);
    let reply = auth_reply(GET_PRINCIPAL_SESSION_KEY, |w| {
        write_tickets(w, &auth_key, &[], None, &mut random).unwrap();
    });
    world.message(conn, reply);
    let answered_at = world.now;
    loop {
        let effects = world.pass_until_deadline();
        if auth_request(&effects, GET_PRINCIPAL_SESSION_KEY).is_some() {
            break;
        }
        let alive = MMonGetVersionReply { handle: 0, version: 1, oldest_version: 1 };
        world.message(conn, Message::new(alive));
    }
    assert_eq!(world.now, answered_at + Duration::from_secs(300));
}
