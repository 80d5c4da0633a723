//! The performance lab: a study is one file and one command, on shoal or on any Ceph cluster.
//!
//! - [`cluster`]: connections to a cluster's monitors.
//! - [`deploy`]: clusters that the lab starts and stops itself; [`lab_host`]: the binary's part of that.
//! - [`doctor`]: properties of hosts and clusters that spoil measurements.
//! - [`judge`]: verdicts on measurements: steady, disturbed, bottleneck, compared.
//! - [`load`]: shoal's own load generator.
//! - [`matrix`]: the description of a run: a YAML file becomes points in an order.
//! - [`observe`]: the timeline of hosts and daemons during a load.
//! - [`report`]: pages, charts and tables.
//! - [`results`]: the store of measurements: one SQLite file, immutable, exportable.
//! - [`size`]: sizes in bytes as people write them.
//! - [`run`]: the run itself, from a matrix to results.
//! - [`tool`]: stock programs that make load.

pub mod cluster;
pub mod deploy;
pub mod doctor;
pub mod judge;
pub mod lab_host;
pub mod load;
pub mod matrix;
pub mod observe;
pub mod report;
pub mod results;
pub mod run;
pub mod size;
pub mod tool;
