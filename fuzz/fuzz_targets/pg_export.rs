//! The file that `shoal store pg import` reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal::store_tool::hostile::pg_export(data));
