//! Any message of the registry, chosen by the first byte.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::dencode::hostile::decode_message(data));
