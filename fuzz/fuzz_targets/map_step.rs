//! An OSDMap and the incremental after it, applied and mapped.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| placement::hostile::apply_and_map(data));
