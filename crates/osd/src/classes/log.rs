//! Logs of the gateway: entries under keys of their time.

use super::time_key::{after_time, time_key};
use super::{MethodCall, MethodStop, omap};
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Encode, Features};
use wire::types::Name;
use wire::types::cls::log::{AddOp, InfoOp, InfoReply, ListOp, ListReply, LogHeader, TrimOp};

const PREFIX: &str = "1_";
/// Maximum entries of a reply.
const LIST_MAX: usize = 1000;

/// Without a header, and with a damaged one, everything is zero.
fn stored_header(call: &mut MethodCall<'_>) -> Result<LogHeader, MethodStop> {
    let bytes = call.omap_header()?;
    Ok(codec::Reader::new(&bytes).get().unwrap_or_default())
}

/// An entry without an id gets its time and the change's version as its key, and its position among those it came with.
pub(super) fn add(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: AddOp = call.argument()?;
    let mut header = stored_header(call)?;
    let unique = format!("{}.{}", call.context.pg_user_version, call.context.position);
    let mut entries: Vec<(Bytes, Bytes)> = Vec::with_capacity(op.entries.len());
    for (at, mut entry) in op.entries.into_iter().enumerate() {
        let time = if op.monotonic.0 { entry.timestamp.max(header.max_time) } else { entry.timestamp };
        header.max_time = header.max_time.max(time);
        if entry.id.is_empty() {
            let key = [&time_key(PREFIX, time)[..], unique.as_bytes()].concat();
            entry.id = match at {
                0 => Name::from(key),
                _ => Name::from([&key[..], format!(".{at:05}").as_bytes()].concat()),
            };
        }
        if entry.id > header.max_marker {
            header.max_marker = entry.id.clone();
        }
        entries.push((Bytes::copy_from_slice(&entry.id), entry.to_vec(Features::NONE).into()));
    }
    call.set_omap_values(&entries)?;
    call.set_omap_header(&header.to_vec(Features::NONE))?;
    Ok(0)
}

/// A damaged entry is left out.
pub(super) fn list(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ListOp = call.argument()?;
    let from = if op.marker.is_empty() { time_key(PREFIX, op.from_time) } else { op.marker[..].to_vec() };
    let is_bounded = op.from_time != wire::types::UTime::ZERO && op.to_time >= op.from_time;
    let to = is_bounded.then(|| time_key(PREFIX, op.to_time));
    let max = usize::try_from(op.max_entries).ok().filter(|max| (1..=LIST_MAX).contains(max));
    let (stored, more) = call.omap_list(&from, PREFIX, max.unwrap_or(LIST_MAX), true)?;
    let mut reply = ListReply { truncated: more, ..ListReply::default() };
    for (key, value) in &stored {
        reply.marker = Name::from(&key[..]);
        if to.as_ref().is_some_and(|to| key[..to.len().min(key.len())] >= to[..]) {
            reply.truncated = false;
            break;
        }
        reply.entries.extend(omap::stored(value).ok());
    }
    call.finish_with(&reply)
}

/// `ENODATA` when nothing is left in the range.
pub(super) fn trim(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: TrimOp = call.argument()?;
    let from =
        if op.from_marker.is_empty() { time_key(PREFIX, op.from_time) } else { op.from_marker[..].to_vec() };
    let to = match op.to_marker.is_empty() {
        true => after_time(PREFIX, op.to_time),
        // The first key behind the marker.
        false => [&op.to_marker[..], &[0]].concat(),
    };
    let (first, _) = call.omap_page(&from, "", 1, false)?;
    match first.first() {
        Some((first, _)) if to[..] >= first[..] => {
            call.remove_omap_range(first, &to)?;
            Ok(0)
        }
        _ => Err(Errno::NODATA.into()),
    }
}

pub(super) fn info(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    call.argument::<InfoOp>()?;
    let header = stored_header(call)?;
    call.finish_with(&InfoReply { header })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::UTime;
    use wire::types::cls::log::{LogEntry, Monotonic};

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 5000 }
    }

    fn add(o: &mut Object, sec: u32, name: &str, monotonic: bool) {
        let entry = LogEntry { timestamp: at(sec), name: name.into(), ..LogEntry::default() };
        o.call("log", "add", &AddOp { entries: vec![entry], monotonic: Monotonic(monotonic) }).unwrap();
    }

    fn names(o: &mut Object, op: ListOp) -> (Vec<String>, bool) {
        let reply: ListReply = decode(&o.call("log", "list", &op).unwrap());
        (reply.entries.iter().map(|e| e.name.to_string()).collect(), reply.truncated)
    }

    #[test]
    fn entries_are_listed_between_times() {
        let mut o = Object::missing();
        for sec in [30, 10, 20] {
            add(&mut o, sec, &sec.to_string(), false);
        }
        assert!(o.omap("1_0000000010.000005_5.0").is_some());
        let all = ListOp::default();
        assert_eq!(names(&mut o, all.clone()), (vec!["10".into(), "20".into(), "30".into()], false));
        let some = ListOp { from_time: at(15), to_time: at(30), ..all.clone() };
        assert_eq!(names(&mut o, some), (vec!["20".into()], false));
        let one = ListOp { max_entries: 1, ..all };
        assert_eq!(names(&mut o, one), (vec!["10".into()], true));
        let info: InfoReply = decode(&o.call("log", "info", &InfoOp {}).unwrap());
        assert_eq!(info.header.max_time, at(30));
        assert_eq!(info.header.max_marker, "1_0000000030.000005_5.0");
    }

    #[test]
    fn monotonic_entry_keeps_its_time_and_gets_a_later_key() {
        let mut o = Object::missing();
        add(&mut o, 30, "a", true);
        add(&mut o, 10, "b", true);
        let reply: ListReply = decode(&o.call("log", "list", &ListOp::default()).unwrap());
        assert_eq!((reply.entries.len(), reply.entries[0].timestamp), (1, at(10)));
        assert_eq!(reply.marker, "1_0000000030.000005_5.0", "one change, one key");
    }

    #[test]
    fn entries_of_one_time_have_keys_in_their_order() {
        let mut o = Object::missing();
        let entry =
            |name: u32| LogEntry { timestamp: at(10), name: name.to_string().into(), ..LogEntry::default() };
        let op = AddOp { entries: (0..12).map(entry).collect(), monotonic: Monotonic(true) };
        o.call("log", "add", &op).unwrap();
        let all: Vec<String> = (0..12).map(|name| name.to_string()).collect();
        assert_eq!(names(&mut o, ListOp::default()), (all, false));
    }

    #[test]
    fn trim_includes_its_end() {
        let mut o = Object::missing();
        for sec in [10, 20, 30] {
            add(&mut o, sec, &sec.to_string(), false);
        }
        let trim = |sec| TrimOp { to_time: at(sec), ..TrimOp::default() };
        o.call("log", "trim", &trim(20)).unwrap();
        assert_eq!(o.call("log", "trim", &trim(20)), Err(Errno::NODATA));
        assert_eq!(names(&mut o, ListOp::default()).0, ["30"]);
        let marker = TrimOp { to_marker: "1_0000000030.000005_5.0".into(), ..TrimOp::default() };
        o.call("log", "trim", &marker).unwrap();
        assert_eq!(o.call("log", "trim", &marker), Err(Errno::NODATA));
    }
}
