//! The options that a manager acts on while it runs.

use command::option_set;
use std::time::Duration;

option_set! {
    pub struct MgrOptions for Mgr, Live {
        beacon_interval: Duration = "mgr_tick_period",
        /// Seconds in a state before a PG is stuck.
        pg_stuck_threshold_s: u64 = "mon_pg_stuck_threshold",
        report_period_s: u32 = "mgr_stats_period",
        /// A service daemon that says nothing for longer is no longer listed.
        service_grace: Duration = "mgr_service_beacon_grace",
        /// Counters of a lower priority are not reported.
        report_threshold: u32 = "mgr_stats_threshold",
        health_detail_max: usize = "mon_health_max_detail",
        scrub_interval_max_s: f64 = "osd_scrub_max_interval",
        deep_scrub_interval_s: f64 = "osd_deep_scrub_interval",
        not_scrubbed_ratio: f64 = "mon_warn_pg_not_scrubbed_ratio",
        not_deep_scrubbed_ratio: f64 = "mon_warn_pg_not_deep_scrubbed_ratio",
        warn_on_misplaced: bool = "mon_warn_on_misplaced",
        /// 0: `slow_ping_ratio` of the grace.
        slow_ping_ms: f64 = "mon_warn_on_slow_ping_time",
        slow_ping_ratio: f64 = "mon_warn_on_slow_ping_ratio",
        heartbeat_grace_s: u32 = "osd_heartbeat_grace",
        /// The CRUSH level that a slow ping's place leaves out.
        reporter_level: String = "mon_osd_reporter_subtree_level",
        reweight_change_max: f64 = "mon_reweight_max_change",
        reweight_osds_max: u64 = "mon_reweight_max_osds",
        reweight_bytes_min: u64 = "mon_reweight_min_bytes_per_osd",
        reweight_pgs_min: u64 = "mon_reweight_min_pgs_per_osd",
        crash_retain_interval: Duration = "mgr/crash/retain_interval",
        crash_warn_interval: Duration = "mgr/crash/warn_recent_interval",
        balancer_is_active: bool = "mgr/balancer/active",
        balancer_mode: String = "mgr/balancer/mode",
        balancer_interval: Duration = "mgr/balancer/sleep_interval",
        balancer_deviation_max: u32 = "mgr/balancer/upmap_max_deviation",
        balancer_changes_max: usize = "mgr/balancer/upmap_max_optimizations",
        /// Numbers of pools, with commas; empty for all.
        balancer_pools: String = "mgr/balancer/pool_ids",
        /// The schedule of all pools.
        trash_purge_schedule: String = "mgr/rbd_support/trash_purge_schedule",
        /// The schedule of all pools.
        mirror_snapshot_schedule: String = "mgr/rbd_support/mirror_snapshot_schedule",
        mirror_snapshots_at_once: usize = "mgr/rbd_support/max_concurrent_snap_create",
        mirror_snapshots_max: u64 = "rbd_mirroring_max_mirroring_snapshots",
        misplaced_ratio_max: f64 = "target_max_misplaced_ratio",
        autoscale_interval: Duration = "mgr/pg_autoscaler/sleep_interval",
        autoscale_is_off: bool = "mgr/pg_autoscaler/noautoscale",
        /// Copies of PGs that an OSD should have.
        autoscale_pgs_per_osd: u32 = "mon_target_pg_per_osd",
        autoscale_threshold: f64 = "mgr/pg_autoscaler/threshold",
    }
}
