//! Moves of a collection between two shards of a disk, during writes, with a power cut at every boundary of a write or flush.
//! In every image the shards together hold the collection once, with all acknowledged transactions; any other copy does not
//! count and can be removed.

use super::dump::{Dump, ask, list};
use super::handles::{formatted_for, open_all};
use super::operations::{bytes, home, object, pg};
use super::small;
use crate::check::Depth;
use crate::shard::{Options, Shard};
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use store::memory::Config;
use store::moving::{CollectionRemoval, ObjectCopy, STEP_BYTES, leftovers, remove};
use store::{Change, Completion, MemoryStore, ObjectId, ObjectStore, Transaction};

const IMAGES_MAX: usize = 5;

fn open(disk: &Simulated, options: &Options) -> [Shard; 2] {
    open_all(disk, options).try_into().unwrap_or_else(|_| panic!("the store has two shards"))
}

fn rest(shards: &mut [Shard; 2]) -> Vec<Completion> {
    let mut out = Vec::new();
    for _ in 0..1_000_000 {
        let busy = shards.each_mut().map(|shard| shard.poll(&mut out));
        if busy == [false, false] {
            return out;
        }
    }
    panic!("the shards say that something is under way and do not complete it");
}

/// A disk with two shards, the transactions of its client, and the states that a cut may leave.
struct Story {
    disk: Simulated,
    shards: [Shard; 2],
    /// Shard of the collection.
    at: usize,
    moves: u32,
    front: MemoryStore,
    /// States of the collection after each transaction of the client.
    states: Vec<Dump>,
    acknowledged: usize,
    options: Options,
    dice: Dice,
    boundaries: u64,
    images: u64,
}

/// First tag of the client; all others are smaller.
const CLIENT: u64 = 1 << 32;

impl Story {
    fn begin(options: Options) -> Story {
        let disk = formatted_for(2, 32 << 20, 1 << 20, 5);
        let front = MemoryStore::new(Config { bytes_total: 1 << 40, delay: None, track_committed: false });
        let mut story = Story {
            shards: open(&disk, &options),
            disk,
            at: 0,
            moves: 0,
            front,
            states: Vec::new(),
            acknowledged: 0,
            options,
            dice: Dice::new(3),
            boundaries: 0,
            images: 0,
        };
        let mut changes = vec![Change::CreateCollection { split_bits: 0 }];
        for i in 0..4 {
            changes.push(write(&object("small", i), 0, 3000 + 1000 * u64::from(i)));
        }
        let (long, keys, sparse) = (object("long", 9), object("keys", 10), object("sparse", 11));
        changes.push(write(&long, 0, STEP_BYTES + 5000));
        changes.push(Change::Touch { object: object("empty", 12) });
        changes.push(write(&sparse, 70_000, 10));
        changes.push(Change::Truncate { object: sparse, size: 400_000 });
        changes.push(Change::SetAttr { object: keys.clone(), name: "x".into(), value: "y".into() });
        changes.push(Change::OmapSetHeader { object: keys.clone(), header: "header".into() });
        let entries = (0..100).map(|i| (format!("k{i:03}").into(), vec![i; 50].into())).collect();
        changes.push(Change::OmapSet { object: keys, entries });
        changes.push(meta_entry(0));
        story.client(changes);
        rest(&mut story.shards);
        story.acknowledged = 1;
        story.disk.set_pace(Pace::Steps);
        story
    }

    /// Submits the client's next transaction.
    fn client(&mut self, changes: Vec<Change>) {
        let transaction = Transaction { collection: home(), changes };
        self.front.submit(0, transaction.clone());
        self.front.poll(&mut Vec::new());
        self.shards[self.at].submit(CLIENT + self.states.len() as u64, transaction);
        self.states.push(Dump::of(&mut self.front));
    }

    /// Polls until the shards are at rest, with a power cut after every completion.
    fn settle(&mut self) {
        let mut seen = None;
        loop {
            let mut out = Vec::new();
            let busy = self.shards.each_mut().map(|shard| shard.poll(&mut out));
            for completion in out {
                match completion {
                    Completion::Committed { tag } if tag >= CLIENT => {
                        self.acknowledged = (tag - CLIENT) as usize + 1
                    }
                    Completion::Committed { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if seen != Some(self.disk.moment()) {
                seen = Some(self.disk.moment());
                self.boundaries += 1;
                let images: Vec<Simulated> = self.disk.power_cuts(IMAGES_MAX, &mut self.dice).collect();
                images.into_iter().for_each(|image| self.examine(image));
            }
            if busy == [false, false] {
                return;
            }
        }
    }

    /// Opens an image of a cut.
    fn examine(&mut self, image: Simulated) {
        self.images += 1;
        image.set_pace(Pace::AtOnce);
        let mut shards = open(&image, &self.options);
        let found =
            (0..2).flat_map(|i| shards[i].placed().into_iter().map(move |(c, placed)| (i, c, placed)));
        let left = leftovers(found.collect::<Vec<_>>());
        let holders: Vec<usize> = (0..2)
            .filter(|i| {
                shards[*i].collections().iter().any(|(c, _)| *c == home() && !left.contains(&(*i, *c)))
            })
            .collect();
        let [holder] = holders[..] else { panic!("shards {holders:?} have the collection") };
        for (i, collection) in left {
            remove(&mut shards[i], collection, &mut |_| ()).expect("a leftover can be removed");
        }
        let dump = Dump::of(&mut shards[holder]);
        let allowed = &self.states[self.acknowledged - 1..];
        if !allowed.contains(&dump) {
            let differences: Vec<_> = allowed.iter().map(|state| dump.differences(state)).collect();
            panic!("shard {holder} has none of {} states: {differences:#?}", allowed.len());
        }
        assert_eq!(shards[1 - holder].placed(), [], "it is there once");
        rest(&mut shards);
        assert_eq!(shards[1 - holder].usage().data, 0);
        for shard in &mut shards {
            let report = shard.check(Depth::Metadata, &mut || ());
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        }
    }

    fn submit(&mut self, shard: usize, changes: Vec<Change>) {
        self.shards[shard].submit(1, Transaction { collection: home(), changes });
    }

    fn copy(&mut self, id: &ObjectId, again: bool) {
        let to = 1 - self.at;
        let mut copy = ObjectCopy::new(id.clone(), again);
        while !copy.is_done() {
            self.disk.set_pace(Pace::AtOnce);
            let queries = copy.request(home()).queries;
            let answers = ask(&mut self.shards[self.at], home(), id, queries);
            self.disk.set_pace(Pace::Steps);
            for changes in copy.take(answers).expect("it can be read") {
                self.submit(to, changes);
            }
        }
        self.settle();
    }

    fn move_over(&mut self) {
        let to = 1 - self.at;
        self.moves += 1;
        self.submit(to, vec![Change::BeginArrival { split_bits: 0, moves: self.moves }]);
        self.settle();
        let objects = list(&mut self.shards[self.at], home());
        let mut dirty = Vec::new();
        for (i, id) in objects.iter().enumerate() {
            self.copy(id, false);
            // The client goes on with what is copied, with what is not, and with what is new.
            match i {
                2 => self.client_writes(&[&objects[0], &objects[6]], &mut dirty),
                4 => self.client_writes(&[&objects[3], &object("new", i as u32)], &mut dirty),
                5 => {
                    dirty.push(objects[1].clone());
                    self.client(vec![Change::Remove { object: objects[1].clone() }, meta_entry(i)]);
                }
                _ => {}
            }
        }
        self.settle();
        dirty.iter().for_each(|id| self.copy(id, true));
        // Now it holds back its client, and the rest goes along.
        let meta = ObjectId::pg_meta(pg(0));
        self.copy(&meta, false);
        self.submit(
            to,
            vec![Change::SetAttr { object: meta, name: "last".into(), value: "x".into() }, Change::Arrive],
        );
        // What the last change is must not be seen apart from the arrival.
        let last =
            Change::SetAttr { object: ObjectId::pg_meta(pg(0)), name: "last".into(), value: "x".into() };
        self.front.submit(0, Transaction { collection: home(), changes: vec![last] });
        self.front.poll(&mut Vec::new());
        self.states.push(Dump::of(&mut self.front));
        self.settle();
        self.acknowledged = self.states.len();
        let from = std::mem::replace(&mut self.at, to);
        // Its client goes on at the new place while the old one is cleared away.
        let mut ignored = Vec::new();
        self.client_writes(&[&objects[0], &object("new", 7)], &mut ignored);
        loop {
            self.disk.set_pace(Pace::AtOnce);
            // In smaller steps than usual, to see a cut between them; so each begins anew.
            let mut removal = CollectionRemoval::default();
            let request = removal.request(home());
            let answers = ask(&mut self.shards[from], home(), &request.object, request.queries);
            self.disk.set_pace(Pace::Steps);
            let mut changes = removal.changes(answers.expect("it can be listed"));
            let is_last = changes.len() <= 2;
            changes.truncate(2);
            self.submit(from, changes);
            self.settle();
            if is_last {
                return;
            }
        }
    }

    fn client_writes(&mut self, objects: &[&ObjectId], dirty: &mut Vec<ObjectId>) {
        for (i, id) in objects.iter().enumerate() {
            dirty.push((*id).clone());
            self.client(vec![write(id, 100 * i as u64, 2000), meta_entry(self.states.len())]);
        }
    }
}

fn write(object: &ObjectId, offset: u64, len: u64) -> Change {
    let seed = offset ^ len << 20 ^ u64::from(object.object.hash) << 40;
    Change::Write { object: object.clone(), offset, data: bytes(&mut Dice::new(seed), len).into() }
}

fn meta_entry(n: usize) -> Change {
    let entries = vec![(format!("{n:04}").into(), vec![n as u8; 100].into())];
    Change::OmapSet { object: ObjectId::pg_meta(pg(0)), entries }
}

#[test]
fn collection_survives_every_power_cut_during_a_move() {
    // All data straight to its blocks, or as it comes.
    two_moves(Options { inline_bytes_max: 0, ..small() });
    two_moves(Options { deferred_bytes_max: 8 << 10, ..small() });
}

fn two_moves(options: Options) {
    let mut story = Story::begin(options);
    story.move_over();
    story.shards.iter_mut().for_each(Shard::force_checkpoint);
    assert_eq!((story.at, story.shards[0].placed()), (1, vec![]));
    story.move_over();
    assert_eq!((story.at, story.shards[1].placed()), (0, vec![]));
    assert_eq!(story.shards[0].placed()[0].1.moves, 2);
    let found = Dump::of(&mut story.shards[0]);
    assert!(found == *story.states.last().expect("it began with one"));
    println!("two moves: {} boundaries, {} disks opened", story.boundaries, story.images);
    assert!(story.images > story.boundaries, "cuts were tried");
}

/// fsck covers copies that arrive or are left over.
#[test]
fn half_done_move_can_be_repeated_after_a_start() {
    let options = small();
    let mut story = Story::begin(options.clone());
    story.submit(1, vec![Change::BeginArrival { split_bits: 0, moves: 1 }]);
    story.copy(&object("long", 9), false);
    let disk = story.disk.killed(&mut Dice::new(1));
    disk.set_pace(Pace::AtOnce);
    let mut shards = open(&disk, &options);
    assert!(shards[1].placed()[0].1.arriving);
    assert_eq!(shards[1].collections(), []);
    let report = shards[1].check(Depth::Deep, &mut || ());
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    remove(&mut shards[1], home(), &mut |_| ()).unwrap();
    story = Story { disk, shards, ..story };
    story.disk.set_pace(Pace::Steps);
    story.moves = 4;
    story.move_over();
    assert_eq!(story.shards[1].placed()[0].1.moves, 5);
}
