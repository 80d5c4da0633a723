//! Pools: space from `df`, rates from `osd pool stats`.

use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Default)]
pub struct PoolRow {
    pub name: String,
    pub stored: Option<f64>,
    pub objects: Option<f64>,
    /// Of the space that the pool could have, in percent.
    pub used_percent: Option<f64>,
    /// Without the manager's answer no rate is known; a pool without a rate has none.
    pub rates: Option<Rates>,
}

#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Rates {
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub reads: f64,
    pub writes: f64,
    pub recovered_bytes: f64,
}

impl Rates {
    pub fn operations(&self) -> f64 {
        self.reads + self.writes
    }
}

pub fn rows(df: Option<&Value>, stats: Option<&Value>) -> Vec<PoolRow> {
    let mut pools: BTreeMap<i64, PoolRow> = BTreeMap::new();
    for pool in df.and_then(|df| df["pools"].as_array()).into_iter().flatten() {
        let (Some(id), space) = (pool["id"].as_i64(), &pool["stats"]) else { continue };
        let row = pools.entry(id).or_default();
        row.name = pool["name"].as_str().unwrap_or("?").to_owned();
        row.stored = space["stored"].as_f64().or(space["bytes_used"].as_f64());
        row.objects = space["objects"].as_f64();
        row.used_percent = space["percent_used"].as_f64().map(|part| part * 100.0);
    }
    for pool in stats.and_then(Value::as_array).into_iter().flatten() {
        let Some(id) = pool["pool_id"].as_i64() else { continue };
        let row = pools.entry(id).or_default();
        row.name = pool["pool_name"].as_str().unwrap_or("?").to_owned();
        let rate = |group: &str, name: &str| pool[group][name].as_f64().unwrap_or(0.0);
        row.rates = Some(Rates {
            read_bytes: rate("client_io_rate", "read_bytes_sec"),
            write_bytes: rate("client_io_rate", "write_bytes_sec"),
            reads: rate("client_io_rate", "read_op_per_sec"),
            writes: rate("client_io_rate", "write_op_per_sec"),
            recovered_bytes: rate("recovery_rate", "recovering_bytes_per_sec"),
        });
    }
    pools.into_values().collect()
}
