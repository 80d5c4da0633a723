//! The page: one file, nothing fetched, readable on a laptop and on paper, by day and by night.

use super::{Group, csv, figures, summary};
use crate::judge::conditions::Conditions;
use crate::judge::stats;
use crate::matrix::Tool;
use crate::results::{PointRecord, RunRecord};
use crate::size;
use std::fmt::Write as _;

const STYLE: &str = "
:root { --paper: #fff; --ink: #1a1a1a; --soft: #666; --line: #ddd; --link: #0a58a8; --warn: #a33c00; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e4e4e4; --soft: #a4a4a4; --line: #3a3d41; --link: #7ab8f5; --warn: #ff9a5c; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; overflow-wrap: break-word; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid var(--line); } h3 { font-size: 1.05em; }
a { color: var(--link); } nav a { margin-right: 1em; white-space: nowrap; }
table { border-collapse: collapse; font-size: 13px; width: 100%; } th, td { text-align: left; padding: .25em .6em; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } .soft { color: var(--soft); } .warn { color: var(--warn); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(500px, 100%), 1fr)); gap: 1em 1.5em; }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; } svg { max-width: 100%; height: auto; } .get { font-size: 12px; }
svg text { fill: var(--ink); } svg [stroke='#000000'] { stroke: var(--ink); } pre { white-space: pre-wrap; font-size: 12px; border: 1px solid var(--line); padding: .7em; }
.scroll { overflow-x: auto; }
@media print { :root { color-scheme: light; } figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } nav, .get { display: none; } body { font-size: 11px; margin: 0; max-width: none; } table { font-size: 9px; } .charts { grid-template-columns: 1fr 1fr; } .scroll { overflow: visible; } th, td { padding: .2em .4em; } }
";

/// One run and what belongs to it.
pub struct Part {
    pub run: RunRecord,
    pub points: Vec<PointRecord>,
    /// Of the points that did nothing: what the host did meanwhile.
    pub nothing: Vec<Conditions>,
}

pub fn page(parts: &[Part]) -> String {
    let title = parts.iter().map(|part| part.run.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>\n",
        escape(&title)
    );
    for (n, part) in parts.iter().enumerate() {
        section(&mut out, n, part);
    }
    out + "</body></html>\n"
}

fn section(out: &mut String, n: usize, Part { run, points, nothing }: &Part) {
    let groups = super::group::groups(points);
    let all = figures::all(&groups);
    let mut add = |text: String| out.push_str(&text);
    add(format!("<section><p class=\"soft\">run {} · {}</p>\n", escape(&run.id), escape(&run.state)));
    add(format!("<p>{}</p>\n", escape(&summary::paragraph(run, points, &groups))));
    for note in &run.notes {
        add(format!("<p class=\"warn\">{}</p>\n", escape(note)));
    }
    let mut chapters: Vec<&str> = all.iter().map(|f| f.chapter).collect();
    chapters.dedup();
    let place = |title: &str| format!("{n}-{}", title.to_lowercase().replace(' ', "-"));
    let fixed = ["Results", "What holds it back", "Noise"];
    let titles = fixed.iter().chain(&chapters).chain(&["What was asked for", "Host"]);
    let links: Vec<String> = titles.map(|t| format!("<a href=\"#{}\">{t}</a>", place(t))).collect();
    add(format!("<nav>{}</nav>\n", links.join(" ")));
    let head = |title: &str| format!("<h2 id=\"{}\">{title}</h2>\n", place(title));

    add(head("Results") + &table(&groups));
    let (every, best) = (csv::points(points), csv::best_by_clients(&groups));
    add(format!(
        "<p class=\"get\">as CSV: {} · {}</p>\n",
        download("text/csv", "points.csv", "every point", &every),
        download("text/csv", "by-clients.csv", "the best over numbers of clients", &best)
    ));
    add(head("What holds it back") + &bottlenecks(&groups));
    add(head("Noise") + &noise(&groups, nothing));
    for chapter in chapters {
        add(head(chapter) + "<div class=\"charts\">\n");
        for (n, figure) in all.iter().enumerate().filter(|(_, f)| f.chapter == chapter) {
            let name = figures::file_name(n + 1, &figure.title);
            add(format!(
                "<figure><figcaption>{}</figcaption>\n{}<div class=\"soft\">{} <span class=\"get\">{}</span></div></figure>\n",
                escape(&figure.title),
                // As wide as its column, with a name for screen readers.
                figure.svg.replacen(
                    "<svg ",
                    &format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&figure.title)),
                    1
                ),
                escape(&figure.note),
                download("image/svg+xml", &name, "SVG", &figure.file()),
            ));
        }
        add("</div>\n".into());
    }
    add(format!("{}<pre>{}</pre>\n", head("What was asked for"), escape(&run.file)));
    let host = serde_json::to_string_pretty(&run.host).unwrap_or_default();
    add(format!("{}<pre>{}</pre>\n", head("Host"), escape(&host)));
    if let Some(versions) = points.first().map(|p| &p.versions).filter(|v| !v.is_null()) {
        let text = serde_json::to_string_pretty(versions).unwrap_or_default();
        add(format!("<h2>Cluster</h2><pre>{}</pre>\n", escape(&text)));
    }
    add("</section>\n".into());
}

/// A link that carries its file in itself.
fn download(kind: &str, name: &str, words: &str, content: &str) -> String {
    let mut data = String::with_capacity(content.len() * 5 / 4);
    for c in content.chars() {
        match c {
            '%' | '#' | '"' | '<' | '>' | '&' | '\n' | '\r' | '{' | '}' => write!(data, "%{:02X}", c as u32),
            c => write!(data, "{c}"),
        }
        .expect("writing to a string");
    }
    format!("<a download=\"{name}\" href=\"data:{kind};charset=utf-8,{data}\">{words}</a>")
}

fn table(groups: &[Group]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>cluster</th><th>point</th><th class=\"n\">op/s</th>\
         <th class=\"n\">± 95 %</th><th class=\"n\">bytes/s</th><th class=\"n\">mean µs</th><th class=\"n\">p99 µs</th>\
         <th class=\"n\">CPU µs/op</th><th class=\"n\">client</th><th>disturbed by</th></tr></thead><tbody>\n",
    );
    for g in groups.iter().filter(|g| g.spec.tool != Tool::Nothing) {
        let errors = g.points.iter().filter_map(|p| p.error.clone());
        let warnings: String =
            errors.chain(g.flags()).map(|w| format!("<div class=\"warn\">{}</div>", escape(&w))).collect();
        let is_measured = g.measured().next().is_some();
        let cell = |shown: Option<String>| match shown.filter(|_| is_measured) {
            Some(value) => format!("<td class=\"n\">{value}</td>"),
            None => "<td class=\"n soft\">–</td>".to_owned(),
        };
        let cpu: f64 = g.cpu_us_per_op().values().sum();
        writeln!(
            out,
            "<tr><td>{}</td><td>{}</td>{}{}{}{}{}{}{}<td>{warnings}</td></tr>",
            escape(&g.cluster.label()),
            escape(&g.spec.label()),
            cell(Some(format!("{:.0}", g.ops_per_s()))),
            cell((g.measured().count() > 1).then(|| format!("{:.0}", g.ops_error()))),
            cell(Some(size::show_rate(g.bytes_per_s()))),
            cell(Some(format!("{:.0}", g.mean_us()))),
            cell(g.p99_us().map(|us| format!("{us:.0}"))),
            cell((cpu > 0.0).then(|| format!("{cpu:.0}"))),
            cell(g.client_thread_share().map(|share| format!("{:.0} %", share * 100.0))),
        )
        .expect("writing to a string");
    }
    out + "</tbody></table></div>\n<p class=\"soft\">client: how much of the time its busiest thread ran; from 85 % on it is the \
           client that was measured.</p>\n"
}

/// The bottlenecks of every point, with their evidence.
fn bottlenecks(groups: &[Group]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\"><table><thead><tr><th>cluster</th><th>point</th><th>what</th><th class=\"n\">used</th>\
         <th>evidence</th></tr></thead><tbody>\n",
    );
    for g in groups {
        for (n, (what, evidence, used)) in g.bottlenecks().into_iter().enumerate() {
            let of_first = |text: String| if n == 0 { escape(&text) } else { String::new() };
            writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{:.0} %</td><td class=\"soft\">{}</td></tr>",
                of_first(g.cluster.label()),
                of_first(g.spec.label()),
                escape(&what),
                used * 100.0,
                escape(&evidence)
            )
            .expect("writing to a string");
        }
    }
    out + "</tbody></table></div>\n"
}

/// The noise of single rounds, and the host's load while the lab does nothing.
fn noise(groups: &[Group], nothing: &[Conditions]) -> String {
    let mut out = String::new();
    let mut add = |text: String| out.push_str(&text);
    match nothing {
        [] => add("<p class=\"soft\">Nothing was measured of the host at rest: a workload \
                   <code>{ tool: nothing, time: 30 }</code> does.</p>\n"
            .into()),
        some => {
            let of = |value: fn(&Conditions) -> f64| stats::mean(&some.iter().map(value).collect::<Vec<_>>());
            add(format!(
                "<p>Doing nothing (measured {}): other programs took {:.2} of {:.0} processors, the hypervisor {:.1} %.</p>\n",
                if some.len() == 1 { "once".to_owned() } else { format!("{} times", some.len()) },
                of(|c| c.others),
                of(|c| c.cpus),
                of(|c| c.steal) * 100.0
            ));
        }
    }
    let mut known: Vec<(f64, &Group)> = groups.iter().filter_map(|g| Some((g.noise()?, g))).collect();
    known.sort_by(|a, b| b.0.total_cmp(&a.0));
    if known.is_empty() {
        add("<p>Every point was measured once, so nothing is known about noise.</p>\n".into());
        return out;
    }
    let all: Vec<f64> = known.iter().map(|(noise, _)| *noise).collect();
    add(format!(
        "<p>Rounds of the same point differ by {:.1} % in the median (standard deviation of the rate). The three \
         noisiest:</p>\n<ul>\n",
        stats::median(&all) * 100.0
    ));
    for (noise, g) in known.iter().take(3) {
        let (cluster, spec) = (escape(&g.cluster.label()), escape(&g.spec.label()));
        add(format!("<li>{:.1} %: {cluster} · {spec}</li>\n", noise * 100.0));
    }
    add("</ul>\n".into());
    out
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
    fn page_is_self_contained() {
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
        let page = page(&[Part { run, points, nothing: vec![] }]);
        for words in [
            "a &lt;run&gt;",
            "loud &lt;neighbours&gt;",
            "the disk",
            "Latency against rate",
            "Processor time",
            "Over time",
            "differ by",
            "download=\"points.csv\"",
            "Latency against depth",
        ] {
            assert!(page.contains(words), "{words}");
        }
        // Names of the SVG language are no addresses that anyone fetches.
        let without_names = page.replace("http://www.w3.org/2000/svg", "").replace("%3Csvg", "");
        for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!without_names.contains(outside), "{outside}: the page needs something from outside");
        }
    }
}
