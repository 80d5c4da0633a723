//! Configuration: where a value comes from, and which one wins.
//!
//! - [`conf_file`]: `ceph.conf`, as stock tools write and read it.
//! - [`expand`]: `$name`, `$id` and their like inside values.
//! - [`options`]: the table of what shoal acts on.
//! - [`layers`]: default < file < monitor's database < override < command line.
//! - [`keyring`]: keys in a file, interchangeable with `ceph-authtool`.

pub mod conf_file;
pub mod expand;
pub mod keyring;
pub mod layers;
pub mod options;
