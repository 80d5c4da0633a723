//! Reactors, sockets, timers and disks: the only crate that calls the operating system on the data path.
//!
//! A daemon has one reactor per core, and reactors share no state. One turn of a reactor:
//!
//! ```text
//! wait for sockets, mail or the next deadline
//!   read what each ready socket has          into one pooled buffer, or a large frame's own
//!     Endpoint::step                         frames, sessions           (messenger)
//!       Role::on_net                         the daemon's own machines  (the binary's wiring)
//!     Endpoint::step                         what the role wants to send
//!   post mail for other cores                one lock and at most one wake per core
//!   write                                    one vectored write per connection
//! ```
//!
//! - [`Role`] is implemented by a daemon; [`Turn`] is its access to the reactor during one turn.
//! - [`Reactors::start`] starts the threads; [`Mailbox`] reaches them from other threads.
//! - [`device`] is the disk: io_uring, or threads where io_uring is not allowed.
//! - [`Counters`] count turns, reads, writes and hops.
//! - [`memory`] is the allocator and its policy for freed memory.
//! - [`system`]: wall clock, processor time, random seeds.

mod counters;
pub mod device;
mod idle;
mod mail;
pub mod memory;
mod pool;
mod reactor;
mod refusals;
mod role;
mod single_caller;
mod socket;
mod start;
pub mod system;

pub use counters::Counters;
pub use mail::Mailbox;
pub use role::{Role, Turn};
pub use start::{Options, Reactors, raise_file_limit};
