//! `osd reweight-by-utilization`, `osd reweight-by-pg` and their dry runs: weights that take data from the fullest OSDs.

use super::{Reaction, View};
use command::json::general;
use command::{Answer, Args, Json, errno, object};
use placement::crush::edit::weight_of;
use placement::spread::Shift;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdMap, PoolId};

const WEIGHT_IN: f64 = OsdMap::WEIGHT_IN as f64;

/// The measure of fullness.
#[derive(Clone, Copy, PartialEq)]
enum Measure {
    /// Bytes used of the bytes that an OSD has.
    Utilization,
    /// Copies of PGs by CRUSH weight.
    Pgs,
}

pub(super) fn by_utilization(view: &View<'_>, args: &Args) -> Reaction {
    reweight(view, args, Measure::Utilization, false)
}

pub(super) fn test_by_utilization(view: &View<'_>, args: &Args) -> Reaction {
    reweight(view, args, Measure::Utilization, true)
}

pub(super) fn by_pg(view: &View<'_>, args: &Args) -> Reaction {
    reweight(view, args, Measure::Pgs, false)
}

pub(super) fn test_by_pg(view: &View<'_>, args: &Args) -> Reaction {
    reweight(view, args, Measure::Pgs, true)
}

/// The caller's limits.
struct Limits {
    /// Percent of the mean from which an OSD counts as overloaded.
    overload: i64,
    change: f64,
    osds: usize,
    may_increase: bool,
    /// Empty: all.
    pools: BTreeSet<PoolId>,
}

impl Limits {
    fn parse(view: &View<'_>, args: &Args) -> Result<Limits, Answer> {
        let (map, options) = (&view.pg_map.map, &view.pg_map.options);
        let mut pools = BTreeSet::new();
        for name in args.texts("pools") {
            let pool = map.pool_names.iter().find(|(_, known)| **known == name);
            let unknown = || Answer::error(errno::ENOENT, format!("pool '{name}' does not exist"));
            pools.insert(*pool.ok_or_else(unknown)?.0);
        }
        let change = args.float("max_change").unwrap_or(options.reweight_change_max);
        if change <= 0.0 {
            return Err(Answer::invalid(format!("max_change {} must be positive", general(change, 6))));
        }
        let osds = args.int("max_osds").unwrap_or(options.reweight_osds_max as i64);
        if osds <= 0 {
            return Err(Answer::invalid(format!("max_osds {osds} must be positive")));
        }
        Ok(Limits {
            overload: args.int("oload").unwrap_or(120),
            change,
            osds: osds as usize,
            may_increase: !args.flag("no_increasing"),
            pools,
        })
    }

    fn counts(&self, pool: PoolId) -> bool {
        self.pools.is_empty() || self.pools.contains(&pool)
    }
}

/// Mean fullness, and that of each OSD.
struct Load {
    mean: f64,
    osds: BTreeMap<i32, f32>,
}

impl Load {
    fn by_utilization(view: &View<'_>) -> Result<Load, Answer> {
        let pg_map = view.pg_map;
        let sum = pg_map.osd_sum().statfs;
        let (total, used) = (sum.total, sum.used_raw());
        let osds = pg_map.osds.len().max(1) as u64;
        for (bytes, what) in [(total, "kb"), (used, "kb used")] {
            if bytes / osds < pg_map.options.reweight_bytes_min {
                return Err(refusal(format!("we only have {} {what} across all osds!", bytes >> 10)));
            }
        }
        let with_space = pg_map.osds.iter().filter(|(_, stat)| stat.statfs.total > 0);
        let share = |used: u64, total: u64| used as f64 / total as f64;
        let osds = with_space
            .map(|(osd, stat)| (*osd, share(stat.statfs.used_raw(), stat.statfs.total) as f32))
            .collect();
        Ok(Load { mean: share(used, total), osds })
    }

    fn by_pgs(view: &View<'_>, limits: &Limits) -> Result<Load, Answer> {
        let (map, options) = (&view.pg_map.map, &view.pg_map.options);
        let mut copies: BTreeMap<i32, u32> = BTreeMap::new();
        let pgs = view.pg_map.pgs.iter().filter(|(pg, _)| limits.counts(pg.pool));
        for osd in pgs.flat_map(|(_, stat)| &stat.acting) {
            *copies.entry(*osd).or_default() += 1;
        }
        let weight = |osd: i32| f64::from(weight_of(&map.crush, osd).unwrap_or(0)) / 65_536.0;
        copies.retain(|osd, _| map.exists(*osd) && weight(*osd) > 0.0);
        let (total, osds): (u32, usize) = (copies.values().sum(), copies.len());
        if osds == 0 || u64::from(total) / (osds as u64) < options.reweight_pgs_min {
            return Err(refusal(format!("we only have {total} PGs across {osds} osds!")));
        }
        let sum: f64 = copies.keys().map(|osd| weight(*osd)).sum();
        let reported = copies.iter().filter(|(osd, _)| view.pg_map.osds.contains_key(osd));
        let osds = reported.map(|(osd, n)| (*osd, (f64::from(*n) / weight(*osd)) as f32)).collect();
        Ok(Load { mean: f64::from(total) / sum, osds })
    }

    /// OSDs with their weights and new weights, the one farthest from the mean first.
    fn weights(&self, map: &OsdMap, limits: &Limits) -> Vec<(i32, u32, u32)> {
        let overload = self.overload(limits);
        let change_max = (limits.change * WEIGHT_IN) as u32;
        let mut by_distance: Vec<(i32, f32)> =
            self.osds.iter().rev().map(|(osd, load)| (*osd, *load)).collect();
        let distance = |load: f32| (f64::from(load) - self.mean).abs();
        by_distance.sort_by(|(_, a), (_, b)| distance(*b).total_cmp(&distance(*a)));
        let mut changes = Vec::new();
        for (osd, load) in by_distance {
            let (weight, load) = (map.weight(osd), f64::from(load));
            if weight == 0 || changes.len() >= limits.osds {
                continue;
            }
            let fair = (self.mean / load * f64::from(weight)) as u32;
            if load >= overload {
                changes.push((osd, weight, fair.max(weight.saturating_sub(change_max))));
            } else if limits.may_increase && load <= self.mean {
                let raised = fair.min(weight.saturating_add(change_max)).min(OsdMap::WEIGHT_IN);
                if raised > weight {
                    changes.push((osd, weight, raised));
                }
            }
        }
        changes
    }

    fn overload(&self, limits: &Limits) -> f64 {
        self.mean * limits.overload as f64 / 100.0
    }
}

fn refusal(why: String) -> Answer {
    Answer::error(errno::EDOM, format!("Refusing to reweight: {why}\nFAILED reweight-by-pg"))
}

fn reweight(view: &View<'_>, args: &Args, measure: Measure, is_dry: bool) -> Reaction {
    match plan(view, args, measure) {
        Err(answer) => answer.into(),
        Ok((body, changes)) if is_dry || changes.is_empty() => {
            Answer::body(body).with_status("no change").into()
        }
        Ok((body, changes)) => {
            let weights: Vec<String> =
                changes.iter().map(|(osd, _, weight)| format!("'{osd}':'{weight}'")).collect();
            let weights = format!("{{{}}}", weights.join(","));
            let command = object! { "prefix" => "osd reweightn", "weights" => weights };
            Reaction::AskMonitor { command, body, status: "" }
        }
    }
}

type Changes = Vec<(i32, u32, u32)>;

fn plan(view: &View<'_>, args: &Args, measure: Measure) -> Result<(String, Changes), Answer> {
    let limits = Limits::parse(view, args)?;
    if limits.overload <= 100 {
        return Err(Answer::invalid(
            "You must give a percentage higher than 100. The reweighting threshold will be calculated as \
             <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs which \
             are twice as utilized as the average OSD.\nFAILED reweight-by-pg",
        ));
    }
    let load = match measure {
        Measure::Utilization => Load::by_utilization(view)?,
        Measure::Pgs => Load::by_pgs(view, &limits)?,
    };
    let map = &view.pg_map.map;
    let changes = load.weights(map, &limits);
    let mut after = (**map).clone();
    for (osd, _, weight) in &changes {
        if let Some(row) = after.osds.get_mut(*osd as usize) {
            row.weight = *weight;
        }
    }
    let shift = Shift::between(map, &after, &|pool| limits.counts(pool));
    let body = match args.format().is_plain() {
        true => plain(&load, &limits, &changes, &shift),
        false => {
            let json = json(&load, &limits, &changes, &shift);
            String::from_utf8_lossy(&Answer::json(args.format(), &json).body).into_owned()
        }
    };
    Ok((body, changes))
}

fn share(weight: u32) -> f64 {
    f64::from(weight) / WEIGHT_IN
}

fn plain(load: &Load, limits: &Limits, changes: &Changes, shift: &Shift) -> String {
    let g = |value: f32| general(value.into(), 6);
    let before = &shift.before;
    let mut text = format!(
        "moved {} / {} ({}%)\navg {}\nstddev {} -> {} (expected baseline {})\n",
        shift.moved,
        before.copies,
        general(f64::from(shift.moved) * 100.0 / f64::from(before.copies.max(1)), 6),
        g(before.mean),
        g(before.deviation),
        g(shift.deviation),
        g(before.deviation_expected),
    );
    for (what, old, new) in [("min", before.fewest, shift.fewest), ("max", before.most, shift.most)] {
        if let Some((osd, old)) = old {
            let times = |count: u32| g(count as f32 / before.mean);
            text += &format!(
                "{what} osd.{osd} with {old} -> {new} pgs ({} -> {} * mean)\n",
                times(old),
                times(new)
            );
        }
    }
    text += &format!(
        "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {:.4}\noverload_utilization {:.4}\n",
        limits.overload,
        general(limits.change, 6),
        limits.osds,
        load.mean,
        load.overload(limits),
    );
    for (osd, weight, new) in changes {
        text += &format!("osd.{osd} weight {:.4} -> {:.4}\n", share(*weight), share(*new));
    }
    text
}

fn json(load: &Load, limits: &Limits, changes: &Changes, shift: &Shift) -> Json {
    let before = &shift.before;
    let mut utilization = object! {
        "moved_pgs" => shift.moved,
        "total_pgs" => before.copies,
        "avg_pgs" => f64::from(before.mean),
        "std_dev" => f64::from(before.deviation),
        "expected_baseline_std_dev" => f64::from(before.deviation_expected),
        "new_std_dev" => f64::from(shift.deviation),
    };
    for (what, old, new) in [("min", before.fewest, shift.fewest), ("max", before.most, shift.most)] {
        if let Some((osd, old)) = old {
            utilization.push(format!("{what}_osd"), osd);
            utilization.push(format!("{what}_osd_pgs"), old);
            utilization.push(format!("new_{what}_osd_pgs"), new);
        }
    }
    let rows = changes.iter().map(
        |(osd, weight, new)| object! { "osd" => *osd, "weight" => share(*weight), "new_weight" => share(*new) },
    );
    object! {
        "overload_min" => limits.overload,
        "max_change" => limits.change,
        "max_change_osds" => limits.osds,
        "average_utilization" => load.mean,
        "overload_utilization" => load.overload(limits),
        "reweights" => Json::array(rows),
        "utilization" => utilization,
    }
}
