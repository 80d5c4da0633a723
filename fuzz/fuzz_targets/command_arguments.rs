//! The JSON object of a command's arguments.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| command::hostile::arguments(data));
