//! The performance lab: every study in the field as one file and one command, on shoal or on any Ceph cluster.
//!
//! - [`matrix`]: what is to be measured: a YAML file becomes points in an order.
//! - [`results`]: where measurements live: one SQLite file, immutable, exportable.
//! - [`size`]: sizes in bytes, read and written as people do.

pub mod matrix;
pub mod results;
pub mod size;
