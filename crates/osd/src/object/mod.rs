//! Objects as a PG sees them: what is known of each, who watches it, and whose turn it is.

pub mod hostile;
pub mod snapshots;
mod table;
mod watch;

pub use table::{ObjectBlock, ObjectContext, ObjectState, ObjectTable, ObjectTurn};
pub use watch::Watch;
