//! Parts of a store: superblock, header, log, and the values of its index, chosen by the first byte.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| block_store::hostile::decode(data));
