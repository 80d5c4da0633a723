//! Configuration: where a value comes from, and which one wins.
//!
//! - [`expand`]: `$name`, `$id` and their like inside values.
//! - [`options`]: the table of what shoal acts on.
//! - [`layers`]: default < file < monitor's database < override < command line.

pub mod expand;
pub mod layers;
pub mod options;
