use super::Quorum;
use crate::replication::Recovered;
use bytes::Bytes;
use std::collections::BTreeSet;

struct Three {
    nodes: Vec<Option<Quorum>>,
    disks: Vec<Recovered>,
    states: Vec<Vec<u64>>,
    cut: BTreeSet<(u64, u64)>,
    queue: Vec<(u64, u64, Bytes)>,
    lives: u32,
}

impl Three {
    fn new() -> Three {
        let mut t = Three {
            nodes: vec![None, None, None],
            disks: vec![Recovered::default(); 3],
            states: vec![vec![]; 3],
            cut: BTreeSet::new(),
            queue: vec![],
            lives: 0,
        };
        (1..=3).for_each(|r| t.start(r));
        t
    }
    fn start(&mut self, r: u64) {
        self.lives += 1;
        let i = r as usize - 1;
        self.states[i] = self.disks[i].snapshot.as_ref().map_or(vec![], |(_, s)| {
            s.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
        });
        self.nodes[i] = Some(Quorum::recover(r, 3, self.lives, self.disks[i].clone()).unwrap());
    }
    fn drain(&mut self, r: u64) {
        let i = r as usize - 1;
        loop {
            let Some(q) = self.nodes[i].as_mut() else { return };
            let o = q.take();
            for (_, _, b) in &o.committed {
                self.states[i].push(u64::from_le_bytes(b[..].try_into().unwrap()));
            }
            for (to, b) in o.send {
                self.queue.push((r, to, b));
            }
            match o.write {
                Some((tag, w)) => {
                    self.disks[i].apply(w);
                    self.nodes[i].as_mut().unwrap().on_written(tag);
                }
                None => return,
            }
        }
    }
    fn settle(&mut self) {
        for _ in 0..50 {
            (1..=3).for_each(|r| self.drain(r));
            for (from, to, b) in std::mem::take(&mut self.queue) {
                if !self.cut.contains(&(from, to)) {
                    if let Some(q) = self.nodes[to as usize - 1].as_mut() {
                        q.receive(&b);
                        self.drain(to);
                    }
                }
            }
        }
    }
    fn ticks(&mut self, n: u32) {
        for _ in 0..n {
            self.nodes.iter_mut().flatten().for_each(|q| q.tick());
            self.settle();
        }
    }
    fn q(&mut self, r: u64) -> &mut Quorum {
        self.nodes[r as usize - 1].as_mut().unwrap()
    }
    fn propose(&mut self, r: u64, v: u64) {
        self.q(r).propose(Bytes::copy_from_slice(&v.to_le_bytes()));
    }
    fn cut(&mut self, a: u64, b: u64, on: bool) {
        for k in [(a, b), (b, a)] {
            if on {
                self.cut.insert(k);
            } else if self.cut.remove(&k) {
                for r in [a, b] {
                    let o = a + b - r;
                    if let Some(q) = self.nodes[r as usize - 1].as_mut() {
                        q.reconnected(o);
                    }
                }
            }
        }
    }
}

fn story(trims: bool) {
    let mut t = Three::new();
    t.ticks(200);
    let leader = t.q(1).leader().unwrap();
    println!("leader {leader}");
    let (cut_off, third) = match leader { 1 => (2, 3), 2 => (3, 1), _ => (1, 2) };
    for v in 1..=4 {
        t.propose(leader, v);
        t.settle();
    }
    // 5: accepted by everyone; the cut-off monitor does not learn that it is decided.
    t.propose(leader, 5);
    t.drain(leader);
    for (from, to, b) in std::mem::take(&mut t.queue) {
        assert_eq!(from, leader);
        t.q(to).receive(&b);
        t.drain(to);
    }
    t.cut.insert((leader, cut_off));
    t.settle();
    t.cut(leader, cut_off, true);
    t.cut(third, cut_off, true);
    println!("states {:?}", t.states);
    if trims {
        let s = &t.states[leader as usize - 1];
        assert_eq!(s.len(), 5);
        let b: Vec<u8> = s.iter().flat_map(|v| v.to_le_bytes()).collect();
        t.q(leader).snapshot(5, b.clone().into());
        t.settle();
        t.q(third).snapshot(5, b.into());
        t.settle();
    }
    for v in 6..=7 { t.propose(leader, v); t.settle(); }
    // Leadership to the third and back.
    let mut v = 8;
    for (away, to) in [(leader, third), (third, leader)] {
        let mut moved = false;
        for tries in 0..6 {
            t.cut(leader, third, true);
            if tries % 2 == 0 { t.nodes[away as usize - 1] = None; }
            t.ticks(30 + 20 * tries);
            t.cut(leader, third, false);
            t.ticks(3);
            if tries % 2 == 0 { t.start(away); }
            t.ticks(120);
            println!("try {tries}: {:?} {:?}", t.q(leader).leader(), t.q(third).leader());
            if t.q(to).leader() == Some(to) && t.q(away).leader() == Some(to) { moved = true; break; }
        }
        assert!(moved);
        for _ in 0..2 { t.propose(to, v); v += 1; t.settle(); }
    }
    t.ticks(60);
    println!("before return {:?}", t.states);
    t.cut(leader, cut_off, false);
    t.cut(third, cut_off, false);
    t.ticks(200);
    println!("after {:?}", t.states);
    t.ticks(200);
    t.propose(leader, v);
    t.ticks(200);
    println!("one more {:?}", t.states);
    assert_eq!(t.states[cut_off as usize - 1], t.states[leader as usize - 1]);
}

#[test]
fn story_with() { story(true) }
#[test]
fn story_without() { story(false) }
