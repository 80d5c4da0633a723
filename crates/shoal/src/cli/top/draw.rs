//! The screen on a terminal, and as plain text.
//!
//! A large terminal shows all panels beside each other, a small one the head and the chosen panel.

use super::look::{Look, Panel};
use super::model::Screen;
use super::rows::{self, Rows};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

/// Smallest terminal that shows all panels at once.
const WIDE: (u16, u16) = (132, 34);
/// Width of `--once` where there is no terminal.
pub const TEXT_WIDTH: usize = 120;
/// Rows of health checks above the panels of a small terminal.
const CHECK_LINES_SMALL: u16 = 4;

const HELP: &str = "\
 q, Esc     quit                    Tab, arrows    next panel, scroll
 p, Space   pause                   PgUp PgDn Home End
 t  tree    n  name    u  usage     order of OSDs and pools
 l  commit latency, of pools operations a second    c  processor time

 COMMIT   mean commit latency       CPU  of one core, where the OSD tells it
 CLIENTS  by operations in flight, of the OSDs that were asked so far
 Any key closes this help.";

pub fn draw(frame: &mut Frame, screen: &Screen, look: &mut Look, subject: &str) {
    let area = frame.area();
    let is_wide = area.width >= WIDE.0 && area.height >= WIDE.1;
    let head = rows::head(screen, usize::from(area.width));
    // Where the panel Health is seen, it has them.
    let checks = if look.panel == Panel::Health || is_wide { Vec::new() } else { checks(screen, area.width) };
    let head_rows = (head.len() as u16).min(area.height / 2);
    let check_rows = (checks.len() as u16).min(CHECK_LINES_SMALL);
    let [title, head_area, check_area, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(head_rows),
        Constraint::Length(check_rows),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    show(frame, vec![title_line(screen, look, subject)], title, look);
    show(frame, head, head_area, look);
    show(frame, cut(checks, usize::from(check_rows)), check_area, look);
    if is_wide {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas(body);
        let [osds, operations] =
            Layout::vertical([Constraint::Percentage(70), Constraint::Percentage(30)]).areas(left);
        let [health, pools, clients] = Layout::vertical([
            Constraint::Percentage(40),
            Constraint::Percentage(35),
            Constraint::Percentage(25),
        ])
        .areas(right);
        let places = [
            (Panel::Osds, osds),
            (Panel::Operations, operations),
            (Panel::Pools, pools),
            (Panel::Clients, clients),
            (Panel::Health, health),
        ];
        places.into_iter().for_each(|(panel, place)| draw_panel(frame, screen, look, panel, place));
    } else {
        draw_panel(frame, screen, look, look.panel, body);
    }
    show(frame, vec![foot_line(look, is_wide)], foot, look);
    if look.shows_help {
        draw_help(frame, area, look);
    }
}

/// Every panel in full, without colour.
pub fn text(screen: &Screen, look: &Look, width: usize) -> String {
    let mut lines: Vec<Line> = vec![Line::raw(known_fsid(screen))];
    lines.extend(rows::head(screen, width));
    for panel in Panel::ALL {
        lines.extend([Line::default(), Line::raw(panel_title(screen, look, panel))]);
        let Rows { heading, lines: rows } = rows::panel(screen, look, panel, width);
        lines.extend(heading.into_iter().chain(rows));
    }
    let text: Vec<String> = lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect();
    text.join("\n") + "\n"
}

fn known_fsid(screen: &Screen) -> String {
    format!("cluster {}", screen.summary.fsid.as_deref().unwrap_or("-"))
}

fn title_line(screen: &Screen, look: &Look, subject: &str) -> Line<'static> {
    // First, so that a narrow terminal shows it.
    let paused = if look.is_paused { ", PAUSED" } else { "" };
    let text = format!("shoal top{paused}: {subject}  {}", known_fsid(screen));
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

fn foot_line(look: &Look, is_wide: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for panel in Panel::ALL.into_iter().filter(|_| !is_wide) {
        let style = match panel == look.panel {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.extend([Span::styled(panel.title(), style), Span::raw(" ")]);
    }
    spans.push(Span::raw(format!("| sort: {}  q quit  ? help  p pause", look.sort.title())));
    Line::from(spans)
}

/// Checks and remedies; details are in the panel.
fn checks(screen: &Screen, width: u16) -> Vec<Line<'static>> {
    let shown = screen.health.iter().filter(|check| !check.is_muted);
    shown.flat_map(|check| rows::check_lines(check, usize::from(width))).collect()
}

/// At most `max` lines; the last says how many are missing.
fn cut(mut lines: Vec<Line<'static>>, max: usize) -> Vec<Line<'static>> {
    if lines.len() > max && max > 0 {
        let missing = lines.len() - max + 1;
        lines.truncate(max - 1);
        lines.push(Line::raw(format!("  … {missing} lines more in the panel Health")));
    }
    lines
}

fn panel_title(screen: &Screen, look: &Look, panel: Panel) -> String {
    let up = screen.summary.osds_up.unwrap_or(0);
    match panel {
        Panel::Osds => format!("OSDs by {}", look.sort.title()),
        Panel::Pools => format!("Pools by {}", look.sort.title_of_pools()),
        Panel::Operations => {
            format!("Operations older than 1 s, of the OSDs asked now ({} known)", screen.sampled)
        }
        Panel::Clients => format!("Clients by operations in flight, of {} of {up} OSDs", screen.sampled),
        Panel::Health => panel.title().to_owned(),
    }
}

fn draw_panel(frame: &mut Frame, screen: &Screen, look: &mut Look, panel: Panel, place: Rect) {
    let style = match panel == look.panel {
        true => Style::new().add_modifier(Modifier::BOLD),
        false => Style::new().add_modifier(Modifier::DIM),
    };
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(style)
        .title(Line::styled(format!(" {} ", panel_title(screen, look, panel)), style));
    let inside = block.inner(place);
    frame.render_widget(block, place);
    let Rows { heading, mut lines } = rows::panel(screen, look, panel, usize::from(inside.width));
    let height = usize::from(inside.height).saturating_sub(usize::from(heading.is_some()));
    let scroll = &mut look.scroll[panel as usize];
    *scroll = (*scroll).min(lines.len().saturating_sub(height.max(1)));
    let shown = lines.drain(*scroll..).take(height);
    let all: Vec<Line> = heading.into_iter().chain(shown).collect();
    show(frame, all, inside, look);
}

fn draw_help(frame: &mut Frame, area: Rect, look: &Look) {
    let (width, height) = (area.width.min(76), area.height.min(HELP.lines().count() as u16 + 2));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" Keys ");
    let inside = block.inner(place);
    frame.render_widget(block, place);
    show(frame, HELP.lines().map(Line::raw).collect(), inside, look);
}

/// Writes lines; without colour on a terminal that wants none.
fn show(frame: &mut Frame, mut lines: Vec<Line<'_>>, place: Rect, look: &Look) {
    if !look.has_colour {
        for line in &mut lines {
            line.style.fg = None;
            line.spans.iter_mut().for_each(|span| span.style.fg = None);
        }
    }
    frame.render_widget(Paragraph::new(Text::from(lines)), place);
}

#[cfg(test)]
mod tests {
    use super::super::look::Sort;
    use super::super::model::health::{Check, Remedy};
    use super::super::model::osds::OsdRow;
    use super::super::model::{Model, tests::pacific};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Buffer;
    use ratatui::style::Color;

    fn drawn(screen: &Screen, look: &mut Look, width: u16, height: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen, look, "ceph.conf")).unwrap();
        terminal.backend().buffer().clone()
    }

    fn lines(buffer: &Buffer) -> Vec<String> {
        let width = usize::from(buffer.area.width);
        let row =
            |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        buffer.content.chunks(width).map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    fn has(lines: &[String], text: &str) -> bool {
        lines.iter().any(|line| line.contains(text))
    }

    fn recorded() -> Screen {
        Model::default().screen(&pacific())
    }

    /// A cluster of 630 OSDs on 30 hosts.
    fn large() -> Screen {
        let mut screen = recorded();
        let host = |n: i32| OsdRow { name: format!("host{n}"), depth: 1, is_in: true, ..OsdRow::default() };
        let osd = |n: i32| OsdRow {
            name: format!("osd.{n}"),
            depth: 2,
            osd: Some(n),
            is_up: Some(n != 77),
            is_in: true,
            used_percent: Some(f64::from(n) / 7.0),
            commit_ms: Some(f64::from(700 - n)),
            cpu_percent: (n == 300).then_some(250.0),
            ..OsdRow::default()
        };
        let rows = (0..630).flat_map(|n| (n % 21 == 0).then(|| host(n / 21)).into_iter().chain([osd(n)]));
        screen.osds = rows.collect();
        screen
    }

    #[test]
    fn small_terminal_shows_head_and_one_panel() {
        let (screen, mut look) = (recorded(), Look::new(true));
        let shown = lines(&drawn(&screen, &mut look, 80, 24));
        for text in [
            "HEALTH_WARN",
            "osds 3: 2 up, 3 in",
            "pgs ",
            "degraded",
            "→ ceph osd",
            "NAME",
            "osd.0",
            "down/in",
        ] {
            assert!(has(&shown, text), "{text} in {shown:#?}");
        }
        assert!(!has(&shown, "STORED"), "pools have their own panel");
        assert!(shown[23].contains("q quit") && shown[23].contains("? help"), "{}", shown[23]);
        look.panel = Panel::Pools;
        let shown = lines(&drawn(&screen, &mut look, 80, 24));
        assert!(has(&shown, "STORED OBJECTS") && has(&shown, "OP/s") && has(&shown, "wide"), "{shown:#?}");
        look.panel = Panel::Health;
        let shown = lines(&drawn(&screen, &mut look, 80, 24));
        assert!(has(&shown, "is down"), "details: {shown:#?}");
    }

    #[test]
    fn large_terminal_shows_every_panel() {
        let shown = lines(&drawn(&recorded(), &mut Look::new(true), 160, 50));
        for text in ["NAME", "CPU ", "STORED OBJECTS", "OP/s", "IN FLIGHT", "STAGE", "is down", "host="] {
            assert!(has(&shown, text), "{text} in {shown:#?}");
        }
    }

    #[test]
    fn any_size_is_drawn() {
        let mut screen = large();
        let check = Check {
            code: "LONG".into(),
            is_error: true,
            is_muted: false,
            summary: "word ".repeat(400) + &"x".repeat(500),
            details: vec!["ä€ ".repeat(300); 50],
            remedy: Some(Remedy { command: "y".repeat(300), hint: "z ".repeat(200) }),
        };
        screen.health.insert(0, check);
        for (width, height) in [(1, 1), (3, 2), (20, 5), (80, 24), (131, 60), (132, 34), (300, 90)] {
            for panel in Panel::ALL {
                let mut look = Look { panel, scroll: [usize::MAX; 5], shows_help: true, ..Look::new(true) };
                drawn(&screen, &mut look, width, height);
                drawn(&Screen::default(), &mut look, width, height);
            }
        }
        let shown = lines(&drawn(&screen, &mut Look::new(true), 80, 24));
        assert!(has(&shown, "lines more in the panel Health"), "{shown:#?}");
        assert!(has(&shown, "osd."), "long checks leave room for the panel: {shown:#?}");
    }

    #[test]
    fn cluster_without_osds_is_drawn() {
        let mut screen = recorded();
        (screen.osds, screen.pools, screen.pgs) = (Vec::new(), Vec::new(), Some(Vec::new()));
        (screen.summary.osds, screen.summary.pgs) = (Some(0), Some(0));
        let mut look = Look::new(true);
        assert!(has(&lines(&drawn(&screen, &mut look, 80, 24)), "no OSDs"));
        look.panel = Panel::Pools;
        assert!(has(&lines(&drawn(&screen, &mut look, 80, 24)), "no pools"));
        // Nothing is known before the first answer.
        look.panel = Panel::Osds;
        let shown = lines(&drawn(&Screen::default(), &mut look, 80, 24));
        assert!(has(&shown, "osds -: - up, - in") && has(&shown, "pgs -"), "{shown:#?}");
    }

    #[test]
    fn hundreds_of_osds_scroll_and_sort() {
        let (screen, mut look) = (large(), Look::new(true));
        let first_osd = |look: &mut Look| {
            let shown = lines(&drawn(&screen, look, 80, 24));
            let at = shown.iter().position(|line| line.starts_with("NAME")).expect("headings");
            shown[at + 1].split_whitespace().next().unwrap_or("").to_owned()
        };
        assert_eq!(first_osd(&mut look), "host0");
        look.scroll[0] = 1;
        assert_eq!(first_osd(&mut look), "osd.0");
        look.scroll[0] = usize::MAX;
        let shown = lines(&drawn(&screen, &mut look, 80, 24));
        assert!(has(&shown, "osd.629"), "{shown:#?}");
        assert!(look.scroll[0] < 660, "scrolling stays within the rows");
        for (sort, first) in [
            (Sort::Usage, "osd.629"),
            (Sort::Latency, "osd.0"),
            (Sort::Cpu, "osd.300"),
            (Sort::Name, "osd.0"),
        ] {
            let mut look = Look { sort, ..Look::new(true) };
            assert_eq!(first_osd(&mut look), first, "{sort:?}");
        }
    }

    #[test]
    fn colours_are_left_out_on_request() {
        let screen = recorded();
        let coloured = |has_colour: bool| {
            let buffer = drawn(&screen, &mut Look::new(has_colour), 160, 50);
            buffer.content.iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert!(coloured(true) > 50);
        assert_eq!(coloured(false), 0);
    }

    #[test]
    fn text_has_every_row() {
        let text = text(&large(), &Look::new(false), TEXT_WIDTH);
        let is_osd = |line: &&str| line.trim_start().starts_with("osd.") && line.contains("/in ");
        assert_eq!(text.lines().filter(is_osd).count(), 630);
        assert!(text.starts_with("cluster "), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ') && line.chars().count() <= TEXT_WIDTH + 40));
        assert!(!text.contains('\u{1b}'));
        let problem = Some("no answer in time".to_owned());
        let mut screen = Screen::default();
        screen.summary.problem = problem;
        assert!(
            super::text(&screen, &Look::new(false), TEXT_WIDTH)
                .contains("does not answer: no answer in time")
        );
    }
}
