//! Checkers that see all copies of every PG at one moment: what clients cannot see, and what a later failure would show
//! them. Each file has one invariant.
//!
//! - [`sight`]: the facts that they judge.
//! - [`damage`]: objects that were lost because a disk damaged the only copy.
//! - [`one_writer`]: one interval of a PG at a time commits writes, and no older one answers reads.
//! - [`acknowledged`]: an acknowledged write is durable on every acting member.
//! - [`log_agreement`]: the copies' logs have the same committed entries.
//! - [`log_bounds`]: logs keep to their limits, and no entry is trimmed that an acting member lacks.
//! - [`min_size`]: the acting set that serves has min_size complete copies. Judged in runs without faults alone.
//! - [`scrub_blame`]: a scrub blames damaged copies and no others.
//! - [`replicas_equal`]: in the quiet time the copies have the same bytes, attributes and omap.
//! - [`snap_index`]: the snapshot index of a copy names all heads that a trim has to find.

pub mod acknowledged;
pub mod damage;
pub mod log_agreement;
pub mod log_bounds;
pub mod min_size;
pub mod one_writer;
pub mod replicas_equal;
pub mod scrub_blame;
pub mod sight;
pub mod snap_index;

pub use acknowledged::Ack;
pub use replicas_equal::{Contents, ObjectContents, PgContents};

use super::Promise;
use machine::Time;
use sight::{Look, Sights};
use std::time::Duration;

/// Time between two looks at the roles of all copies, and between two looks at their logs. Two intervals that both serve
/// do so for as long as a partition lasts.
const ROLES_EVERY: Duration = Duration::from_millis(50);
const LOGS_EVERY: Duration = Duration::from_secs(2);

/// A broken promise, in words.
pub type Finding = (Promise, String);

/// The times at which the copies are looked at.
#[derive(Debug, Default)]
pub struct Watch {
    roles_at: Time,
    logs_at: Time,
}

impl Watch {
    /// The look that is due.
    pub fn due(&mut self, now: Time) -> Option<Look> {
        if self.logs_at <= now {
            (self.roles_at, self.logs_at) = (now + ROLES_EVERY, now + LOGS_EVERY);
            return Some(Look::Logs);
        }
        if self.roles_at <= now {
            self.roles_at = now + ROLES_EVERY;
            return Some(Look::Roles);
        }
        None
    }
}

/// Checks the invariants that hold at any moment.
pub fn check(sights: &Sights) -> Result<(), Finding> {
    one_writer::check(sights).map_err(|words| (Promise::OneWriter, words))?;
    log_bounds::check(sights).map_err(|words| (Promise::LogsBounded, words))?;
    log_agreement::check(sights).map_err(|words| (Promise::LogsAgree, words))
}
