//! Parts of the store's index: nodes, manifests, and tables that point anywhere, chosen by the first byte.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| block_store::index::hostile::decode(data));
