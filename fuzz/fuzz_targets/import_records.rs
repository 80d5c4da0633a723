//! The records of a file that `shoal store import` reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal::store_tool::hostile::records(data));
