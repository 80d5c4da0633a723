//! One screen: the rows that are shown, made from a refresh's answers and a few samples of earlier ones. Pure.
//!
//! A figure that the cluster did not tell is `None`.

pub mod health;
pub mod operations;
pub mod osds;
pub mod pools;
pub mod recovery;
#[cfg(test)]
pub mod tests;

use super::ask::Answers;
use health::Check;
use operations::{ClientRow, Operation};
use osds::OsdRow;
use pools::PoolRow;
use recovery::{PgState, Recovery};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screen {
    pub summary: Summary,
    pub health: Vec<Check>,
    pub pgs: Option<Vec<PgState>>,
    pub recovery: Recovery,
    /// In the order of the tree; empty without an answer.
    pub osds: Vec<OsdRow>,
    pub pools: Vec<PoolRow>,
    /// `None` if no OSD told its operations.
    pub operations: Option<Vec<Operation>>,
    pub clients: Option<Vec<ClientRow>>,
    /// OSDs whose operations are known.
    pub sampled: usize,
}

/// The head of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub fsid: Option<String>,
    /// `HEALTH_OK` and so on.
    pub health: Option<String>,
    pub mons: Option<u64>,
    pub quorum: Vec<String>,
    pub has_manager: Option<bool>,
    pub osds: Option<u64>,
    pub osds_up: Option<u64>,
    pub osds_in: Option<u64>,
    pub pgs: Option<u64>,
    pub objects: Option<f64>,
    pub data: Option<f64>,
    pub used: Option<f64>,
    pub total: Option<f64>,
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub reads: f64,
    pub writes: f64,
    /// The reason why nothing is known.
    pub problem: Option<String>,
}

/// Samples of OSDs, which are asked in turn.
#[derive(Debug, Default)]
pub struct Model {
    cpu_percent: BTreeMap<i32, f64>,
    operations: BTreeMap<i32, Vec<Operation>>,
}

impl Model {
    pub fn screen(&mut self, answers: &Answers) -> Screen {
        let status = answers.status.as_ref();
        let tree = answers.osd_df.as_ref().or(answers.osd_tree.as_ref());
        for (osd, told) in &answers.osds {
            if let Some(percent) = told.process.as_ref().and_then(|p| p["cpu_recent_percent"].as_f64()) {
                self.cpu_percent.insert(*osd, percent);
            }
            match &told.ops_in_flight {
                Some(dump) => drop(self.operations.insert(*osd, operations::of_dump(*osd, dump))),
                None => drop(self.operations.remove(osd)),
            }
        }
        let osds = osds::rows(tree, answers.osd_perf.as_ref(), &self.cpu_percent);
        // An OSD that is down has no operations any more.
        let is_up = |osd: i32| osds.iter().any(|row| row.osd == Some(osd) && row.is_up == Some(true));
        self.operations.retain(|osd, _| is_up(*osd));
        self.cpu_percent.retain(|osd, _| is_up(*osd));
        // Old operations are those of OSDs asked just now: others may be done.
        let fresh = self.operations.iter().filter(|(osd, _)| answers.osds.contains_key(osd));
        let is_told = !self.operations.is_empty();
        Screen {
            summary: summary(answers),
            health: health::checks(status, answers.health_detail.as_ref()),
            pgs: recovery::pg_states(status),
            recovery: recovery::recovery(status, answers.progress.as_ref(), answers.now),
            pools: pools::rows(answers.df.as_ref(), answers.pool_stats.as_ref()),
            operations: is_told.then(|| operations::oldest(fresh.flat_map(|(_, ops)| ops))),
            clients: is_told.then(|| operations::clients(self.operations.values().flatten())),
            sampled: self.operations.len(),
            osds,
        }
    }
}

fn summary(answers: &Answers) -> Summary {
    let Some(status) = &answers.status else {
        return Summary { problem: answers.problem.clone(), ..Summary::default() };
    };
    // Releases before 15 have the map one level deeper.
    let (osds, pgs) = (&status["osdmap"], &status["pgmap"]);
    let osds = if osds["osdmap"].is_object() { &osds["osdmap"] } else { osds };
    let names = status["quorum_names"].as_array().into_iter().flatten();
    let rate = |name: &str| pgs[name].as_f64().unwrap_or(0.0);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Summary {
        fsid: text(&status["fsid"]),
        health: text(&status["health"]["status"]),
        mons: status["monmap"]["num_mons"].as_u64(),
        quorum: names.filter_map(text).collect(),
        has_manager: status["mgrmap"]["available"].as_bool(),
        osds: osds["num_osds"].as_u64(),
        osds_up: osds["num_up_osds"].as_u64(),
        osds_in: osds["num_in_osds"].as_u64(),
        pgs: pgs["num_pgs"].as_u64(),
        objects: pgs["num_objects"].as_f64(),
        data: pgs["data_bytes"].as_f64(),
        used: pgs["bytes_used"].as_f64(),
        total: pgs["bytes_total"].as_f64(),
        read_bytes: rate("read_bytes_sec"),
        write_bytes: rate("write_bytes_sec"),
        reads: rate("read_op_per_sec"),
        writes: rate("write_op_per_sec"),
        problem: None,
    }
}
