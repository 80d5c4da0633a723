//! A queue: a ring of entries in an object's data, behind a head.
//!
//! ```text
//! 0        2          10     head_max                                size
//! | 0xdead | u64 len | head |  ring: entry, entry, ...                |
//! entry: | 0xbeef | u64 len | data |, possibly around the end of the ring
//! ```
//! A listing reads the ring in windows and stops after [`LIST_LEN_MAX`] bytes with a marker to go on from, so that one
//! call neither holds nor parses more than that. Never is anything read again that an earlier listing returned.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features, Reader, Writer};
use wire::types::cls::queue::{
    CapacityReply, EnqueueOp, InitOp, ListOp, ListReply, QueueEntry, QueueHead, QueueMarker, RemoveOp,
};
use wire::types::{Name, OpCode, OsdOp};

const HEAD_START: u16 = 0xdead;
const ENTRY_START: u16 = 0xbeef;
/// Bytes in front of a head and of an entry.
pub(super) const OVERHEAD: u64 = 10;
/// Length of the head without urgent data; read at once.
const HEAD_LEN: u64 = 1024;
/// Maximum length of an encoded head.
const HEAD_LEN_MAX: u64 = 1 << 20;
/// Maximum size of a queue. No object is that large.
const SIZE_MAX: u64 = 1 << 62;
/// Bytes of the ring that are read at once.
const WINDOW: u64 = 256 << 10;
/// Bytes of entries after which a listing stops.
const LIST_LEN_MAX: u64 = 4 << 20;

/// `EINVAL` for an object without a head.
pub(super) fn read_head(call: &mut MethodCall<'_>) -> Result<QueueHead, MethodStop> {
    let damaged = MethodStop::Failed(Errno::INVAL);
    let mut bytes = call.data(0, HEAD_LEN)?.to_bytes();
    let mut r = Reader::new(&bytes);
    let (start, len) = (r.u16().map_err(|_| damaged)?, r.u64().map_err(|_| damaged)?);
    if start != HEAD_START || len > HEAD_LEN_MAX {
        return Err(damaged);
    }
    if len + OVERHEAD > HEAD_LEN {
        let rest = call.data(HEAD_LEN, len + OVERHEAD - HEAD_LEN)?.to_bytes();
        bytes = [&bytes[..], &rest[..]].concat().into();
    }
    let head: QueueHead = Reader::new(&bytes[OVERHEAD as usize..]).get().map_err(|_| damaged)?;
    let in_ring = |marker: QueueMarker| (head.head_max..=head.size).contains(&marker.offset);
    let has_laps = head.tail.generation == head.front.generation
        || Some(head.tail.generation) == head.front.generation.checked_add(1);
    let is_sound = head.size <= SIZE_MAX && in_ring(head.front) && in_ring(head.tail) && has_laps;
    if is_sound { Ok(head) } else { Err(damaged) }
}

pub(super) fn write_head(call: &mut MethodCall<'_>, head: &QueueHead) -> Result<(), MethodStop> {
    let encoded = head.to_vec(Features::NONE);
    let mut w = Writer::with_capacity(Features::NONE, encoded.len() + OVERHEAD as usize);
    w.u16(HEAD_START);
    w.u64(encoded.len() as u64);
    w.raw(&encoded);
    call.write(0, w.into_bytes())
}

/// `EEXIST` for an object that has a head.
pub(super) fn init(call: &mut MethodCall<'_>, op: InitOp) -> Result<i32, MethodStop> {
    match read_head(call) {
        Ok(_) => return Err(Errno::EXIST.into()),
        Err(MethodStop::Failed(Errno::INVAL)) => {}
        Err(stop) => return Err(stop),
    }
    let too_large = MethodStop::Failed(Errno::INVAL);
    let head_max = HEAD_LEN.checked_add(op.urgent_max).ok_or(too_large)?;
    let size = head_max.checked_add(op.size).filter(|size| *size <= SIZE_MAX).ok_or(too_large)?;
    let start = QueueMarker { generation: 0, offset: head_max };
    let head =
        QueueHead { head_max, front: start, tail: start, size, urgent_max: op.urgent_max, urgent: op.urgent };
    write_head(call, &head)?;
    Ok(0)
}

/// Bytes of the ring without entries.
pub(super) fn free(head: &QueueHead) -> u64 {
    match head.tail.offset >= head.front.offset {
        true => (head.size - head.tail.offset) + (head.front.offset - head.head_max),
        false => head.front.offset - head.tail.offset,
    }
}

fn is_empty(head: &QueueHead) -> bool {
    head.front == head.tail
}

fn is_full(head: &QueueHead) -> bool {
    head.front.offset == head.tail.offset && !is_empty(head)
}

/// The marker `len` bytes behind `at`.
fn behind(head: &QueueHead, at: QueueMarker, len: u64) -> QueueMarker {
    let offset = at.offset + len;
    match offset >= head.size {
        true => QueueMarker {
            generation: at.generation.wrapping_add(1),
            offset: offset - head.size + head.head_max,
        },
        false => QueueMarker { offset, ..at },
    }
}

/// Writes entries and moves the tail; the caller writes the head. `ENOSPC` when they do not fit.
pub(super) fn enqueue(
    call: &mut MethodCall<'_>,
    head: &mut QueueHead,
    entries: Vec<Bytes>,
) -> Result<(), MethodStop> {
    for data in entries {
        let mut w = Writer::with_capacity(Features::NONE, data.len() + OVERHEAD as usize);
        w.u16(ENTRY_START);
        w.u64(data.len() as u64);
        w.raw(&data);
        let mut entry = w.into_bytes();
        let len = entry.len() as u64;
        if is_full(head) || len > free(head) {
            return Err(Errno::NOSPC.into());
        }
        let to_end = head.size - head.tail.offset;
        if len > to_end {
            let first = entry.split_to(to_end as usize);
            call.write(head.tail.offset, first)?;
            call.write(head.head_max, entry)?;
        } else {
            call.write(head.tail.offset, entry)?;
        }
        head.tail = behind(head, head.tail, len);
    }
    Ok(())
}

/// Bytes of the ring from `at` on, in windows as they are needed.
struct Ring {
    at: QueueMarker,
    /// Bytes up to the tail.
    len: u64,
    read: Vec<u8>,
}

impl Ring {
    /// `EINVAL` for a marker between no entries.
    fn from(head: &QueueHead, at: QueueMarker) -> Result<Ring, MethodStop> {
        let damaged = MethodStop::Failed(Errno::INVAL);
        if !(head.head_max..=head.size).contains(&at.offset) {
            return Err(damaged);
        }
        let len = match head.tail.generation.checked_sub(at.generation) {
            Some(0) => head.tail.offset.checked_sub(at.offset),
            Some(1) => Some((head.size - at.offset) + (head.tail.offset - head.head_max)),
            _ => None,
        };
        let len = len.filter(|len| *len <= head.size - head.head_max).ok_or(damaged)?;
        Ok(Ring { at, len, read: Vec::new() })
    }

    /// `len` bytes at `start`; `EINVAL` behind the tail, and where the object has fewer.
    fn get(
        &mut self,
        call: &mut MethodCall<'_>,
        head: &QueueHead,
        start: u64,
        len: u64,
    ) -> Result<&[u8], MethodStop> {
        let damaged = MethodStop::Failed(Errno::INVAL);
        let end = start.checked_add(len).filter(|end| *end <= self.len).ok_or(damaged)?;
        while (self.read.len() as u64) < end {
            let have = self.read.len() as u64;
            let from = behind(head, self.at, have);
            let wanted = (end - have).max(WINDOW).min(self.len - have).min(head.size - from.offset);
            let piece = call.data(from.offset, wanted)?;
            if piece.len() as u64 != wanted {
                return Err(damaged);
            }
            piece.pieces().iter().for_each(|piece| self.read.extend_from_slice(piece));
        }
        Ok(&self.read[start as usize..end as usize])
    }
}

/// Entries from the marker, or the front, up to `max` or the end marker.
pub(super) fn list(
    call: &mut MethodCall<'_>,
    head: &QueueHead,
    op: &ListOp,
) -> Result<ListReply, MethodStop> {
    if is_empty(head) {
        return Ok(ListReply { next: head.front.text(), ..ListReply::default() });
    }
    let start = QueueMarker::parse(&op.start).filter(|marker| marker.offset != 0).unwrap_or(head.front);
    let end = QueueMarker::parse(&op.end);
    let mut ring = Ring::from(head, start)?;
    let (mut at, mut entries) = (0, Vec::new());
    while at < ring.len && (entries.len() as u64) < op.max && at < LIST_LEN_MAX {
        let marker = behind(head, start, at);
        if Some(marker) == end {
            break;
        }
        let mut r = Reader::new(ring.get(call, head, at, OVERHEAD)?);
        let (magic, len) = (r.u16().unwrap_or(0), r.u64().unwrap_or(u64::MAX));
        if magic != ENTRY_START {
            return Err(Errno::INVAL.into());
        }
        let data = Bytes::copy_from_slice(ring.get(call, head, at + OVERHEAD, len)?);
        entries.push(QueueEntry { data, marker: marker.text() });
        at += OVERHEAD + len;
    }
    let next = behind(head, start, at);
    Ok(ListReply { truncated: at < ring.len, next: next.text(), entries })
}

/// Zeroes what lies in front of the end marker and moves the front; the caller writes the head.
pub(super) fn remove(call: &mut MethodCall<'_>, head: &mut QueueHead, end: &Name) -> Result<(), MethodStop> {
    if is_empty(head) {
        return Ok(());
    }
    let invalid = MethodStop::Failed(Errno::INVAL);
    let end = QueueMarker::parse(end).ok_or(invalid)?;
    let front = head.front;
    let in_ring = (head.head_max..=head.size).contains(&end.offset);
    let zero = |offset, len| OsdOp::extent(OpCode::ZERO, offset, len, Bytes::new());
    if end == front {
    } else if in_ring && end.generation == front.generation && end.offset > front.offset {
        call.perform(zero(front.offset, end.offset - front.offset))?;
    } else if in_ring && Some(end.generation) == front.generation.checked_add(1) && end.offset <= front.offset
    {
        if head.size > front.offset {
            call.perform(zero(front.offset, head.size - front.offset))?;
        }
        if end.offset > head.head_max {
            call.perform(zero(head.head_max, end.offset - head.head_max))?;
        }
    } else {
        return Err(invalid);
    }
    head.front = behind(head, end, 0);
    Ok(())
}

pub(super) fn queue_init(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: InitOp = call.argument()?;
    init(call, op)
}

pub(super) fn queue_get_capacity(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let head = read_head(call)?;
    call.finish_with(&CapacityReply { capacity: head.size - head.head_max })
}

pub(super) fn queue_enqueue(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: EnqueueOp = call.argument()?;
    let mut head = read_head(call)?;
    enqueue(call, &mut head, op.entries)?;
    write_head(call, &head)?;
    Ok(0)
}

pub(super) fn queue_list_entries(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ListOp = call.argument()?;
    let head = read_head(call)?;
    let reply = list(call, &head, &op)?;
    call.finish_with(&reply)
}

pub(super) fn queue_remove_entries(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: RemoveOp = call.argument()?;
    let mut head = read_head(call)?;
    remove(call, &mut head, &op.end)?;
    write_head(call, &head)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn queue(size: u64) -> Object {
        let mut o = Object::missing();
        o.call("queue", "queue_init", &InitOp { size, ..InitOp::default() }).unwrap();
        o
    }

    fn put(o: &mut Object, entries: &[&str]) -> Result<Bytes, Errno> {
        let entries = entries.iter().map(|e| Bytes::copy_from_slice(e.as_bytes())).collect();
        o.call("queue", "queue_enqueue", &EnqueueOp { entries })
    }

    fn get(o: &mut Object, start: &str, max: u64) -> ListReply {
        let op = ListOp { max, start: start.into(), end: Name::EMPTY };
        decode(&o.call("queue", "queue_list_entries", &op).unwrap())
    }

    fn data(reply: &ListReply) -> Vec<&str> {
        reply.entries.iter().map(|e| std::str::from_utf8(&e.data).unwrap()).collect()
    }

    fn remove_to(o: &mut Object, end: &Name) -> Result<Bytes, Errno> {
        o.call("queue", "queue_remove_entries", &RemoveOp { end: end.clone() })
    }

    #[test]
    fn entries_come_out_in_order_and_in_pages() {
        let mut o = queue(1000);
        assert_eq!(o.call("queue", "queue_init", &InitOp::default()), Err(Errno::EXIST));
        let capacity: CapacityReply = decode(&o.call_bare("queue", "queue_get_capacity").unwrap());
        assert_eq!(capacity.capacity, 1000);
        put(&mut o, &["one", "two", "three"]).unwrap();
        let page = get(&mut o, "", 2);
        assert_eq!((data(&page), page.truncated), (vec!["one", "two"], true));
        assert_eq!(page.entries[0].marker, "0/1024");
        let next = page.next.to_string();
        let rest = get(&mut o, &next, 2);
        assert_eq!((data(&rest), rest.truncated), (vec!["three"], false));
        remove_to(&mut o, &page.next).unwrap();
        assert_eq!(data(&get(&mut o, "", 9)), ["three"]);
        remove_to(&mut o, &rest.next).unwrap();
        assert_eq!(data(&get(&mut o, "", 9)), [""; 0]);
        assert_eq!(Object::existing().call_bare("queue", "queue_get_capacity"), Err(Errno::INVAL));
    }

    #[test]
    fn entry_goes_around_the_end_of_the_ring() {
        let mut o = queue(50);
        put(&mut o, &["1234567890", "abcdefghij"]).unwrap();
        assert_eq!(put(&mut o, &["x"]), Err(Errno::NOSPC));
        let first = get(&mut o, "", 1);
        remove_to(&mut o, &first.next).unwrap();
        put(&mut o, &["ABCDEFGHIJ"]).unwrap();
        let all = get(&mut o, "", 9);
        assert_eq!((data(&all), all.truncated), (vec!["abcdefghij", "ABCDEFGHIJ"], false));
        assert_eq!(all.next, "1/1034");
        remove_to(&mut o, &all.next).unwrap();
        assert!(get(&mut o, "", 9).entries.is_empty());
    }

    #[test]
    fn full_ring_is_not_empty() {
        let mut o = queue(20);
        put(&mut o, &["1234567890"]).unwrap();
        assert_eq!(put(&mut o, &[""]), Err(Errno::NOSPC));
        let all = get(&mut o, "", 9);
        assert_eq!((data(&all), &all.next[..]), (vec!["1234567890"], &b"1/1024"[..]));
        remove_to(&mut o, &all.next).unwrap();
        put(&mut o, &["abcdefghij"]).unwrap();
        assert_eq!(data(&get(&mut o, "", 9)), ["abcdefghij"]);
    }

    #[test]
    fn long_listing_stops_and_goes_on() {
        let mut o = queue(32 << 20);
        let entry = "x".repeat(1 << 20);
        put(&mut o, &[&entry[..]; 9]).unwrap();
        let (mut start, mut counts) = (String::new(), Vec::new());
        loop {
            let page = get(&mut o, &start, 100);
            counts.push(page.entries.len());
            start = page.next.to_string();
            if !page.truncated {
                break;
            }
        }
        assert_eq!(counts, [4, 4, 1]);
    }

    #[test]
    fn foreign_markers_are_refused() {
        let mut o = queue(100);
        put(&mut o, &["one"]).unwrap();
        for end in ["", "x", "0/1", "0/99999", "1/1030", "2/1024"] {
            assert_eq!(remove_to(&mut o, &end.into()), Err(Errno::INVAL), "{end}");
        }
        let op = ListOp { max: 1, start: "7/1024".into(), end: Name::EMPTY };
        assert_eq!(o.call("queue", "queue_list_entries", &op), Err(Errno::INVAL));
        let op = ListOp { max: 1, start: "0/1025".into(), end: Name::EMPTY };
        assert_eq!(o.call("queue", "queue_list_entries", &op), Err(Errno::INVAL));
    }
}
