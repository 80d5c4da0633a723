//! The performance lab: every study in the field as one file and one command, on shoal or on any Ceph cluster.
//!
//! - [`deploy`]: clusters that the lab starts and stops itself.
//! - [`doctor`]: what on a host or in a cluster would spoil a measurement.
//! - [`hands`]: what the binary lends the lab: the client with sockets.
//! - [`judge`]: what measurements say: steady, disturbed, bottleneck, compared.
//! - [`load`]: shoal's own load generator, without I/O: when to do what, and what was measured.
//! - [`matrix`]: what is to be measured: a YAML file becomes points in an order.
//! - [`observe`]: everything else on the same timeline.
//! - [`report`]: what a person reads.
//! - [`results`]: where measurements live: one SQLite file, immutable, exportable.
//! - [`size`]: sizes in bytes, read and written as people do.
//! - [`run`]: from a matrix to results.
//! - [`tool`]: stock programs that make load.

pub mod deploy;
pub mod doctor;
pub mod hands;
pub mod judge;
pub mod load;
pub mod matrix;
pub mod observe;
pub mod report;
pub mod results;
pub mod run;
pub mod size;
pub mod tool;
