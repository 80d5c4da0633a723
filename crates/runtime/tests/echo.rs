//! Reactors on real sockets: messages of all sizes are echoed, on one core and on several.

use bytes::Bytes;
use machine::net::*;
use machine::{ConnId, CoreId, Time};
use messenger::{Config, ModeLists};
use runtime::{Counters, Options, Reactors, Role, Turn};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Duration;
use wire::cephx::METHOD_NONE;
use wire::messages::{Body, Header, Message, Payload, UnknownMessage};
use wire::types::{EntityAddr, EntityKind, EntityName};

/// Echoes every message, by way of the next core.
struct Echo;

impl Role for Echo {
    type Hop = (ConnId, Message);

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Self::Hop>) {
        if let NetEvent::Message { conn, message, .. } = event {
            assert_eq!(conn.core(), turn.core(), "a connection's messages come on its own core");
            let next = CoreId((turn.core().0 + 1) % turn.core_count());
            turn.hop(next, (conn, message));
        }
    }

    fn on_hop(&mut self, (conn, message): Self::Hop, turn: &mut Turn<Self::Hop>) {
        turn.net(NetEffect::Send { conn, message });
    }

    fn on_deadline(&mut self, _: &mut Turn<Self::Hop>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

/// Opens connections, keeps `depth` messages in flight on each, and reports when all are back in order.
struct Caller {
    to: SocketAddr,
    lens: Vec<usize>,
    depth: usize,
    conns: u64,
    back: Vec<usize>,
    done: mpsc::Sender<Result<(), String>>,
}

impl Role for Caller {
    type Hop = ();

    fn on_start(&mut self, turn: &mut Turn<()>) {
        for n in 0..self.conns {
            turn.net(NetEffect::Connect {
                conn: ConnId::outgoing(n),
                to: EntityAddr::msgr2(self.to, 7).into(),
                kind: EntityKind::OSD,
                policy: Policy::Lossy,
                credentials: Box::new(Credentials::None { auth_name: "client.test".into(), global_id: 9 }),
            });
        }
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<()>) {
        match event {
            NetEvent::Ready { conn, .. } => {
                for (tid, len) in self.lens.iter().enumerate().take(self.depth) {
                    turn.net(NetEffect::Send { conn, message: message(tid as u64, *len) });
                }
            }
            NetEvent::Message { conn, message: got, .. } => {
                let n = (conn.0 & 0xffff) as usize;
                let want = self.back[n];
                if got.body != message(want as u64, self.lens[want]).body {
                    self.done.send(Err(format!("message {want} came back changed"))).unwrap();
                }
                self.back[n] += 1;
                let next = want + self.depth;
                if let Some(len) = self.lens.get(next) {
                    turn.net(NetEffect::Send { conn, message: message(next as u64, *len) });
                }
                if self.back.iter().all(|b| *b == self.lens.len()) {
                    self.done.send(Ok(())).unwrap();
                }
            }
            NetEvent::Closed { why, .. } => self.done.send(Err(format!("{why:?}"))).unwrap(),
            other => self.done.send(Err(format!("{other:?}"))).unwrap(),
        }
    }

    fn on_hop(&mut self, _: (), _: &mut Turn<()>) {}
    fn on_deadline(&mut self, _: &mut Turn<()>) {}
    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn message(n: u64, len: usize) -> Message {
    let header = Header { tid: n, kind: 60_000, priority: 127, version: 1, compat: 1 };
    let data = vec![n as u8; len];
    // With the checksum of the frame, as it arrives.
    let data_sum = (len > 0).then(|| wire::frames::crc32c(&data));
    let front = vec![n as u8; 20].into();
    let payload = Payload { front, middle: Bytes::new(), data: data.into(), data_sum };
    Message { tid: n, priority: 127, body: Body::Unknown(Box::new(UnknownMessage { header, payload })) }
}

fn options(name: EntityName, listener: Option<&TcpListener>, cores: u16) -> Options {
    let addr = match listener {
        Some(l) => EntityAddr::msgr2(l.local_addr().unwrap(), 7),
        None => EntityAddr { kind: wire::types::AddrKind::MSGR2, nonce: 5, socket: None },
    };
    let mut session = Config::new(name, addr.into());
    session.methods = vec![METHOD_NONE];
    session.modes = ModeLists::default();
    Options {
        idle_poll: Duration::from_millis(1),
        cores,
        listeners: listener.map(|l| l.try_clone().unwrap()).into_iter().collect(),
        session,
        seed: [3; 32],
        name: name.to_string(),
    }
}

fn echo(cores: u16, conns: u64, depth: usize, lens: Vec<usize>) -> Vec<(&'static str, u64)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let server = options(EntityName::new(EntityKind::OSD, 0), Some(&listener), cores);
    let server = Reactors::start(server, |_, _| Echo).unwrap();
    let (done, outcome) = mpsc::channel();
    let client = options(EntityName::new(EntityKind::CLIENT, 9), None, 1);
    let client = Reactors::start(client, move |_, _| Caller {
        to,
        lens: lens.clone(),
        depth,
        conns,
        back: vec![0; conns as usize],
        done: done.clone(),
    })
    .unwrap();
    outcome.recv_timeout(Duration::from_secs(60)).expect("an answer in time").unwrap();
    let mut sums: Vec<(&'static str, u64)> = Counters::default().read();
    for core in server.counters() {
        for (sum, (_, n)) in sums.iter_mut().zip(core.read()) {
            sum.1 += n;
        }
    }
    client.stop();
    server.stop();
    assert!(client.join() && server.join(), "no core panicked");
    sums
}

#[test]
fn messages_are_echoed_in_order() {
    let lens: Vec<usize> = (0..70).map(|n| [0, 1, 100, 4096, 5000, 70_000, 1 << 20][n % 7]).collect();
    for cores in [1, 2, 3] {
        echo(cores, 4, lens.len(), lens.clone());
    }
}

fn count(counters: &[(&str, u64)], name: &str) -> u64 {
    counters.iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn large_messages_are_read_and_written_in_parts() {
    let counters = echo(1, 1, 4, vec![32 << 20; 4]);
    assert!(count(&counters, "turns_busy") > 0, "{counters:?}");
    assert!(count(&counters, "writes_short") > 0, "{counters:?}");
}

#[test]
fn polling_reactor_finds_messages_before_it_sleeps() {
    // Polling ends where something else wants the processor, as in other tests beside this one.
    for attempt in 0..20 {
        let counters = echo(1, 1, 1, vec![100; 500]);
        if count(&counters, "turns_polled") > 0 {
            return;
        }
        assert!(attempt < 19, "{counters:?}");
    }
}

#[test]
fn hops_are_batched() {
    let counters = echo(2, 8, 5000, vec![100; 5000]);
    let of = |name| count(&counters, name);
    assert_eq!(of("messages_in"), 40_000);
    assert!(of("hops") >= 40_000);
    assert!(of("hop_wakes") * 4 < of("hops"), "{counters:?}");
    assert!(of("writes") * 4 < of("messages_in"), "{counters:?}");
}
