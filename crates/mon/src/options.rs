//! The options that a monitor acts on while it runs, as one typed snapshot of its layers.

use command::option_set;
use std::time::Duration;

option_set! {
    /// Options of the monitor; durations and counts as the table has them.
    pub struct MonOptions for Mon, Live {
        allow_insecure_global_id_reclaim: bool = "auth_allow_insecure_global_id_reclaim",
        /// New keys may have the older cipher, where it may authenticate.
        allow_insecure_key: bool = "mon_auth_allow_insecure_key",
        allow_pool_delete: bool = "mon_allow_pool_delete",
        allow_pool_size_one: bool = "mon_allow_pool_size_one",
        /// Seconds.
        clock_drift_allowed: f64 = "mon_clock_drift_allowed",
        /// Percentages of the file system.
        data_avail_crit: i64 = "mon_data_avail_crit",
        data_avail_warn: i64 = "mon_data_avail_warn",
        /// Names of ciphers with commas, in the place of the map's.
        emergency_allowed_ciphers: String = "mon_auth_emergency_allowed_ciphers",
        auth_ticket_ttl: Duration = "auth_mon_ticket_ttl",
        service_ticket_ttl: Duration = "auth_service_ticket_ttl",
        mgr_beacon_grace: Duration = "mon_mgr_beacon_grace",
        /// Seconds.
        mgr_blocklist_interval: f64 = "mon_mgr_blocklist_interval",
        osd_adjust_down_out_interval: bool = "mon_osd_adjust_down_out_interval",
        osd_adjust_heartbeat_grace: bool = "mon_osd_adjust_heartbeat_grace",
        osd_auto_mark_auto_out_in: bool = "mon_osd_auto_mark_auto_out_in",
        osd_auto_mark_in: bool = "mon_osd_auto_mark_in",
        osd_auto_mark_new_in: bool = "mon_osd_auto_mark_new_in",
        /// Zero: never.
        osd_destroyed_out_interval: Duration = "mon_osd_destroyed_out_interval",
        /// Zero: never.
        osd_down_out_interval: Duration = "mon_osd_down_out_interval",
        osd_down_out_subtree_limit: String = "mon_osd_down_out_subtree_limit",
        osd_failsafe_full_ratio: f64 = "osd_failsafe_full_ratio",
        osd_heartbeat_grace: Duration = "osd_heartbeat_grace",
        osd_heartbeat_stale: Duration = "osd_heartbeat_stale",
        osd_laggy_halflife: Duration = "mon_osd_laggy_halflife",
        osd_laggy_max_interval: Duration = "mon_osd_laggy_max_interval",
        osd_laggy_weight: f64 = "mon_osd_laggy_weight",
        osd_min_down_reporters: u64 = "mon_osd_min_down_reporters",
        osd_min_in_ratio: f64 = "mon_osd_min_in_ratio",
        osd_min_up_ratio: f64 = "mon_osd_min_up_ratio",
        osd_report_timeout: Duration = "mon_osd_report_timeout",
        osd_reporter_subtree_level: String = "mon_osd_reporter_subtree_level",
        osdmap_epochs_min: u32 = "mon_min_osdmap_epochs",
        pool_cache_dirty_high_ratio: f64 = "osd_pool_default_cache_target_dirty_high_ratio",
        pool_cache_dirty_ratio: f64 = "osd_pool_default_cache_target_dirty_ratio",
        pool_cache_full_ratio: f64 = "osd_pool_default_cache_target_full_ratio",
        /// Negative: the first rule of a replicated pool.
        pool_crush_rule: i64 = "osd_pool_default_crush_rule",
        pool_flag_bulk: bool = "osd_pool_default_flag_bulk",
        pool_flag_nodelete: bool = "osd_pool_default_flag_nodelete",
        pool_flag_nopgchange: bool = "osd_pool_default_flag_nopgchange",
        pool_flag_nosizechange: bool = "osd_pool_default_flag_nosizechange",
        /// 0: the size less half of it.
        pool_min_size: u64 = "osd_pool_default_min_size",
        pool_pg_autoscale_mode: String = "osd_pool_default_pg_autoscale_mode",
        pool_pg_num: u32 = "osd_pool_default_pg_num",
        pool_pg_num_max: u32 = "mon_max_pool_pg_num",
        pool_size: u64 = "osd_pool_default_size",
        /// Zero: OSDs do not go down for missed pulses.
        pulse_grace: Duration = "shoal_pulse_grace",
        warn_on_insecure_global_id_reclaim: bool = "mon_warn_on_insecure_global_id_reclaim_allowed",
        warn_on_osd_down_out_interval_zero: bool = "mon_warn_on_osd_down_out_interval_zero",
        warn_on_pool_no_app: bool = "mon_warn_on_pool_no_app",
        warn_on_pool_no_app_grace: Duration = "mon_warn_on_pool_no_app_grace",
        warn_on_pool_no_redundancy: bool = "mon_warn_on_pool_no_redundancy",
        warn_on_pool_pg_num_not_power_of_two: bool = "mon_warn_on_pool_pg_num_not_power_of_two",
        warn_on_too_few_osds: bool = "mon_warn_on_too_few_osds",
    }
}
