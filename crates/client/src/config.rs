//! The client's configuration and its timing.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Config {
    pub mon: mon_client::Config,
    pub timing: Timing,
}

/// Ceph's defaults where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Interval of the check of operations in flight (`objecter_tick_interval`).
    pub tick: Duration,
    /// Age at which an operation asks for a newer map and pings its OSD (`objecter_timeout`).
    pub laggy_after: Duration,
    /// The pause after an OSD could not be reached, doubled each time up to the second.
    pub reconnect_pause: Duration,
    pub reconnect_pause_max: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            tick: Duration::from_secs(5),
            laggy_after: Duration::from_secs(10),
            reconnect_pause: Duration::from_millis(50),
            reconnect_pause_max: Duration::from_secs(2),
        }
    }
}
