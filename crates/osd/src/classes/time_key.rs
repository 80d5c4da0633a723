//! Omap keys of a time: seconds in ten digits, microseconds in six.

use wire::types::UTime;

pub(super) fn time_key(prefix: &str, time: UTime) -> Vec<u8> {
    format!("{prefix}{:010}.{:06}_", time.sec, time.nsec / 1000).into()
}

/// Key of the next microsecond.
pub(super) fn after_time(prefix: &str, time: UTime) -> Vec<u8> {
    time_key(prefix, UTime::from_nanos(time.as_nanos().saturating_add(1000)))
}
