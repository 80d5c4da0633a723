//! Any type of the wire's table, chosen by the first two bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::dencode::hostile::decode_type(data));
