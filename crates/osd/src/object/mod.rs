//! Objects as a PG sees them: what is known of each, who watches it, and whose turn it is.

mod table;
mod watch;

pub use table::{Facts, ObjectContext, ObjectTable, Turn};
pub use watch::Watch;
