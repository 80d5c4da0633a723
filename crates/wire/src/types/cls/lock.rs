//! The `lock` class: advisory locks kept in an object's `lock.NAME` attributes.

use crate::types::{EntityAddr, EntityName, Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// `ClsLockType`. A number that is none of these survives a decode and is refused by what needs a valid one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockType(pub u8);

impl LockType {
    pub const NONE: LockType = LockType(0);
    pub const EXCLUSIVE: LockType = LockType(1);
    pub const SHARED: LockType = LockType(2);
    /// Exclusive, and the object goes away with the lock.
    pub const EXCLUSIVE_EPHEMERAL: LockType = LockType(3);

    pub const fn is_valid(self) -> bool {
        matches!(self, LockType::EXCLUSIVE | LockType::SHARED | LockType::EXCLUSIVE_EPHEMERAL)
    }

    pub const fn is_exclusive(self) -> bool {
        matches!(self, LockType::EXCLUSIVE | LockType::EXCLUSIVE_EPHEMERAL)
    }

    pub const fn is_ephemeral(self) -> bool {
        matches!(self, LockType::EXCLUSIVE_EPHEMERAL)
    }
}

impl Encode for LockType {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}

impl Decode for LockType {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u8().map(LockType)
    }
}

/// Taking a lock again that one holds is no error.
pub const LOCK_FLAG_MAY_RENEW: u8 = 1;
/// Only a lock that one holds may be taken.
pub const LOCK_FLAG_MUST_RENEW: u8 = 2;

/// Holder of a lock, unique within the lock (`locker_id_t`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LockerId {
    pub locker: EntityName,
    pub cookie: Name,
}

/// `locker_info_t`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LockerInfo {
    /// Zero: never.
    pub expires: UTime,
    pub addr: EntityAddr,
    pub description: Name,
}

/// A lock as the attribute holds it (`lock_info_t`), and as `get_info` returns it (`cls_lock_get_info_reply`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LockInfo {
    pub lockers: BTreeMap<LockerId, LockerInfo>,
    pub kind: LockType,
    /// All holders agree on it.
    pub tag: Name,
}

/// `cls_lock_lock_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LockOp {
    pub name: Name,
    pub kind: LockType,
    pub cookie: Name,
    pub tag: Name,
    pub description: Name,
    /// Zero: does not expire.
    pub duration: UTime,
    /// `LOCK_FLAG_*`.
    pub flags: u8,
}

/// `cls_lock_unlock_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct UnlockOp {
    pub name: Name,
    pub cookie: Name,
}

/// `cls_lock_break_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct BreakOp {
    pub name: Name,
    pub locker: EntityName,
    pub cookie: Name,
}

/// `cls_lock_get_info_op`.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetInfoOp {
    pub name: Name,
}

/// `cls_lock_list_locks_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListLocksReply {
    pub locks: Vec<Name>,
}

/// `cls_lock_assert_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct AssertOp {
    pub name: Name,
    pub kind: LockType,
    pub cookie: Name,
    pub tag: Name,
}

/// `cls_lock_set_cookie_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SetCookieOp {
    pub name: Name,
    pub kind: LockType,
    pub cookie: Name,
    pub tag: Name,
    pub new_cookie: Name,
}
