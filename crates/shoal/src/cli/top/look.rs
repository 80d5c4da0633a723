//! The keys: what a person has chosen to see, and the change that each key makes.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    Osds,
    Pools,
    Health,
    Operations,
    Clients,
}

impl Panel {
    pub const ALL: [Panel; 5] = [Panel::Osds, Panel::Pools, Panel::Health, Panel::Operations, Panel::Clients];

    pub fn title(self) -> &'static str {
        match self {
            Panel::Osds => "OSDs",
            Panel::Pools => "Pools",
            Panel::Health => "Health",
            Panel::Operations => "Slow ops",
            Panel::Clients => "Clients",
        }
    }

    fn step(self, by: usize) -> Panel {
        Panel::ALL[(self as usize + by) % Panel::ALL.len()]
    }
}

/// Order of the rows. All but the tree show OSDs without buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Tree,
    Name,
    Usage,
    /// Of pools: by operations a second.
    Latency,
    Cpu,
}

impl Sort {
    pub fn title(self) -> &'static str {
        match self {
            Sort::Tree => "tree",
            Sort::Name => "name",
            Sort::Usage => "usage",
            Sort::Latency => "latency",
            Sort::Cpu => "cpu",
        }
    }

    pub fn title_of_pools(self) -> &'static str {
        match self {
            Sort::Tree | Sort::Name => "name",
            Sort::Usage => "usage",
            Sort::Latency | Sort::Cpu => "operations",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    pub panel: Panel,
    pub sort: Sort,
    /// First line shown of each panel. Drawing keeps it within the panel's lines.
    pub scroll: [usize; Panel::ALL.len()],
    pub is_paused: bool,
    pub shows_help: bool,
    pub has_colour: bool,
}

/// The program goes on, or ends, after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Stay,
    Quit,
}

const PAGE: usize = 10;

impl Look {
    pub fn new(has_colour: bool) -> Look {
        Look {
            panel: Panel::Osds,
            sort: Sort::Tree,
            scroll: [0; Panel::ALL.len()],
            is_paused: false,
            shows_help: false,
            has_colour,
        }
    }

    pub fn on_key(&mut self, key: KeyEvent) -> Then {
        if key.kind == KeyEventKind::Release {
            return Then::Stay;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Then::Quit,
            KeyCode::Char('q') => return Then::Quit,
            _ if self.shows_help => self.shows_help = false,
            KeyCode::Esc => return Then::Quit,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('t') => self.sort_by(Sort::Tree),
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Char('u') => self.sort_by(Sort::Usage),
            KeyCode::Char('l') => self.sort_by(Sort::Latency),
            KeyCode::Char('c') => self.sort_by(Sort::Cpu),
            KeyCode::Tab | KeyCode::Right => self.panel = self.panel.step(1),
            KeyCode::BackTab | KeyCode::Left => self.panel = self.panel.step(Panel::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll_to(|at| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(|at| at.saturating_sub(1)),
            KeyCode::PageDown => self.scroll_to(|at| at.saturating_add(PAGE)),
            KeyCode::PageUp => self.scroll_to(|at| at.saturating_sub(PAGE)),
            KeyCode::Home => self.scroll_to(|_| 0),
            KeyCode::End => self.scroll_to(|_| usize::MAX),
            _ => {}
        }
        Then::Stay
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.scroll = [0; Panel::ALL.len()];
    }

    fn scroll_to(&mut self, place: impl Fn(usize) -> usize) {
        let at = &mut self.scroll[self.panel as usize];
        *at = place(*at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(look: &mut Look, code: KeyCode) -> Then {
        look.on_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_sort_scroll_and_walk_the_panels() {
        let mut look = Look::new(true);
        press(&mut look, KeyCode::Down);
        press(&mut look, KeyCode::PageDown);
        assert_eq!(look.scroll[0], 11);
        press(&mut look, KeyCode::Up);
        press(&mut look, KeyCode::Tab);
        press(&mut look, KeyCode::Down);
        assert_eq!((look.panel, look.scroll), (Panel::Pools, [10, 1, 0, 0, 0]));
        press(&mut look, KeyCode::BackTab);
        press(&mut look, KeyCode::BackTab);
        assert_eq!(look.panel, Panel::Clients);
        press(&mut look, KeyCode::Char('u'));
        assert_eq!((look.sort, look.scroll), (Sort::Usage, [0; 5]), "the new order begins at its top");
    }

    #[test]
    fn keys_quit_and_any_key_leaves_the_help() {
        let mut look = Look::new(true);
        assert_eq!(press(&mut look, KeyCode::Char('?')), Then::Stay);
        assert!(look.shows_help);
        assert_eq!(press(&mut look, KeyCode::Esc), Then::Stay);
        assert!(!look.shows_help);
        assert_eq!(press(&mut look, KeyCode::Char('c')), Then::Stay);
        assert_eq!(look.sort, Sort::Cpu);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(look.on_key(control_c), Then::Quit);
        assert_eq!(press(&mut look, KeyCode::Esc), Then::Quit);
        press(&mut look, KeyCode::Char('?'));
        assert_eq!(press(&mut look, KeyCode::Char('q')), Then::Quit);
    }
}
