//! The ledger of seeds: a line for each run of `shoal sim --ledger FILE`, with the commit that ran it.
//!
//! The repository keeps one in `crates/sim/ledger.tsv`. A test reads it and accepts seeds that hold, no others: the cause of a
//! failure is mended, its seed becomes a test, and its line goes.

use crate::Report;
use std::fmt;
use std::str::FromStr;

/// The first line of a ledger.
pub const HEADER: &str = "commit\toptions\tseed\tminutes\tanswers\ttrace\tresult";

/// One run of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first 12 digits of the commit that the program was built from.
    pub commit: String,
    /// Options of `shoal sim` besides seed and minutes. Empty: the cluster is drawn from the seed.
    pub options: String,
    pub seed: u64,
    /// Simulated minutes of work and faults.
    pub minutes: u64,
    pub answers: u64,
    /// The hash of the trace: the same commit gives the same one.
    pub trace_hash: u64,
    /// The broken promise. `None`: the seed holds.
    pub broken: Option<String>,
}

impl Entry {
    pub fn new(commit: &str, options: &str, minutes: u64, report: &Report) -> Entry {
        Entry {
            commit: commit.to_owned(),
            options: options.trim().to_owned(),
            seed: report.seed,
            minutes,
            answers: report.summary.answered,
            trace_hash: report.trace_hash,
            broken: report.violations.first().map(|violation| format!("{:?}", violation.promise)),
        }
    }
}

/// A line without its end.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { commit, options, seed, minutes, answers, trace_hash, broken } = self;
        let options = if options.is_empty() { "-" } else { options };
        let result = broken.as_ref().map_or("holds".to_owned(), |promise| format!("breaks {promise}"));
        write!(f, "{commit}\t{options}\t{seed}\t{minutes}\t{answers}\t{trace_hash:016x}\t{result}")
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Entry, String> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [commit, options, seed, minutes, answers, trace, result] = fields[..] else {
            return Err(format!("{} fields instead of 7: {line}", fields.len()));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}: {line}"));
        if commit.len() != 12 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("{commit} is not the first 12 digits of a commit: {line}"));
        }
        let broken = match (result, result.strip_prefix("breaks ")) {
            ("holds", _) => None,
            (_, Some(promise)) => Some(promise.to_owned()),
            _ => return Err(format!("the result {result} is neither holds nor breaks: {line}")),
        };
        Ok(Entry {
            commit: commit.to_owned(),
            options: if options == "-" { String::new() } else { options.to_owned() },
            seed: number(seed)?,
            minutes: number(minutes)?,
            answers: number(answers)?,
            trace_hash: u64::from_str_radix(trace, 16).map_err(|error| format!("{trace}: {error}"))?,
            broken,
        })
    }
}

/// All entries of a ledger, in order.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(HEADER) => lines.map(str::parse).collect(),
        first => Err(format!("the ledger begins with {first:?} instead of {HEADER:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            commit: "0123456789ab".into(),
            options: String::new(),
            seed: 7,
            minutes: 10,
            answers: 1234,
            trace_hash: 0xfeed,
            broken: None,
        }
    }

    #[test]
    fn lines_read_back_as_written() {
        let broken =
            Entry { options: "--osds 5 --size 3".into(), broken: Some("OneWriter".into()), ..entry() };
        let text = format!("{HEADER}\n{}\n{broken}\n", entry());
        assert_eq!(parse(&text), Ok(vec![entry(), broken]));
    }

    #[test]
    fn wrong_lines_are_refused() {
        assert!(parse("").is_err());
        assert!(parse(&format!("{}\n", entry())).is_err(), "no header");
        let line = entry().to_string();
        for (old, new) in [("holds", "held"), ("\t7\t", "\t"), ("\t7\t", "\tx\t"), ("0123456789ab", "v0.2.0")]
        {
            assert!(line.replace(old, new).parse::<Entry>().is_err(), "{new:?}");
        }
    }
}
