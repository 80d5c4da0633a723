//! Manager capabilities.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mgr::hostile::caps(data));
