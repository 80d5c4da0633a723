//! Hints of the gateway: values under keys of a time and a name.

use super::time_key::time_key;
use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use bytes::Bytes;
use wire::types::cls::timeindex::{AddOp, ListOp, ListReply, TimeEntry, TrimOp};
use wire::types::{Name, UTime};

const PREFIX: &str = "1_";
/// Maximum entries of a reply, and of one removal.
const LIST_MAX: usize = 1000;

pub(super) fn add(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: AddOp = call.argument()?;
    let key = |entry: &TimeEntry| Bytes::from([&time_key(PREFIX, entry.time)[..], &entry.name].concat());
    let entries: Vec<_> = op.entries.into_iter().map(|entry| (key(&entry), entry.value)).collect();
    call.set_omap_values(&entries)?;
    Ok(0)
}

/// Time and name of a key.
fn parse(key: &[u8]) -> Option<(UTime, Name)> {
    let text = key.strip_prefix(PREFIX.as_bytes())?;
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u32>().ok();
    let (time, name) = text.split_at_checked(18)?;
    let (sec, usec) = (number(&time[..10])?, number(&time[11..17])?);
    Some((UTime { sec, nsec: usec.checked_mul(1000)? }, name.into()))
}

/// `key`, cut to the length of `bound`, compared with it.
fn compare(key: &[u8], bound: &[u8]) -> std::cmp::Ordering {
    key[..bound.len().min(key.len())].cmp(bound)
}

/// As stock OSDs do, the time is returned with microseconds in place of nanoseconds.
pub(super) fn list(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: ListOp = call.argument()?;
    let from = if op.marker.is_empty() { time_key(PREFIX, op.from_time) } else { op.marker[..].to_vec() };
    let to = (op.to_time >= op.from_time).then(|| time_key(PREFIX, op.to_time));
    let max = usize::try_from(op.max_entries).unwrap_or(LIST_MAX).min(LIST_MAX);
    let (stored, more) = call.omap_list(&from, PREFIX, max, true)?;
    let mut reply = ListReply { truncated: more, ..ListReply::default() };
    for (key, value) in stored {
        if to.as_ref().is_some_and(|to| compare(&key, to).is_ge()) {
            reply.truncated = false;
            break;
        }
        if let Some((time, name)) = parse(&key) {
            let time = UTime { nsec: time.nsec / 1000, ..time };
            reply.entries.push(TimeEntry { time, name, value });
        }
        reply.marker = Name::from(&key[..]);
    }
    call.finish_with(&reply)
}

/// `ENODATA` when nothing is left in the range.
pub(super) fn trim(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: TrimOp = call.argument()?;
    let bound =
        |marker: &Name, time| if marker.is_empty() { time_key(PREFIX, time) } else { marker[..].to_vec() };
    let (from, to) = (bound(&op.from_marker, op.from_time), bound(&op.to_marker, op.to_time));
    let (stored, _) = call.omap_list(&from, PREFIX, LIST_MAX, false)?;
    let in_range = stored.into_iter().map(|e| e.0).take_while(|key| compare(key, &to).is_le());
    let keys: Vec<Bytes> = in_range.collect();
    if keys.is_empty() {
        return Err(Errno::NODATA.into());
    }
    call.remove_omap_keys(&keys)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 7000 }
    }

    fn index() -> Object {
        let mut o = Object::missing();
        let entry = |sec: u32| TimeEntry { time: at(sec), name: format!("n{sec}").into(), value: "v".into() };
        o.call("timeindex", "add", &AddOp { entries: [30, 10, 20].map(entry).to_vec() }).unwrap();
        o
    }

    fn names(o: &mut Object, op: ListOp) -> (Vec<String>, bool) {
        let reply: ListReply = decode(&o.call("timeindex", "list", &op).unwrap());
        (reply.entries.iter().map(|e| e.name.to_string()).collect(), reply.truncated)
    }

    #[test]
    fn names_are_listed_between_times() {
        let mut o = index();
        assert_eq!(o.omap("1_0000000010.000007_n10").unwrap(), "v");
        let op = ListOp { from_time: at(10), to_time: at(30), max_entries: 9, ..ListOp::default() };
        assert_eq!(names(&mut o, op.clone()), (vec!["n10".into(), "n20".into()], false));
        let one = ListOp { max_entries: 1, ..op.clone() };
        assert_eq!(names(&mut o, one), (vec!["n10".into()], true));
        let after = ListOp { marker: "1_0000000010.000007_n10".into(), ..op };
        assert_eq!(names(&mut o, after), (vec!["n20".into()], false));
    }

    #[test]
    fn trim_includes_its_end() {
        let mut o = index();
        let trim = TrimOp { to_time: at(20), ..TrimOp::default() };
        o.call("timeindex", "trim", &trim).unwrap();
        assert_eq!(o.call("timeindex", "trim", &trim), Err(Errno::NODATA));
        assert!(o.omap("1_0000000030.000007_n30").is_some());
    }
}
