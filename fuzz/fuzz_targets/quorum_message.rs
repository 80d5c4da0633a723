//! A message of the quorum, received by a follower, a leader or a joiner, chosen by the first byte.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mon::hostile::quorum_message(data));
