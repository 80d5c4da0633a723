//! The production block store on a simulated disk.
//!
//! The disk completes requests in any order, some at each poll. A process crash loses the memory of the process. A power
//! loss also loses, tears and reorders unflushed writes. Bits of object data flip, and blocks of it fail to read for a
//! while. A reset fails all reads for seconds, and nothing may be lost by it. Half of the disks are encrypted. All sizes of
//! the store are small and partly drawn from the seed, so that checkpoints, merges and the wrap of the
//! log happen within minutes.
//!
//! Reported damage must be at a place that was broken; all other reads must succeed. Before some starts one copy of the
//! superblock or of the header rots: the store must open with the others. The index and the log are not damaged here, since
//! a cluster with one copy does not survive an OSD that cannot read its PGs. The tests of the block store damage them.

use super::ballast::Ballast;
use crate::check::history_key;
use crate::node::Death;
use block_store::check::{Depth, Finding};
use block_store::format::{KeyHolder, KeySecret, NewKeys};
use block_store::{
    Damage, FormatOptions, Identity, Options, Patience, Shard, attach_with_key, format, index,
    read_superblock,
};
use bytes::Bytes;
use device::BLOCK;
use device::dice::Dice;
use device::encrypted::{DataKey, plaintext};
use device::simulated::{Pace, Simulated};
use machine::Time;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Collection, Completion, ObjectStore};

const BYTES: u64 = 24 << 20;
const LOG_BYTES: u64 = 3 << 20;
const ZONE_BYTES: u64 = 512 << 10;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// Time between two resets: reads that one of them failed are repeated in between, also where the process was paused.
const CALM_AFTER_RESET: Duration = Duration::from_secs(5);
/// Number of later log batches after which a batch is known to be flushed. Damage before that looks like a torn end of
/// the log, which the store cuts off.
const BATCHES_UNTIL_KEPT: u64 = 8;
/// Starts before which a copy of the superblock or header rots.
const ROT_BEFORE_START_PERCENT: u64 = 30;
/// Maximum time from a failed read to its report: the store repeats it for ten seconds.
const REPORTED_WITHIN: Duration = Duration::from_secs(30);

/// Damage that the store reported.
pub(super) struct Found {
    pub(super) damage: osd::node::Damage,
    /// The fault of the report, if nothing was broken at its place.
    pub(super) unexplained: Option<String>,
}

impl Found {
    /// The damaged object's name in the history.
    pub(super) fn object_key(&self) -> String {
        let object = &self.damage.object.object;
        history_key(object.pool, &object.name.to_string())
    }
}

/// Keys of every second disk, from a stream of their own.
fn new_keys(seed: u64) -> Option<NewKeys> {
    let mut dice = Dice::new(seed ^ 0xc1);
    let is_encrypted = dice.chance(50);
    let data_key = DataKey::new(&std::array::from_fn(|_| dice.roll() as u8))?;
    let secret: [u8; 32] = std::array::from_fn(|_| dice.roll() as u8);
    let secret = KeySecret::new(&secret).expect("it is long enough");
    is_encrypted.then_some(NewKeys { data_key, secret, holder: KeyHolder::File })
}

pub(super) struct Disk {
    device: Simulated,
    dice: Dice,
    /// For rot of superblocks and headers.
    start_dice: Dice,
    /// Of an encrypted store.
    keys: Option<NewKeys>,
    options: Options,
    cache_bytes: usize,
    /// While the process lives.
    shard: Option<Shard>,
    is_busy: bool,
    /// A clean stop has begun.
    is_stopping: bool,
    /// The last process ended cleanly, so its successor must find an empty log.
    has_empty_log: bool,
    /// A pending bit flip: blocks with these bytes, and the batch of the log. It waits until the bytes are known to be flushed.
    to_flip: Option<(Vec<u64>, Bytes, u64)>,
    /// For rot of blocks that are equal.
    twin_dice: Dice,
    /// Blocks with a flipped bit, with their bytes after the flip. A new write heals a block.
    rotten: BTreeMap<u64, Bytes>,
    /// An unreadable block and the end of its failure. A new write heals it, as a drive remaps a bad sector. Reports may
    /// follow within [`REPORTED_WITHIN`].
    unreadable: Option<(u64, Time)>,
    /// End of the reads' failures of a block or of all of them.
    faults_until: Option<Time>,
    /// Until then no reset begins: one upon another could outlast the store's patience.
    no_reset_until: Time,
    ballast: Ballast,
    /// True once anything was broken. From then on objects may have lost bytes.
    was_broken: bool,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Disk {
        let mut dice = Dice::new(seed);
        let one_of = |dice: &mut Dice, of: &[usize]| of[dice.below(of.len() as u64) as usize];
        let options = Options {
            inline_bytes_max: one_of(&mut dice, &[0, 4 << 10, 16 << 10, 64 << 10]),
            deferred_write_bytes_max: None,
            deferred_bytes_max: 256 << 10,
            place_blocks_max: 64,
            place_writes_max: 64,
            batch_bytes_max: 64 << 10,
            log_bytes_max: one_of(&mut dice, &[256 << 10, 1 << 20]) as u64,
            recent_bytes_max: 32 << 10,
            discard_blocks: dice.chance(50).then_some(1),
            discard_patience: 4,
            patience: Patience::default(),
            range_keys_min: one_of(&mut dice, &[1, 64]),
            part_keys_max: 1000,
            compression: BTreeMap::new(),
            first_fit: dice.chance(50),
            manifest_in_pieces: dice.chance(30),
            index: index::Options {
                memtable_bytes: 64 << 10,
                table_bytes: 32 << 10,
                segment_bytes: 8 << 10,
                level_bytes: 128 << 10,
                fanout: 4,
                cache_bytes: 256 << 10,
                ..Options::default().index
            },
        };
        let cache_bytes = one_of(&mut dice, &[0, 512 << 10]);
        let device = Simulated::new(BYTES, Pace::AtOnce, dice.roll());
        let identity = Identity([dice.roll() as u8; 16]);
        let label = "simulated".into();
        let (log_bytes, zone_bytes) = (Some(LOG_BYTES), Some(ZONE_BYTES));
        let keys = new_keys(seed);
        let encryption = keys.clone();
        let how = FormatOptions {
            identity,
            label,
            shards: 1,
            log_bytes,
            zone_bytes,
            discard: false,
            encryption,
            devices: Vec::new(),
        };
        format(&mut device.clone(), &how, &mut || ()).expect("a store fits on this disk");
        device.set_pace(Pace::Shuffled { per_poll_max: 1 + dice.below(6) as usize });
        Disk {
            device,
            start_dice: Dice::new(seed ^ 0x5b),
            keys,
            dice,
            options,
            cache_bytes,
            shard: None,
            is_busy: false,
            is_stopping: false,
            has_empty_log: false,
            to_flip: None,
            twin_dice: Dice::new(seed ^ 0x7d),
            rotten: BTreeMap::new(),
            unreadable: None,
            faults_until: None,
            no_reset_until: Time::ZERO,
            ballast: Ballast::default(),
            was_broken: false,
        }
    }

    /// Flips a bit of a copy of the superblock or header, sometimes, and if the other copies are the same.
    fn rot_before_start(&mut self) {
        if !self.start_dice.chance(ROT_BEFORE_START_PERCENT) {
            return;
        }
        let Ok(superblock) = read_superblock(&mut self.device.clone(), &mut || ()) else { return };
        let (copies, key) = match self.start_dice.chance(50) {
            true => (vec![0, 1, BYTES / BLOCK_BYTES - 1], None),
            false => (superblock.shards[0].headers.to_vec(), self.keys.as_ref().map(|keys| &keys.data_key)),
        };
        let contents_of = |block: &u64| {
            let (offset, stored) = (block * BLOCK_BYTES, self.device.peek(block * BLOCK_BYTES));
            key.map_or(stored.clone(), |key| plaintext(key, offset, &stored).into())
        };
        let contents: Vec<Bytes> = copies.iter().map(contents_of).collect();
        let chosen = copies[self.start_dice.below(copies.len() as u64) as usize];
        let (at, bit) = (self.start_dice.below(BLOCK_BYTES) as usize, self.start_dice.below(8));
        if contents.iter().all(|copy| *copy == contents[0]) {
            self.device.poke(chosen * BLOCK_BYTES, |block| block[at] ^= 1 << bit);
        }
    }

    pub(super) fn open(&mut self) -> Result<(), String> {
        if self.faults_until.take().is_some() {
            self.device.heal();
        }
        self.rot_before_start();
        let mut device = Box::new(self.device.clone());
        let secret = self.keys.as_ref().map(|keys| &keys.secret);
        let pool = attach_with_key(&mut *device, secret, &mut || ()).map_err(|error| error.to_string())?;
        let shard = Shard::open(device, 0, &pool, self.options.clone(), &mut || ());
        let mut shard = shard.map_err(|error| error.to_string())?;
        let to_replay = shard.figures().log_used;
        if std::mem::take(&mut self.has_empty_log) && to_replay > 0 {
            return Err(format!("it replays {to_replay} bytes of log after a clean stop"));
        }
        shard.set_cache_budget(self.cache_bytes);
        self.shard = Some(shard);
        Ok(())
    }

    pub(super) fn shard(&self) -> &Shard {
        self.shard.as_ref().expect("a node that is up has its store")
    }

    /// For a request or another change.
    pub(super) fn shard_mut(&mut self) -> &mut Shard {
        self.is_busy = true;
        self.shard.as_mut().expect("a node that is up has its store")
    }

    pub(super) fn died(&mut self, death: Death, seed: u64) {
        let mut dice = Dice::new(seed);
        self.device = match death {
            Death::Process => self.device.killed(&mut dice),
            Death::Power => self.device.power_cut(&mut dice),
        };
        // A store that is too full for its last checkpoint keeps its log.
        self.has_empty_log = self.has_stopped() && self.ballast.is_gone();
        (self.shard, self.is_busy, self.is_stopping, self.to_flip) = (None, false, false, None);
        self.ballast.died();
    }

    /// Begins a clean stop.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.shard_mut().stop();
    }

    /// The clean stop is complete.
    pub(super) fn has_stopped(&self) -> bool {
        self.is_stopping && self.shard.as_ref().is_some_and(Shard::is_stopped)
    }

    pub(super) fn poll(&mut self, now: Time, out: &mut Vec<Completion>) -> Vec<Found> {
        if self.faults_until.is_some_and(|until| until <= now) {
            self.device.heal();
            self.faults_until = None;
        }
        if self.unreadable.is_some_and(|(_, until)| until + REPORTED_WITHIN <= now) {
            self.unreadable = None;
        }
        self.flip_when_old();
        let shard = self.shard.as_mut().expect("a node that is up has its store");
        shard.set_now(now.since(Time::ZERO));
        self.is_busy = shard.poll(out);
        let ballast = &mut self.ballast;
        out.retain(|completion| {
            let is_own = !Ballast::is_ballast(completion.tag());
            if !is_own {
                ballast.completed();
            }
            is_own
        });
        if !self.is_stopping {
            self.is_busy |= ballast.go_on(now, shard.usage().within_reach(), shard);
        }
        let damage = shard.take_damage();
        damage.into_iter().map(|damage| self.explain(damage)).collect()
    }

    /// While stalled, the device answers no request. The store goes on without it.
    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.device.stall(is_stalled);
    }

    /// Fills the disk until then. Only the disk with the OSD's own collection is filled.
    pub(super) fn fill(&mut self, until: Time) -> bool {
        let Some(shard) = &self.shard else { return false };
        let has_meta = shard.placed().iter().any(|(collection, _)| *collection == Collection::Meta);
        if has_meta {
            self.ballast.fill(until);
            self.is_busy = true;
        }
        has_meta
    }

    /// Space was taken or given back that the OSD has not asked for.
    pub(super) fn take_ballast_change(&mut self) -> bool {
        self.ballast.take_change()
    }

    fn explain(&self, damage: Damage) -> Found {
        // The error of a read of several blocks names the first one.
        const READ_MAX: u64 = 256;
        let is_explained = match damage.device_offset.map(|at| at / BLOCK_BYTES) {
            Some(block) => {
                self.is_rotten(block)
                    || self.unreadable.is_some_and(|(bad, _)| (block..block + READ_MAX).contains(&bad))
            }
            None => self.was_broken,
        };
        let unexplained = (!is_explained).then(|| format!("nothing was broken there: {damage:?}"));
        let Damage { collection, object, offset, device_offset } = damage;
        Found { damage: osd::node::Damage { collection, object, offset, device_offset }, unexplained }
    }

    fn is_rotten(&self, block: u64) -> bool {
        self.rotten.get(&block).is_some_and(|bytes| self.device.peek(block * BLOCK_BYTES) == *bytes)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    pub(super) fn is_writing(&self) -> bool {
        self.device.under_way() > 0
    }

    /// Draws a block with object data.
    fn stored_block(&mut self) -> Option<u64> {
        let runs: Vec<_> = self.shard.as_ref()?.stored_runs().collect();
        let blocks: u64 = runs.iter().map(|run| run.len).sum();
        let at = self.dice.below(blocks);
        runs.into_iter().flat_map(|run| run.blocks()).nth(at as usize)
    }

    /// Schedules a bit flip in stored data, once the data is known to be flushed.
    pub(super) fn flip_bit(&mut self) -> bool {
        let Some(block) = self.stored_block() else { return false };
        self.flip_later(vec![block]);
        true
    }

    /// The same in two blocks with the same bytes: mostly those are the two copies of a chunk of a PG log.
    pub(super) fn flip_twins(&mut self) -> bool {
        let Some(shard) = &self.shard else { return false };
        let mut seen: BTreeMap<Bytes, u64> = BTreeMap::new();
        let mut twins = Vec::new();
        for block in shard.stored_runs().flat_map(|run| run.blocks()) {
            if let Some(twin) = seen.insert(self.device.peek(block * BLOCK_BYTES), block) {
                twins.push([twin, block]);
            }
        }
        if twins.is_empty() {
            return false;
        }
        let at = self.twin_dice.below(twins.len() as u64) as usize;
        self.flip_later(twins[at].to_vec());
        true
    }

    /// The blocks have the same bytes.
    fn flip_later(&mut self, blocks: Vec<u64>) {
        let batches = self.shard.as_ref().map_or(0, |shard| shard.figures().batches);
        let bytes = self.device.peek(blocks[0] * BLOCK_BYTES);
        self.to_flip = Some((blocks, bytes, batches));
    }

    fn flip_when_old(&mut self) {
        let Some((blocks, bytes, batch)) = &self.to_flip else { return };
        let (blocks, batch) = (blocks.clone(), *batch);
        let shard = self.shard.as_ref().expect("a node that is up has its store");
        if blocks.iter().any(|block| self.device.peek(block * BLOCK_BYTES) != *bytes) {
            self.to_flip = None;
        } else if shard.figures().batches >= batch + BATCHES_UNTIL_KEPT {
            let (at, bit) = (self.dice.below(BLOCK_BYTES) as usize, self.dice.below(8));
            for block in blocks {
                let offset = block * BLOCK_BYTES;
                self.device.poke(offset, |block| block[at] ^= 1 << bit);
                self.rotten.insert(block, self.device.peek(offset));
            }
            (self.to_flip, self.was_broken) = (None, true);
        }
    }

    /// Makes a block with stored data unreadable until then.
    pub(super) fn fail_reads(&mut self, until: Time) -> bool {
        let Some(block) = self.stored_block() else { return false };
        self.device.heal();
        self.device.fail_reads_until_written(block * BLOCK_BYTES);
        (self.unreadable, self.was_broken) = (Some((block, until)), true);
        self.faults_until = Some(until);
        true
    }

    /// Fails every read for that time, which is less than the store's patience. False soon after another reset.
    pub(super) fn reset(&mut self, now: Time, until: Time) -> bool {
        // A machine whose disk does not answer does not come up: a start ends the reset.
        if self.shard.is_none() || now < self.no_reset_until {
            return false;
        }
        self.device.fail_reads(0..BYTES);
        (self.faults_until, self.no_reset_until) = (Some(until), until + CALM_AFTER_RESET);
        true
    }

    /// Checks the consistency of the store's contents, apart from broken blocks.
    pub(super) fn examine(&mut self) -> Result<(), String> {
        self.device.heal();
        self.device.set_pace(Pace::AtOnce);
        let Some(shard) = self.shard.as_mut() else { return Ok(()) };
        while shard.poll(&mut Vec::new()) {}
        let findings = shard.check(Depth::Deep, &mut || ()).findings;
        let is_known = |finding: &Finding| match finding {
            Finding::Corrupt { device_offset, .. } => self.is_rotten(device_offset / BLOCK_BYTES),
            Finding::Lost { .. } => self.was_broken,
            _ => false,
        };
        match findings.iter().find(|finding| !is_known(finding)) {
            Some(finding) => Err(format!("its store does not agree with itself: {finding}")),
            None => Ok(()),
        }
    }
}
