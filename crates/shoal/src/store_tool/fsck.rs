//! Is the store sound? A shard at a time, and a line for each thing that is not.

use super::opened::{Place, check_shard};
use crate::host::disk::Device;
use block_store::check::{Depth, Report};
use serde_json::{Value, json};

/// Lines of one shard that a person gets to see; all of them are in the JSON.
const SHOWN_MAX: usize = 50;

/// Findings of a check of the whole store, by shard.
pub struct Findings {
    shards: Vec<anyhow::Result<Report>>,
}

pub fn check(place: &Place, deep: bool) -> anyhow::Result<Findings> {
    let device = Device::for_inspection(&place.devices(), &place.find_key())?;
    let depth = if deep { Depth::Deep } else { Depth::Metadata };
    let shards = (0..device.shards()).map(|number| check_shard(&device, number, depth));
    Ok(Findings { shards: shards.collect() })
}

impl Findings {
    pub fn is_sound(&self) -> bool {
        self.count() == 0
    }

    /// A shard that cannot be opened counts as one.
    fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.as_ref().map_or(1, |report| report.findings.len())).sum()
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        for (number, shard) in self.shards.iter().enumerate() {
            match shard {
                Err(error) => line(format!("shard {number}: {error:#}")),
                Ok(report) => {
                    line(format!(
                        "shard {number}: {} objects, {} bytes of data, {} of omap, in {} blocks; {} blocks read",
                        report.objects,
                        report.data_bytes,
                        report.omap_bytes,
                        report.blocks_stored,
                        report.blocks_read
                    ));
                    for finding in report.findings.iter().take(SHOWN_MAX) {
                        line(format!("  {finding}"));
                    }
                    if report.findings.len() > SHOWN_MAX {
                        let more = report.findings.len() - SHOWN_MAX;
                        line(format!("  and {more} more: all of them with --format json"));
                    }
                }
            }
        }
        line(match self.count() {
            0 => "sound".into(),
            1 => "1 thing is not as it should be".into(),
            count => format!("{count} things are not as they should be"),
        });
        out
    }

    pub fn json(&self) -> Value {
        let shards = self.shards.iter().enumerate().map(|(number, shard)| match shard {
            Err(error) => json!({ "shard": number, "error": format!("{error:#}") }),
            Ok(report) => json!({
                "shard": number,
                "objects": report.objects,
                "data_bytes": report.data_bytes,
                "omap_bytes": report.omap_bytes,
                "blocks_stored": report.blocks_stored,
                "blocks_read": report.blocks_read,
                "findings": report.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            }),
        });
        json!({ "sound": self.is_sound(), "shards": shards.collect::<Vec<_>>() })
    }
}
