//! Reactors, sockets, timers: the only crate that touches the operating system on the data path.
//!
//! A daemon has one reactor a core, and nothing on it is shared with another. A reactor turns:
//!
//! ```text
//! wait for sockets, mail or the next deadline
//!   read what each ready socket has          into one pooled buffer, or a large frame's own
//!     Endpoint::step                         frames, sessions           (messenger)
//!       Role::on_net                         the daemon's own machines  (the binary's wiring)
//!     Endpoint::step                         what the role wants to send
//!   post mail for other cores                one lock and at most one wake a core
//!   write                                    one vectored write a connection
//! ```
//!
//! - [`Role`] is what a daemon implements; [`Turn`] is what it may do during one.
//! - [`Reactors::start`] runs them; [`Mailbox`] reaches them from other threads.
//! - [`device`] is the disk: io_uring, or threads where that is not allowed.
//! - [`Counters`] tell what the turns did.
//! - [`memory`] is the allocator, and how much of what is freed it keeps.
//! - [`system`]: wall clock, processor time, random seeds.

mod alone;
mod counters;
pub mod device;
mod idle;
mod mail;
pub mod memory;
mod pool;
mod reactor;
mod refusals;
mod role;
mod socket;
mod start;
pub mod system;

pub use counters::Counters;
pub use mail::Mailbox;
pub use role::{Role, Turn};
pub use start::{Options, Reactors, raise_file_limit};
