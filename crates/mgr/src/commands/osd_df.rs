//! `osd df`: how full each OSD is, flat or as the CRUSH tree.

use super::{View, dump};
use command::{Answer, Args, Json, object};
use placement::crush::edit::{TreeItem, tree};
use std::collections::BTreeSet;
use wire::text::{Align, Bytes, LowPrecision, Table, Weight};
use wire::types::{CrushMap, OsdMap, OsdStat};

/// One line: an OSD, or a bucket with the sum of what it holds.
struct Line {
    item: TreeItem,
    space: OsdStat,
    utilization: f64,
    variance: f64,
    /// Negative for a bucket.
    reweight: f64,
    pgs: i32,
}

struct Report<'a> {
    map: &'a OsdMap,
    lines: Vec<Line>,
    /// OSDs that are in no bucket.
    strays: Vec<Line>,
    total: OsdStat,
    average: f64,
}

/// The rows that are shown: all, or a selection.
struct Scope {
    items: Option<BTreeSet<i32>>,
    class: Option<i32>,
}

impl Scope {
    fn parse(map: &OsdMap, filter: Option<String>) -> Result<Scope, Answer> {
        let Some(filter) = filter.filter(|f| !f.is_empty()) else {
            return Ok(Scope { items: None, class: None });
        };
        let crush = &map.crush;
        if let Some((id, _)) = crush.item_names.iter().find(|(_, name)| **name == filter) {
            return Ok(Scope { items: Some(below(crush, [*id])), class: None });
        }
        if let Some((class, _)) = crush.class_names.iter().find(|(_, name)| **name == filter) {
            return Ok(Scope { items: None, class: Some(*class) });
        }
        let Some((pool, _)) = map.pool_names.iter().find(|(_, name)| **name == filter) else {
            let why = format!("'{filter}' not a pool, crush node or device class name");
            return Err(Answer::invalid(why));
        };
        const TAKE: u32 = 1;
        let rule = map.pools.get(pool).and_then(|p| crush.rule(u32::from(p.crush_rule)));
        let takes = rule.into_iter().flat_map(|r| &r.steps).filter(|s| s.op == TAKE).map(|s| s.arg1);
        Ok(Scope { items: Some(below(crush, takes)), class: None })
    }

    fn has(&self, crush: &CrushMap, id: i32) -> bool {
        let in_class = |class| id < 0 || crush.item_classes.get(&id) == Some(&class);
        self.items.as_ref().is_none_or(|items| items.contains(&id)) && self.class.is_none_or(in_class)
    }
}

fn below(crush: &CrushMap, roots: impl IntoIterator<Item = i32>) -> BTreeSet<i32> {
    let (mut found, mut todo) = (BTreeSet::new(), roots.into_iter().collect::<Vec<_>>());
    while let Some(id) = todo.pop() {
        if found.insert(id) {
            todo.extend(crush.bucket(id).map(|b| b.items.clone()).unwrap_or_default());
        }
    }
    found
}

pub(super) fn df(view: &View<'_>, args: &Args) -> Answer {
    let map = &view.pg_map.map;
    let scope = match Scope::parse(map, args.text("filter")) {
        Ok(scope) => scope,
        Err(answer) => return answer,
    };
    let as_tree = args.text("output_method").as_deref() == Some("tree");
    let report = Report::new(view, &scope, as_tree);
    match args.format().is_plain() {
        true => Answer::body(report.plain(as_tree)),
        false => Answer::json(args.format(), &report.json()),
    }
}

fn percent(s: &OsdStat) -> f64 {
    let (total, used) = (s.statfs.total >> 10, s.statfs.used_raw() >> 10);
    if total == 0 { 0.0 } else { 100.0 * used as f64 / total as f64 }
}

impl<'a> Report<'a> {
    fn new(view: &'a View<'_>, scope: &Scope, as_tree: bool) -> Report<'a> {
        let map: &OsdMap = &view.pg_map.map;
        let crush = &map.crush;
        let counted = |osd: i32| map.is_in(osd) && scope.has(crush, osd);
        let space_of = |id: i32| -> OsdStat {
            let osds: Vec<i32> = if id >= 0 { vec![id] } else { below(crush, [id]).into_iter().collect() };
            osds.iter().filter(|osd| **osd >= 0 && counted(**osd)).fold(OsdStat::default(), |mut sum, osd| {
                if let Some(stat) = view.pg_map.osds.get(osd) {
                    sum += stat;
                }
                sum
            })
        };
        let mut total = OsdStat::default();
        for (osd, stat) in view.pg_map.osds.iter().filter(|(osd, _)| counted(**osd)) {
            let _ = osd;
            total += stat;
        }
        let average = percent(&total);
        let counts = view.pg_map.pg_counts();
        let line = |item: TreeItem| -> Line {
            let space = space_of(item.id);
            let utilization = percent(&space);
            Line {
                utilization,
                variance: if average == 0.0 { 1.0 } else { utilization / average },
                reweight: match item.id < 0 {
                    true => -1.0,
                    false => f64::from(map.weight(item.id)) / f64::from(OsdMap::WEIGHT_IN),
                },
                pgs: counts.get(&item.id).map_or(0, |c| c.acting),
                space,
                item,
            }
        };
        let all = tree(crush, false, |_| true);
        let placed: BTreeSet<i32> = all.iter().map(|item| item.id).collect();
        let mut seen = BTreeSet::new();
        let shown = all.into_iter().filter(|item| {
            let wanted = as_tree || (item.id >= 0 && seen.insert(item.id));
            wanted && scope.has(crush, item.id)
        });
        let stray = |id: i32| TreeItem { id, parent: None, depth: 0, weight: 0, children: Vec::new() };
        let strays = (0..map.max_osd())
            .filter(|osd| map.exists(*osd) && !placed.contains(osd) && scope.has(crush, *osd));
        let lines = shown.map(&line).collect();
        Report { map, lines, strays: strays.map(stray).map(&line).collect(), total, average }
    }

    /// Least and greatest variance, and the deviation weighted by reweight.
    fn spread(&self) -> (f64, f64, f64) {
        let (mut min, mut max, mut squares, mut weights) = (-1.0f64, -1.0f64, 0.0, 0.0);
        for line in self.lines.iter().chain(&self.strays).filter(|l| l.item.id >= 0 && l.reweight > 0.0) {
            min = if min < 0.0 { line.variance } else { min.min(line.variance) };
            max = max.max(line.variance);
            squares += line.reweight * (line.utilization - self.average).powi(2);
            weights += line.reweight;
        }
        (min, max, if weights > 0.0 { (squares / weights).sqrt() } else { 0.0 })
    }

    fn class(&self, id: i32) -> Option<&str> {
        let class = self.map.crush.item_classes.get(&id)?;
        self.map.crush.class_names.get(class).map(String::as_str)
    }

    fn name(&self, id: i32) -> String {
        let known = self.map.crush.item_names.get(&id).cloned();
        known.unwrap_or_else(|| format!("osd.{id}"))
    }

    fn kind(&self, id: i32) -> (u16, &str) {
        let kind = self.map.crush.bucket(id).map_or(0, |b| b.kind);
        (kind, self.map.crush.type_names.get(&i32::from(kind)).map_or("", String::as_str))
    }

    fn status(&self, osd: i32) -> &'static str {
        match self.map.osd(osd) {
            Some(_) if self.map.is_up(osd) => "up",
            Some(row) if row.state.has(wire::types::OsdState::DESTROYED) => "destroyed",
            _ => "down",
        }
    }

    fn plain(&self, as_tree: bool) -> String {
        let mut t = Table::default();
        for heading in [
            "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE",
            "VAR", "PGS", "STATUS",
        ] {
            t.column(heading, Align::Right);
        }
        if as_tree {
            t.column("TYPE NAME", Align::Left);
        }
        for line in self.lines.iter().chain(&self.strays) {
            t.row(self.cells(line, as_tree));
        }
        let mut last = vec!["".into(), "".into(), "".into(), "TOTAL".into()];
        last.extend(space_cells(&self.total));
        last.extend([LowPrecision(self.average).to_string(), "".into()]);
        t.row(last);
        let (min, max, deviation) = self.spread();
        let low = LowPrecision;
        format!("{t}MIN/MAX VAR: {}/{}  STDDEV: {}\n", low(min), low(max), low(deviation))
    }

    fn cells(&self, line: &Line, as_tree: bool) -> Vec<String> {
        let id = line.item.id;
        let mut cells = vec![
            id.to_string(),
            self.class(id).filter(|_| id >= 0).unwrap_or_default().to_owned(),
            Weight(f64::from(line.item.weight) / 65_536.0).to_string(),
            Weight(line.reweight).to_string(),
        ];
        cells.extend(space_cells(&line.space));
        cells.extend([LowPrecision(line.utilization).to_string(), LowPrecision(line.variance).to_string()]);
        match id < 0 {
            true => cells.extend(["-".into(), String::new()]),
            false => cells.extend([line.pgs.to_string(), self.status(id).into()]),
        }
        if as_tree {
            let indent = "    ".repeat(line.item.depth as usize);
            cells.push(match id < 0 {
                true => format!("{indent}{} {}", self.kind(id).1, self.name(id)),
                false => format!("{indent}osd.{id}"),
            });
        }
        cells
    }

    fn json(&self) -> Json {
        let (min, max, deviation) = self.spread();
        let s = &self.total.statfs;
        object! {
            "nodes" => Json::array(self.lines.iter().map(|l| self.line_json(l))),
            "stray" => Json::array(self.strays.iter().map(|l| self.line_json(l))),
            "summary" => object! {
                "total_kb" => s.total >> 10,
                "total_kb_used" => s.used_raw() >> 10,
                "total_kb_used_data" => dump::kib(s.allocated),
                "total_kb_used_omap" => dump::kib(s.omap_allocated),
                "total_kb_used_meta" => dump::kib(s.internal_metadata),
                "total_kb_avail" => s.available >> 10,
                "average_utilization" => self.average,
                "min_var" => min,
                "max_var" => max,
                "dev" => deviation,
            },
        }
    }

    fn line_json(&self, line: &Line) -> Json {
        let id = line.item.id;
        let (kind, kind_name) = self.kind(id);
        let mut json = object! { "id" => id };
        if let Some(class) = self.class(id).filter(|_| id >= 0) {
            json.push("device_class", class);
        }
        json.push("name", self.name(id));
        json.push("type", kind_name);
        json.push("type_id", kind);
        if id >= 0 {
            json.push("crush_weight", f64::from(line.item.weight) / 65_536.0);
            json.push("depth", line.item.depth);
        }
        if line.item.parent.is_some() {
            json.push("pool_weights", object! {});
        }
        let s = &line.space.statfs;
        json.push("reweight", line.reweight);
        json.push("kb", s.total >> 10);
        json.push("kb_used", s.used_raw() >> 10);
        json.push("kb_used_data", dump::kib(s.allocated));
        json.push("kb_used_omap", dump::kib(s.omap_allocated));
        json.push("kb_used_meta", dump::kib(s.internal_metadata));
        json.push("kb_avail", s.available >> 10);
        json.push("utilization", line.utilization);
        json.push("var", line.variance);
        json.push("pgs", line.pgs);
        match id < 0 {
            true => json.push("children", line.item.children.clone()),
            false => json.push("status", self.status(id)),
        }
        json
    }
}

fn space_cells(s: &OsdStat) -> [String; 6] {
    let bytes = |n: u64| Bytes(n >> 10 << 10).to_string();
    let s = &s.statfs;
    [
        bytes(s.total),
        bytes(s.used_raw()),
        bytes(s.allocated as u64),
        bytes(s.omap_allocated as u64),
        bytes(s.internal_metadata as u64),
        bytes(s.available),
    ]
}
