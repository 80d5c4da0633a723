//! Snapshot sets and lists of snapshots, and the rules of writes, reads and trims on them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osd::object::hostile::snap_sets(data));
