//! The memory target of a process, and its division among caches and requests.
//!
//! The allocator keeps what is freed ([`runtime::memory`]); once a second the process is measured, and when it is over
//! its target everything that is free goes back to the system, and the caches of a store on disk become smaller. What
//! else is in use is never touched: a target below that costs speed and nothing else, and is said once in the log. A daemon that is
//! in no hurry also bounds what is kept ([`SPARE_MAX`]): a burst of map changes fills hundreds of megabytes for a moment.

use command::perf::{Counter, Reading};
use runtime::memory::{Figures, figures, give_back};
use std::time::Duration;

pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The largest part of the target that a store's caches may take. The rest is for memtables, for what is under way, for the PGs' logs
/// and objects in hand, for tables that are being merged, and for what the allocator cannot use.
fn cache_bytes(target: u64) -> u64 {
    const FOR_THE_REST: u64 = 384 << 20;
    (target / 4).max(target.saturating_sub(FOR_THE_REST + memtable_bytes(target)) / 8 * 7)
}

/// Memtables of all shards together: three of 32 MiB for each of two shards at the usual target of 4 GiB.
fn memtable_bytes(target: u64) -> u64 {
    target / 64 * 3
}

/// Bytes of client requests that may be in memory at once, all cores together.
fn message_bytes(target: u64, cap: u64) -> u64 {
    let most = target / 8;
    // Stock's zero is "no bound".
    if cap == 0 { most } else { cap.min(most) }
}

/// The memory that each part of a daemon may take from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    pub caches: usize,
    pub memtables: usize,
    pub messages: usize,
}

/// Caches are never made smaller than this.
const CACHE_BYTES_MIN: u64 = 16 << 20;

/// Bytes that a daemon which is in no hurry keeps for the next use.
pub const SPARE_MAX: u64 = 128 << 20;

pub struct Keeper {
    /// Bytes that are kept, while the process is below its target.
    spare_max: u64,
    is_over: bool,
    /// The target that the caches were sized for, and their size.
    caches: Option<(u64, u64)>,
    told: Option<Budgets>,
}

impl Keeper {
    pub fn new(spare_max: u64) -> Keeper {
        Keeper { spare_max, is_over: false, caches: None, told: None }
    }

    fn keeps_too_much(&self, target: u64, now: Figures) -> bool {
        now.resident > target || now.resident.saturating_sub(now.allocated) > self.spare_max
    }

    /// Look once. `message_cap`: `osd_client_message_size_cap`. Says what the role's parts may take, when that has changed.
    pub fn look(&mut self, target: u64, message_cap: u64) -> Option<Budgets> {
        let mut now = figures();
        if self.keeps_too_much(target, now) {
            let before = now.resident;
            give_back();
            now = figures();
            tracing::debug!("memory: {before} to {} bytes, {} in use", now.resident, now.allocated);
            if now.resident > target && !self.is_over {
                tracing::warn!("{} bytes of memory are needed, and the target is {target}", now.resident);
            }
        }
        self.is_over = now.resident > target;
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let caches = bytes(self.size_caches(target, now));
        let budgets = Budgets {
            caches,
            memtables: bytes(memtable_bytes(target)),
            messages: bytes(message_bytes(target, message_cap)),
        };
        (self.told.replace(budgets) != Some(budgets)).then_some(budgets)
    }

    /// The other needs of the process are not known beforehand: caches shrink for them and grow again.
    fn size_caches(&mut self, target: u64, now: Figures) -> u64 {
        let most = cache_bytes(target);
        let (for_target, size) = self.caches.unwrap_or((0, 0));
        let step = target / 50;
        let wanted = if for_target != target {
            most
        } else if now.resident > target {
            size.saturating_sub(now.resident - target + step).max(CACHE_BYTES_MIN.min(most))
        } else if now.allocated + 4 * step < target {
            (size + step).min(most)
        } else {
            size
        };
        self.caches = Some((target, wanted));
        wanted
    }
}

pub fn counters(target: u64) -> [Counter; 3] {
    let Figures { allocated, resident } = figures();
    [
        ("allocated", "bytes in use", allocated),
        ("resident", "bytes in memory, in use or kept for the next use", resident),
        ("target", "bytes above which what is kept goes back to the system", target),
    ]
    .map(|(name, help, bytes)| Counter::own("memory", name, help, Reading::Level(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn size(keeper: &mut Keeper, target: u64, in_use: u64) -> u64 {
        keeper.size_caches(target, Figures { allocated: in_use, resident: in_use })
    }

    #[test]
    fn clients_get_an_eighth_at_most() {
        const MIB: u64 = 1 << 20;
        assert_eq!(message_bytes(4 * GIB, 500 * MIB), 500 * MIB);
        assert_eq!(message_bytes(GIB, 500 * MIB), 128 * MIB);
        assert_eq!(message_bytes(GIB, 0), 128 * MIB);
    }

    #[test]
    fn target_and_own_limit_bound_kept_memory() {
        let figures = |allocated, resident| Figures { allocated, resident };
        let (osd, monitor) = (Keeper::new(u64::MAX), Keeper::new(SPARE_MAX));
        assert!(osd.keeps_too_much(GIB, figures(GIB / 2, GIB + 1)));
        assert!(!osd.keeps_too_much(GIB, figures(0, GIB)));
        assert!(monitor.keeps_too_much(GIB, figures(GIB / 2, GIB / 2 + SPARE_MAX + 1)));
        assert!(!monitor.keeps_too_much(GIB, figures(GIB / 2, GIB / 2 + SPARE_MAX)));
    }

    #[test]
    fn budgets_are_told_when_they_change() {
        let mut keeper = Keeper::new(u64::MAX);
        let first = keeper.look(64 * GIB, 1 << 20).expect("nothing was told yet");
        assert_eq!(first.messages, 1 << 20);
        assert_eq!(keeper.look(64 * GIB, 1 << 20), None);
        assert_eq!(keeper.look(64 * GIB, 2 << 20), Some(Budgets { messages: 2 << 20, ..first }));
    }

    #[test]
    fn caches_make_room_and_take_it_back() {
        let mut keeper = Keeper::new(u64::MAX);
        let most = cache_bytes(4 * GIB);
        assert!((11 * GIB / 4..7 * GIB / 2).contains(&most));
        assert_eq!(size(&mut keeper, 4 * GIB, GIB), most);
        assert_eq!(size(&mut keeper, 4 * GIB, GIB), most, "nothing changes");
        // A model of a process that needs 2 GiB besides what its caches are filled with.
        let mut caches = most;
        for _ in 0..20 {
            caches = size(&mut keeper, 4 * GIB, 2 * GIB + caches);
        }
        assert!(2 * GIB + caches <= 4 * GIB, "{caches}");
        assert!(2 * GIB + caches > 3 * GIB, "{caches}");
        for _ in 0..100 {
            caches = size(&mut keeper, 4 * GIB, GIB / 2 + caches);
        }
        assert_eq!(caches, most, "the room is taken again");
        assert_eq!(size(&mut keeper, GIB, GIB / 2), cache_bytes(GIB), "another target");
        for _ in 0..20 {
            caches = size(&mut keeper, GIB, 3 * GIB);
        }
        assert_eq!(caches, CACHE_BYTES_MIN);
    }
}
