//! A call of an object class method, chosen by the first two bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| osd::classes::hostile::call(data));
