//! Counters of a daemon, as `perf dump` and the metrics page show them.

use std::borrow::Cow;

/// One measured value at one moment. `group` and `name` are as in Ceph's `perf dump`: `osd`, `op_r`.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    pub group: Cow<'static, str>,
    pub name: Cow<'static, str>,
    pub help: Cow<'static, str>,
    pub value: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// Only grows.
    Total(u64),
    /// Goes up and down.
    Level(u64),
    /// How many times, and the sum of what was measured, in nanoseconds.
    Time { count: u64, sum_ns: u64 },
}

impl Counter {
    pub const fn new(group: &'static str, name: &'static str, help: &'static str, value: Reading) -> Counter {
        Counter { group: Cow::Borrowed(group), name: Cow::Borrowed(name), help: Cow::Borrowed(help), value }
    }
}
