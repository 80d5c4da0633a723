//! The allocator, and its policy for freed memory.
//!
//! A page that was returned to the system costs a fault and a clearing when it is used again: for the payload of a 4 MiB
//! write ten times the cost of everything else. So the allocator returns no page by itself. The daemon checks its size now
//! and then ([`figures`]) and returns all free pages at once ([`give_back`]) when it is above its target.
//!
//! [`Allocator`] must be made the global allocator by the binary; without that, this module has no effect.

pub use tikv_jemallocator::Jemalloc as Allocator;

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use tikv_jemalloc_ctl::{epoch, stats};

/// Bytes, at one moment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Figures {
    /// In use by the program.
    pub allocated: u64,
    /// Resident: in use, or free and kept for the next use.
    pub resident: u64,
}

/// The control for all arenas: jemalloc's `MALLCTL_ARENAS_ALL` is 4096.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Options that jemalloc reads before `main`:
///
/// - huge pages where the system has them: fewer TLB misses, a seventh of the cost of a random read;
/// - no decay: free pages stay resident;
/// - a large free range may serve any smaller request: otherwise the space of a deleted data set is not used for the next;
/// - allocations of 2 to 8 KiB, the payloads of small writes, are cut from slabs of 64 KiB.
#[allow(unsafe_code, reason = "jemalloc looks for its options under this symbol, as a C string's address")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static OPTIONS: Option<&'static c_char> = {
    const TEXT: &CStr = c"dirty_decay_ms:-1,thp:always,lg_extent_max_active_fit:63,slab_sizes:2048-8192:16";
    // SAFETY: the first byte of a constant; jemalloc reads to the NUL that a `CStr` ends with.
    Some(unsafe { &*TEXT.as_ptr() })
};

/// Memory figures of this process; zero where [`Allocator`] is not the global allocator.
pub fn figures() -> Figures {
    // The figures are as of the last epoch.
    let read = || {
        epoch::advance()?;
        Ok::<_, tikv_jemalloc_ctl::Error>(Figures {
            allocated: stats::allocated::read()? as u64,
            resident: stats::resident::read()? as u64,
        })
    };
    read().unwrap_or_default()
}

/// Returns all free pages to the system. Takes milliseconds per GiB.
pub fn give_back() {
    // SAFETY: a control that takes and gives nothing, by its name, which is NUL-terminated.
    #[allow(unsafe_code, reason = "the control has no safe name")]
    let errno =
        unsafe { tikv_jemalloc_sys::mallctl(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    if errno != 0 {
        tracing::debug!(
            "free memory was not returned to the system: {}",
            std::io::Error::from_raw_os_error(errno)
        );
    }
}
