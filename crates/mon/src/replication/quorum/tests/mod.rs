//! Members on one thread from one seed: stories, rules of the library, and random faults.

mod cluster;
mod faults;
mod rules;
mod story;
