//! The list of tables, as bytes.
//!
//! ```text
//!  0  8 bytes  "shoalidx"
//!  8  u32      crc32c of all that follows
//! 12  u16      format, 1
//! 14  u64      flushed: the log mark up to which the tables hold everything
//! 22  u64      the next table's number
//! 30  u32      number of runs, newest first; of each
//!       u8       level
//!       u32      number of tables, in order of their keys; of each
//!         u64      number
//!         blob     first key, blob  the key where it ends (u32 length and bytes)
//!         u64 u32 u32   root: block on the device, blocks, crc32c
//!         u64 u64  entries, deletions among them
//!         u32      number of runs of blocks it occupies; of each u64 first block, u64 number of blocks
//! ```

use super::levels::{Levels, SortedRun, is_run};
use super::table::{At, Table};
use super::{Bad, LogMark};
use codec::{DecodeError, Features, Reader, Writer};
use device::BLOCK;
use std::sync::{Arc, OnceLock};

const MAGIC: &[u8; 8] = b"shoalidx";
const FORMAT: u16 = 1;
/// Deeper than any index grows.
const LEVELS_MAX: u8 = 16;

pub struct State {
    pub flushed: LogMark,
    pub next_table: u64,
    pub levels: Levels,
}

pub fn encode(flushed: LogMark, next_table: u64, levels: &Levels) -> Vec<u8> {
    let mut w = Writer::new(Features::NONE);
    w.u16(FORMAT);
    w.u64(flushed.0);
    w.u64(next_table);
    w.u32((levels.fresh.len() + levels.deep.len()) as u32);
    let numbered = levels.fresh.iter().map(|run| (0, run));
    for (level, run) in numbered.chain(levels.deep.iter().enumerate().map(|(i, run)| (i as u8 + 1, run))) {
        w.u8(level);
        w.u32(run.len() as u32);
        run.iter().for_each(|table| encode_table(table, &mut w));
    }
    let body = w.into_vec();
    [&MAGIC[..], &crate::checksum::crc32c(&body).to_le_bytes(), &body].concat()
}

pub fn decode(bytes: &[u8]) -> Result<State, Bad> {
    let mut r = Reader::new(bytes);
    let sound = r.take("magic", 8).is_ok_and(|magic| magic == MAGIC)
        && r.u32().is_ok_and(|crc| crc == crate::checksum::crc32c(r.ahead()));
    if !sound {
        return Err(Bad::Corrupt);
    }
    decode_body(&mut r).map_err(|_| Bad::Corrupt)
}

fn decode_body(r: &mut Reader) -> Result<State, DecodeError> {
    let format = r.u16()?;
    if format != FORMAT {
        return Err(r.invalid("format of the index", format));
    }
    let (flushed, next_table) = (LogMark(r.u64()?), r.u64()?);
    let mut levels = Levels::default();
    for _ in 0..r.count("runs", 5)? {
        let level = r.u8()?;
        let mut run = SortedRun::new();
        for _ in 0..r.count("tables", 60)? {
            run.push(Arc::new(decode_table(r)?));
        }
        let numbers_fit = run.iter().all(|table| table.number < next_table);
        let level_fits =
            if level == 0 { levels.deep.is_empty() } else { level as usize == levels.deep.len() + 1 };
        if !is_run(&run) || !numbers_fit || !level_fits || level > LEVELS_MAX {
            return Err(r.invalid("run of tables", level));
        }
        match level {
            0 => levels.fresh.push(run),
            _ => levels.deep.push(run),
        }
    }
    r.expect_end()?;
    levels.recount();
    Ok(State { flushed, next_table, levels })
}

fn encode_table(table: &Table, w: &mut Writer) {
    w.u64(table.number);
    w.blob(&table.first);
    w.blob(&table.end);
    w.u64(table.root.unit);
    w.u32(table.root.units);
    w.u32(table.root.crc);
    w.u64(table.entries);
    w.u64(table.deletions);
    w.u32(table.runs.len() as u32);
    for (unit, units) in &table.runs {
        w.u64(*unit);
        w.u64(*units);
    }
}

fn decode_table(r: &mut Reader) -> Result<Table, DecodeError> {
    let number = r.u64()?;
    let (first, end) = (r.blob()?.to_vec(), r.blob()?.to_vec());
    let root = At { unit: r.u64()?, units: r.u32()?, crc: r.u32()? };
    let (entries, deletions) = (r.u64()?, r.u64()?);
    let mut runs = Vec::new();
    for _ in 0..r.count("runs of blocks", 16)? {
        let (unit, units) = (r.u64()?, r.u64()?);
        let end = unit.checked_add(units).and_then(|end| end.checked_mul(BLOCK as u64));
        if units == 0 || end.is_none() {
            return Err(r.invalid("run of blocks", unit));
        }
        runs.push((unit, units));
    }
    Ok(Table { number, first, end, root, entries, deletions, runs, born: 0, root_node: OnceLock::new() })
}
