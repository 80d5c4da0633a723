//! The `otp` class: one-time passwords by time (RFC 6238), with the last attempts.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, Encode};
use std::collections::BTreeSet;

/// [`OtpInfo::seed_type`] of a seed in base 32; other seeds are hexadecimal.
pub const SEED_BASE32: u8 = 2;

/// One token (`rados::cls::otp::otp_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OtpInfo {
    /// 2: by time, the only kind that there is.
    pub kind: u8,
    pub id: Name,
    pub seed: Name,
    pub seed_type: u8,
    /// The seed in bytes: what `otp_set` makes of it.
    pub secret: Bytes,
    pub time_offset_s: i32,
    pub step_s: u32,
    /// Steps before and after the present one that are accepted.
    pub window: u32,
}

pub const RESULT_UNKNOWN: u8 = 0;
pub const RESULT_SUCCESS: u8 = 1;
pub const RESULT_FAIL: u8 = 2;

/// One attempt (`rados::cls::otp::otp_check_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OtpCheck {
    /// Chosen by the client to ask for the result with.
    pub token: Name,
    pub time: UTime,
    /// `RESULT_*`.
    pub result: u8,
}

/// A stored token (`otp_instance`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OtpInstance {
    pub info: OtpInfo,
    /// Ascending by time.
    pub checks: Vec<OtpCheck>,
    /// Step of the last success: no step succeeds twice.
    pub last_success: u64,
}

/// Ids of all tokens of an object (`otp_header`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OtpHeader {
    pub ids: BTreeSet<Name>,
}

/// `cls_otp_set_otp_op` and `cls_otp_get_otp_reply`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OtpList {
    pub entries: Vec<OtpInfo>,
}

/// `cls_otp_check_otp_op`, which also asks for a result.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CheckOp {
    pub id: Name,
    pub value: Name,
    pub token: Name,
}

/// `cls_otp_get_result_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResultReply {
    pub result: OtpCheck,
}

/// `cls_otp_remove_otp_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveOp {
    pub ids: Vec<Name>,
}

/// `cls_otp_get_otp_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct GetOp {
    pub all: bool,
    pub ids: Vec<Name>,
}

/// `cls_otp_get_current_time_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TimeOp {}

/// `cls_otp_get_current_time_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct TimeReply {
    pub time: UTime,
}
