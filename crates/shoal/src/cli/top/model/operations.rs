//! Operations in flight of the OSDs that were asked: the old ones, and the load of each client.

use serde_json::Value;
use std::collections::BTreeMap;

/// Operations younger than this are not listed.
const OLD_S: f64 = 1.0;
/// `osd_op_complaint_time`, as stock sets it.
pub const SLOW_S: f64 = 30.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub osd: i32,
    pub age_s: f64,
    pub client: String,
    pub address: String,
    /// The last event that it reached.
    pub stage: String,
    pub description: String,
}

impl Operation {
    pub fn is_slow(&self) -> bool {
        self.age_s >= SLOW_S
    }
}

/// One client, by operations in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRow {
    pub name: String,
    pub address: String,
    pub in_flight: usize,
    /// OSDs that had operations of it.
    pub osds: usize,
}

/// The operations of `dump_ops_in_flight`.
pub fn of_dump(osd: i32, dump: &Value) -> Vec<Operation> {
    let ops = dump["ops"].as_array().into_iter().flatten();
    ops.map(|op| {
        let (data, text) = (&op["type_data"], |value: &Value| value.as_str().unwrap_or("").to_owned());
        let client = &data["client_info"];
        let last_event = data["events"].as_array().and_then(|events| events.last());
        let stage = last_event.map_or_else(String::new, |event| text(&event["event"]));
        Operation {
            osd,
            age_s: op["age"].as_f64().unwrap_or(0.0),
            client: text(&client["client"]),
            address: text(&client["client_addr"]),
            stage: if stage.is_empty() { text(&data["flag_point"]) } else { stage },
            description: text(&op["description"]),
        }
    })
    .collect()
}

/// Operations older than a second, the oldest first.
pub fn oldest<'a>(all: impl Iterator<Item = &'a Operation>) -> Vec<Operation> {
    let mut old: Vec<Operation> = all.filter(|op| op.age_s >= OLD_S).cloned().collect();
    old.sort_by(|a, b| b.age_s.total_cmp(&a.age_s));
    old
}

/// Clients by operations in flight. Operations of other OSDs have no client.
pub fn clients<'a>(all: impl Iterator<Item = &'a Operation>) -> Vec<ClientRow> {
    let mut by_name: BTreeMap<&str, (&str, Vec<i32>)> = BTreeMap::new();
    for op in all.filter(|op| op.client.starts_with("client.")) {
        let entry = by_name.entry(&op.client).or_insert((&op.address, Vec::new()));
        entry.1.push(op.osd);
    }
    let rows = by_name.into_iter().map(|(name, (address, mut osds))| {
        let in_flight = osds.len();
        osds.sort_unstable();
        osds.dedup();
        ClientRow { name: name.into(), address: address.into(), in_flight, osds: osds.len() }
    });
    let mut rows: Vec<ClientRow> = rows.collect();
    rows.sort_by(|a, b| b.in_flight.cmp(&a.in_flight).then_with(|| a.name.cmp(&b.name)));
    rows
}
