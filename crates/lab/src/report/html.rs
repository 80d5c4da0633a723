//! The page: one file, nothing fetched, readable on a laptop and on paper, by day and by night.

use super::{Group, figures, summary};
use crate::results::{PointRecord, RunRecord};
use crate::size;
use std::fmt::Write as _;

const STYLE: &str = "
:root { --paper: #fff; --ink: #1a1a1a; --soft: #666; --line: #ddd; --warn: #a33c00; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e4e4e4; --soft: #9a9a9a; --line: #3a3d41; --warn: #ff9a5c; } }
@media print { :root { --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --warn: #a33c00; } figure, tr { break-inside: avoid; } nav { display: none; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; font-size: 13px; width: 100%; } th, td { text-align: left; padding: .25em .6em; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } .soft { color: var(--soft); } .warn { color: var(--warn); }
figure { margin: 1.5em 0; } figcaption { font-weight: 600; } svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); } svg [stroke='#000000'] { stroke: var(--ink); } pre { overflow-x: auto; font-size: 12px; border: 1px solid var(--line); padding: .7em; }
.scroll { overflow-x: auto; }
";

pub fn page(runs: &[(RunRecord, Vec<PointRecord>)]) -> String {
    let title = runs.iter().map(|(run, _)| run.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>\n",
        escape(&title)
    );
    for (run, points) in runs {
        section(&mut out, run, points);
    }
    out + "</body></html>\n"
}

fn section(out: &mut String, run: &RunRecord, points: &[PointRecord]) {
    let groups = super::group::groups(points);
    let mut add = |text: String| out.push_str(&text);
    add(format!("<section><p class=\"soft\">run {} · {}</p>\n", escape(&run.id), escape(&run.state)));
    add(format!("<p>{}</p>\n", escape(&summary::paragraph(run, points, &groups))));
    for note in &run.notes {
        add(format!("<p class=\"warn\">{}</p>\n", escape(note)));
    }
    add(table(&groups));
    add("<h2>Charts</h2>\n".into());
    for figure in figures::all(&groups) {
        add(format!(
            "<figure><figcaption>{}</figcaption>\n{}<div class=\"soft\">{}</div></figure>\n",
            escape(&figure.title),
            figure.svg,
            escape(&figure.note)
        ));
    }
    add(format!("<h2>What was asked for</h2><pre>{}</pre>\n", escape(&run.file)));
    let host = serde_json::to_string_pretty(&run.host).unwrap_or_default();
    add(format!("<h2>Host</h2><pre>{}</pre>\n", escape(&host)));
    if let Some(versions) = points.first().map(|p| &p.versions).filter(|v| !v.is_null()) {
        let text = serde_json::to_string_pretty(versions).unwrap_or_default();
        add(format!("<h2>Cluster</h2><pre>{}</pre>\n", escape(&text)));
    }
    add("</section>\n".into());
}

fn table(groups: &[Group]) -> String {
    let mut out = String::from(
        "<h2>Results</h2><div class=\"scroll\"><table><thead><tr><th>cluster</th><th>point</th><th class=\"n\">op/s</th>\
         <th class=\"n\">± 95 %</th><th class=\"n\">bytes/s</th><th class=\"n\">mean µs</th><th class=\"n\">p99 µs</th>\
         <th class=\"n\">CPU µs/op</th><th>what holds it back</th></tr></thead><tbody>\n",
    );
    for g in groups {
        let errors: Vec<&str> = g.points.iter().filter_map(|p| p.error.as_deref()).collect();
        let bottleneck = g.bottleneck().map_or(String::new(), |(what, evidence)| {
            format!("{}<div class=\"soft\">{}</div>", escape(&what), escape(&evidence))
        });
        let warnings: String = errors
            .iter()
            .map(|e| e.to_string())
            .chain(g.flags())
            .map(|w| format!("<div class=\"warn\">{}</div>", escape(&w)))
            .collect();
        let cpu: f64 = g.cpu_us_per_op().values().sum();
        let p99 = g.p99_us().map_or("".to_owned(), |us| format!("{us:.0}"));
        let error = if g.points.len() > 1 { format!("{:.0}", g.ops_error()) } else { String::new() };
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{:.0}</td><td class=\"n\">{error}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{:.0}</td><td class=\"n\">{p99}</td><td class=\"n\">{cpu:.0}</td><td>{bottleneck}{warnings}</td></tr>",
            escape(&g.cluster.label()),
            escape(&g.spec.label()),
            g.ops_per_s(),
            size::show_rate(g.bytes_per_s()),
            g.mean_us()
        )
        .expect("writing to a string");
    }
    out + "</tbody></table></div>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{ClusterSpec, Spec};
    use crate::results::Measured;
    use crate::results::record::{Latency, Second};

    #[test]
    fn a_page_stands_alone() {
        let run = RunRecord {
            id: "1".into(),
            name: "a <run>".into(),
            started_unix_s: 0.0,
            ended_unix_s: Some(1.0),
            state: "complete".into(),
            file: "a: <b>".into(),
            notes: vec![],
            host: serde_json::json!({"hostname": "h", "cpus": 2}),
        };
        let point = |turn: u32, depth: u32, rate: f64| PointRecord {
            id: 0,
            run: "1".into(),
            turn,
            iteration: turn / 2,
            cluster: ClusterSpec::existing(),
            spec: Spec { depth, ..Spec::default() },
            measured: Some(Measured {
                ops: 100.0,
                ops_per_s: rate,
                latency: Latency { mean_us: 1e6 * f64::from(depth) / rate, ..Latency::default() },
                series: (1..9).map(|n| Second { at_s: n.into(), ops: rate, ..Second::default() }).collect(),
                cpu_us_per_op: vec![("osd.0".into(), 70.0), ("client".into(), 30.0)],
                ..Measured::default()
            }),
            error: None,
            flags: vec!["loud <neighbours>".into()],
            verdict: Some(serde_json::json!([{"what": "the disk", "evidence": "99 %", "used": 0.99}])),
            versions: serde_json::Value::Null,
        };
        let points: Vec<PointRecord> = [(0, 1, 900.0), (1, 16, 5000.0), (2, 1, 910.0), (3, 16, 5100.0)]
            .map(|(t, d, r)| point(t, d, r))
            .into();
        let page = page(&[(run, points)]);
        for words in [
            "a &lt;run&gt;",
            "loud &lt;neighbours&gt;",
            "the disk",
            "Latency against rate",
            "Processor time",
            "Over time",
            "differ by",
        ] {
            assert!(page.contains(words), "{words}");
        }
        // Names of the SVG language are no addresses that anyone fetches.
        let without_names = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!without_names.contains(outside), "{outside}: the page needs something from outside");
        }
    }
}
