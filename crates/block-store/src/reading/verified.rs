//! The blocks of a read: verified against their checksums, unpacked, and joined to answers.

use super::{Damage, DataPart, PackedSource, Source};
use crate::checksum::{crc32c, followed_by, of_frame};
use crate::clean::Clean;
use crate::object::packed::{Packed, unpack};
use crate::object::page::Piece;
use crate::planted::{self, PlantedBug};
use crate::space::Run;
use bytes::Bytes;
use codec::Rope;
use device::BLOCK;
use std::collections::BTreeSet;
use store::{Collection, ObjectId};

/// Blocks that were read of the device, and their checksums' verdict.
pub(super) struct Blocks {
    pub collection: Collection,
    pub object: ObjectId,
    pub reads: Vec<Run>,
    pub contents: Vec<Bytes>,
    /// Reads that the device failed.
    pub failed: BTreeSet<usize>,
    /// Reads with damage that was reported.
    pub bad: BTreeSet<usize>,
    pub unpacked: Vec<Option<Bytes>>,
}

impl Blocks {
    /// A read's block, if it was read and matches its checksum. Otherwise its damage is reported, once for a read that failed.
    fn verified(
        &mut self,
        (read, unit, crc): (usize, u64, u32),
        offset: u64,
        damaged: &mut dyn FnMut(Damage),
    ) -> Option<&[u8]> {
        let (is_failed, run) = (self.failed.contains(&read), self.reads[read]);
        let at = (unit - run.start) as usize * BLOCK;
        let is_good = !is_failed
            && (crc32c(&self.contents[read][at..at + BLOCK]) == crc
                || planted::has(PlantedBug::ChecksumNotCompared));
        if is_good {
            return Some(&self.contents[read][at..at + BLOCK]);
        }
        let is_first = self.bad.insert(read);
        if is_first || !is_failed {
            let (collection, object) = (self.collection, self.object.clone());
            let device_offset = Some(if is_failed { run.offset() } else { unit * BLOCK as u64 });
            damaged(Damage { collection, object, offset, device_offset });
        }
        None
    }

    pub fn unpack(&mut self, part: &PackedSource, damaged: &mut dyn FnMut(Damage)) -> Option<Bytes> {
        let mut joined = Vec::with_capacity(part.sources.len() * BLOCK);
        let mut is_whole = true;
        for (source, (unit, crc)) in part.sources.iter().zip(&part.packed.units) {
            match source {
                Source::Here(buffer, at) => joined.extend_from_slice(&buffer[*at..at + BLOCK]),
                Source::Stored(read) => match self.verified((*read, *unit, *crc), part.offset, damaged) {
                    Some(block) => joined.extend_from_slice(block),
                    None => is_whole = false,
                },
            }
        }
        if !is_whole {
            return None;
        }
        let Packed { algorithm, blocks, len, .. } = part.packed;
        let out = unpack(algorithm, blocks, &joined[..len as usize]);
        if out.is_none() {
            let (collection, object) = (self.collection, self.object.clone());
            let device_offset = Some(part.packed.name() * BLOCK as u64);
            damaged(Damage { collection, object, offset: part.offset, device_offset });
        }
        out
    }

    /// False for a part with damage, which is reported.
    pub fn is_good(&mut self, part: &DataPart, damaged: &mut dyn FnMut(Damage)) -> bool {
        match part {
            DataPart::Zeroes(_) | DataPart::Here { .. } => true,
            DataPart::Packed { number, .. } => self.unpacked[*number].is_some(),
            DataPart::Lost { offset } => {
                let (collection, object) = (self.collection, self.object.clone());
                damaged(Damage { collection, object, offset: *offset, device_offset: None });
                false
            }
            DataPart::Stored { read, piece, offset } => {
                self.verified((*read, piece.unit, piece.crc), *offset, damaged).is_some()
            }
        }
    }

    /// Adds a good part.
    pub fn join(&self, part: &DataPart, joined: &mut Joined) {
        match part {
            DataPart::Zeroes(len) => joined.zeroes(*len),
            DataPart::Here { buffer, at, piece } => joined.piece(buffer, *at, piece),
            DataPart::Packed { number, piece } => {
                joined.unpacked(self.unpacked[*number].as_ref().expect("it is good"), piece);
            }
            DataPart::Stored { read, piece, .. } => {
                let at = (piece.unit - self.reads[*read].start) as usize * BLOCK;
                joined.piece(&self.contents[*read], at, piece);
            }
            DataPart::Lost { .. } => unreachable!("it is not good"),
        }
    }

    /// The bytes of a log's chunk: each part from the first copy that has it. Both are verified, so that damage is known before
    /// the second copy is needed.
    pub fn join_copies(
        &mut self,
        copies: &[Vec<DataPart>; 2],
        damaged: &mut dyn FnMut(Damage),
    ) -> Option<Bytes> {
        let mut good = |parts: &[DataPart]| -> Vec<bool> {
            parts.iter().map(|part| self.is_good(part, damaged)).collect()
        };
        let [first, second] = [good(&copies[0]), good(&copies[1])];
        let mut joined = Joined::default();
        // Spills write both copies alike, so their parts correspond, but for lost pages.
        let are_alike = first.len() == second.len();
        let is_second_whole = second.iter().all(|good| *good);
        for (at, part) in copies[0].iter().enumerate() {
            match (first[at], are_alike && second[at]) {
                (true, _) => self.join(part, &mut joined),
                (false, true) => self.join(&copies[1][at], &mut joined),
                (false, false) if is_second_whole => {
                    let mut joined = Joined::default();
                    copies[1].iter().for_each(|part| self.join(part, &mut joined));
                    return Some(joined.finish().to_bytes());
                }
                (false, false) => return None,
            }
        }
        Some(joined.finish().to_bytes())
    }

    /// Of every block that was read a part was verified, and with it the checksum of the whole block.
    pub fn keep_good(&self, clean: &mut Clean) {
        for (read, (run, contents)) in self.reads.iter().zip(&self.contents).enumerate() {
            if !self.bad.contains(&read) && !self.failed.contains(&read) {
                clean.keep(*run, contents);
            }
        }
    }
}

/// Puts an answer together, neighbouring slices of one buffer as one, and its checksum where those of its blocks make it.
#[derive(Default)]
pub(super) struct Joined {
    rope: Rope,
    /// A slice that the next one may go on from: of which buffer, from where to where.
    open: Option<(Bytes, usize, usize)>,
    crc: Option<u32>,
    /// Something that is not a whole block is in it.
    has_parts: bool,
}

impl Joined {
    /// Adds a part of the block that begins `at` in `buffer`.
    fn piece(&mut self, buffer: &Bytes, at: usize, piece: &Piece) {
        let (start, end) = (at + piece.start as usize, at + piece.end as usize);
        self.has_parts |= end - start != BLOCK;
        self.crc = Some(self.crc.map_or(piece.crc, |front| followed_by(front, piece.crc)));
        match &mut self.open {
            Some((open, _, to)) if open.as_ptr() == buffer.as_ptr() && *to == start => *to = end,
            _ => {
                self.close();
                self.open = Some((buffer.clone(), start, end));
            }
        }
    }

    /// Adds a part of unpacked bytes.
    fn unpacked(&mut self, data: &Bytes, piece: &Piece) {
        // Such a block has no checksum of its own.
        self.has_parts = true;
        let at = piece.within.expect("it is compressed") as usize * BLOCK;
        self.piece(data, at, piece);
    }

    fn zeroes(&mut self, mut len: u64) {
        static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
        self.has_parts = true;
        self.close();
        while len > 0 {
            let n = len.min(ZEROES.len() as u64);
            self.rope.push(Bytes::from_static(&ZEROES[..n as usize]));
            len -= n;
        }
    }

    fn close(&mut self) {
        if let Some((buffer, start, end)) = self.open.take() {
            self.rope.push(buffer.slice(start..end));
        }
    }

    pub fn finish(mut self) -> Rope {
        self.close();
        let crc = self.crc.filter(|_| !self.has_parts);
        self.rope.with_sum(crc.map(of_frame))
    }
}
