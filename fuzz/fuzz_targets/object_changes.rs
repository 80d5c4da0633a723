//! Changes of objects that another OSD sends. Two bytes say how many of the others are the changes; data follows.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| store::wire_form::decode_hostile(data));
