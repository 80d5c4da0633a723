//! Advisory locks on an object, each under a name of its own, held by a client and a cookie.

use super::{MethodCall, MethodStop};
use crate::errno::Errno;
use codec::Encode;
use wire::types::cls::lock::{
    AssertOp, BreakOp, GetInfoOp, LOCK_FLAG_MAY_RENEW, LOCK_FLAG_MUST_RENEW, ListLocksReply, LockInfo,
    LockOp, LockType, LockerId, LockerInfo, SetCookieOp, UnlockOp,
};
use wire::types::{EntityName, Name, UTime};

const ATTR_PREFIX: &[u8] = b"lock.";

/// The lock as stored, without holders whose time is up. A lock nobody ever took is empty. When the last holder of
/// an ephemeral lock has expired the object goes, whatever the call does next.
fn stored(call: &mut MethodCall<'_>, name: &[u8]) -> Result<LockInfo, MethodStop> {
    let mut lock: LockInfo = match call.attr_as(attr_name(name)) {
        Err(MethodStop::Failed(Errno::NODATA)) => return Ok(LockInfo::default()),
        other => other?,
    };
    let now = call.context.now;
    lock.lockers.retain(|_, locker| locker.expires == UTime::ZERO || locker.expires >= now);
    if lock.lockers.is_empty() && lock.kind.is_ephemeral() {
        call.remove()?;
    }
    Ok(lock)
}

fn store(call: &mut MethodCall<'_>, name: &[u8], lock: &LockInfo) -> Result<(), MethodStop> {
    let value = lock.to_vec(call.context.features);
    call.set_attr(attr_name(name), &value)
}

fn attr_name(name: &[u8]) -> Vec<u8> {
    [ATTR_PREFIX, name].concat()
}

pub(super) fn lock(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: LockOp = call.argument()?;
    let may_renew = op.flags & LOCK_FLAG_MAY_RENEW != 0;
    let must_renew = op.flags & LOCK_FLAG_MUST_RENEW != 0;
    if !op.kind.is_valid() || op.name.is_empty() || (may_renew && must_renew) {
        return Err(Errno::INVAL.into());
    }
    let mut lock = match stored(call, &op.name) {
        // A lock may be taken on an object that is not there, which then comes into being.
        Err(MethodStop::Failed(Errno::NOENT)) => LockInfo::default(),
        other => other?,
    };
    if !lock.lockers.is_empty() && lock.tag != op.tag {
        return Err(Errno::BUSY.into());
    }
    let id = LockerId { locker: call.context.client, cookie: op.cookie };
    let held = lock.lockers.remove(&id).is_some();
    if held && !may_renew && !must_renew {
        return Err(Errno::EXIST.into());
    }
    if !held && must_renew {
        return Err(Errno::NOENT.into());
    }
    if !lock.lockers.is_empty() && (op.kind.is_exclusive() || lock.kind != op.kind) {
        return Err(Errno::BUSY.into());
    }

    lock.kind = op.kind;
    lock.tag = op.tag;
    let expires = if op.duration == UTime::ZERO { UTime::ZERO } else { sum(call.context.now, op.duration) };
    // As a legacy address: what protocol a client speaks differs from OSD to OSD and does not identify it.
    let addr = call.context.client_addr.as_legacy();
    lock.lockers.insert(id, LockerInfo { expires, addr, description: op.description });
    store(call, &op.name, &lock)?;
    Ok(0)
}

pub(super) fn unlock(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: UnlockOp = call.argument()?;
    let me = call.context.client;
    release(call, &op.name, me, op.cookie)
}

pub(super) fn break_lock(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: BreakOp = call.argument()?;
    release(call, &op.name, op.locker, op.cookie)
}

fn release(
    call: &mut MethodCall<'_>,
    name: &[u8],
    locker: EntityName,
    cookie: Name,
) -> Result<i32, MethodStop> {
    let mut lock = stored(call, name)?;
    if lock.lockers.remove(&LockerId { locker, cookie }).is_none() {
        return Err(Errno::NOENT.into());
    }
    match lock.kind.is_ephemeral() {
        true => call.remove()?,
        false => store(call, name, &lock)?,
    }
    Ok(0)
}

pub(super) fn get_info(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: GetInfoOp = call.argument()?;
    let lock = stored(call, &op.name)?;
    let reply = lock.to_vec(call.context.features);
    call.reply(reply);
    Ok(0)
}

pub(super) fn list_locks(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let names = call.attr_names()?;
    let locks = names.iter().filter_map(|n| n.strip_prefix(ATTR_PREFIX)).map(Name::from).collect();
    let reply = ListLocksReply { locks }.to_vec(call.context.features);
    call.reply(reply);
    Ok(0)
}

pub(super) fn assert_locked(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: AssertOp = call.argument()?;
    held_by_caller(call, &op.name, op.kind, &op.tag, op.cookie)?;
    Ok(0)
}

pub(super) fn set_cookie(call: &mut MethodCall<'_>) -> Result<i32, MethodStop> {
    let op: SetCookieOp = call.argument()?;
    let (mut lock, id) = held_by_caller(call, &op.name, op.kind, &op.tag, op.cookie)?;
    let renamed = LockerId { cookie: op.new_cookie, ..id.clone() };
    if lock.lockers.contains_key(&renamed) {
        return Err(Errno::BUSY.into());
    }
    let info = lock.lockers.remove(&id).expect("held_by_caller found it");
    lock.lockers.insert(renamed, info);
    store(call, &op.name, &lock)?;
    Ok(0)
}

/// The lock, which the caller holds in just that way; else `EBUSY`.
fn held_by_caller(
    call: &mut MethodCall<'_>,
    name: &[u8],
    kind: LockType,
    tag: &Name,
    cookie: Name,
) -> Result<(LockInfo, LockerId), MethodStop> {
    if !kind.is_valid() || name.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let lock = stored(call, name)?;
    let id = LockerId { locker: call.context.client, cookie };
    let as_said = lock.kind == kind && lock.tag == *tag && lock.lockers.contains_key(&id);
    if as_said { Ok((lock, id)) } else { Err(Errno::BUSY.into()) }
}

/// Wall time plus a duration.
fn sum(at: UTime, duration: UTime) -> UTime {
    UTime::from_nanos(at.as_nanos().saturating_add(duration.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use codec::Features;

    fn take(kind: LockType, cookie: &str, tag: &str) -> LockOp {
        LockOp { name: "l".into(), kind, cookie: cookie.into(), tag: tag.into(), ..LockOp::default() }
    }

    fn info(o: &mut Object) -> LockInfo {
        decode(&o.call("lock", "get_info", &GetInfoOp { name: "l".into() }).unwrap())
    }

    fn unlock_op(cookie: &str) -> UnlockOp {
        UnlockOp { name: "l".into(), cookie: cookie.into() }
    }

    #[test]
    fn an_exclusive_lock_keeps_others_out() {
        let mut o = Object::missing();
        o.call("lock", "lock", &take(LockType::EXCLUSIVE, "c", "t")).unwrap();
        assert!(o.exists());
        assert_eq!(o.call("lock", "lock", &take(LockType::EXCLUSIVE, "c", "t")), Err(Errno::EXIST));
        o.client = 2;
        assert_eq!(o.call("lock", "lock", &take(LockType::EXCLUSIVE, "c", "t")), Err(Errno::BUSY));
        assert_eq!(o.call("lock", "unlock", &unlock_op("c")), Err(Errno::NOENT));
        let held = info(&mut o);
        assert_eq!((held.kind, &held.tag[..], held.lockers.len()), (LockType::EXCLUSIVE, &b"t"[..], 1));
        o.client = 1;
        o.call("lock", "unlock", &unlock_op("c")).unwrap();
        assert_eq!(info(&mut o).lockers.len(), 0);
    }

    #[test]
    fn shared_holders_agree_on_the_tag() {
        let mut o = Object::existing();
        o.call("lock", "lock", &take(LockType::SHARED, "a", "t")).unwrap();
        o.client = 2;
        assert_eq!(o.call("lock", "lock", &take(LockType::SHARED, "b", "other")), Err(Errno::BUSY));
        assert_eq!(o.call("lock", "lock", &take(LockType::EXCLUSIVE, "b", "t")), Err(Errno::BUSY));
        o.call("lock", "lock", &take(LockType::SHARED, "b", "t")).unwrap();
        assert_eq!(info(&mut o).lockers.len(), 2);
        let holder = EntityName::new(wire::types::EntityKind::CLIENT, 1);
        let op = BreakOp { name: "l".into(), locker: holder, cookie: "a".into() };
        o.call("lock", "break_lock", &op).unwrap();
        assert_eq!(info(&mut o).lockers.len(), 1);
    }

    #[test]
    fn renewing_needs_its_flag() {
        let mut o = Object::existing();
        let renew = |flags| LockOp { flags, ..take(LockType::EXCLUSIVE, "c", "") };
        assert_eq!(o.call("lock", "lock", &renew(LOCK_FLAG_MUST_RENEW)), Err(Errno::NOENT));
        o.call("lock", "lock", &renew(LOCK_FLAG_MAY_RENEW)).unwrap();
        o.call("lock", "lock", &renew(LOCK_FLAG_MAY_RENEW)).unwrap();
        o.call("lock", "lock", &renew(LOCK_FLAG_MUST_RENEW)).unwrap();
        assert_eq!(o.call("lock", "lock", &renew(3)), Err(Errno::INVAL));
    }

    #[test]
    fn a_lock_expires_by_the_wall_clock() {
        let mut o = Object::existing();
        let brief = LockOp { duration: UTime { sec: 5, nsec: 0 }, ..take(LockType::EXCLUSIVE, "c", "t") };
        o.call("lock", "lock", &brief).unwrap();
        o.client = 2;
        o.now.sec += 5;
        assert_eq!(o.call("lock", "lock", &take(LockType::EXCLUSIVE, "c", "t")), Err(Errno::BUSY));
        o.now.nsec += 1;
        o.call("lock", "lock", &take(LockType::EXCLUSIVE, "c", "t")).unwrap();
    }

    #[test]
    fn an_ephemeral_lock_takes_its_object_along() {
        let mut o = Object::missing();
        o.call("lock", "lock", &take(LockType::EXCLUSIVE_EPHEMERAL, "c", "")).unwrap();
        o.call("lock", "unlock", &unlock_op("c")).unwrap();
        assert!(!o.exists());

        // Expired: taking it again replaces the object, and a method that only reads may not clean up.
        let op = take(LockType::EXCLUSIVE_EPHEMERAL, "c", "");
        o.call("lock", "lock", &LockOp { duration: UTime { sec: 1, nsec: 0 }, ..op.clone() }).unwrap();
        o.put_attr("other", b"x");
        o.now.sec += 2;
        assert_eq!(o.call("lock", "get_info", &GetInfoOp { name: "l".into() }), Err(Errno::IO));
        o.call("lock", "lock", &op).unwrap();
        assert!(o.exists() && o.attr("other").is_none());
    }

    #[test]
    fn assertions_and_cookies_want_the_lock_just_so() {
        let mut o = Object::existing();
        o.call("lock", "lock", &take(LockType::SHARED, "a", "t")).unwrap();
        let right =
            AssertOp { name: "l".into(), kind: LockType::SHARED, cookie: "a".into(), tag: "t".into() };
        o.call("lock", "assert_locked", &right).unwrap();
        for wrong in [
            AssertOp { kind: LockType::EXCLUSIVE, ..right.clone() },
            AssertOp { cookie: "b".into(), ..right.clone() },
            AssertOp { tag: "u".into(), ..right.clone() },
            AssertOp { name: "m".into(), ..right.clone() },
        ] {
            assert_eq!(o.call("lock", "assert_locked", &wrong), Err(Errno::BUSY), "{wrong:?}");
        }
        let none = AssertOp { kind: LockType::NONE, ..right };
        assert_eq!(o.call("lock", "assert_locked", &none), Err(Errno::INVAL));

        let rename = SetCookieOp {
            name: "l".into(),
            kind: LockType::SHARED,
            cookie: "a".into(),
            tag: "t".into(),
            new_cookie: "b".into(),
        };
        o.call("lock", "set_cookie", &rename).unwrap();
        assert_eq!(info(&mut o).lockers.keys().map(|k| &k.cookie[..]).collect::<Vec<_>>(), [b"b"]);
        assert_eq!(o.call("lock", "set_cookie", &rename), Err(Errno::BUSY));
    }

    #[test]
    fn locks_are_listed_by_name() {
        let mut o = Object::existing();
        for name in ["z", "a"] {
            let op = LockOp { name: name.into(), ..take(LockType::EXCLUSIVE, "c", "") };
            o.call("lock", "lock", &op).unwrap();
        }
        o.put_attr("locked", b"");
        let reply: ListLocksReply = decode(&o.call_bare("lock", "list_locks").unwrap());
        assert_eq!(reply.locks, ["a", "z"]);
        assert_eq!(Object::missing().call_bare("lock", "list_locks"), Err(Errno::NOENT));
    }

    #[test]
    fn what_does_not_decode_is_refused() {
        let mut o = Object::existing();
        assert_eq!(o.call_raw("lock", "lock", b"junk").result, Errno::INVAL.result());
        o.put_attr("lock.l", &GetInfoOp { name: "l".into() }.to_vec(Features::NONE)[..7]);
        assert_eq!(o.call("lock", "get_info", &GetInfoOp { name: "l".into() }), Err(Errno::IO));
    }
}
