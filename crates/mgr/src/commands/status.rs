//! `osd status`: a table of OSDs with their space, their operations and their states.
//!
//! Hosts are those of the CRUSH map. Stock shows the hostname that the OSD told, which is the same unless somebody renamed
//! or moved it.

use super::View;
use crate::daemon_counters::DaemonCounters;
use command::{Answer, Args, Json, errno, object};
use placement::crush::edit;
use std::collections::BTreeSet;
use std::fmt::Write;
use wire::types::{CrushMap, OsdMap};

/// Client operations and their bytes, a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OsdRates {
    writes: f64,
    written_bytes: f64,
    reads: f64,
    read_bytes: f64,
}

impl OsdRates {
    pub fn of(counters: &DaemonCounters) -> OsdRates {
        OsdRates {
            writes: counters.rate("osd.op_w"),
            written_bytes: counters.rate("osd.op_in_bytes"),
            reads: counters.rate("osd.op_r"),
            read_bytes: counters.rate("osd.op_out_bytes"),
        }
    }
}

struct Row {
    osd: i32,
    host: String,
    used: u64,
    available: u64,
    rates: OsdRates,
    states: Vec<&'static str>,
}

/// The CRUSH bucket right above an OSD; nothing if it is in none.
fn host_of(crush: &CrushMap, osd: i32) -> String {
    let parent = edit::parent_of(crush, osd);
    parent.and_then(|bucket| crush.item_names.get(&bucket)).cloned().unwrap_or_default()
}

fn chosen(map: &OsdMap, args: &Args) -> Result<BTreeSet<i32>, Answer> {
    let Some(name) = args.text("bucket").filter(|name| !name.is_empty()) else {
        return Ok(map.osd_ids().collect());
    };
    let Some(item) = edit::item_id(&map.crush, &name) else {
        // Stock's manager returns the errno without its sign, and the message as the result.
        let text = format!("Bucket '{name}' not found\n");
        return Err(Answer { result: errno::ENOENT, ..Answer::body(text) });
    };
    Ok(edit::osds_below(&map.crush, item).into_iter().filter(|osd| map.exists(*osd)).collect())
}

pub(super) fn osd_status(view: &View<'_>, args: &Args) -> Answer {
    let map = &view.pg_map.map;
    let osds = match chosen(map, args) {
        Ok(osds) => osds,
        Err(answer) => return answer,
    };
    let row = |osd: i32| {
        let statfs = view.pg_map.osds.get(&osd).map(|stat| stat.statfs).unwrap_or_default();
        let mut states: Vec<&'static str> = map.osds[osd as usize].state.names().collect();
        states.sort_unstable();
        Row {
            osd,
            host: host_of(&map.crush, osd),
            used: statfs.used_raw() / 1024 * 1024,
            available: statfs.available / 1024 * 1024,
            rates: (view.osd_rates)(osd),
            states,
        }
    };
    let rows: Vec<Row> = osds.into_iter().map(row).collect();
    match args.format().is_plain() {
        true => Answer::body(table(&rows)),
        false => {
            let rows = rows.iter().map(|row| {
                object! {
                    "host name" => row.host.as_str(),
                    "id" => row.osd,
                    // Bytes, under stock's names.
                    "kb available" => row.available,
                    "kb used" => row.used,
                    "read byte rate" => row.rates.read_bytes,
                    "read ops rate" => row.rates.reads,
                    "state" => Json::array(row.states.iter().copied()),
                    "write byte rate" => row.rates.written_bytes,
                    "write ops rate" => row.rates.writes,
                }
            });
            Answer::json(args.format(), &object! { "OSDs" => Json::array(rows) })
        }
    }
}

/// A number in four digits and a unit, as stock's manager cuts it off.
fn short(value: f64, factor: f64) -> String {
    const UNITS: [char; 7] = [' ', 'k', 'M', 'G', 'T', 'P', 'E'];
    let unit = (0..UNITS.len() - 1).find(|unit| value / factor.powi(*unit as i32) < 10_000.0);
    let unit = unit.unwrap_or(UNITS.len() - 1);
    if unit == 0 {
        return format!("{:4} ", value as u64);
    }
    let digits = format!("{:.6}", value / factor.powi(unit as i32));
    let cut = &digits[..4];
    let number = match cut.strip_suffix('.') {
        Some(whole) => format!(" {whole}"),
        None => cut.to_owned(),
    };
    format!("{number}{}", UNITS[unit])
}

fn table(rows: &[Row]) -> String {
    const HEADINGS: [(&str, bool); 9] = [
        ("ID", false),
        ("HOST", true),
        ("USED", false),
        ("AVAIL", false),
        ("WR OPS", false),
        ("WR DATA", false),
        ("RD OPS", false),
        ("RD DATA", false),
        ("STATE", true),
    ];
    let cells = |row: &Row| {
        let OsdRates { writes, written_bytes, reads, read_bytes } = row.rates;
        [
            row.osd.to_string(),
            row.host.clone(),
            short(row.used as f64, 1024.0),
            short(row.available as f64, 1024.0),
            short(writes, 1000.0),
            short(written_bytes, 1024.0),
            short(reads, 1000.0),
            short(read_bytes, 1024.0),
            row.states.join(","),
        ]
    };
    let rows: Vec<[String; 9]> = rows.iter().map(cells).collect();
    let headings = HEADINGS.map(|(heading, _)| heading.to_owned());
    let lines = || std::iter::once(&headings).chain(&rows);
    let mut widths = [0; 9];
    lines().for_each(|line| {
        widths.iter_mut().zip(line).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    });
    let mut text = String::new();
    for line in lines() {
        for ((cell, width), (_, is_left)) in line.iter().zip(widths).zip(HEADINGS) {
            let _ = match is_left {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of stock 20.2.4 for the same figures.
    #[test]
    fn table_is_that_of_stock() {
        let row = |osd, used, states| Row {
            osd,
            host: "vm".into(),
            used,
            available: 10_709_749_760,
            rates: OsdRates::default(),
            states,
        };
        let rows =
            [row(0, 27_668_480, vec!["exists", "up"]), row(2, 27_992_064, vec!["exists", "nearfull", "up"])];
        assert_eq!(
            table(&rows),
            "ID  HOST   USED  AVAIL  WR OPS  WR DATA  RD OPS  RD DATA  STATE               \n \
             0  vm    26.3M  9.97G      0        0       0        0   exists,up           \n \
             2  vm    26.6M  9.97G      0        0       0        0   exists,nearfull,up  \n"
        );
    }

    #[test]
    fn numbers_keep_four_places_and_a_unit() {
        for (value, text) in [(0.0, "   0 "), (9999.0, "9999 "), (12_345.0, "12.3k"), (123_456.0, " 123k")] {
            assert_eq!(short(value, 1000.0), text);
        }
    }
}
