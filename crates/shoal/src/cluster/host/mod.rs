//! The directory of one host in a cluster of several, as `shoal init` and `shoal join` make it.
//!
//! - [`record`]: what the directory knows of its host, in `host.json`.
//! - [`disks`]: disks for new OSDs, looked at before anything is changed.
//! - [`files`]: `ceph.conf` and keys of the host's daemons.
//! - [`join`]: how a host comes into a cluster.
//! - [`leave`]: how a host goes.
//! - [`monitors`]: the monitors that `ceph.conf` names, kept up to date.
//! - [`supervise`]: the host's daemons under systemd, or in the background.
//! - [`wait`]: the host's daemons take part in the cluster.

pub mod disks;
pub mod files;
pub mod join;
pub mod leave;
pub mod monitors;
pub mod record;
pub mod supervise;
pub mod wait;
