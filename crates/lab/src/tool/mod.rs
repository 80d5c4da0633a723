//! Stock programs that make load, as child processes.
//!
//! - [`network`]: the lab's own probe of a network, and iperf3.
//! - [`process`]: children that are watched, stopped with us, and whose processor time is known.
//! - [`release`]: which release's programs.
//! - [`rados_bench`], [`fio`]: their command lines, and what their output says.

pub mod fio;
pub mod network;
pub mod process;
pub mod rados_bench;
pub mod release;
