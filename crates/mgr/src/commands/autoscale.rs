//! `osd pool autoscale-status`, and the flag that turns the autoscaler off.

use super::{Reaction, View};
use crate::autoscaler::{PoolScale, scales};
use command::{Answer, Args, Format, Json, object};
use wire::types::PgPool;

const COLUMNS: [(&str, Align); 13] = [
    ("POOL", Align::Left),
    ("SIZE", Align::Right),
    ("TARGET SIZE", Align::Right),
    ("RATE", Align::Right),
    ("RAW CAPACITY", Align::Right),
    ("RATIO", Align::Right),
    ("TARGET RATIO", Align::Right),
    ("EFFECTIVE RATIO", Align::Right),
    ("BIAS", Align::Right),
    ("PG_NUM", Align::Right),
    ("NEW PG_NUM", Align::Right),
    ("AUTOSCALE", Align::Left),
    ("BULK", Align::Left),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

pub(super) fn status(view: &View<'_>, args: &Args) -> Answer {
    let scales = scales(view.pg_map);
    match args.format() {
        Format::Plain => Answer::body(table(&scales)),
        format => Answer::json(format, &Json::array(scales.iter().map(json_of))),
    }
}

fn mode_name(scale: &PoolScale) -> &'static str {
    PgPool { pg_autoscale_mode: scale.mode, ..PgPool::default() }.autoscale_mode_name()
}

fn json_of(scale: &PoolScale) -> Json {
    object! {
        "actual_capacity_ratio" => scale.actual_raw_used() / scale.capacity,
        "actual_raw_used" => scale.actual_raw_used(),
        "bias" => scale.bias,
        "bulk" => scale.is_bulk,
        "capacity_ratio" => scale.capacity_ratio,
        "crush_root_id" => i64::from(scale.root),
        "effective_target_ratio" => scale.effective_ratio,
        "logical_used" => scale.logical_used as u64,
        "pg_autoscale_mode" => mode_name(scale),
        "pg_num_final" => u64::from(scale.pg_num_final),
        "pg_num_ideal" => u64::from(scale.pg_num_ideal),
        "pg_num_target" => u64::from(scale.pg_num_target),
        "pool_id" => scale.id,
        "pool_name" => scale.name.clone(),
        "raw_used" => scale.raw_used(),
        "raw_used_rate" => scale.rate,
        "subtree_capacity" => scale.capacity as u64,
        "target_bytes" => scale.target_bytes as u64,
        "target_ratio" => scale.target_ratio,
        "would_adjust" => scale.would_adjust(),
    }
}

/// A table without borders, each column followed by two spaces.
fn table(scales: &[PoolScale]) -> String {
    let mut rows = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    rows.extend(scales.iter().map(row_of));
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in &rows {
        for ((text, (_, align)), width) in row.iter().zip(COLUMNS).zip(&widths) {
            out += &match align {
                Align::Left => format!("{text:<width$}  "),
                Align::Right => format!("{text:>width$}  "),
            };
        }
        out.push('\n');
    }
    out
}

fn row_of(scale: &PoolScale) -> [String; 13] {
    let if_any = |value: f64, text: String| if value > 0.0 { text } else { String::new() };
    [
        scale.name.clone(),
        bytes_text(scale.logical_used),
        if_any(scale.target_bytes, bytes_text(scale.target_bytes)),
        format!("{:?}", scale.rate),
        bytes_text(scale.capacity),
        format!("{:.4}", scale.capacity_ratio),
        if_any(scale.target_ratio, format!("{:.4}", scale.target_ratio)),
        if_any(scale.effective_ratio, format!("{:.4}", scale.effective_ratio)),
        format!("{:?}", scale.bias),
        scale.pg_num_target.to_string(),
        if scale.would_adjust() { scale.pg_num_final.to_string() } else { String::new() },
        mode_name(scale).to_owned(),
        if scale.is_bulk { "True" } else { "False" }.to_owned(),
    ]
}

/// Bytes in five digits and a unit, as `mgr_util.format_bytes` writes them.
pub(crate) fn bytes_text(bytes: f64) -> String {
    const DIGITS: usize = 5;
    const UNITS: [&str; 7] = [" ", "k", "M", "G", "T", "P", "E"];
    let whole = |unit: usize| (bytes as u64) >> (10 * unit);
    let unit = (0..UNITS.len()).find(|unit| whole(*unit).to_string().len() <= DIGITS).unwrap_or(6);
    if unit == 0 {
        return format!("{:>DIGITS$}{}", bytes as u64, UNITS[0]);
    }
    let text: String = format!("{:.6}", bytes / (1u64 << (10 * unit)) as f64).chars().take(DIGITS).collect();
    match text.strip_suffix('.') {
        Some(short) => format!(" {short}{}", UNITS[unit]),
        None => format!("{text}{}", UNITS[unit]),
    }
}

pub(super) fn get_noautoscale(view: &View<'_>, _: &Args) -> Answer {
    let state = if view.pg_map.options.autoscale_is_off { "on" } else { "off" };
    Answer::ok(format!("noautoscale is {state}"))
}

pub(super) fn set_noautoscale(view: &View<'_>, _: &Args) -> Reaction {
    match view.pg_map.options.autoscale_is_off {
        true => Answer::ok("noautoscale is already set!").into(),
        false => set("true", "noautoscale is set, all pools now have autoscale off"),
    }
}

pub(super) fn unset_noautoscale(view: &View<'_>, _: &Args) -> Reaction {
    match view.pg_map.options.autoscale_is_off {
        false => Answer::ok("noautoscale is already unset!").into(),
        true => set("false", "noautoscale is unset, all pools now back to its previous mode"),
    }
}

/// The autoscaler gives the pools their modes when it sees the option.
fn set(value: &str, status: &'static str) -> Reaction {
    let command = object! {
        "prefix" => "config set", "who" => "mgr", "name" => "mgr/pg_autoscaler/noautoscale", "value" => value,
    };
    Reaction::AskMonitor { command, body: String::new(), status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fit_five_digits_and_a_unit() {
        for (bytes, text) in [
            (0.0, "    0 "),
            (99_999.0, "99999 "),
            (100_000.0, "97.65k"),
            (104_857_600.0, "100.0M"),
            (1e12, "931.3G"),
        ] {
            let written = bytes_text(bytes);
            assert_eq!(written, text, "{bytes}");
        }
    }
}
