//! How large may this process grow, and who sees to it?
//!
//! The allocator keeps what is freed ([`runtime::memory`]); once a second the process is measured, and when it is over
//! its target everything that is free goes back to the system. What is in use is never touched: a target below that
//! costs speed and nothing else, and is said once in the log.

use super::counters::{Counter, Reading};
use crate::config::layers::Config;
use runtime::memory::{Figures, figures, give_back};
use std::time::Duration;

pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// `osd_memory_target` or `mon_memory_target`; a memory store's contents come on top of it.
pub fn target(config: &Config, daemon: &str) -> u64 {
    if daemon.starts_with("osd.") {
        let is_in_memory = config.text("osd_objectstore") == "memstore";
        let store = if is_in_memory { config.number("memstore_device_bytes").unwrap_or(0) } else { 0 };
        config.number("osd_memory_target").unwrap_or(0).saturating_add(store)
    } else {
        config.number("mon_memory_target").unwrap_or(0)
    }
}

/// How much of the target a store's caches may take. The rest is for what is under way, for the PGs' logs and objects in
/// hand, for tables that are being merged, and for what the allocator cannot use.
pub fn cache_bytes(target: u64) -> usize {
    const FOR_THE_REST: u64 = 512 << 20;
    let cache = (target / 2).max(target.saturating_sub(FOR_THE_REST) * 3 / 4);
    usize::try_from(cache).unwrap_or(usize::MAX)
}

#[derive(Default)]
pub struct Keeper {
    is_over: bool,
}

impl Keeper {
    /// Look once.
    pub fn look(&mut self, target: u64) {
        let before = figures();
        if before.resident <= target {
            self.is_over = false;
            return;
        }
        give_back();
        let Figures { allocated, resident } = figures();
        tracing::debug!("memory: {} to {resident} bytes, {allocated} in use", before.resident);
        if resident > target && !self.is_over {
            self.is_over = true;
            tracing::warn!("{resident} bytes of memory are needed, and the target is {target}");
        }
    }
}

pub fn counters(target: u64) -> [Counter; 3] {
    let Figures { allocated, resident } = figures();
    [
        ("allocated", "bytes in use", allocated),
        ("resident", "bytes in memory, in use or kept for the next use", resident),
        ("target", "bytes above which what is kept goes back to the system", target),
    ]
    .map(|(name, help, bytes)| Counter {
        group: "memory".into(),
        name: name.into(),
        help: help.into(),
        value: Reading::Level(bytes),
    })
}
