//! The terminal: screens and keys until the end, and then the terminal as it was.

use super::draw;
use super::feed::{Feed, News};
use super::look::{Look, Then};
use super::model::Screen;
use anyhow::Context;
use ratatui::crossterm::event::{self, Event};
use std::process::ExitCode;
use std::time::Duration;

/// A key is answered within this time.
const KEY_INTERVAL: Duration = Duration::from_millis(50);

/// Shows screens until a key or a signal ends it. A panic, too, leaves the terminal as it was.
pub fn run(feed: &Feed, subject: &str) -> anyhow::Result<ExitCode> {
    let mut terminal = ratatui::try_init().context("the terminal cannot be set up: try --once")?;
    let outcome = watch(&mut terminal, feed, subject);
    ratatui::restore();
    outcome
}

/// As a shell tells of a signal.
pub fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from(128 + signal as u8)
}

fn watch(terminal: &mut ratatui::DefaultTerminal, feed: &Feed, subject: &str) -> anyhow::Result<ExitCode> {
    let mut look = Look::new(std::env::var_os("NO_COLOR").is_none());
    let mut screen = Screen::default();
    let mut has_changed = true;
    loop {
        if has_changed {
            terminal.draw(|frame| draw::draw(frame, &screen, &mut look, subject))?;
        }
        has_changed = false;
        match feed.next_within(KEY_INTERVAL)? {
            // A screen that was under way when the pause began is not shown.
            Some(News::Screen(next)) if !look.is_paused => (screen, has_changed) = (*next, true),
            Some(News::Signal(signal)) => return Ok(exit_code(signal)),
            Some(News::Screen(_)) | None => {}
        }
        while event::poll(Duration::ZERO)? {
            has_changed = true;
            if let Event::Key(key) = event::read()?
                && look.on_key(key) == Then::Quit
            {
                return Ok(ExitCode::SUCCESS);
            }
            feed.pause(look.is_paused);
        }
    }
}
