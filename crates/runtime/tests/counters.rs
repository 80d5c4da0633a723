//! Counters of connections that came to nothing.

use machine::Time;
use machine::net::NetEvent;
use messenger::Config;
use runtime::{Options, Reactors, Role, Turn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use wire::types::{EntityAddr, EntityKind, EntityName};

struct Quiet;

impl Role for Quiet {
    type Hop = ();
    fn on_net(&mut self, _: NetEvent, _: &mut Turn<()>) {}
    fn on_hop(&mut self, _: (), _: &mut Turn<()>) {}
    fn on_deadline(&mut self, _: &mut Turn<()>) {}
    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn wait_for(server: &Reactors<()>, counter: &str) {
    let began = Instant::now();
    let count = || server.counters()[0].read().into_iter().find(|(name, _)| *name == counter).unwrap().1;
    while count() == 0 {
        assert!(began.elapsed() < Duration::from_secs(10), "{counter} does not move");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One test: the limit on open files is the whole process's.
#[test]
fn failed_accepts_and_refused_callers_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let name = EntityName::new(EntityKind::OSD, 0);
    let options = Options {
        idle_poll: Duration::ZERO,
        cores: 1,
        listeners: vec![listener],
        session: Config::new(name, EntityAddr::msgr2(to, 7).into()),
        seed: [1; 32],
        name: name.to_string(),
    };
    let server = Reactors::start(options, |_, _| Quiet).unwrap();

    let mut stranger = TcpStream::connect(to).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n0123456789abcdef").unwrap();
    wait_for(&server, "refused");

    // Our end of the call takes the last file descriptor, so that nothing is left for the server's end.
    let limits = getrlimit(Resource::Nofile);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let highest = std::os::fd::AsRawFd::as_raw_fd(&socket) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(highest + 1), ..limits }).unwrap();
    let fill: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    socket.connect(&to.into()).unwrap();
    wait_for(&server, "accepts_failed");
    setrlimit(Resource::Nofile, limits).unwrap();
    drop(fill);

    server.stop();
    assert!(server.join());
}
