//! A role with a disk: completions wake its sleeping reactor.

use device::{BLOCK, BlockDevice, Durability, Request};
use machine::net::NetEvent;
use machine::{CoreId, Time};
use messenger::Config;
use runtime::device::{Disk, Method, Queue, Wake};
use runtime::{Options, Reactors, Role, Turn};
use std::fs::File;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind, EntityName};

const ROUNDS: u64 = 50;
/// Writes of each round.
const WRITES: u64 = 20;

/// Writes in rounds; a round begins when all writes of the last have completed.
struct Writer {
    queue: Queue,
    left_in_round: u64,
    rounds: u64,
    ended: Sender<u64>,
}

impl Writer {
    /// Takes completions, and begins rounds while they complete at once.
    fn go_on(&mut self, turn: &mut Turn<()>) {
        loop {
            let mut done = Vec::new();
            self.queue.poll(&mut done);
            done.iter().for_each(|done| assert!(done.result.is_ok()));
            self.left_in_round -= done.len() as u64;
            if self.left_in_round > 0 {
                return;
            }
            if self.rounds == ROUNDS {
                turn.stop();
                return self.ended.send(self.rounds).unwrap();
            }
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.rounds += 1;
        self.left_in_round = WRITES;
        for n in 0..WRITES {
            let data = vec![self.rounds as u8; BLOCK].into();
            let offset = n * BLOCK as u64;
            self.queue.submit(n, Request::Write { offset, data, durability: Durability::Later });
        }
    }
}

impl Role for Writer {
    type Hop = ();

    fn on_net(&mut self, _: NetEvent, _: &mut Turn<()>) {}
    fn on_hop(&mut self, (): (), _: &mut Turn<()>) {}
    fn on_deadline(&mut self, _: &mut Turn<()>) {}

    /// No deadline: only the disk wakes this reactor.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn on_start(&mut self, turn: &mut Turn<()>) {
        self.go_on(turn);
    }

    fn wakes(&self) -> Vec<Wake> {
        vec![self.queue.wake().clone()]
    }

    fn has_news(&self) -> bool {
        self.queue.has_news()
    }

    fn on_turn_end(&mut self, turn: &mut Turn<()>) {
        self.go_on(turn);
    }
}

#[test]
fn completions_wake_the_reactor() {
    for method in [Method::Ring, Method::Threads] {
        let path = std::env::temp_dir().join(format!("shoal-disk-role-{method:?}-{}", std::process::id()));
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let disk = Disk::open(&path).unwrap();
        let _ = std::fs::remove_file(&path);
        if disk.queue_by(method).is_err() {
            skip::skip_part!("no {method:?} queue");
            continue;
        }
        let (ended, end) = mpsc::channel();
        let name = EntityName::new(EntityKind::OSD, 0);
        let options = Options {
            cores: 1,
            listeners: Vec::new(),
            session: Config::new(name, EntityAddrVec::default()),
            idle_poll: Duration::ZERO,
            seed: [7; 32],
            name: "test".into(),
        };
        let reactors = Reactors::start(options, move |_: CoreId, _| Writer {
            queue: disk.queue_by(method).unwrap(),
            left_in_round: 0,
            rounds: 0,
            ended: ended.clone(),
        })
        .unwrap();
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(ROUNDS), "{method:?}");
        let turns = reactors.counters()[0].read().into_iter().find(|(name, _)| *name == "turns").unwrap().1;
        assert!(turns <= ROUNDS * WRITES + 1, "{turns} turns for {} writes", ROUNDS * WRITES);
        assert!(reactors.join());
    }
}
