//! The records of a run, of a point, and of its samples.

use crate::matrix::{ClusterSpec, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Unique over all results that may ever be put together.
    pub id: String,
    pub name: String,
    /// Seconds since 1970.
    pub started_unix_s: f64,
    pub ended_unix_s: Option<f64>,
    /// `running`, `complete`, `interrupted` or `failed`.
    pub state: String,
    /// The file as it was given.
    pub file: String,
    pub notes: Vec<String>,
    /// Facts of the host, versions of tools.
    pub host: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointRecord {
    pub id: i64,
    pub run: String,
    /// Its place in the order of the run.
    pub turn: u32,
    pub iteration: u32,
    pub cluster: ClusterSpec,
    pub spec: Spec,
    pub measured: Option<Measured>,
    /// The error that left the point without a measurement.
    pub error: Option<String>,
    /// Disturbances in words; empty for a clean point.
    pub flags: Vec<String>,
    /// Its bottlenecks, with evidence.
    pub verdict: Option<Value>,
    /// Version of the cluster's software and its settings.
    pub versions: Value,
}

impl PointRecord {
    /// The point's name for people: cluster and spec.
    pub fn label(&self) -> String {
        format!("{} · {}", self.cluster.label(), self.spec.label())
    }
}

/// In microseconds. Percentiles are `None` where the tool tells none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub mean_us: f64,
    pub min_us: f64,
    pub max_us: f64,
    pub p50_us: Option<f64>,
    pub p95_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p999_us: Option<f64>,
}

/// One second of a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// From the load's begin, warm-up included.
    pub at_s: f64,
    pub ops: f64,
    pub mean_us: Option<f64>,
    pub p99_us: Option<f64>,
}

/// The measurements of one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub ops: f64,
    pub seconds: f64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    /// Operations that returned an error.
    pub errors: u64,
    /// The first error's errno, negative; `None` where the tool names none.
    #[serde(default)]
    pub first_error: Option<i32>,
    /// Operations without a reply when the load generator gave up waiting.
    #[serde(default)]
    pub unanswered: u64,
    pub latency: Latency,
    /// Upper bounds in microseconds, and how many operations were at most that slow and slower than the one before.
    pub histogram: Vec<(f64, u64)>,
    pub series: Vec<Second>,
    /// Processor microseconds an operation, by process: `osd.0`, `client`.
    pub cpu_us_per_op: Vec<(String, f64)>,
    /// The load generator's own ceiling in operations a second, where it is known.
    pub ceiling_ops_per_s: Option<f64>,
    /// Share of the time that the busiest thread of any client ran: at 1 the client can do no more. `None` if none was
    /// seen.
    #[serde(default)]
    pub client_thread_share: Option<f64>,
    /// Reads that were compared, and the number of wrong ones.
    pub verified: Option<(u64, u64)>,
}

/// One value on the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// From the load's begin.
    pub at_s: f64,
    /// `host`, `osd.0`, `client`, a disk, an interface.
    pub source: String,
    pub metric: String,
    pub value: f64,
}
