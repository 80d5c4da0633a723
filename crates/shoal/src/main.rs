//! The shoal binary: one cluster, in one command.

fn main() {}
