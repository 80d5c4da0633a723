//! The lines of each panel, as wide as wanted: for the terminal, and for `--once`.

use super::figures::{bytes, count, known, span};
use super::look::{Look, Panel, Sort};
use super::model::Screen;
use super::model::health::Check;
use super::model::operations::Operation;
use super::model::osds::OsdRow;
use super::model::pools::{PoolRow, Rates};
use super::model::recovery::{PgState, Standing};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// A panel: one line of headings, or none, and the rows.
pub struct Rows {
    pub heading: Option<Line<'static>>,
    pub lines: Vec<Line<'static>>,
}

/// Details shown of one check.
const DETAILS_MAX: usize = 50;
/// Columns of a bar, which grows with the terminal. A shorter one is left out.
const BAR_MAX: usize = 20;
const BAR_MIN: usize = 4;

fn plain() -> Style {
    Style::new()
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn colour(colour: Color) -> Style {
    Style::new().fg(colour)
}

/// `text` in exactly `width` columns, to the left; the end of a longer text is cut.
fn left(text: &str, width: usize) -> String {
    let kept: String = text.chars().take(width).collect();
    let cut = text.chars().nth(width).is_some() && width > 1;
    let kept = if cut { kept.chars().take(width - 1).chain(['…']).collect() } else { kept };
    format!("{kept:<width$}")
}

fn right(text: &str, width: usize) -> String {
    let kept: String = text.chars().take(width).collect();
    format!("{kept:>width$}")
}

/// Breaks a text at spaces into lines of at most `width` columns. The first keeps its leading spaces, and continued
/// lines begin with `indent`. A word longer than a line is broken, too.
fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let mut line: Vec<char> = vec![' '; text.len() - words.len()];
    let (mut lines, mut is_empty) = (Vec::new(), true);
    for word in words.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if !is_empty && line.len() + 1 + word.len() > width {
            lines.push(std::mem::replace(&mut line, indent.chars().collect()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        while line.len() + word.len() > width && width > indent.len() {
            let rest = word.split_off(width.saturating_sub(line.len()).min(word.len()));
            line.append(&mut word);
            lines.push(std::mem::replace(&mut line, indent.chars().collect()));
            word = rest;
        }
        line.append(&mut word);
        is_empty = false;
    }
    lines.push(line);
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

fn bar(part: f64, width: usize) -> String {
    let full = (part.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(full) + &"·".repeat(width - full)
}

pub fn panel(screen: &Screen, look: &Look, panel: Panel, width: usize) -> Rows {
    match panel {
        Panel::Osds => osds(screen, look, width),
        Panel::Pools => pools(screen, look, width),
        Panel::Health => Rows { heading: None, lines: health(screen, width) },
        Panel::Operations => operations(screen, width),
        Panel::Clients => clients(screen, width),
    }
}

// ---- the head

/// State of the whole cluster: four lines or more.
pub fn head(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let s = &screen.summary;
    if let Some(problem) = &s.problem {
        return vec![Line::styled(
            left(&format!("the cluster does not answer: {problem}"), width),
            colour(Color::Red),
        )];
    }
    let number = |n: Option<u64>| known(n, |n| n.to_string());
    let word = s.health.clone().unwrap_or_else(|| "health -".into());
    let style = health_style(&word);
    let quorum = match (s.mons, &s.quorum[..]) {
        (None, _) => "mons -".to_owned(),
        (Some(mons), quorum) => format!("mons {} of {mons} ({})", quorum.len(), quorum.join(",")),
    };
    let manager = known(s.has_manager, |has| if has { "up" } else { "down" }.into());
    let (osds, up, is_in) = (number(s.osds), number(s.osds_up), number(s.osds_in));
    let mut lines = vec![Line::from(vec![
        Span::styled(word, style.add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {quorum}  mgr {manager}  osds {osds}: {up} up, {is_in} in")),
    ])];
    let share = match (s.used, s.total) {
        (Some(used), Some(total)) if total > 0.0 => format!(" ({:.1}%)", used * 100.0 / total),
        _ => String::new(),
    };
    let (used, total) = (known(s.used, bytes), known(s.total, bytes));
    let (objects, data) = (known(s.objects, count), known(s.data, bytes));
    lines.push(Line::raw(format!("used {used} of {total}{share}  data {data}  objects {objects}")));
    let (reads, writes) = (count(s.reads), count(s.writes));
    let (read_bytes, write_bytes) = (bytes(s.read_bytes), bytes(s.write_bytes));
    let client = format!("client {read_bytes}/s rd, {write_bytes}/s wr, {reads} op/s rd, {writes} op/s wr");
    lines.push(Line::raw(client));
    lines.extend(pgs(screen, width));
    lines.extend(recovery(screen, width));
    lines
}

pub fn health_style(word: &str) -> Style {
    match word {
        "HEALTH_OK" => colour(Color::Green),
        "HEALTH_WARN" => colour(Color::Yellow),
        "HEALTH_ERR" => colour(Color::Red),
        _ => plain(),
    }
}

/// The states as a bar of proportional parts, and the number of each.
fn pgs(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let number = known(screen.summary.pgs, |n| n.to_string());
    let Some(states) = &screen.pgs else { return vec![Line::raw("pgs -")] };
    let label = format!("pgs {number} ");
    let room = width.saturating_sub(label.chars().count()).min(60);
    let total: u64 = states.iter().map(|state| state.count).sum();
    let mut spans = vec![Span::raw(label)];
    let look = |standing| match standing {
        Standing::Clean => ("█", colour(Color::Green)),
        Standing::Active => ("▓", colour(Color::Yellow)),
        Standing::Bad => ("░", colour(Color::Red)),
    };
    for (standing, columns) in shares(states, total, room) {
        let (mark, style) = look(standing);
        spans.push(Span::styled(mark.repeat(columns), style));
    }
    let mut lines = vec![Line::from(spans)];
    let (mut spans, mut used) = (vec![Span::raw(" ")], 1);
    for state in states {
        let (mark, style) = look(state.standing);
        let text = format!(" {mark} {} {}", state.count, state.name);
        let columns = text.chars().count();
        if used > 1 && used + columns > width {
            lines.push(Line::from(std::mem::replace(&mut spans, vec![Span::raw(" ")])));
            used = 1;
        }
        used += columns;
        spans.push(Span::styled(text, style));
    }
    if used > 1 {
        lines.push(Line::from(spans));
    }
    lines
}

/// Columns of each standing. One that has a PG has a column, so that one bad PG of thousands is seen.
fn shares(states: &[PgState], total: u64, room: usize) -> Vec<(Standing, usize)> {
    let of = |standing| states.iter().filter(|s| s.standing == standing).map(|s| s.count).sum::<u64>();
    let columns = |count: u64| match count {
        0 => 0,
        count => ((count as f64 * room as f64 / total as f64) as usize).max(1),
    };
    let (active, bad) = (columns(of(Standing::Active)), columns(of(Standing::Bad)));
    let rest = room.saturating_sub(active + bad);
    let clean = if of(Standing::Clean) > 0 { rest } else { 0 };
    let active = if clean == 0 && active > 0 { room.saturating_sub(bad) } else { active };
    let bad = if clean == 0 && active == 0 && bad > 0 { room } else { bad };
    vec![(Standing::Clean, clean), (Standing::Active, active), (Standing::Bad, bad)]
}

fn recovery(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let r = &screen.recovery;
    let mut lines = Vec::new();
    if r.degraded + r.misplaced + r.unfound > 0 || r.objects_per_s.is_some() {
        let mut text = format!("recovery: {} degraded, {} misplaced", r.degraded, r.misplaced);
        if r.unfound > 0 {
            text += &format!(", {} unfound", r.unfound);
        }
        let (objects, rate) = (known(r.objects_per_s, count), known(r.bytes_per_s, bytes));
        text += &format!("; {objects} objects/s, {rate}/s, time left {}", known(r.left_s, span));
        lines
            .push(Line::styled(text, if r.unfound > 0 { colour(Color::Red) } else { colour(Color::Yellow) }));
    }
    for event in &r.events {
        let left = known(event.left_s, span);
        let tail = format!(" [{}] {:>3.0}%, time left {left}", bar(event.part, BAR_MAX), event.part * 100.0);
        let room = width.saturating_sub(tail.chars().count() + 2);
        let message: String = event.message.chars().take(room).collect();
        lines.push(Line::raw(format!("  {message}{tail}")));
    }
    lines
}

// ---- health

/// Each check with its remedy; details below.
fn health(screen: &Screen, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for check in &screen.health {
        lines.extend(check_lines(check, width));
        let details = check.details.iter().take(DETAILS_MAX);
        for line in details.flat_map(|detail| wrap(&format!("    {detail}"), width, "      ")) {
            lines.push(Line::styled(line, dim()));
        }
        if let Some(more @ 1..) = check.details.len().checked_sub(DETAILS_MAX) {
            lines.push(Line::styled(format!("    {more} more: ceph health detail"), dim()));
        }
    }
    if lines.is_empty() {
        lines.push(Line::raw(match screen.summary.health {
            Some(_) => "no check fails",
            None => "-",
        }));
    }
    lines
}

/// The check in one line or more, and `→ command`.
pub fn check_lines(check: &Check, width: usize) -> Vec<Line<'static>> {
    let style = match check {
        Check { is_muted: true, .. } => dim(),
        Check { is_error: true, .. } => colour(Color::Red),
        _ => colour(Color::Yellow),
    };
    let muted = if check.is_muted { " (muted)" } else { "" };
    let text = format!("{}{muted}: {}", check.code, check.summary);
    let mut lines: Vec<Line> =
        wrap(&text, width, "  ").into_iter().map(|line| Line::styled(line, style)).collect();
    if let Some(remedy) = &check.remedy {
        let hint = if remedy.hint.is_empty() { String::new() } else { format!("   ({})", remedy.hint) };
        let text = format!("  → {}{hint}", remedy.command);
        lines.extend(wrap(&text, width, "    ").into_iter().map(|line| Line::styled(line, bold())));
    }
    lines
}

// ---- OSDs

fn osds(screen: &Screen, look: &Look, width: usize) -> Rows {
    // The name has what the other columns leave, and the bar what a long name leaves.
    const FIXED: usize = 1 + 8 + 1 + 9 + 1 + 6 + 1 + 5 + 1 + 9 + 1 + 6;
    let has_class = width >= 90;
    let fixed = FIXED + if has_class { 6 } else { 0 };
    let room = width.saturating_sub(fixed);
    let name_width = room.clamp(8, if has_class { 28 } else { 24 });
    let bar_width =
        Some(room.saturating_sub(name_width + 1).min(BAR_MAX)).filter(|n| *n >= BAR_MIN).unwrap_or(0);
    let columns =
        |name: &str, state: &str, class: &str, size: &str, used: &str, bar: &str, rest: [&str; 3]| {
            let class = if has_class { format!(" {}", left(class, 5)) } else { String::new() };
            let bar = if bar_width > 0 { format!(" {}", left(bar, bar_width)) } else { String::new() };
            let start = format!("{} ", left(name, name_width));
            let [pgs, commit, cpu] = rest;
            let (size, used, pgs) = (right(size, 9), right(used, 6), right(pgs, 5));
            let end = format!("{class} {size} {used}{bar} {pgs} {} {}", right(commit, 9), right(cpu, 6));
            (start, left(state, 8), end)
        };
    let (start, state, end) = columns("NAME", "STATE", "CLASS", "SIZE", "USED", "", ["PGS", "COMMIT", "CPU"]);
    let heading = Line::styled(start + &state + &end, bold());
    let line = |row: &OsdRow| {
        let indent = if look.sort == Sort::Tree { "  ".repeat(row.depth) } else { String::new() };
        let is_osd = row.osd.is_some();
        let state = match (is_osd, row.is_up, row.is_in) {
            (false, ..) => String::new(),
            (true, None, _) => "-".into(),
            (true, Some(up), is_in) => {
                format!("{}/{}", if up { "up" } else { "down" }, if is_in { "in" } else { "out" })
            }
        };
        let style = match (row.is_up, row.is_in) {
            _ if !is_osd => dim(),
            (Some(false), _) => colour(Color::Red),
            (_, false) => colour(Color::Yellow),
            _ => plain(),
        };
        let of_osd = |text: String| if is_osd { text } else { String::new() };
        let used = known(row.used_percent, |percent| format!("{percent:.1}%"));
        let full = row.used_percent.map_or(String::new(), |percent| bar(percent / 100.0, bar_width));
        let (start, state, end) = columns(
            &format!("{indent}{}", row.name),
            &state,
            &row.class,
            &known(row.bytes, bytes),
            &used,
            &full,
            [
                &of_osd(known(row.pgs, |n| n.to_string())),
                &of_osd(known(row.commit_ms, |ms| format!("{ms:.1} ms"))),
                &of_osd(known(row.cpu_percent, |percent| format!("{percent:.0}%"))),
            ],
        );
        let usage = match row.used_percent {
            Some(percent) if percent >= 95.0 => colour(Color::Red),
            Some(percent) if percent >= 85.0 => colour(Color::Yellow),
            _ if is_osd => plain(),
            _ => dim(),
        };
        Line::from(vec![Span::styled(start, style), Span::styled(state, style), Span::styled(end, usage)])
    };
    let mut rows: Vec<&OsdRow> = screen.osds.iter().collect();
    if look.sort != Sort::Tree {
        rows.retain(|row| row.osd.is_some());
        let key = |row: &OsdRow| match look.sort {
            Sort::Usage => row.used_percent,
            Sort::Latency => row.commit_ms,
            Sort::Cpu => row.cpu_percent,
            Sort::Tree | Sort::Name => None,
        };
        rows.sort_by(|a, b| {
            let unknown = f64::NEG_INFINITY;
            let order = key(b).unwrap_or(unknown).total_cmp(&key(a).unwrap_or(unknown));
            order.then(a.osd.cmp(&b.osd))
        });
    }
    let mut lines: Vec<Line> = rows.into_iter().map(line).collect();
    if lines.is_empty() {
        lines.push(Line::raw(if screen.summary.osds == Some(0) { "no OSDs" } else { "-" }));
    }
    Rows { heading: Some(heading), lines }
}

// ---- pools

fn pools(screen: &Screen, look: &Look, width: usize) -> Rows {
    // All rates where there is room for them, else the operations of both kinds together.
    let is_wide = width >= 96;
    let rest = if is_wide { 67 } else { 50 };
    let name_width = width.saturating_sub(rest).clamp(8, 32);
    let line = |name: &str, stored: &str, objects: &str, used: &str, rates: [&str; 4]| {
        let [read, write, operations, recovered] = rates;
        let start = format!(
            "{} {} {} {}",
            left(name, name_width),
            right(stored, 9),
            right(objects, if is_wide { 8 } else { 7 }),
            right(used, 6)
        );
        let recovered = if is_wide { format!(" {}", right(recovered, 10)) } else { String::new() };
        let rate_width = if is_wide { 10 } else { 8 };
        let operations = right(operations, if is_wide { 8 } else { 6 });
        let (read, write) = (right(read, rate_width), right(write, rate_width));
        format!("{start} {read} {write} {operations}{recovered}")
    };
    let heading = line("POOL", "STORED", "OBJECTS", "USED", ["READ/s", "WRITE/s", "OP/s", "RECOVER/s"]);
    let mut pools: Vec<&PoolRow> = screen.pools.iter().collect();
    let load = |pool: &PoolRow| pool.rates.map_or(-1.0, |rates| rates.operations());
    pools.sort_by(|a, b| match look.sort {
        Sort::Tree | Sort::Name => a.name.cmp(&b.name),
        Sort::Usage => b.stored.unwrap_or(-1.0).total_cmp(&a.stored.unwrap_or(-1.0)),
        Sort::Latency | Sort::Cpu => load(b).total_cmp(&load(a)),
    });
    let row = |pool: &&PoolRow| {
        let rate =
            |of: fn(&Rates) -> f64, show: fn(f64) -> String| known(pool.rates, |rates| show(of(&rates)));
        let text = line(
            &pool.name,
            &known(pool.stored, bytes),
            &known(pool.objects, count),
            &known(pool.used_percent, |percent| format!("{percent:.1}%")),
            [
                &rate(|r| r.read_bytes, bytes),
                &rate(|r| r.write_bytes, bytes),
                &rate(Rates::operations, count),
                &rate(|r| r.recovered_bytes, bytes),
            ],
        );
        let style = match pool.used_percent {
            Some(percent) if percent >= 85.0 => colour(Color::Yellow),
            _ => plain(),
        };
        Line::styled(text, style)
    };
    let mut lines: Vec<Line> = pools.iter().map(row).collect();
    if lines.is_empty() {
        lines.push(Line::raw(if screen.summary.pgs.is_some() { "no pools" } else { "-" }));
    }
    Rows { heading: Some(Line::styled(heading, bold())), lines }
}

// ---- operations and clients

fn operations(screen: &Screen, width: usize) -> Rows {
    let line = |age: &str, osd: &str, client: &str, stage: &str, text: &str| {
        let start = format!("{} {} {} {} ", right(age, 8), left(osd, 8), left(client, 16), left(stage, 18));
        let room = width.saturating_sub(start.chars().count());
        start + left(text, room).trim_end()
    };
    let heading = Some(Line::styled(line("AGE", "OSD", "CLIENT", "STAGE", "OPERATION"), bold()));
    let Some(operations) = &screen.operations else { return Rows { heading, lines: vec![Line::raw("-")] } };
    let row = |op: &Operation| {
        let (age, osd) = (format!("{:.1} s", op.age_s), format!("osd.{}", op.osd));
        let text = line(&age, &osd, &op.client, &op.stage, &op.description);
        Line::styled(text, if op.is_slow() { colour(Color::Red) } else { plain() })
    };
    let mut lines: Vec<Line> = operations.iter().map(row).collect();
    if lines.is_empty() {
        lines.push(Line::raw("none older than 1 s"));
    }
    Rows { heading, lines }
}

fn clients(screen: &Screen, width: usize) -> Rows {
    let line = |name: &str, ops: &str, osds: &str, address: &str| {
        let start = format!("{} {} {} ", left(name, 20), right(ops, 10), right(osds, 6));
        let room = width.saturating_sub(start.chars().count());
        start + left(address, room).trim_end()
    };
    let heading = Some(Line::styled(line("CLIENT", "IN FLIGHT", "OSDS", "ADDRESS"), bold()));
    let Some(clients) = &screen.clients else { return Rows { heading, lines: vec![Line::raw("-")] } };
    let row = |c: &super::model::operations::ClientRow| {
        Line::raw(line(&c.name, &c.in_flight.to_string(), &c.osds.to_string(), &c.address))
    };
    let mut lines: Vec<Line> = clients.iter().map(row).collect();
    if lines.is_empty() {
        lines.push(Line::raw("no operations in flight"));
    }
    Rows { heading, lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_with_its_indent() {
        assert_eq!(wrap("  → ceph osd df", 9, "    "), ["  → ceph", "    osd", "    df"]);
        assert_eq!(wrap("short", 9, "  "), ["short"]);
        assert_eq!(wrap("abcdefghij kl", 6, "  "), ["abcdef", "  ghij", "  kl"]);
        assert_eq!(wrap("", 6, "  "), [""]);
    }

    #[test]
    fn one_bad_pg_of_thousands_has_a_column() {
        let state = |standing, count| PgState { name: String::new(), count, standing };
        let columns = |states: &[PgState]| {
            let total = states.iter().map(|state| state.count).sum();
            shares(states, total, 40).into_iter().map(|(_, columns)| columns).collect::<Vec<usize>>()
        };
        use Standing::{Active, Bad, Clean};
        assert_eq!(columns(&[state(Clean, 9000), state(Bad, 1)]), [39, 0, 1]);
        assert_eq!(columns(&[state(Clean, 3), state(Active, 1)]), [30, 10, 0]);
        assert_eq!(columns(&[state(Active, 7), state(Bad, 7)]), [0, 20, 20]);
        assert_eq!(columns(&[state(Bad, 3)]), [0, 0, 40]);
        assert_eq!(columns(&[]), [0, 0, 0]);
    }
}
