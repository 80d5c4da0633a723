//! The options that an OSD acts on while it runs, as typed snapshots of its layers.

use command::option_set;
use std::time::Duration;

option_set! {
    /// Options that the control machine acts on.
    pub struct ControlOptions for Osd, Live {
        balance_pgs: bool = "shoal_balance_pgs",
        beacon_interval: Duration = "osd_beacon_report_interval",
        compression_algorithm: String = "bluestore_compression_algorithm",
        compression_bytes_max: u64 = "bluestore_compression_max_blob_size",
        compression_bytes_min: u64 = "bluestore_compression_min_blob_size",
        compression_mode: String = "bluestore_compression_mode",
        compression_required_ratio: f64 = "bluestore_compression_required_ratio",
        /// Zero: a stall never takes the OSD down.
        device_stall_grace: Duration = "osd_device_stall_grace",
        failsafe_full_ratio: f64 = "osd_failsafe_full_ratio",
        heartbeat_grace: Duration = "osd_heartbeat_grace",
        heartbeat_interval: Duration = "osd_heartbeat_interval",
        /// Zero: a minute.
        heartbeat_testing_span: Duration = "debug_heartbeat_testing_span",
        mclock_profile: String = "osd_mclock_profile",
        max_markdown_count: u64 = "osd_max_markdown_count",
        max_markdown_period: Duration = "osd_max_markdown_period",
        partner_grace: Duration = "shoal_partner_grace",
        /// 0: `slow_ping_ratio` of the grace.
        slow_ping_ms: f64 = "mon_warn_on_slow_ping_time",
        slow_ping_ratio: f64 = "mon_warn_on_slow_ping_ratio",
        /// By processor. 0: no bound.
        scrub_load_threshold: f64 = "osd_scrub_load_threshold",
        warns_on_spillover: bool = "bluestore_warn_on_bluefs_spillover",
    }
}

option_set! {
    /// Bounds of `bench`.
    pub struct BenchOptions for Osd, Live {
        duration_s: u64 = "osd_bench_duration",
        large_throughput_max: u64 = "osd_bench_large_size_max_throughput",
        block_bytes_max: u64 = "osd_bench_max_block_size",
        small_iops_max: u64 = "osd_bench_small_size_max_iops",
    }
}

option_set! {
    /// Bounds of one operation and of recovery, see [`crate::ops::Limits`].
    pub struct LimitOptions for Osd, Live {
        attr_name_len_max: usize = "osd_max_attr_name_len",
        async_recovery_min_cost: u64 = "osd_async_recovery_min_cost",
        /// 0: no bound.
        attr_size_max: usize = "osd_max_attr_size",
        backfill_retry_interval: Duration = "osd_backfill_retry_interval",
        backfills_max: usize = "osd_max_backfills",
        copy_part_max: u64 = "osd_copyfrom_max_chunk",
        scrubs_max: usize = "osd_max_scrubs",
        scrub_min_s: f64 = "osd_scrub_min_interval",
        scrub_max_s: f64 = "osd_scrub_max_interval",
        deep_scrub_s: f64 = "osd_deep_scrub_interval",
        scrub_spread: f64 = "osd_scrub_interval_randomize_ratio",
        scrub_begin_hour: u32 = "osd_scrub_begin_hour",
        scrub_end_hour: u32 = "osd_scrub_end_hour",
        scrub_begin_day: u32 = "osd_scrub_begin_week_day",
        scrub_end_day: u32 = "osd_scrub_end_week_day",
        scrub_chunk_max: u32 = "osd_scrub_chunk_max",
        scrub_chunk_max_shallow: u32 = "osd_shallow_scrub_chunk_max",
        scrub_sleep: Duration = "osd_scrub_sleep",
        scrub_during_recovery: bool = "osd_scrub_during_recovery",
        scrub_auto_repair: bool = "osd_scrub_auto_repair",
        scrub_auto_repair_errors_max: u64 = "osd_scrub_auto_repair_num_errors",
        client_watch_timeout_s: u32 = "osd_client_watch_timeout",
        default_notify_timeout_s: u32 = "osd_default_notify_timeout",
        ignore_history_les: bool = "osd_find_best_info_ignore_history_les",
        object_name_len_max: usize = "osd_max_object_name_len",
        object_namespace_len_max: usize = "osd_max_object_namespace_len",
        object_size_max: u64 = "osd_max_object_size",
        omap_bytes_max: usize = "osd_max_omap_bytes_per_request",
        omap_entries_max: usize = "osd_max_omap_entries_per_request",
        pgls_max: usize = "osd_max_pgls",
        /// 0: `osd_recovery_max_active_ssd`.
        recovery_active_max: usize = "osd_recovery_max_active",
        recovery_active_max_ssd: usize = "osd_recovery_max_active_ssd",
        recovery_retry_interval: Duration = "osd_recovery_retry_interval",
        recovery_single_start_max: usize = "osd_recovery_max_single_start",
        recovery_sleep: Duration = "osd_recovery_sleep",
        write_op_reply_len_max: usize = "osd_max_write_op_reply_len",
        write_size_max_mib: usize = "osd_max_write_size",
    }
}

option_set! {
    /// Thresholds of slow operations and sizes of their history; see [`crate::signals::TrackingLimits`].
    pub struct TrackingOptions for Osd, Live {
        complaint_time: Duration = "osd_op_complaint_time",
        history_duration: Duration = "osd_op_history_duration",
        history_size: usize = "osd_op_history_size",
        slow_size: usize = "osd_op_history_slow_op_size",
        slow_threshold: Duration = "osd_op_history_slow_op_threshold",
    }
}
