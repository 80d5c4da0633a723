//! One OSD, assembled: everything between the host's sockets and disks and the OSD's two machines.
//!
//! An OSD has one [`Core`] for each reactor core. Each core has a shard and its part of the store; core 0 also has the
//! control machine. A `Core` is a machine itself: production drives it with sockets and disks
//! (`crates/shoal/src/host/osd.rs`), the simulator with delays and crashes (`crates/sim/src/nodes/osd.rs`). Neither
//! host decides anything about the protocol.
//!
//! ```text
//! socket ─▶ Net ──┬─ a client's request ──▶ its PG's core ─▶ shard ─▶ Submit, Read ─▶ store
//!                 ├─ an OSD's statement ──▶ its PG's core ─▶ shard         │
//!                 └─ everything else ─────▶ core 0 ───────▶ control        │
//! reply ◀─── Net ◀────────────────────────────────────────── shard ◀── Completed
//! peer OSD ◀ Net ◀── links ◀──────────────────────────────── shard
//! ```
//!
//! What the host promises, beside the contract of [`machine::Machine`]:
//! - Mail from one core to another arrives in the order it was posted, after any delay. Mail of a core to itself too.
//! - Mail and [`machine::net::NetEffect`]s that go to the same other core are not ordered against each other.
//! - Network events of a connection come to one core only, the one that [`machine::ConnId::core`] names.
//! - [`Effect::MeasureStore`] is answered at once, before the core gets any other input.
//!
//! Files: [`core`](self::core) steps the machines of one core; `io` has its inputs and effects; `routes` says which core
//! handles a message; `links` sends statements to other OSDs; `peers` names the OSD that a statement comes from; `headroom`
//! watches the free space of the core's store; `requests` partitions and counts the store's tags; `contents` says which store
//! shards a core has, and their contents; [`stale`] finds the PG copies that a start must remove, and removes them.

mod contents;
mod core;
mod headroom;
mod io;
mod links;
mod peers;
mod requests;
mod routes;
pub mod stale;
#[cfg(test)]
mod tests;

pub use contents::{StoreContents, shards_of};
pub use core::{Core, CoreConfig, check_sessions, check_together};
pub use headroom::{Failsafe, Headroom};
pub use io::{Budgets, Damage, Effect, Input, Mail, StoreUsage};
pub use peers::{Sender, Statement};
pub use routes::{Destination, Routes, spread};
