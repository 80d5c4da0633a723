//! A cluster's directory on one host: which daemons are in it, and what its first files say.
//!
//! - [`layout`]: the daemons of a directory, their addresses, and how each is started.
//! - [`start`]: its daemons as background processes.
//! - [`provision`]: a whole new cluster in one directory: `ceph.conf` and keys.
//! - [`register`]: introducing its OSDs to the monitor.
//! - [`recovered_keys`]: keys for a rebuilt monitor.
//! - [`removed`]: monitors that were taken out.
//! - [`host`]: the directory of one host in a cluster of several.
//! - [`restart`]: restarts of a cluster's daemons from one host.
//! - [`migrate`]: changes of the cluster's layout that move data at a chosen pace.
//! - [`ask`]: commands to the cluster's daemons. [`facts`]: daemons and PGs as monitors and manager tell them.
//! - [`progress`]: progress of such work, for people.

pub mod ask;
pub mod facts;
pub mod host;
pub mod layout;
pub mod migrate;
pub mod progress;
pub mod provision;
pub mod recovered_keys;
pub mod register;
pub mod removed;
pub mod restart;
pub mod start;
