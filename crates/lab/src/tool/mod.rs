//! What makes the load? Stock programs as child processes, and shoal's own client through the binary's hands.
//!
//! - [`process`]: children that are watched, stopped with us, and whose processor time is known.
//! - [`rados_bench`], [`fio`]: their command lines, and what their output says.

pub mod fio;
pub mod process;
pub mod rados_bench;
