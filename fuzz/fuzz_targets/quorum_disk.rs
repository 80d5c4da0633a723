//! A member's disk: the hard record and the entries of the quorum's log.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mon::hostile::quorum_disk(data));
