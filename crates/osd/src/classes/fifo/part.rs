//! A part of a queue: entries one behind the other, behind a header.

use super::entries::{EntryReader, READ_AHEAD};
use super::{ENTRY_OVERHEAD, ENTRY_START_LEN, PART_HEADER_LEN};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features, Reader, Writer};
use machine::Random;
use wire::types::cls::fifo::{
    EntryHeader, GetPartInfoOp, InitPartOp, ListPartOp, ListPartReply, PartHeader, PartInfoReply, PushPartOp,
    TrimPartOp,
};

/// Maximum entries of a listing.
const LIST_MAX: i32 = 512;
/// Bytes of data after which a listing stops. A part of Ceph's clients holds half of that.
const LIST_LEN_MAX: usize = 8 << 20;
/// Bytes that a listing reads at once.
const LIST_WINDOW: u64 = 1 << 20;

/// `EIO` for an object without a header, and without an object.
fn read_part(call: &mut MethodCall<'_>) -> Result<PartHeader, MethodStop> {
    let bytes = call.data(0, PART_HEADER_LEN)?.to_bytes();
    Reader::new(&bytes).get().map_err(|_| MethodStop::Failed(Errno::IO))
}

fn write_part(call: &mut MethodCall<'_>, part: &PartHeader) -> Result<(), MethodStop> {
    call.write(0, part.to_vec(Features::NONE).into())
}

fn is_full(part: &PartHeader) -> bool {
    part.next_offset > part.params.full_size_threshold
}

/// Succeeds for a part that is there with the same limits; `EEXIST` if it has others.
pub fn init_part(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: InitPartOp = call.argument()?;
    if call.exists() && call.context.size > 0 {
        let part = read_part(call)?;
        return if part.params == op.params { Ok(0) } else { Err(Errno::EXIST.into()) };
    }
    let part = PartHeader {
        params: op.params,
        magic: Random::from_number(call.context.seed).u64(),
        min_offset: PART_HEADER_LEN,
        next_offset: PART_HEADER_LEN,
        max_time: call.context.now,
        ..PartHeader::default()
    };
    write_part(call, &part)?;
    Ok(0)
}

/// Appends entries until the part is full, and returns how many these were. `ERANGE` for a part that was full before.
pub fn push_part(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: PushPartOp = call.argument()?;
    let mut part = read_part(call)?;
    let overhead = op.entries.len() as u64 * ENTRY_OVERHEAD;
    if op.total_len.wrapping_add(overhead) > part.params.max_part_size {
        return Err(Errno::INVAL.into());
    }
    if is_full(&part) {
        return Err(Errno::RANGE.into());
    }
    let len: usize = op.entries.iter().map(Bytes::len).sum();
    if len as u64 != op.total_len {
        return Err(Errno::INVAL.into());
    }
    let header = EntryHeader { time: call.context.now }.to_vec(Features::NONE);
    let start = part.next_offset;
    let mut w = Writer::with_capacity(Features::NONE, len + overhead as usize);
    let mut pushed = 0;
    for data in &op.entries {
        if is_full(&part) {
            break;
        }
        part.last_offset = part.next_offset;
        w.u64(part.magic);
        w.u64(ENTRY_START_LEN);
        w.u64(header.len() as u64);
        w.u64(data.len() as u64);
        w.u64(part.max_index);
        w.u32(0);
        w.raw(&header);
        w.raw(data);
        part.next_offset = start.checked_add(w.len() as u64).ok_or(MethodStop::Failed(Errno::FBIG))?;
        part.max_index = part.max_index.wrapping_add(1);
        pushed += 1;
    }
    if pushed == 0 {
        return Err(Errno::FAULT.into());
    }
    part.max_time = call.context.now;
    call.write(start, w.into_bytes())?;
    write_part(call, &part)?;
    Ok(pushed)
}

/// Trims the entries up to the one at the offset, which stays if the client says so. A full part whose end is reached
/// is removed.
pub fn trim_part(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: TrimPartOp = call.argument()?;
    let mut part = read_part(call)?;
    if op.offset < part.min_offset || (op.exclusive && op.offset == part.min_offset) {
        return Ok(0);
    }
    if op.offset >= part.next_offset {
        if is_full(&part) {
            call.remove()?;
            return Ok(0);
        }
        part.min_offset = part.next_offset;
        part.min_index = part.max_index;
    } else {
        let mut entries = EntryReader::new(&part, op.offset, READ_AHEAD);
        part.min_index = entries.start(call)?.index;
        if !op.exclusive {
            entries.next(call)?;
            part.min_index = part.min_index.wrapping_add(1);
        }
        part.min_offset = entries.at;
    }
    write_part(call, &part)?;
    Ok(0)
}

/// Entries behind the one at the offset.
pub fn part_list(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ListPartOp = call.argument()?;
    let part = read_part(call)?;
    let mut reader = EntryReader::new(&part, op.offset, LIST_WINDOW);
    if op.offset >= part.min_offset && !reader.is_at_end() {
        reader.next(call)?;
    }
    let max = op.max.clamp(0, LIST_MAX) as usize;
    let (mut entries, mut len) = (Vec::new(), 0);
    while entries.len() < max && len < LIST_LEN_MAX && !reader.is_at_end() {
        let entry = reader.next(call)?;
        len += entry.data.len();
        entries.push(entry);
    }
    let (more, full) = (!reader.is_at_end(), is_full(&part));
    call.finish_with(&ListPartReply { entries, more, full, ..ListPartReply::default() })
}

pub fn get_part_info(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.argument::<GetPartInfoOp>()?;
    let header = read_part(call)?;
    call.finish_with(&PartInfoReply { header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::UTime;
    use wire::types::cls::fifo::PartParams;

    fn init_op(max_part_size: u64, full_size_threshold: u64) -> InitPartOp {
        let params = PartParams { max_part_size, max_entry_size: 1024, full_size_threshold };
        InitPartOp { params, ..InitPartOp::default() }
    }

    fn part(max_part_size: u64, full_size_threshold: u64) -> Object {
        let mut o = Object::missing();
        o.call("fifo", "init_part", &init_op(max_part_size, full_size_threshold)).unwrap();
        o
    }

    fn push_op(entries: &[&str]) -> PushPartOp {
        let total_len = entries.iter().map(|data| data.len() as u64).sum();
        let entries = entries.iter().map(|data| Bytes::copy_from_slice(data.as_bytes())).collect();
        PushPartOp { entries, total_len, ..PushPartOp::default() }
    }

    /// The call's result.
    fn push(o: &mut Object, op: &PushPartOp) -> i32 {
        o.call_raw("fifo", "push_part", &op.to_vec(Features::NONE)).result
    }

    fn list(o: &mut Object, offset: u64, max: i32) -> Result<ListPartReply, Errno> {
        let op = ListPartOp { offset, max, ..ListPartOp::default() };
        o.call("fifo", "part_list", &op).map(|reply| decode(&reply))
    }

    fn texts(reply: &ListPartReply) -> Vec<&str> {
        reply.entries.iter().map(|entry| std::str::from_utf8(&entry.data).unwrap()).collect()
    }

    fn offsets(reply: &ListPartReply) -> Vec<u64> {
        reply.entries.iter().map(|entry| entry.offset).collect()
    }

    fn trim(o: &mut Object, offset: u64, exclusive: bool) -> Result<Bytes, Errno> {
        o.call("fifo", "trim_part", &TrimPartOp { offset, exclusive, ..TrimPartOp::default() })
    }

    fn header(o: &mut Object) -> PartHeader {
        let reply = o.call("fifo", "get_part_info", &GetPartInfoOp {}).unwrap();
        decode::<PartInfoReply>(&reply).header
    }

    #[test]
    fn part_is_made_once() {
        let mut o = Object::existing();
        o.call("fifo", "init_part", &init_op(4096, 3000)).unwrap();
        let made = header(&mut o);
        assert_eq!((made.min_offset, made.last_offset, made.next_offset), (512, 0, 512));
        assert_eq!((made.max_time, made.max_index), (o.now, 0));
        o.call("fifo", "init_part", &init_op(4096, 3000)).unwrap();
        assert_eq!(header(&mut o), made);
        assert_eq!(o.call("fifo", "init_part", &init_op(4096, 2999)), Err(Errno::EXIST));
        o.put_data(b"x");
        assert_eq!(o.call("fifo", "init_part", &init_op(4096, 3000)), Err(Errno::IO));
        assert_eq!(Object::missing().call_bare("fifo", "init_part"), Err(Errno::INVAL));
    }

    #[test]
    fn entries_are_listed_behind_the_last_one() {
        let mut o = part(4096, 3000);
        assert_eq!(push(&mut o, &push_op(&["one", "two"])), 2);
        o.now = UTime { sec: 2000, nsec: 7 };
        assert_eq!(push(&mut o, &push_op(&["three"])), 1);
        let all = list(&mut o, 0, 100).unwrap();
        assert_eq!((texts(&all), all.more, all.full), (vec!["one", "two", "three"], false, false));
        assert_eq!(offsets(&all), [512, 512 + 61, 512 + 2 * 61]);
        assert_eq!((all.entries[1].time.sec, all.entries[2].time), (1000, o.now));
        let first = list(&mut o, 0, 1).unwrap();
        assert_eq!((texts(&first), first.more), (vec!["one"], true));
        let rest = list(&mut o, first.entries[0].offset, 100).unwrap();
        assert_eq!((texts(&rest), rest.more), (vec!["two", "three"], false));
        for max in [0, -1] {
            let none = list(&mut o, 0, max).unwrap();
            assert_eq!((none.entries.len(), none.more), (0, true));
        }
        let last = header(&mut o).last_offset;
        let end = list(&mut o, last, 100).unwrap();
        assert_eq!((end.entries.len(), end.more), (0, false));
        assert_eq!(list(&mut o, 9999, 100).unwrap(), end, "no part ends there");
        assert_eq!(list(&mut o, 513, 100), Err(Errno::RANGE), "no entry begins there");
        let info = header(&mut o);
        assert_eq!((info.last_offset, info.next_offset, info.max_index), (634, 697, 3));
        assert_eq!(info.max_time, o.now);
    }

    #[test]
    fn stored_entry_has_stocks_layout() {
        let mut o = part(4096, 3000);
        push(&mut o, &push_op(&["a", "bc"]));
        let data = o.data();
        let mut r = Reader::new(&data[512 + 59..]);
        let start: Vec<u64> = (0..5).map(|_| r.u64().unwrap()).collect();
        assert_eq!(start, [header(&mut o).magic, 44, 14, 2, 1]);
        assert_eq!(r.u32(), Ok(0));
        assert_eq!(r.rest(), b"\x01\x01\x08\0\0\0\xe8\x03\0\0\0\0\0\0bc");
        assert_eq!(data.len(), 512 + 59 + 60);
    }

    #[test]
    fn full_part_takes_no_more() {
        let mut o = part(1000, 600);
        assert_eq!(
            push(&mut o, &push_op(&["one", "two", "three"])),
            2,
            "the second one crosses the threshold"
        );
        let all = list(&mut o, 0, 100).unwrap();
        assert_eq!((texts(&all), all.full), (vec!["one", "two"], true));
        assert_eq!(push(&mut o, &push_op(&["three"])), Errno::RANGE.result());
    }

    #[test]
    fn pushes_that_do_not_fit_are_refused() {
        let mut o = part(200, 5000);
        let long = "x".repeat(143);
        assert_eq!(push(&mut o, &push_op(&[&long])), Errno::INVAL.result(), "with its overhead of 58 bytes");
        assert_eq!(push(&mut o, &push_op(&[&long[1..]])), 1);
        let untrue = PushPartOp { total_len: 2, ..push_op(&["x"]) };
        assert_eq!(push(&mut o, &untrue), Errno::INVAL.result());
        assert_eq!(push(&mut o, &push_op(&[])), Errno::FAULT.result());
        assert_eq!(push(&mut Object::missing(), &push_op(&["x"])), Errno::IO.result());
        assert_eq!(o.call_bare("fifo", "push_part"), Err(Errno::INVAL));
        assert_eq!(header(&mut o).max_index, 1);
    }

    #[test]
    fn trim_ends_before_or_behind_its_entry() {
        let mut o = part(4096, 3000);
        push(&mut o, &push_op(&["one", "two", "three"]));
        let at = offsets(&list(&mut o, 0, 9).unwrap());
        trim(&mut o, 0, false).unwrap();
        trim(&mut o, at[0], true).unwrap();
        assert_eq!((header(&mut o).min_offset, header(&mut o).min_index), (at[0], 0));
        trim(&mut o, at[1], true).unwrap();
        assert_eq!((header(&mut o).min_offset, header(&mut o).min_index), (at[1], 1));
        assert_eq!(texts(&list(&mut o, at[0], 9).unwrap()), ["two", "three"], "the marker lies in front");
        trim(&mut o, at[1], false).unwrap();
        assert_eq!((header(&mut o).min_offset, header(&mut o).min_index), (at[2], 2));
        assert_eq!(trim(&mut o, at[2] + 1, false), Err(Errno::RANGE));
        trim(&mut o, 9999, false).unwrap();
        let info = header(&mut o);
        assert_eq!((info.min_offset, info.min_index), (info.next_offset, 3));
        assert!(o.exists(), "the part takes more entries");
        assert_eq!(push(&mut o, &push_op(&["four"])), 1);
        assert_eq!(texts(&list(&mut o, 0, 9).unwrap()), ["four"]);
    }

    #[test]
    fn full_part_is_removed_with_its_last_entry() {
        let mut o = part(1000, 600);
        push(&mut o, &push_op(&["one", "two"]));
        let last = header(&mut o).last_offset;
        trim(&mut o, last, false).unwrap();
        assert!(o.exists(), "an entry's offset is not the end");
        trim(&mut o, 1000, false).unwrap();
        assert!(!o.exists());
        assert_eq!(trim(&mut o, 1000, false), Err(Errno::IO));
        assert_eq!(Object::existing().call_bare("fifo", "trim_part"), Err(Errno::INVAL));
    }

    #[test]
    fn listing_stops_after_its_bounds() {
        let mut o = part(64 << 20, 64 << 20);
        push(&mut o, &push_op(&["x"; 513]));
        let page = list(&mut o, 0, 1000).unwrap();
        assert_eq!((page.entries.len(), page.more), (512, true));
        let entry = "x".repeat(100_000);
        push(&mut o, &push_op(&[&entry[..]; 100]));
        let (mut offset, mut counts) = (offsets(&page)[511], Vec::new());
        loop {
            let page = list(&mut o, offset, 1000).unwrap();
            counts.push(page.entries.len());
            offset = page.entries.last().unwrap().offset;
            if !page.more {
                break;
            }
        }
        assert_eq!(counts, [85, 16], "8 MiB end within the 84th entry");
    }

    /// The limit depends on the bytes that the entry before it left of what was read ahead.
    #[test]
    fn entry_is_listed_within_reach_of_one_read() {
        let ahead = READ_AHEAD as usize;
        for (before, len, is_listed) in [
            (0, 2 * ahead - 58, true),
            (0, 2 * ahead - 57, false),
            (1000, 2 * ahead - 58 - 58 - 1000, true),
            (1000, 2 * ahead - 58 - 58 - 999, false),
        ] {
            let mut o = part(64 << 20, 64 << 20);
            let (first, second) = ("x".repeat(before), "y".repeat(len));
            let entries = if before == 0 { vec![&second[..]] } else { vec![&first[..], &second[..]] };
            push(&mut o, &push_op(&entries));
            let listed = list(&mut o, 0, 9).map(|reply| reply.entries.len());
            assert_eq!(
                listed,
                if is_listed { Ok(entries.len()) } else { Err(Errno::RANGE) },
                "{before} {len}"
            );
        }
    }

    #[test]
    fn damaged_part_is_refused() {
        let mut o = part(4096, 3000);
        push(&mut o, &push_op(&["one", "two"]));
        let sound = o.data()[..].to_vec();
        let damaged = |o: &mut Object, at: usize| {
            let mut data = sound.clone();
            data[at] ^= 0xff;
            o.put_data(&data);
        };
        damaged(&mut o, 512);
        assert_eq!(list(&mut o, 0, 9), Err(Errno::RANGE), "the magic number");
        assert_eq!(trim(&mut o, 512, true), Ok(Bytes::new()), "it is not read");
        assert_eq!(trim(&mut o, 512, false), Err(Errno::RANGE));
        damaged(&mut o, 512 + 44 + 1);
        assert_eq!(list(&mut o, 0, 9), Err(Errno::IO), "the entry's header");
        damaged(&mut o, 512 + 24 + 7);
        assert_eq!(list(&mut o, 0, 9), Err(Errno::RANGE), "the length of data");
        o.put_data(&sound[..600]);
        assert_eq!(list(&mut o, 0, 9), Err(Errno::RANGE), "the second entry is cut off");
        o.put_data(&sound[..8]);
        assert_eq!(list(&mut o, 0, 9), Err(Errno::IO));
        assert_eq!(o.call("fifo", "get_part_info", &GetPartInfoOp {}), Err(Errno::IO));
    }
}
