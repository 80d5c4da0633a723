//! A file of collected OSDMaps, from which a monitor is rebuilt.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mon::hostile::collected_maps(data));
