//! Options of the manager's work on block images, which the manager hands on to it.

use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSettings {
    /// The trash purge schedule of all pools, as its option has it.
    pub trash_purge_schedule: String,
    /// The mirror snapshot schedule of all pools.
    pub mirror_snapshot_schedule: String,
    /// Scheduled mirror snapshots that are made at a time.
    pub mirror_snapshots_at_once: usize,
    /// Mirror snapshots of an image for each peer, where neither the image nor its pool sets it.
    pub mirror_snapshots_max: u64,
    /// `mgr_stats_period`: OSDs report this often.
    pub report_period: Duration,
}

impl Default for ImageSettings {
    fn default() -> ImageSettings {
        ImageSettings {
            trash_purge_schedule: String::new(),
            mirror_snapshot_schedule: String::new(),
            mirror_snapshots_at_once: 10,
            mirror_snapshots_max: 5,
            report_period: Duration::from_secs(5),
        }
    }
}
