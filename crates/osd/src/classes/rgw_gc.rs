//! The gateway's garbage: a queue of objects to delete, oldest first.
//!
//! An entry is deferred when a client still reads its objects: it is put at the end of the queue again with a later
//! time, and that time is kept by tag beside the queue, so that the entry's first copy is skipped.

use super::queue::{enqueue, init, list, read_head, remove, write_head};
use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Encode, Features, Reader};
use wire::types::cls::queue::{ListOp as QueueListOp, QueueHead};
use wire::types::cls::rgw_gc::{
    Deferred, GarbageInfo, GarbageQueue, InitOp, ListOp, ListReply, RemoveOp, SetEntryOp,
};
use wire::types::{Name, UTime};

type MethodResult = Result<i32, MethodStop>;

const ATTR: &str = "cls_queue_urgent_data";
/// `rgw_gc_max_deferred_entries_size`.
const URGENT_MAX: u64 = 3 << 10;
/// Entries of a listing and of a removal that do not say how many.
const LIST_DEFAULT: u64 = 128;
/// Maximum pages of the queue that one call reads.
const PAGES_MAX: usize = 4;

fn urgent(head: &QueueHead) -> Result<GarbageQueue, MethodStop> {
    if head.urgent.is_empty() {
        return Ok(GarbageQueue::default());
    }
    Reader::new(&head.urgent).get().map_err(|_| Errno::INVAL.into())
}

fn write(call: &mut MethodCall<'_>, mut head: QueueHead, urgent: &GarbageQueue) -> Result<(), MethodStop> {
    head.urgent = urgent.to_vec(Features::NONE).into();
    write_head(call, &head)
}

/// Deferred entries that are not in the head.
fn more_deferred(call: &mut MethodCall<'_>) -> Result<Deferred, MethodStop> {
    match call.attr_as(ATTR) {
        Err(MethodStop::Failed(Errno::NOENT | Errno::NODATA)) => Ok(Deferred::new()),
        Err(MethodStop::Failed(Errno::IO)) => Err(Errno::INVAL.into()),
        other => other,
    }
}

fn later(now: UTime, seconds: u32) -> UTime {
    UTime { sec: now.sec.saturating_add(seconds), ..now }
}

pub(super) fn rgw_gc_queue_init(call: &mut MethodCall<'_>) -> MethodResult {
    let op: InitOp = call.argument()?;
    let urgent = GarbageQueue { deferred_max: op.deferred_max as u32, ..GarbageQueue::default() };
    let urgent = urgent.to_vec(Features::NONE).into();
    init(call, wire::types::cls::queue::InitOp { size: op.size, urgent_max: URGENT_MAX, urgent })
}

pub(super) fn rgw_gc_queue_enqueue(call: &mut MethodCall<'_>) -> MethodResult {
    let mut op: SetEntryOp = call.argument()?;
    op.info.time = later(call.context.now, op.expiration_s);
    let mut head = read_head(call)?;
    enqueue(call, &mut head, vec![op.info.to_vec(Features::NONE).into()])?;
    write_head(call, &head)?;
    Ok(0)
}

/// One page of entries, each with the time to which it is deferred, if it is.
struct Page {
    entries: Vec<(GarbageInfo, Option<UTime>)>,
    next: Name,
    truncated: bool,
}

fn page(
    call: &mut MethodCall<'_>,
    head: &QueueHead,
    deferred: [&Deferred; 2],
    start: Name,
    max: u64,
) -> Result<Page, MethodStop> {
    let page = list(call, head, &QueueListOp { max, start, end: Name::EMPTY })?;
    let mut entries = Vec::with_capacity(page.entries.len());
    for entry in page.entries {
        let info: GarbageInfo =
            Reader::new(&entry.data).get().map_err(|_| MethodStop::Failed(Errno::INVAL))?;
        let until = deferred.iter().find_map(|deferred| deferred.get(&info.tag)).copied();
        entries.push((info, until));
    }
    Ok(Page { entries, next: page.next, truncated: page.truncated })
}

fn deferred_beside(call: &mut MethodCall<'_>, urgent: &GarbageQueue) -> Result<Deferred, MethodStop> {
    if urgent.in_attr > 0 { more_deferred(call) } else { Ok(Deferred::new()) }
}

/// Without the first copies of deferred entries; of expired ones only if asked.
pub(super) fn rgw_gc_queue_list_entries(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ListOp = call.argument()?;
    let head = read_head(call)?;
    let urgent = urgent(&head)?;
    let more = deferred_beside(call, &urgent)?;
    let max = if op.max == 0 { LIST_DEFAULT } else { op.max.into() };
    let (mut reply, mut count, mut start) = (ListReply::default(), 0, op.marker);
    for _ in 0..PAGES_MAX {
        let page = page(call, &head, [&urgent.deferred, &more], start, max - count)?;
        let is_empty = page.entries.is_empty();
        (reply.truncated, start) = (page.truncated, page.next);
        for (info, until) in page.entries {
            if until.is_some_and(|until| until > info.time) {
                continue;
            }
            count += 1;
            if !op.expired_only || info.time <= call.context.now {
                reply.entries.push(info);
            }
        }
        if is_empty || !reply.truncated || count >= max {
            break;
        }
    }
    if reply.truncated {
        reply.next = start;
    }
    call.finish_with(&reply)
}

/// Removes the first entries; copies of deferred ones that lie between do not count.
pub(super) fn rgw_gc_queue_remove_entries(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveOp = call.argument()?;
    let mut head = read_head(call)?;
    let mut urgent = urgent(&head)?;
    let mut more = deferred_beside(call, &urgent)?;
    let wanted = if op.entries == 0 { LIST_DEFAULT } else { op.entries };
    let (mut count, mut start, mut changed) = (0, Name::EMPTY, false);
    for _ in 0..PAGES_MAX {
        let page = page(call, &head, [&urgent.deferred, &more], start, wanted - count)?;
        let is_empty = page.entries.is_empty();
        start = page.next;
        for (info, until) in page.entries {
            if until.is_some_and(|until| until > info.time) {
                continue;
            }
            count += 1;
            // The last copy of a deferred entry.
            if until == Some(info.time) {
                if urgent.deferred.remove(&info.tag).is_some() {
                    urgent.in_head = urgent.in_head.saturating_sub(1);
                } else if more.remove(&info.tag).is_some() {
                    urgent.in_attr = urgent.in_attr.saturating_sub(1);
                    changed = true;
                }
            }
        }
        if is_empty || !page.truncated || count >= wanted {
            break;
        }
    }
    remove(call, &mut head, &start)?;
    if changed {
        call.set_attr(ATTR, &more.to_vec(Features::NONE))?;
    }
    write(call, head, &urgent)?;
    Ok(0)
}

/// Defers an entry. `ENOSPC` beyond the number that the queue was made for.
pub(super) fn rgw_gc_queue_update_entry(call: &mut MethodCall<'_>) -> MethodResult {
    let mut op: SetEntryOp = call.argument()?;
    let time = later(call.context.now, op.expiration_s);
    op.info.time = time;
    let mut head = read_head(call)?;
    let mut urgent = urgent(&head)?;
    if let Some(known) = urgent.deferred.get_mut(&op.info.tag) {
        *known = time;
    } else {
        let mut more = more_deferred(call)?;
        if let Some(known) = more.get_mut(&op.info.tag) {
            *known = time;
            call.set_attr(ATTR, &more.to_vec(Features::NONE))?;
        } else {
            urgent.deferred.insert(op.info.tag.clone(), time);
            urgent.in_head = urgent.in_head.saturating_add(1);
            if urgent.to_vec(Features::NONE).len() as u64 > head.urgent_max {
                urgent.deferred.remove(&op.info.tag);
                urgent.in_head = urgent.in_head.saturating_sub(1);
                urgent.in_attr = urgent.in_attr.saturating_add(1);
                more.insert(op.info.tag.clone(), time);
                call.set_attr(ATTR, &more.to_vec(Features::NONE))?;
            }
        }
    }
    if urgent.in_head.saturating_add(urgent.in_attr) > urgent.deferred_max {
        return Err(Errno::NOSPC.into());
    }
    enqueue(call, &mut head, vec![op.info.to_vec(Features::NONE).into()])?;
    write(call, head, &urgent)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn queue() -> Object {
        let mut o = Object::missing();
        o.call("rgw_gc", "rgw_gc_queue_init", &InitOp { size: 1 << 20, deferred_max: 200 }).unwrap();
        o
    }

    fn entry(tag: &str, expiration_s: u32) -> SetEntryOp {
        SetEntryOp { expiration_s, info: GarbageInfo { tag: tag.into(), ..GarbageInfo::default() } }
    }

    fn put(o: &mut Object, tag: &str, expiration_s: u32) {
        o.call("rgw_gc", "rgw_gc_queue_enqueue", &entry(tag, expiration_s)).unwrap();
    }

    fn tags(o: &mut Object, max: u32, expired_only: bool) -> (Vec<String>, bool) {
        let op = ListOp { marker: Name::EMPTY, max, expired_only };
        let reply: ListReply = decode(&o.call("rgw_gc", "rgw_gc_queue_list_entries", &op).unwrap());
        (reply.entries.iter().map(|e| e.tag.to_string()).collect(), reply.truncated)
    }

    fn remove_some(o: &mut Object, entries: u64) {
        o.call("rgw_gc", "rgw_gc_queue_remove_entries", &RemoveOp { entries }).unwrap();
    }

    #[test]
    fn expired_entries_are_listed_and_removed() {
        let mut o = queue();
        put(&mut o, "a", 0);
        put(&mut o, "b", 100);
        assert_eq!(tags(&mut o, 0, false), (vec!["a".into(), "b".into()], false));
        assert_eq!(tags(&mut o, 1, false), (vec!["a".into()], true));
        assert_eq!(tags(&mut o, 9, true), (vec!["a".into()], false));
        remove_some(&mut o, 1);
        assert_eq!(tags(&mut o, 9, false).0, ["b"]);
        remove_some(&mut o, 0);
        assert_eq!(tags(&mut o, 9, false).0, [""; 0]);
    }

    #[test]
    fn deferred_entry_is_listed_once() {
        let mut o = queue();
        put(&mut o, "a", 10);
        put(&mut o, "b", 20);
        o.call("rgw_gc", "rgw_gc_queue_update_entry", &entry("a", 30)).unwrap();
        assert_eq!(tags(&mut o, 9, false).0, ["b", "a"]);
        remove_some(&mut o, 1);
        assert_eq!(tags(&mut o, 9, false).0, ["a"]);
        remove_some(&mut o, 1);
        put(&mut o, "a", 5);
        assert_eq!(tags(&mut o, 9, false).0, ["a"], "the deferral went with the entry");
    }

    #[test]
    fn many_deferrals_go_to_an_attribute_and_have_a_bound() {
        let mut o = queue();
        for i in 0..200 {
            o.call("rgw_gc", "rgw_gc_queue_update_entry", &entry(&format!("tag{i:04}"), 10)).unwrap();
        }
        assert!(o.attr(ATTR).is_some());
        let more = entry("one more", 10);
        assert_eq!(o.call("rgw_gc", "rgw_gc_queue_update_entry", &more), Err(Errno::NOSPC));
        assert_eq!(tags(&mut o, 1000, false).0.len(), 200);
        remove_some(&mut o, 150);
        assert_eq!(tags(&mut o, 1000, false).0.len(), 50);
    }
}
