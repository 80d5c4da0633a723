//! The process's allocator, and how much freed memory it may keep.
//!
//! A page that goes back to the system and is taken anew costs a fault and a clearing: for the payload of a 4 MiB write
//! that is ten times what everything else costs. So nothing goes back by itself. Instead the daemon looks at its size
//! now and then ([`figures`]) and gives all that is free back at once ([`give_back`]) when it is above its target.
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
    /// In memory: in use, or free and kept for the next use.
    pub resident: u64,
}

/// What jemalloc's `MALLCTL_ARENAS_ALL` means by "every arena".
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Read by jemalloc before `main`: memory comes in huge pages where the system has them (fewer misses of the TLB: a
/// seventh of a random read); free pages stay (no decay); a large free range may serve any smaller request
/// (without that, what a deleted data set leaves behind is not used for the next); blocks of 2 to 8 KiB, the payloads
/// of small writes, are cut from 64 KiB at a time rather than one by one.
#[allow(unsafe_code, reason = "jemalloc looks for its options under this symbol, as a C string's address")]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static OPTIONS: Option<&'static c_char> = {
    const TEXT: &CStr = c"dirty_decay_ms:-1,thp:always,lg_extent_max_active_fit:63,slab_sizes:2048-8192:16";
    // SAFETY: the first byte of a constant; jemalloc reads to the NUL that a `CStr` ends with.
    Some(unsafe { &*TEXT.as_ptr() })
};

/// Zero where [`Allocator`] is not the global allocator.
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

/// Everything that is free goes back to the system: milliseconds for each GiB.
pub fn give_back() {
    // SAFETY: a control that takes and gives nothing, by its name, which is NUL-terminated.
    #[allow(unsafe_code, reason = "the control has no safe name")]
    let errno =
        unsafe { tikv_jemalloc_sys::mallctl(PURGE_ALL.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    if errno != 0 {
        tracing::debug!("free memory stays: {}", std::io::Error::from_raw_os_error(errno));
    }
}
