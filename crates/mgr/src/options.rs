//! The options that a manager acts on while it runs.

use command::option_set;
use std::time::Duration;

option_set! {
    pub struct MgrOptions for Mgr, Live {
        beacon_interval: Duration = "mgr_tick_period",
        /// Seconds in a state before a PG is stuck.
        pg_stuck_threshold_s: u64 = "mon_pg_stuck_threshold",
        report_period_s: u32 = "mgr_stats_period",
        /// Counters of a lower priority are not reported.
        report_threshold: u32 = "mgr_stats_threshold",
    }
}
