//! `shoal dencode`: any wire type as annotated bytes.

use super::term;
use anyhow::{Context, bail};
use codec::Span;
use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::dencode::{by_name, types};

/// More than any map of a cluster that exists.
const INPUT_BYTES_MAX: u64 = 256 << 20;
const BYTES_PER_LINE: usize = 12;

/// Print a value of one of Ceph's wire types, with the bytes that each field was read from
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal dencode --list                                    which types there are
  ceph osd getmap -o map && shoal dencode OSDMap map      an OSDMap, field by field
  ceph osd getmap -o - | shoal dencode OSDMap - --value   the value alone")]
pub struct Args {
    /// The type, as Ceph's source calls it: pg_log_entry_t
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// The file with the encoded value; - is standard input
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List the types and stop
    #[arg(long)]
    list: bool,
    /// Print the decoded value instead of the bytes
    #[arg(long)]
    value: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = stdout().lock();
    let (Some(name), Some(file)) = (&args.name, &args.file) else {
        for entry in types() {
            writeln!(out, "{}", entry.name)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(entry) = by_name(name) else {
        let like: Vec<_> = types().iter().map(|t| t.name).filter(|t| resembles(t, name)).take(5).collect();
        let hint = if like.is_empty() {
            "see `shoal dencode --list`".into()
        } else {
            format!("is it {}?", like.join(", "))
        };
        bail!("shoal has no type {name}: {hint}");
    };
    let bytes = read(file)?;
    let (spans, value) = entry.trace(&bytes);
    match (&value, args.value) {
        (Ok(value), true) => writeln!(out, "{value}")?,
        _ => write!(out, "{}", annotated(&bytes, &spans))?,
    }
    match value {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            out.flush()?;
            eprintln!("{} {error}", term::red(&std::io::stderr(), "decoding stopped:"));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn resembles(candidate: &str, asked: &str) -> bool {
    let plain =
        |text: &str| text.to_ascii_lowercase().replace(['_', ':'], "").trim_end_matches('t').to_owned();
    let (candidate, asked) = (plain(candidate), plain(asked));
    candidate.contains(&asked) || asked.contains(&candidate)
}

fn read(file: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        anyhow::ensure!(!stdin().is_terminal(), "standard input is a terminal: redirect a file into it");
        stdin().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    } else {
        let open = std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
        open.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    anyhow::ensure!(bytes.len() as u64 <= INPUT_BYTES_MAX, "{}: more than 256 MiB", file.display());
    Ok(bytes)
}

/// Offset, bytes, what they are: a line a primitive, indented by envelope.
fn annotated(bytes: &[u8], spans: &[Span]) -> String {
    let mut out = String::new();
    for span in spans {
        let raw = bytes.get(span.offset..span.offset + span.len).unwrap_or_default();
        let shown = &raw[..raw.len().min(BYTES_PER_LINE)];
        let mut hex: String = shown.iter().map(|byte| format!("{byte:02x} ")).collect();
        if raw.len() > shown.len() {
            hex.push('…');
        }
        let width = BYTES_PER_LINE * 3 + 1;
        let indent = "  ".repeat(span.depth);
        out.push_str(&format!("{:08x}  {hex:<width$} {indent}{}\n", span.offset, span.text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_offset_bytes_and_meaning() {
        let span = |offset, len, depth, text: &str| Span { offset, len, depth, text: text.into() };
        let text = annotated(&[1, 2, 0, 0, 0], &[span(0, 1, 0, "v = u8 1"), span(1, 4, 1, "n = u32 2")]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("00000000  01 ") && lines[0].ends_with(" v = u8 1"), "{text}");
        assert!(
            lines[1].starts_with("00000001  02 00 00 00 ") && lines[1].ends_with("   n = u32 2"),
            "{text}"
        );
    }

    #[test]
    fn a_slip_of_the_name_finds_the_type() {
        assert!(resembles("OSDMap", "osd_map"));
        assert!(resembles("pg_log_entry_t", "pg_log_entry"));
        assert!(!resembles("MonMap", "osdmap"));
    }
}
