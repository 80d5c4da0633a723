//! The throw-away backend: two shards, of which one is enough, whose bytes differ. Only the simulator has it.
//!
//! Of each object one shard has the client's bytes and the other one their product with a constant of GF(256). The hash decides
//! which is which, so half of the objects of a PG are read from the member that is not the primary. Zeroes stay zeroes: holes,
//! truncations and sizes are the same on both shards. So are attributes and omaps, which real erasure pools do not have.
//!
//! An object's bytes on the wrong shard, or read without decoding, are other bytes than the client's. A mistake in the seam thus
//! shows in the histories of clients and in the comparison of copies.

use super::ReadPlan;
use crate::planted::{self, PlantedBug};
use crate::shard::Interval;
use codec::Rope;
use placement::crush::ITEM_NONE;
use std::cell::Cell;
use store::{Answer, Change, Query, ReadRequest};
use wire::types::{HObject, ShardId};

/// Factor of a parity byte, and its inverse, in GF(256) with the polynomial 0x11d.
const FACTOR: u8 = 0x02;
const INVERSE: u8 = 0x8e;

/// The uses of the seam by the OSDs that this thread drives, so that a test can tell that its runs had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads whose bytes another member gave.
    pub member_reads: u64,
    /// Reads that were decoded because the other shard was absent or lacked the object.
    pub decoded_reads: u64,
    /// Of them those that the other member was asked for in vain.
    pub refused_reads: u64,
    /// Steps of recovery that made parity of the client's bytes, and the opposite.
    pub pushed_parity: u64,
    pub pushed_data: u64,
}

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally { member_reads: 0, decoded_reads: 0, refused_reads: 0, pushed_parity: 0, pushed_data: 0 }) };
}

impl Tally {
    /// The uses since the last call.
    pub fn take() -> Tally {
        TALLY.take()
    }

    pub(crate) fn note(change: impl FnOnce(&mut Tally)) {
        let mut tally = TALLY.get();
        change(&mut tally);
        TALLY.set(tally);
    }
}

/// The shard of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    shard: ShardId,
}

impl Trial {
    /// Either shard gives all objects.
    pub const ENOUGH: usize = 1;

    pub fn new(shard: ShardId) -> Trial {
        Trial { shard }
    }

    /// The shard that has the client's bytes of an object. The low bits of all hashes of a PG are the same.
    fn data_shard(object: &HObject) -> ShardId {
        ShardId((object.hash >> 31) as i8)
    }

    fn has_data(self, object: &HObject) -> bool {
        self.shard == Trial::data_shard(object)
    }

    /// The changes of whole objects as this shard applies them.
    pub fn share(self, changes: &[Change]) -> Vec<Change> {
        let parity = |object: &HObject| (!self.has_data(object)).then_some(FACTOR);
        changes.iter().cloned().map(|change| scaled(change, parity)).collect()
    }

    /// The changes of this shard as `to` applies them.
    pub fn payload_for(self, to: ShardId, changes: Vec<Change>) -> Vec<Change> {
        if planted::has(PlantedBug::ShardPushedAsIs) {
            return changes;
        }
        let factor = |object: &HObject| match (self.has_data(object), Trial::new(to).has_data(object)) {
            (true, false) => Some(FACTOR),
            (false, true) => Some(INVERSE),
            _ => None,
        };
        for change in &changes {
            match change {
                Change::Write { object, .. } if factor(&object.object) == Some(FACTOR) => {
                    Tally::note(|tally| tally.pushed_parity += 1);
                }
                Change::Write { .. } => Tally::note(|tally| tally.pushed_data += 1),
                _ => {}
            }
        }
        changes.into_iter().map(|change| scaled(change, factor)).collect()
    }

    pub fn plan_read(
        self,
        request: &ReadRequest,
        interval: &Interval,
        has: impl Fn(i32, &HObject) -> bool,
    ) -> ReadPlan {
        let object = &request.object.object;
        let reads_bytes = request.queries.iter().any(|query| matches!(query, Query::Data { .. }));
        if !reads_bytes || self.has_data(object) {
            return ReadPlan::Here;
        }
        let position = Trial::data_shard(object).0 as usize;
        match interval.acting.get(position) {
            Some(&osd) if osd != ITEM_NONE && has(osd, object) => ReadPlan::Member(osd),
            _ => ReadPlan::Decoded,
        }
    }

    /// The client's bytes, from those of the parity.
    pub fn decode(answers: &mut [Answer]) {
        for answer in answers {
            if let Answer::Data(data) = answer {
                *data = product(data, INVERSE);
            }
        }
    }

    pub fn client_bytes(self, object: &HObject, data: Rope) -> Rope {
        if self.has_data(object) { data } else { product(&data, INVERSE) }
    }
}

/// A change with its bytes multiplied.
fn scaled(change: Change, factor: impl Fn(&HObject) -> Option<u8>) -> Change {
    match change {
        Change::Write { object, offset, data } => {
            let data = match factor(&object.object) {
                Some(factor) if !object.is_pg_meta() => product(&data, factor),
                _ => data,
            };
            Change::Write { object, offset, data }
        }
        // A clone has its head's hash, so each shard clones its own share.
        Change::CloneRange { .. } | Change::Rename { .. } => {
            unreachable!("no operation of the trial copies bytes between objects")
        }
        other => other,
    }
}

fn product(data: &Rope, factor: u8) -> Rope {
    let bytes = data.pieces().iter().flat_map(|piece| piece.iter());
    let bytes: Vec<u8> = bytes.map(|byte| multiply(*byte, factor)).collect();
    bytes::Bytes::from(bytes).into()
}

fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut out = 0;
    while b != 0 {
        out ^= if b & 1 == 1 { a } else { 0 };
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use store::Collection;

    fn object(hash: u32) -> HObject {
        HObject { name: "a".into(), hash, ..HObject::min() }
    }

    fn write(hash: u32) -> Vec<Change> {
        let data = Bytes::from_static(b"\x00client's bytes\xff").into();
        vec![Change::Write { object: object(hash).into(), offset: 3, data }]
    }

    const SHARDS: [Trial; 2] = [Trial { shard: ShardId(0) }, Trial { shard: ShardId(1) }];

    #[test]
    fn each_shard_has_bytes_of_its_own_and_becomes_the_other() {
        for hash in [0, u32::MAX] {
            let [zero, one] = SHARDS.map(|shard| shard.share(&write(hash)));
            assert_ne!(zero, one);
            assert_eq!(zero == write(hash), hash == 0, "the hash tells which one has the client's bytes");
            assert_eq!(SHARDS[0].payload_for(ShardId(1), zero.clone()), one);
            assert_eq!(SHARDS[1].payload_for(ShardId(0), one.clone()), zero);
            assert_eq!(SHARDS[1].payload_for(ShardId(1), one.clone()), one);
        }
    }

    #[test]
    fn read_goes_to_data_shard_while_it_has_the_object() {
        let queries = vec![Query::Data { offset: 0, len: 9 }];
        let read = ReadRequest { collection: Collection::Meta, object: object(u32::MAX).into(), queries };
        let interval = Interval::new(3, vec![5, 7], 2, 1);
        let plan = |shard: Trial, has: bool| shard.plan_read(&read, &interval, |osd, _| osd == 7 && has);
        assert_eq!(plan(SHARDS[0], true), ReadPlan::Member(7));
        assert_eq!(plan(SHARDS[0], false), ReadPlan::Decoded);
        assert_eq!(plan(SHARDS[1], true), ReadPlan::Here);
        let alone = Interval::new(3, vec![5, ITEM_NONE], 2, 1);
        assert_eq!(SHARDS[0].plan_read(&read, &alone, |_, _| true), ReadPlan::Decoded);
        let attr = ReadRequest { queries: vec![Query::Attrs], ..read };
        assert_eq!(SHARDS[0].plan_read(&attr, &interval, |_, _| true), ReadPlan::Here);
    }

    #[test]
    fn parity_is_decoded() {
        let Some(Change::Write { data, .. }) = SHARDS[0].share(&write(u32::MAX)).pop() else { panic!() };
        let Some(Change::Write { data: whole, .. }) = write(u32::MAX).pop() else { panic!() };
        let mut answers = [Answer::Data(data), Answer::Stat { size: 3 }];
        Trial::decode(&mut answers);
        assert_eq!(answers[0], Answer::Data(whole));
    }
}
