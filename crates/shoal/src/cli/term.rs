//! Colour, only where a person looks at it.

use std::io::IsTerminal;

fn paint(stream: &impl IsTerminal, code: &str, text: &str) -> String {
    let wanted = stream.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

pub fn red(stream: &impl IsTerminal, text: &str) -> String {
    paint(stream, "31", text)
}

pub fn green(stream: &impl IsTerminal, text: &str) -> String {
    paint(stream, "32", text)
}

pub fn yellow(stream: &impl IsTerminal, text: &str) -> String {
    paint(stream, "33", text)
}
