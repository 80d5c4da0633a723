//! Benchmark of the network alone: 4 KiB messages echoed over loopback, framed and checksummed both ways.
//!
//! `echo_floor [bare|session] [--depth N] [--conns N] [--len BYTES] [--seconds S] [--secure]`
//!
//! *bare* has frames on sockets and a loop: the lower bound. *session* adds the reactor, the endpoint and a role: the cost in a
//! daemon. CPU time is that of the server thread.

use bytes::{Bytes, BytesMut};
use codec::Rope;
use machine::net::*;
use machine::{ConnId, Time};
use messenger::testing::Monitor;
use messenger::{Config, ModeLists};
use runtime::{Options, Reactors, Role, Turn};
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wire::cephx::KeyKind;
use wire::frames::{FrameDecoder, FrameEncoder, MODE_CRC, MODE_SECURE, MessageHeader, WriteQueue};
use wire::messages::{Body, Header, Message, Payload, UnknownMessage};
use wire::types::{AddrKind, EntityAddr, EntityKind, EntityName};

#[derive(Clone)]
struct Load {
    depth: usize,
    conns: usize,
    len: usize,
    time: Duration,
    secure: bool,
}

/// Counters of both ends.
#[derive(Default)]
struct Tally {
    echoed: AtomicU64,
    server_cpu_ns: AtomicU64,
    client_cpu_ns: AtomicU64,
    stop: AtomicBool,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).map_or(default, |v| v.parse().expect("a number"))
    };
    let wants =
        |kind: &str| !args.iter().any(|a| a == "bare" || a == "session") || args.iter().any(|a| a == kind);
    let secure = args.iter().any(|a| a == "--secure");
    let time = Duration::from_secs(number("--seconds", 2) as u64);
    let depths = match number("--depth", 0) {
        0 => vec![1, 8, 64],
        n => vec![n],
    };
    println!(
        "{:8} {:>5} {:>5} {:>10} {:>12} {:>12} {:>9}",
        "", "conns", "depth", "op/s", "server us/op", "client us/op", "us/op"
    );
    for depth in depths {
        let conns = number("--conns", if depth == 1 { 1 } else { 8 });
        let load = Load { depth: depth.div_ceil(conns), conns, len: number("--len", 4096), time, secure };
        if wants("bare") && !secure {
            report("bare", &load, bare);
        }
        if wants("session") {
            report("session", &load, session);
        }
    }
}

fn report(name: &str, load: &Load, run: fn(&Load, Arc<Tally>)) {
    let tally = Arc::new(Tally::default());
    let counted = tally.clone();
    let time = load.time;
    let clock = std::thread::spawn(move || {
        let read = |t: &Tally| [&t.echoed, &t.server_cpu_ns, &t.client_cpu_ns].map(|c| c.load(Relaxed));
        std::thread::sleep(Duration::from_millis(500));
        let (before, begin) = (read(&counted), Instant::now());
        std::thread::sleep(time);
        let (after, took) = (read(&counted), begin.elapsed());
        counted.stop.store(true, Relaxed);
        ([0, 1, 2].map(|i| (after[i] - before[i]) as f64), took.as_secs_f64())
    });
    run(load, tally);
    let ([ops, server_ns, client_ns], seconds) = clock.join().unwrap();
    println!(
        "{name:8} {:5} {:5} {:10.0} {:12.2} {:12.2} {:9.2}",
        load.conns,
        load.conns * load.depth,
        ops / seconds,
        server_ns / ops / 1e3,
        client_ns / ops / 1e3,
        seconds / ops * 1e6 * (load.conns * load.depth) as f64,
    );
}

fn thread_cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    #[allow(unsafe_code, reason = "the thread's own CPU time has no safe name")]
    unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
    }
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn message(len: usize) -> Message {
    let header = Header { tid: 1, kind: 60_000, priority: 127, version: 1, compat: 1 };
    let payload = Payload {
        front: vec![1; 150].into(),
        middle: Bytes::new(),
        data: vec![7; len].into(),
        data_sum: None,
    };
    Message { tid: 1, priority: 127, body: Body::Unknown(Box::new(UnknownMessage { header, payload })) }
}

// ---- bare: frames on sockets

fn bare(load: &Load, tally: Arc<Tally>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (l, t) = (load.clone(), tally.clone());
    let server = std::thread::spawn(move || {
        let sockets = (0..l.conns).map(|_| listener.accept().unwrap().0).collect();
        BareLoop::new(sockets).run(&t, &t.server_cpu_ns, |_| {});
    });
    let sockets: Vec<_> = (0..load.conns).map(|_| std::net::TcpStream::connect(to).unwrap()).collect();
    let mut client = BareLoop::new(sockets);
    for end in &mut client.ends {
        for _ in 0..load.depth {
            let Body::Unknown(unknown) = message(load.len).body else { unreachable!() };
            let UnknownMessage { header, payload } = *unknown;
            let header = MessageHeader { seq: 1, ack_seq: 0, data_offset: 0, header };
            end.tx.message(&header, payload.front.to_vec(), Bytes::new(), payload.data.into(), &mut end.out);
        }
        end.write();
    }
    let counted = tally.clone();
    client.run(&tally, &tally.client_cpu_ns, move |n| {
        counted.echoed.fetch_add(n, Relaxed);
    });
    drop(client);
    server.join().unwrap();
}

struct BareEnd {
    stream: mio::net::TcpStream,
    rx: FrameDecoder,
    tx: FrameEncoder,
    partial: BytesMut,
    out: WriteQueue,
}

/// Both ends send back every message.
struct BareLoop {
    poll: mio::Poll,
    ends: Vec<BareEnd>,
}

impl BareLoop {
    fn new(sockets: Vec<std::net::TcpStream>) -> BareLoop {
        let poll = mio::Poll::new().unwrap();
        let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
        let ends = sockets.into_iter().enumerate().map(|(n, s)| {
            s.set_nodelay(true).unwrap();
            s.set_nonblocking(true).unwrap();
            let mut stream = mio::net::TcpStream::from_std(s);
            poll.registry().register(&mut stream, mio::Token(n), both).unwrap();
            let mut rx = FrameDecoder::new();
            rx.set_frame_len_max(64 << 20);
            BareEnd { stream, rx, tx: FrameEncoder::new(), partial: BytesMut::new(), out: WriteQueue::new() }
        });
        let ends = ends.collect();
        BareLoop { poll, ends }
    }

    fn run(&mut self, tally: &Tally, cpu: &AtomicU64, mut echoed: impl FnMut(u64)) {
        let mut events = mio::Events::with_capacity(64);
        while !tally.stop.load(Relaxed) {
            self.poll.poll(&mut events, Some(Duration::from_millis(100))).unwrap();
            for event in &events {
                let end = &mut self.ends[event.token().0];
                if event.is_readable() && !end.read(&mut echoed) {
                    return;
                }
                end.write();
            }
            cpu.store(thread_cpu_ns(), Relaxed);
        }
    }
}

impl BareEnd {
    /// Returns false when the peer has closed.
    fn read(&mut self, echoed: &mut impl FnMut(u64)) -> bool {
        const READ_LEN: usize = 64 << 10;
        loop {
            let mut buffer = BytesMut::zeroed(READ_LEN + self.partial.len());
            let at = self.partial.len();
            buffer[..at].copy_from_slice(&self.partial);
            let n = match self.stream.read(&mut buffer[at..]) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            buffer.truncate(at + n);
            while let Some(frame) = self.rx.decode(&mut buffer).unwrap() {
                let (header, payload) = frame.message().unwrap();
                let data = Rope::from(payload.data);
                self.tx.message(&header, payload.front.to_vec(), payload.middle, data, &mut self.out);
                echoed(1);
            }
            self.partial = buffer;
            if n < READ_LEN {
                return true;
            }
        }
    }

    fn write(&mut self) {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 128];
            let count = self.out.io_slices(&mut slices);
            match self.stream.write_vectored(&slices[..count]) {
                Ok(n) => self.out.advance(n),
                Err(_) => return,
            }
        }
    }
}

// ---- session: the reactor, the endpoint and a role

/// Both ends send back every message; the client begins with as many as the depth.
struct EchoRole {
    tally: Arc<Tally>,
    calls: Option<(SocketAddr, Load, wire::cephx::ServiceTicket)>,
    service_keys: Option<wire::cephx::RotatingKeys>,
}

impl Role for EchoRole {
    type Hop = ();

    fn on_start(&mut self, turn: &mut Turn<()>) {
        if let Some(keys) = self.service_keys.take() {
            turn.net(NetEffect::ServiceKeys(keys));
        }
        let Some((to, load, ticket)) = &self.calls else { return };
        for n in 0..load.conns {
            turn.net(NetEffect::Connect {
                conn: ConnId::outgoing(n as u64),
                to: EntityAddr::msgr2(*to, 0).into(),
                kind: EntityKind::OSD,
                policy: Policy::Lossy,
                credentials: Box::new(Credentials::Ticket {
                    auth_name: "client.admin".into(),
                    global_id: 4000,
                    ticket: ticket.clone(),
                }),
            });
        }
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<()>) {
        match (event, &self.calls) {
            (NetEvent::Message { conn, message, .. }, calls) => {
                if calls.is_some() {
                    self.tally.echoed.fetch_add(1, Relaxed);
                }
                turn.net(NetEffect::Send { conn, message });
            }
            (NetEvent::Ready { conn, .. }, Some((_, load, _))) => {
                for _ in 0..load.depth {
                    turn.net(NetEffect::Send { conn, message: message(load.len) });
                }
            }
            (NetEvent::Ready { .. }, None) => {}
            (other, _) => println!("{other:?}"),
        }
    }

    fn on_turn_end(&mut self, _: &mut Turn<()>) {
        let cpu = if self.calls.is_some() { &self.tally.client_cpu_ns } else { &self.tally.server_cpu_ns };
        cpu.store(thread_cpu_ns(), Relaxed);
    }

    fn on_hop(&mut self, _: (), _: &mut Turn<()>) {}
    fn on_deadline(&mut self, _: &mut Turn<()>) {}
    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn session(load: &Load, tally: Arc<Tally>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let mut monitor = Monitor::new(KeyKind::Aes256k);
    let (keys, ticket) = (monitor.osd_keys.clone(), monitor.service_ticket(EntityKind::OSD));
    let mode = if load.secure { MODE_SECURE } else { MODE_CRC };
    let options = |name: EntityName, addr: EntityAddr, listeners| {
        let mut session = Config::new(name, addr.into());
        session.modes = ModeLists::all(&[mode]);
        Options {
            cores: 1,
            listeners,
            session,
            idle_poll: Duration::ZERO,
            seed: [1; 32],
            name: name.to_string(),
        }
    };
    let osd = options(EntityName::new(EntityKind::OSD, 0), EntityAddr::msgr2(to, 0), vec![listener]);
    let counted = tally.clone();
    let server = Reactors::start(osd, move |_, _| EchoRole {
        tally: counted.clone(),
        calls: None,
        service_keys: Some(keys.clone()),
    });
    let blank = EntityAddr { kind: AddrKind::MSGR2, nonce: 1, socket: None };
    let (load, counted) = (load.clone(), tally.clone());
    let client =
        Reactors::start(options(EntityName::new(EntityKind::CLIENT, -1), blank, vec![]), move |_, _| {
            EchoRole {
                tally: counted.clone(),
                calls: Some((to, load.clone(), ticket.clone())),
                service_keys: None,
            }
        });
    let (server, client) = (server.unwrap(), client.unwrap());
    while !tally.stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    client.stop();
    server.stop();
    client.join();
    server.join();
}
