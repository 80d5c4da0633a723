//! An entry of the monitors' replicated log, decoded and applied to a new cluster.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mon::hostile::proposal(data));
