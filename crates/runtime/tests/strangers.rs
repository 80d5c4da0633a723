//! Ten thousand connections that never finish their handshake, on real sockets: other clients are served, memory stays
//! bounded, and the connections are closed at the deadline.

use machine::net::*;
use machine::{ConnId, Time};
use messenger::Config;
use runtime::{Options, Reactors, Role, Turn};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wire::cephx::METHOD_NONE;
use wire::frames::{Banner, Control, FrameEncoder, WriteQueue};
use wire::types::{AddrKind, EntityAddr, EntityKind, EntityName};

/// Number of connections. Both ends are in this process, whose limit on open files may be lower than twice that.
const STRANGERS_MAX: usize = 10_000;
const FILES_FOR_OTHERS: usize = 200;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time to open connections: the first must still be open when they are counted.
const CONNECTING: Duration = Duration::from_secs(7);
/// Memory of a half-open connection, without the kernel's.
const MEMORY_EACH_MAX: usize = 8 << 10;

/// Reports network events, and opens connections on request.
struct Quiet(mpsc::Sender<NetEvent>);

impl Role for Quiet {
    type Hop = NetEffect;
    fn on_net(&mut self, event: NetEvent, _: &mut Turn<NetEffect>) {
        // The test may have ended.
        let _ = self.0.send(event);
    }
    fn on_hop(&mut self, effect: NetEffect, turn: &mut Turn<NetEffect>) {
        turn.net(effect);
    }
    fn on_deadline(&mut self, _: &mut Turn<NetEffect>) {}
    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn start(name: EntityName, listener: Option<TcpListener>) -> (Reactors<NetEffect>, mpsc::Receiver<NetEvent>) {
    let blank = EntityAddr { kind: AddrKind::MSGR2, nonce: 5, socket: None };
    let addr = listener.as_ref().map_or(blank, |l| EntityAddr::msgr2(l.local_addr().unwrap(), 0));
    let mut session = Config::new(name, addr.into());
    session.methods = vec![METHOD_NONE];
    session.handshake_timeout = HANDSHAKE;
    let options = Options {
        idle_poll: std::time::Duration::ZERO,
        cores: 2,
        listeners: listener.into_iter().collect(),
        session,
        seed: [1; 32],
        name: name.to_string(),
    };
    let (sender, events) = mpsc::channel();
    (Reactors::start(options, move |_, _| Quiet(sender.clone())).unwrap(), events)
}

fn resident_len() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Half a handshake, each different.
fn half(n: usize) -> Vec<u8> {
    let mut queue = WriteQueue::new();
    queue.put(&Banner::OURS.encode());
    let hello = Control::Hello { kind: EntityKind::CLIENT, peer_addr: EntityAddr::default() };
    FrameEncoder::new().control(&hello, &mut queue);
    let mut bytes: Vec<u8> = queue.take().flat_map(|b| b.to_vec()).collect();
    bytes.truncate(n % (bytes.len() + 1));
    bytes
}

fn call(client: &Reactors<NetEffect>, n: u64, to: SocketAddr) {
    client.mailboxes()[0].post(NetEffect::Connect {
        conn: ConnId::outgoing(n),
        to: EntityAddr::msgr2(to, 0).into(),
        kind: EntityKind::OSD,
        policy: Policy::Lossy,
        credentials: Box::new(Credentials::None { auth_name: "client.good".into(), global_id: 1 }),
    });
}

#[test]
fn half_open_connections_cost_little_and_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (server, heard) = start(EntityName::new(EntityKind::OSD, 0), Some(listener));
    let (client, events) = start(EntityName::new(EntityKind::CLIENT, 1), None);
    let ready = |n: u64| {
        call(&client, n, to);
        let event = events.recv_timeout(Duration::from_secs(5)).expect("a good client is served");
        assert!(matches!(event, NetEvent::Ready { .. }), "{event:?}");
    };
    ready(0);

    let count = STRANGERS_MAX.min((runtime::raise_file_limit() - FILES_FOR_OTHERS) / 2);
    let (before, began) = (resident_len(), Instant::now());
    let mut strangers: Vec<TcpStream> = (0..count)
        .take_while(|_| began.elapsed() < CONNECTING)
        .map(|n| {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(&half(n)).unwrap();
            stream
        })
        .collect();
    let count = strangers.len();
    println!("{count} strangers in {:?}", began.elapsed());
    ready(1);
    let grown = resident_len().saturating_sub(before);
    assert!(grown < count * MEMORY_EACH_MAX, "{count} strangers cost {grown} bytes");

    std::thread::sleep(HANDSHAKE + Duration::from_secs(1));
    for stream in &mut strangers {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut rest = Vec::new();
        // End of file, or a reset because of unread bytes.
        if let Err(e) = stream.read_to_end(&mut rest) {
            assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}");
        }
        assert!(rest.len() < 200, "a stranger was told {} bytes", rest.len());
    }
    ready(2);
    let heard: Vec<NetEvent> = heard.try_iter().collect();
    assert!(heard.iter().all(|e| matches!(e, NetEvent::Ready { .. })), "the role heard of strangers");
    client.stop();
    server.stop();
    assert!(client.join() && server.join());
}
