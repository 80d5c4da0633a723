//! Reading and writing a `ceph.conf`.
//!
//! Sections of `key = value` lines, read as Ceph does: `#` and `;` start a comment, a backslash at the end of a line
//! continues it and one before any other character takes that character as it is, values may be quoted, a later line
//! replaces an earlier one, and `mon host`, `mon_host` and `mon-host` are one key. A daemon looks into the section
//! of its own name, then of its type, then `[global]`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// More than anyone's configuration; a bound before the file is read into memory.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfFile {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

/// An error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    pub problem: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ParseError {}

impl ConfFile {
    pub fn load(path: &Path) -> anyhow::Result<ConfFile> {
        use anyhow::Context;
        let size = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
        anyhow::ensure!(size <= FILE_BYTES_MAX, "{} is {size} bytes: that is no ceph.conf", path.display());
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        ConfFile::parse(&text).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str) -> Result<ConfFile, ParseError> {
        let mut conf = ConfFile::default();
        let mut section = "global".to_owned();
        for (line, number) in logical_lines(text) {
            let at = |problem| ParseError { line: number, problem };
            let trimmed = line.trim_start();
            if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
                continue;
            }
            if let Some(heading) = trimmed.strip_prefix('[') {
                let (name, rest) =
                    heading.split_once(']').ok_or_else(|| at("a section's name ends with ]"))?;
                if !is_blank_or_comment(rest) {
                    return Err(at("nothing but a comment may follow a section's name"));
                }
                section = name.trim().to_owned();
                conf.sections.entry(section.clone()).or_default();
                continue;
            }
            let (key, rest) = trimmed.split_once('=').ok_or_else(|| at("expected key = value"))?;
            if key.contains(['#', ';']) {
                return Err(at("expected key = value"));
            }
            let key = normalize(key);
            if key.is_empty() {
                return Err(at("a key is missing before ="));
            }
            let value = read_value(rest).map_err(at)?;
            conf.sections.entry(section.clone()).or_default().insert(key, value);
        }
        Ok(conf)
    }

    /// The value of `key` for a daemon or client called `name` (`osd.3`), not yet expanded.
    pub fn get(&self, name: &str, key: &str) -> Option<&str> {
        let key = normalize(key);
        let kind = name.split_once('.').map_or(name, |(kind, _)| kind);
        [name, kind, "global"]
            .iter()
            .find_map(|section| self.sections.get(*section)?.get(&key))
            .map(String::as_str)
    }

    /// Every key that `name` has a value for.
    pub fn keys_for(&self, name: &str) -> Vec<&str> {
        let kind = name.split_once('.').map_or(name, |(kind, _)| kind);
        let mut keys: Vec<&str> = [name, kind, "global"]
            .iter()
            .filter_map(|section| self.sections.get(*section))
            .flat_map(|section| section.keys().map(String::as_str))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub fn sections(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        self.sections.iter().map(|(name, section)| (name.as_str(), section))
    }

    pub fn set(&mut self, section: &str, key: &str, value: impl Into<String>) {
        self.sections.entry(section.to_owned()).or_default().insert(normalize(key), value.into());
    }

    pub fn remove_section(&mut self, section: &str) {
        self.sections.remove(section);
    }
}

/// Writes it so that it reads back the same, `[global]` first.
impl fmt::Display for ConfFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globals = self.sections.get_key_value("global");
        let others = self.sections.iter().filter(|(name, _)| *name != "global");
        for (index, (name, section)) in globals.into_iter().chain(others).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            writeln!(f, "[{name}]")?;
            for (key, value) in section {
                writeln!(f, "{} = {}", key.replace('_', " "), quoted(value))?;
            }
        }
        Ok(())
    }
}

/// `mon host`, `mon-host`, ` mon  host ` → `mon_host`.
pub fn normalize(key: &str) -> String {
    key.split(|c: char| c.is_whitespace() || c == '_' || c == '-')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("_")
}

/// Lines with continuations joined, each with the number of its first.
fn logical_lines(text: &str) -> Vec<(String, usize)> {
    let mut lines = Vec::new();
    let mut pending: Option<(String, usize)> = None;
    for (index, raw) in text.lines().enumerate() {
        let (mut line, number) = pending.take().unwrap_or((String::new(), index + 1));
        // An even number of backslashes is that many halves of themselves, not a continuation.
        if raw.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1 {
            line.push_str(&raw[..raw.len() - 1]);
            pending = Some((line, number));
        } else {
            line.push_str(raw);
            lines.push((line, number));
        }
    }
    lines.extend(pending);
    lines
}

fn is_blank_or_comment(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with(['#', ';'])
}

fn read_value(text: &str) -> Result<String, &'static str> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quote.is_some()));
    // Trailing blanks are dropped unless they were escaped or quoted.
    let mut kept = 0;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                value.push(chars.next().map_or('\\', |(_, escaped)| escaped));
                kept = value.len();
            }
            _ if Some(c) == quote => {
                return if is_blank_or_comment(&text[at + 1..]) {
                    Ok(value)
                } else {
                    Err("nothing but a comment may follow a quoted value")
                };
            }
            '#' | ';' if quote.is_none() => break,
            _ => {
                value.push(c);
                if !c.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    if quote.is_some() {
        return Err("a quoted value does not end");
    }
    value.truncate(kept);
    Ok(value)
}

fn quoted(value: &str) -> String {
    let plain = value.trim() == value && !value.contains(['#', ';', '\\', '"', '\'', '\n']);
    if plain { value.to_owned() } else { format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "\
; a comment
[global]
    fsid = 93e3a2a2-9d1c-4d5c-8f67-1e3c5a5a3c11   # and another
    mon host = [v2:127.0.0.1:3300]
    auth-client_required = cephx
    log file = /var/log/$name.log
    long = one \\
two
    odd = \"  kept # blanks; \"
    escaped = a\\#b
[osd]
osd max write size = 90
debug osd = 1
debug osd = 2
[osd.3] # mine
debug_osd = 20
";

    #[test]
    fn own_section_wins_over_type_over_global() {
        let conf = ConfFile::parse(SAMPLE).unwrap();
        assert_eq!(conf.get("osd.3", "debug osd"), Some("20"));
        assert_eq!(conf.get("osd.4", "debug-osd"), Some("2"), "the later line wins");
        assert_eq!(conf.get("mon.a", "debug_osd"), None);
        assert_eq!(conf.get("osd.3", "osd_max_write_size"), Some("90"));
        assert_eq!(conf.get("client.admin", "auth client required"), Some("cephx"));
    }

    #[test]
    fn values_are_read_as_ceph_reads_them() {
        let conf = ConfFile::parse(SAMPLE).unwrap();
        assert_eq!(conf.get("x", "fsid"), Some("93e3a2a2-9d1c-4d5c-8f67-1e3c5a5a3c11"));
        assert_eq!(conf.get("x", "long"), Some("one two"));
        assert_eq!(conf.get("x", "odd"), Some("  kept # blanks; "));
        assert_eq!(conf.get("x", "escaped"), Some("a#b"));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text| ConfFile::parse(text).unwrap_err();
        assert_eq!(error("[global]\nfsid\n").line, 2);
        assert_eq!(error("[global\n").line, 1);
        assert_eq!(error("a = 1 \\\n\nb = \"x\nc = 1\n").line, 3);
        assert_eq!(error("= 3\n").line, 1);
    }

    proptest! {
        #[test]
        fn written_conf_reads_back(value in "[^\\p{Cc}]{0,40}", key in "[a-z]{1,8}( [a-z]{1,8}){0,2}") {
            let mut conf = ConfFile::default();
            conf.set("global", &key, value.clone());
            conf.set("osd.1", &key, value.clone());
            let read = ConfFile::parse(&conf.to_string());
            prop_assert_eq!(read, Ok(conf));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = ConfFile::parse(&text);
        }
    }
}
