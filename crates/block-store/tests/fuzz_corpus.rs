//! Replay of the fuzz corpus on stable Rust: `fuzz/corpus/TARGET/*`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the corpus is files")]

use std::fs;
use std::path::{Path, PathBuf};

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 30, "{target} has {} seeds", files.len());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(file).unwrap());
    }
}

#[test]
fn index() {
    replay("decode_index", block_store::index::hostile::decode);
}

#[test]
fn store() {
    replay("decode_store", block_store::hostile::decode);
}
