//! One core's wiring, effect by effect.

use super::*;
use crate::control::Level;
use crate::shard::{self, ClusterView, PgOrder, PoolView};
use ::bytes::Bytes;
use command::options::{Identity, Layers};
use machine::identity::Proof;
use machine::net::{CloseReason, Held, NetEffect, NetEvent, Peer};
use machine::{ConnId, CoreId, Effects, Machine, Random, Time};
use std::sync::Arc;
use std::time::Duration;
use store::{Collection, Completion, ObjectId, Usage};
use wire::messages::{Body, MOSDBackoff, MOSDOp, MOSDPeer, MPing, Message, OsdOps};
use wire::types::*;

const PG: PgId = PgId { pool: 1, seed: 0 };
const CLIENT: ConnId = ConnId::accepted_on(CoreId(1), 5);

fn wall(now: Time) -> UTime {
    UTime::from_nanos(1_700_000_000_000_000_000 + now.0)
}

fn core(core: u16) -> Core {
    let config = CoreConfig {
        osd: OsdId(0),
        core: CoreId(core),
        cores: 3,
        log: Default::default(),
        scan_max: crate::shard::BACKFILL_SCAN_MAX,
        object_cache_bytes: 1 << 20,
        options: Layers::new(Identity::named("osd.0")),
    };
    let control = crate::control::testing::config(3);
    let contents = StoreContents { metadata_max: 1 << 20, ..StoreContents::default() };
    Core::new(config, contents, (core == 0).then(|| (control, Random::from_number(1))))
}

fn step(core: &mut Core, now: Time, input: Input) -> Vec<Effect> {
    let mut out = Effects::new();
    core.step(now, input, &mut out);
    core.check();
    out.take()
}

/// After its start and first measurement.
fn started(number: u16) -> Core {
    let mut core = core(number);
    step(&mut core, Time(1), Input::Start { wall: wall(Time(1)) });
    step(&mut core, Time(1), Input::StoreUsage(usage(1 << 30)));
    core
}

fn usage(available: u64) -> StoreUsage {
    let usage = Usage { total: 1 << 30, available, ..Usage::default() };
    StoreUsage { usage, compressed: Vec::new() }
}

/// The PG is on core 2.
fn map(orders: Vec<PgOrder>) -> Input {
    let mut view = ClusterView { epoch: 10, ..ClusterView::of_osds(0..1) };
    view.pools.insert(PG.pool, PoolView { name: "data".into(), pg_num: 1, ..PoolView::default() });
    view.routes = Routes::new(3);
    view.routes.set(PG, CoreId(2));
    Input::Mail(Mail::Shard(Box::new(shard::Input::Map { view: Arc::new(view), orders })))
}

fn create() -> PgOrder {
    PgOrder::alone(PG.into(), 0, 10)
}

/// The map that creates the PG, and everything that the core submits until it serves it.
fn serve(core: &mut Core) {
    let mut effects = step(core, Time(2), map(vec![create()]));
    while !effects.is_empty() {
        let mut next = Vec::new();
        for effect in effects {
            if let Effect::Submit { tag, .. } = effect {
                next.extend(step(core, Time(2), Input::Completed(Completion::Committed { tag })));
            }
        }
        effects = next;
    }
}

fn peer() -> Peer {
    let addr = EntityAddr::msgr2("10.0.0.1:40000".parse().unwrap(), 1);
    let proof = Proof::none("client.admin".parse().unwrap(), 4100);
    Peer::identified(proof, EntityName::new(EntityKind::CLIENT, 4100), addr).unwrap()
}

fn write(bytes: usize) -> Message {
    let op = OsdOp::extent(OpCode::WRITE, 0, bytes as u64, Bytes::from(vec![7; bytes]));
    let object = HObject { pool: PG.pool, snap: SnapId::HEAD, name: "a".into(), ..HObject::min() };
    let op = MOSDOp {
        pg: PG.into(),
        epoch: 10,
        flags: OsdFlags::ONDISK,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime: UTime { sec: 77, nsec: 0 },
        object,
        ops: OsdOps::from_vec(vec![op]),
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: u64::MAX,
    };
    Message::with_tid(9, op)
}

fn message(message: Message) -> Input {
    Input::Net(NetEvent::Message { conn: CLIENT, message, held: Held::default() })
}

/// The mail among some effects: receiver, and what it is.
fn mail(effects: &[Effect]) -> Vec<(u16, &'static str)> {
    let of = |effect: &Effect| {
        let Effect::Mail { to, mail } = effect else { return None };
        let kind = match mail {
            Mail::Shard(input) => match **input {
                shard::Input::Opened { .. } => "opened",
                shard::Input::Closed { .. } => "closed",
                shard::Input::Op { .. } => "request",
                shard::Input::Wall { .. } => "wall clock",
                _ => "to shard",
            },
            Mail::Control { .. } => "to control",
            Mail::Net(_) => "network event",
            Mail::Usage { .. } => "usage",
            Mail::Compression(_) => "compression",
            Mail::Look => "look",
            Mail::Progress { .. } => "progress",
            Mail::Statement(_) => "statement",
            Mail::Credentials(_) => "credentials",
        };
        Some((to.0, kind))
    };
    effects.iter().filter_map(of).collect()
}

/// They move several times for each request. Beyond 128 bytes a move becomes a call that copies.
#[test]
fn messages_and_what_carries_them_stay_small() {
    assert_eq!(size_of::<Message>(), 32);
    let sizes = [size_of::<NetEvent>(), size_of::<NetEffect>(), size_of::<Input>(), size_of::<Effect>()];
    assert!(sizes.iter().all(|bytes| *bytes <= 128), "{sizes:?}");
}

#[test]
fn session_reaches_shards_of_all_cores_and_control() {
    let mut core = started(1);
    let opened =
        step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: CLIENT, peer: Box::new(peer()) }));
    assert_eq!(mail(&opened), [(0, "network event"), (0, "opened"), (2, "opened")]);
    assert_eq!(opened.len(), 3);
    let why = CloseReason::Reset;
    let closed = step(&mut core, Time(3), Input::Net(NetEvent::Closed { conn: CLIENT, why }));
    assert_eq!(mail(&closed), [(0, "closed"), (2, "closed"), (0, "network event")]);
}

#[test]
fn requests_go_to_their_pgs_core_and_the_rest_to_core_0() {
    let mut core = started(1);
    step(&mut core, Time(2), map(Vec::new()));
    let request = step(&mut core, Time(2), message(write(8)));
    assert_eq!(mail(&request), [(2, "request")]);
    let other = step(&mut core, Time(2), message(Message::new(MPing {})));
    assert_eq!(mail(&other), [(0, "network event")]);
    // Core 0 hands it to its control machine without mail.
    let mut first = started(0);
    let other = step(&mut first, Time(2), message(Message::new(MPing {})));
    assert_eq!(mail(&other), []);
}

#[test]
fn own_pg_is_served_without_mail_and_replies_after_commit() {
    let mut core = started(2);
    serve(&mut core);
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: CLIENT, peer: Box::new(peer()) }));
    // The object is read, then the write is submitted.
    let effects = step(&mut core, Time(3), message(write(8)));
    let [Effect::Read { tag, .. }] = &effects[..] else { panic!("{effects:?}") };
    let answers = Err(store::ReadError::NoObject);
    let effects = step(&mut core, Time(3), Input::Completed(Completion::Read { tag: *tag, answers }));
    let [Effect::Submit { tag, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(core.requests_outstanding(), 1);
    let effects = step(&mut core, Time(4), Input::Completed(Completion::Committed { tag: *tag }));
    let [Effect::Net(NetEffect::Send { conn, .. })] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*conn, core.requests_outstanding()), (CLIENT, 0));
}

#[test]
fn store_is_measured_before_writes_fill_it() {
    let mut core = started(2);
    step(&mut core, Time(2), Input::StoreUsage(usage(31 << 20)));
    serve(&mut core);
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: CLIENT, peer: Box::new(peer()) }));
    // 31 MiB less the 3 % that are kept free: measured again after 256 KiB.
    let effects = step(&mut core, Time(3), message(write(512 << 10)));
    let [Effect::Read { tag, .. }] = &effects[..] else { panic!("{effects:?}") };
    let answers = Err(store::ReadError::NoObject);
    let effects = step(&mut core, Time(3), Input::Completed(Completion::Read { tag: *tag, answers }));
    let [Effect::Submit { .. }, Effect::MeasureStore] = &effects[..] else { panic!("{effects:?}") };
    // Full: logged, and core 0 hears of it. The shard refuses the next write in the same turn.
    let effects = step(&mut core, Time(3), Input::StoreUsage(usage(30 << 20)));
    let [Effect::Log { level: Level::Warn, .. }, ..] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(mail(&effects), [(0, "usage")]);
    let effects = step(&mut core, Time(3), message(write(8)));
    assert!(!effects.iter().any(|e| matches!(e, Effect::Submit { .. })), "{effects:?}");
}

#[test]
fn usage_is_measured_every_two_seconds_and_told_when_changed() {
    let mut core = started(1);
    assert_eq!(core.next_deadline(), Some(Time(1) + Duration::from_secs(2)));
    let now = Time(1) + Duration::from_secs(2);
    let effects = step(&mut core, now, Input::Deadline { wall: wall(now) });
    let [Effect::MeasureStore] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(mail(&step(&mut core, now, Input::StoreUsage(usage(1 << 30)))), [], "as before");
    let now = now + Duration::from_secs(2);
    step(&mut core, now, Input::Deadline { wall: wall(now) });
    assert_eq!(mail(&step(&mut core, now, Input::StoreUsage(usage(1 << 29)))), [(0, "usage")]);
}

#[test]
fn look_is_answered_with_the_work_of_the_core_s_device() {
    let mut core = started(1);
    let effects = step(&mut core, Time(2), Input::Mail(Mail::Look));
    let [Effect::CountDeviceWork] = &effects[..] else { panic!("{effects:?}") };
    let work = store::DeviceWork {
        writes: store::RequestCount { waiting: 2, answered: 40 },
        ..store::DeviceWork::default()
    };
    let effects = step(&mut core, Time(2), Input::DeviceWork(work));
    let [Effect::Mail { to: CoreId(0), mail: Mail::Progress { from: CoreId(1), work: told } }] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*told, work);
}

#[test]
fn wall_clock_jump_reaches_every_shard() {
    let mut core = started(0);
    let jump = |s: u64| Time(1) + Duration::from_secs(s);
    let steady = step(&mut core, jump(1), Input::Deadline { wall: wall(jump(1)) });
    assert_eq!(mail(&steady), []);
    let jumped = step(&mut core, jump(2), Input::Deadline { wall: wall(jump(60)) });
    assert_eq!(mail(&jumped), [(1, "wall clock"), (2, "wall clock")]);
}

#[test]
fn damaged_place_is_logged_once() {
    let mut core = started(1);
    let damage = |offset| Damage {
        collection: Collection::Pg(PG.into()),
        object: ObjectId::from(HObject::min()),
        offset,
        device_offset: Some(4096),
    };
    let logged = |effects: &[Effect]| matches!(effects, [Effect::Log { level: Level::Error, .. }]);
    assert!(logged(&step(&mut core, Time(2), Input::Damage(Box::new(damage(0))))));
    assert!(step(&mut core, Time(2), Input::Damage(Box::new(damage(0)))).is_empty());
    assert!(logged(&step(&mut core, Time(2), Input::Damage(Box::new(damage(8192))))));
}

#[test]
fn memory_budget_is_shared_between_cores() {
    let mut core = started(1);
    let effects =
        step(&mut core, Time(2), Input::Budgets(Budgets { caches: 300, memtables: 60, messages: 90 }));
    let [
        Effect::CacheBudget { bytes: 100 },
        Effect::MemtableBudget { bytes: 20 },
        Effect::Net(NetEffect::HoldAtMost(30)),
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
}

#[test]
fn start_measures_the_store_and_loads_pgs() {
    let mut core = core(1);
    let effects = step(&mut core, Time(1), Input::Start { wall: wall(Time(1)) });
    let [Effect::Mail { to: CoreId(0), mail: Mail::Control { .. } }, Effect::MeasureStore] = &effects[..]
    else {
        panic!("{effects:?}")
    };
}

#[test]
#[should_panic(expected = "on two cores")]
fn pg_on_two_cores_is_found() {
    let mut cores = [started(1), started(2)];
    for core in &mut cores {
        step(core, Time(2), map(vec![create()]));
    }
    check_together(&cores);
}

const OSD: ConnId = ConnId::accepted_on(CoreId(1), 6);

/// osd.3, by its key.
fn osd() -> Peer {
    let addr = EntityAddr::msgr2("10.0.0.3:6800".parse().unwrap(), 1);
    let proof = Proof::cephx("osd.3".parse().unwrap(), 4200, "allow *");
    Peer::identified(proof, EntityName::new(EntityKind::OSD, 3), addr).unwrap()
}

/// Over the sender's link number `link`.
fn statement(conn: ConnId, link: u64, pg: PgId) -> Input {
    let body =
        MOSDPeer { pg: pg.into(), epoch: 10, interval: 10, body: PeerBody::Probe, data: Bytes::new().into() };
    let message = Message::with_tid(ConnId::outgoing_on(CoreId(0), link).0, body);
    Input::Net(NetEvent::Message { conn, message, held: Held::default() })
}

fn statements(effects: Vec<Effect>) -> Vec<(CoreId, Statement)> {
    let of = |effect| match effect {
        Effect::Mail { to, mail: Mail::Statement(statement) } => Some((to, statement)),
        _ => None,
    };
    effects.into_iter().filter_map(of).collect()
}

#[test]
fn statement_of_an_osd_reaches_the_core_of_its_pg() {
    let mut core = started(1);
    step(&mut core, Time(2), map(Vec::new()));
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: OSD, peer: Box::new(osd()) }));
    let effects = step(&mut core, Time(3), statement(OSD, 7, PG));
    let [(CoreId(2), Statement { sender, link, message, .. })] = &statements(effects)[..] else { panic!() };
    assert_eq!((sender.osd, sender.global_id), (OsdId(3), 4200));
    assert_eq!((link.core(), message.pg, &message.body), (CoreId(0), PG.into(), &PeerBody::Probe));

    // A PG that is not here goes where it would be created.
    for seed in 1..20 {
        let pg = PgId { pool: 1, seed };
        let to: Vec<CoreId> =
            statements(step(&mut core, Time(3), statement(OSD, 7, pg))).iter().map(|(to, _)| *to).collect();
        let home = CoreId(spread(pg, 3));
        assert_eq!(to, if home == CoreId(1) { vec![] } else { vec![home] });
    }

    // After the end of its session an OSD is nobody.
    let why = CloseReason::Reset;
    step(&mut core, Time(4), Input::Net(NetEvent::Closed { conn: OSD, why }));
    assert_eq!(mail(&step(&mut core, Time(5), statement(OSD, 7, PG))), [(0, "network event")]);
}

#[test]
fn statement_of_a_client_is_refused_and_logged_once() {
    let mut far = started(1);
    step(&mut far, Time(2), map(Vec::new()));
    step(&mut far, Time(2), Input::Net(NetEvent::Ready { conn: CLIENT, peer: Box::new(peer()) }));
    assert_eq!(mail(&step(&mut far, Time(3), statement(CLIENT, 1, PG))), [(0, "network event")]);

    let mut core = started(0);
    let conn = ConnId::accepted(5);
    step(&mut core, Time(2), map(Vec::new()));
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn, peer: Box::new(peer()) }));
    let [Effect::Log { level: Level::Warn, text }] = &step(&mut core, Time(3), statement(conn, 1, PG))[..]
    else {
        panic!("one line in the log")
    };
    assert!(text.contains("client.admin") && text.contains("MOSDPeer, which only"), "{text}");
    assert!(step(&mut core, Time(3), statement(conn, 1, PG)).is_empty());
}

#[test]
fn tool_with_an_osds_key_cannot_make_statements() {
    let mut core = started(1);
    let addr = EntityAddr::msgr2("10.0.0.3:6800".parse().unwrap(), 1);
    let proof = Proof::cephx("osd.3".parse().unwrap(), 4200, "allow *");
    let tool = Peer::identified(proof, EntityName::new(EntityKind::CLIENT, -1), addr).unwrap();
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: OSD, peer: Box::new(tool) }));
    assert_eq!(mail(&step(&mut core, Time(3), statement(OSD, 1, PG))), [(0, "network event")]);
}

#[test]
fn ping_of_an_osd_is_answered_on_the_core_of_its_connection() {
    let mut core = started(1);
    step(&mut core, Time(2), Input::Net(NetEvent::Ready { conn: OSD, peer: Box::new(osd()) }));
    let (message, held) = (Message::new(MPing), Held::default());
    let effects = step(&mut core, Time(3), Input::Net(NetEvent::Message { conn: OSD, message, held }));
    let [Effect::Net(NetEffect::Send { conn: OSD, message })] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(message.body, MPing.into());
}

/// A map of another epoch, in which the PG with seed 1 is on core 2 or not here.
fn map_of_epoch(epoch: Epoch, is_here: bool, orders: Vec<PgOrder>) -> Input {
    let Input::Mail(Mail::Shard(input)) = map(orders) else { unreachable!("a map is mail") };
    let shard::Input::Map { view, orders } = *input else { unreachable!("it is a map") };
    let mut view = ClusterView { epoch, ..ClusterView::clone(&view) };
    if is_here {
        view.routes.set(LATER_PG, CoreId(2));
    }
    Input::Mail(Mail::Shard(Box::new(shard::Input::Map { view: Arc::new(view), orders })))
}

/// A PG that is younger than the routes of core 1, which send its messages to core 1 itself or to core 0.
const LATER_PG: PgId = PgId { pool: 1, seed: 1 };

fn request_for_later_pg(epoch: Epoch) -> Message {
    let Body::MOSDOp(op) = write(8).body else { unreachable!("a write is a request") };
    let object = HObject { hash: 1, ..op.object.clone() };
    Message::with_tid(9, MOSDOp { pg: LATER_PG.into(), epoch, object, ..*op })
}

/// Delivers one piece of mail and returns what its receiver does.
fn deliver(cores: &mut [Core], now: Time, effects: Vec<Effect>) -> Vec<Effect> {
    let mut out = Vec::new();
    for effect in effects {
        match effect {
            Effect::Mail { to, mail: mail @ Mail::Shard(_) } => {
                let core = &mut cores[usize::from(to.0)];
                out.extend(step(core, now, Input::Mail(mail)));
            }
            other => out.push(other),
        }
    }
    out
}

/// Core 2 has a PG that core 1, with the client's connection, does not know yet: seed 3728 of the simulator.
#[test]
fn acknowledged_backoff_reaches_the_core_that_sent_it() {
    let mut cores = [started(0), started(1), started(2)];
    for core in &mut cores {
        step(core, Time(2), map(Vec::new()));
        let opened = shard::Input::Opened { conn: CLIENT, peer: Arc::new(peer()) };
        step(core, Time(2), Input::Mail(Mail::Shard(Box::new(opened))));
    }
    let home = spread(LATER_PG, 3);
    assert_ne!(home, 2, "the old routes lead elsewhere");
    if home != 1 {
        step(&mut cores[usize::from(home)], Time(3), map_of_epoch(11, true, Vec::new()));
    }
    let order = PgOrder::alone(LATER_PG.into(), 1, 11);
    let creating = step(&mut cores[2], Time(3), map_of_epoch(11, true, vec![order]));

    // The PG cannot serve yet.
    let op = |epoch| {
        let Body::MOSDOp(op) = request_for_later_pg(epoch).body else { unreachable!("it is a request") };
        let (conn, tid, held, received) = (CLIENT, 9, Held::default(), Time(3));
        Input::Mail(Mail::Shard(Box::new(shard::Input::Op { conn, tid, op, held, received })))
    };
    let told = step(&mut cores[2], Time(3), op(11));
    let [Effect::Net(NetEffect::Send { message: block, .. })] = &told[..] else { panic!("{told:?}") };
    let Body::MOSDBackoff(block) = &block.body else { panic!("{block:?}") };
    let ack = MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..*block.clone() };

    // Another request waits on core 1 for the map, and the acknowledgement passes it.
    let waiting = step(&mut cores[1], Time(3), message(request_for_later_pg(12)));
    deliver(&mut cores, Time(3), waiting);
    let mut acknowledged = step(&mut cores[1], Time(4), message(Message::new(ack.clone())));
    while acknowledged.iter().any(|effect| matches!(effect, Effect::Mail { mail: Mail::Shard(_), .. })) {
        acknowledged = deliver(&mut cores, Time(4), acknowledged);
    }
    let released = step(&mut cores[usize::from(home)], Time(5), map_of_epoch(12, true, Vec::new()));
    assert_eq!(mail(&released), [], "the client sends that request again");

    // The PG serves, and the client sends again.
    let mut effects = creating;
    while !effects.is_empty() {
        let mut next = Vec::new();
        for effect in effects {
            if let Effect::Submit { tag, .. } = effect {
                let committed = Input::Completed(Completion::Committed { tag });
                next.extend(step(&mut cores[2], Time(5), committed));
            }
        }
        effects = next;
    }
    let served = step(&mut cores[2], Time(6), op(11));
    let [Effect::Read { .. }] = &served[..] else { panic!("{served:?}") };

    // The core of an id is the client's word.
    let forged = MOSDBackoff { id: 1 << 16 | 900, ..ack };
    let effects = step(&mut cores[1], Time(7), message(Message::new(forged)));
    assert_eq!(mail(&effects).iter().filter(|(to, _)| *to > 2).count(), 0);
}
