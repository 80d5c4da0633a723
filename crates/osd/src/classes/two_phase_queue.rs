//! A queue whose users reserve room before they commit entries (`2pc_queue`): the gateway's notifications.
//!
//! Reservations are the head's urgent data. Those that have no room there are in an attribute.

use super::queue::{
    OVERHEAD, enqueue, free, init, list, queue_get_capacity, queue_list_entries, read_head, remove,
    write_head,
};
use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::{Encode, Features, Reader};
use wire::types::cls::queue::{
    CommitOp, ExpireOp, InitOp, ListOp, QueueHead, RemoveCountedOp, Reservation, ReservationId, Reservations,
    ReservationsReply, ReserveOp, ReservedQueue, StatsReply,
};

type MethodResult = Result<i32, MethodStop>;

const ATTR: &str = "cls_queue_urgent_data";
/// Room of the head for about a thousand reservations.
const URGENT_MAX: u64 = 23552;
/// Listings of one call that only counts.
const COUNT_PAGES_MAX: usize = 4;

fn reservations(head: &QueueHead) -> Result<ReservedQueue, MethodStop> {
    Reader::new(&head.urgent).get().map_err(|_| Errno::INVAL.into())
}

fn write(call: &mut MethodCall<'_>, mut head: QueueHead, reserved: &ReservedQueue) -> Result<(), MethodStop> {
    head.urgent = reserved.to_vec(Features::NONE).into();
    write_head(call, &head)
}

/// Reservations that are not in the head.
fn more_reservations(call: &mut MethodCall<'_>) -> Result<Reservations, MethodStop> {
    match call.attr_as(ATTR) {
        Err(MethodStop::Failed(Errno::NOENT | Errno::NODATA)) => Ok(Reservations::new()),
        Err(MethodStop::Failed(Errno::IO)) => Err(Errno::INVAL.into()),
        other => other,
    }
}

fn write_more(call: &mut MethodCall<'_>, more: &Reservations) -> Result<(), MethodStop> {
    call.set_attr(ATTR, &more.to_vec(Features::NONE))
}

/// Takes a reservation out, wherever it is.
fn take(
    call: &mut MethodCall<'_>,
    reserved: &mut ReservedQueue,
    id: u32,
) -> Result<Option<Reservation>, MethodStop> {
    if let Some(found) = reserved.reservations.remove(&id) {
        return Ok(Some(found));
    }
    if !reserved.has_attr {
        return Ok(None);
    }
    let mut more = more_reservations(call)?;
    let found = more.remove(&id);
    if found.is_some() {
        write_more(call, &more)?;
    }
    Ok(found)
}

pub(super) fn two_phase_queue_init(call: &mut MethodCall<'_>) -> MethodResult {
    let InitOp { size, .. } = call.argument()?;
    let urgent = ReservedQueue::default().to_vec(Features::NONE).into();
    init(call, InitOp { size, urgent_max: URGENT_MAX, urgent })
}

pub(super) fn two_phase_queue_get_capacity(call: &mut MethodCall<'_>) -> MethodResult {
    queue_get_capacity(call)
}

pub(super) fn two_phase_queue_list_entries(call: &mut MethodCall<'_>) -> MethodResult {
    queue_list_entries(call)
}

pub(super) fn two_phase_queue_get_topic_stats(call: &mut MethodCall<'_>) -> MethodResult {
    let head = read_head(call)?;
    let entries = reservations(&head)?.committed_entries;
    call.finish_with(&StatsReply { size: head.size - head.head_max - free(&head), entries })
}

/// `ENOSPC` when the room is reserved, `EAGAIN` when the next id is in use.
pub(super) fn two_phase_queue_reserve(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReserveOp = call.argument()?;
    if op.size == 0 || op.entries == 0 {
        return Err(Errno::INVAL.into());
    }
    let head = read_head(call)?;
    let mut reserved = reservations(&head)?;
    let overhead = u64::from(op.entries) * OVERHEAD;
    let wanted = op.size.checked_add(overhead).and_then(|len| len.checked_add(reserved.reserved_size));
    if wanted.is_none_or(|wanted| wanted > free(&head)) {
        return Err(Errno::NOSPC.into());
    }
    reserved.reserved_size += op.size + overhead;
    reserved.last_id = reserved.last_id.wrapping_add(1);
    let id = reserved.last_id;
    let reservation = Reservation { size: op.size, time: call.context.now, entries: op.entries };
    if reserved.reservations.insert(id, reservation.clone()).is_some() {
        return Err(Errno::AGAIN.into());
    }
    if reserved.to_vec(Features::NONE).len() as u64 > head.urgent_max {
        let mut more = more_reservations(call)?;
        if more.insert(id, reservation).is_some() {
            return Err(Errno::AGAIN.into());
        }
        write_more(call, &more)?;
        reserved.has_attr = true;
        reserved.reservations.remove(&id);
    }
    write(call, head, &reserved)?;
    call.finish_with(&ReservationId { id })
}

/// `ENOENT` without the reservation, `EINVAL` for more bytes than it has.
pub(super) fn two_phase_queue_commit(call: &mut MethodCall<'_>) -> MethodResult {
    let op: CommitOp = call.argument()?;
    let mut head = read_head(call)?;
    let mut reserved = reservations(&head)?;
    let found = take(call, &mut reserved, op.id)?.ok_or(MethodStop::Failed(Errno::NOENT))?;
    if op.entries.iter().map(|e| e.len() as u64).sum::<u64>() > found.size {
        return Err(Errno::INVAL.into());
    }
    enqueue(call, &mut head, op.entries)?;
    // As stock OSDs do, the overhead stays reserved.
    reserved.reserved_size = reserved.reserved_size.saturating_sub(found.size);
    reserved.committed_entries = reserved.committed_entries.wrapping_add(found.entries);
    write(call, head, &reserved)?;
    Ok(0)
}

/// No error without the reservation.
pub(super) fn two_phase_queue_abort(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ReservationId = call.argument()?;
    let head = read_head(call)?;
    let mut reserved = reservations(&head)?;
    if let Some(found) = take(call, &mut reserved, op.id)? {
        reserved.reserved_size = reserved.reserved_size.saturating_sub(found.size);
        write(call, head, &reserved)?;
    }
    Ok(0)
}

pub(super) fn two_phase_queue_list_reservations(call: &mut MethodCall<'_>) -> MethodResult {
    let head = read_head(call)?;
    let reserved = reservations(&head)?;
    let mut reservations = reserved.reservations;
    if reserved.has_attr {
        for (id, reservation) in more_reservations(call)? {
            reservations.entry(id).or_insert(reservation);
        }
    }
    call.finish_with(&ReservationsReply { reservations })
}

pub(super) fn two_phase_queue_expire_reservations(call: &mut MethodCall<'_>) -> MethodResult {
    let op: ExpireOp = call.argument()?;
    let head = read_head(call)?;
    let mut reserved = reservations(&head)?;
    let mut freed = 0u64;
    let mut keep = |reservation: &Reservation| {
        let is_stale = reservation.time < op.stale_time;
        if is_stale {
            freed = freed.saturating_add(reservation.size);
        }
        !is_stale
    };
    let count = reserved.reservations.len();
    reserved.reservations.retain(|_, reservation| keep(reservation));
    let mut changed = reserved.reservations.len() < count;
    if reserved.has_attr {
        let mut more = more_reservations(call)?;
        let count = more.len();
        more.retain(|_, reservation| keep(reservation));
        if more.len() < count {
            write_more(call, &more)?;
            changed = true;
        }
    }
    if changed {
        reserved.reserved_size = reserved.reserved_size.saturating_sub(freed);
        write(call, head, &reserved)?;
    }
    Ok(0)
}

/// Counts the entries for a client that does not say how many it removes: at most 16 MiB of them.
fn count(call: &mut MethodCall<'_>, head: &QueueHead, op: &RemoveCountedOp) -> Result<u32, MethodStop> {
    let (mut entries, mut start) = (0, wire::types::Name::EMPTY);
    for _ in 0..COUNT_PAGES_MAX {
        let page = list(call, head, &ListOp { max: u64::MAX, start, end: op.end.clone() })?;
        entries += page.entries.len() as u32;
        if page.entries.is_empty() || !page.truncated {
            break;
        }
        start = page.next;
    }
    Ok(entries)
}

pub(super) fn two_phase_queue_remove_entries(call: &mut MethodCall<'_>) -> MethodResult {
    let op: RemoveCountedOp = call.argument()?;
    let mut head = read_head(call)?;
    let entries = match op.entries {
        0 => count(call, &head, &op)?,
        entries => entries,
    };
    remove(call, &mut head, &op.end)?;
    let mut reserved = reservations(&head)?;
    reserved.committed_entries = reserved.committed_entries.wrapping_sub(entries);
    write(call, head, &reserved)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use bytes::Bytes;
    use wire::types::cls::queue::{CapacityReply, ListReply};

    fn queue(size: u64) -> Object {
        let mut o = Object::missing();
        o.call("2pc_queue", "2pc_queue_init", &InitOp { size, ..InitOp::default() }).unwrap();
        o
    }

    fn reserve(o: &mut Object, size: u64) -> Result<u32, Errno> {
        let reply = o.call("2pc_queue", "2pc_queue_reserve", &ReserveOp { size, entries: 1 })?;
        Ok(decode::<ReservationId>(&reply).id)
    }

    fn commit(o: &mut Object, id: u32, data: &'static str) -> Result<Bytes, Errno> {
        o.call("2pc_queue", "2pc_queue_commit", &CommitOp { id, entries: vec![data.into()] })
    }

    fn pending(o: &mut Object) -> Vec<u32> {
        let reply = o.call_bare("2pc_queue", "2pc_queue_list_reservations").unwrap();
        decode::<ReservationsReply>(&reply).reservations.into_keys().collect()
    }

    fn stats(o: &mut Object) -> (u64, u32) {
        let reply: StatsReply = decode(&o.call_bare("2pc_queue", "2pc_queue_get_topic_stats").unwrap());
        (reply.size, reply.entries)
    }

    #[test]
    fn reservation_is_committed_or_aborted_once() {
        let mut o = queue(100);
        let capacity = o.call_bare("2pc_queue", "2pc_queue_get_capacity").unwrap();
        assert_eq!(decode::<CapacityReply>(&capacity).capacity, 100);
        assert_eq!(reserve(&mut o, 0), Err(Errno::INVAL));
        assert_eq!((reserve(&mut o, 30), reserve(&mut o, 30)), (Ok(1), Ok(2)));
        assert_eq!(reserve(&mut o, 30), Err(Errno::NOSPC));
        assert_eq!(commit(&mut o, 1, "more than thirty bytes is refused"), Err(Errno::INVAL));
        commit(&mut o, 1, "data").unwrap();
        assert_eq!(commit(&mut o, 1, "data"), Err(Errno::NOENT));
        assert_eq!((pending(&mut o), stats(&mut o)), (vec![2], (14, 1)));
        for _ in 0..2 {
            o.call("2pc_queue", "2pc_queue_abort", &ReservationId { id: 2 }).unwrap();
        }
        assert_eq!(pending(&mut o), [0; 0]);
        let op = ListOp { max: 9, ..ListOp::default() };
        let page: ListReply = decode(&o.call("2pc_queue", "2pc_queue_list_entries", &op).unwrap());
        assert_eq!(page.entries[0].data, "data");
        let remove = RemoveCountedOp { end: page.next, entries: 0 };
        o.call("2pc_queue", "2pc_queue_remove_entries", &remove).unwrap();
        assert_eq!(stats(&mut o), (0, 0));
    }

    #[test]
    fn reservations_beyond_the_head_are_in_an_attribute() {
        let mut o = queue(1 << 20);
        let count = 1500;
        for id in 1..=count {
            assert_eq!(reserve(&mut o, 10), Ok(id));
        }
        assert!(o.attr(ATTR).is_some());
        assert_eq!(pending(&mut o).len(), count as usize);
        commit(&mut o, count, "x").unwrap();
        o.call("2pc_queue", "2pc_queue_abort", &ReservationId { id: count - 1 }).unwrap();
        assert_eq!(pending(&mut o).len(), count as usize - 2);
        let stale_time = wire::types::UTime { sec: o.now.sec + 1, nsec: 0 };
        o.call("2pc_queue", "2pc_queue_expire_reservations", &ExpireOp { stale_time }).unwrap();
        assert_eq!(pending(&mut o), [0; 0]);
    }
}
