//! `shoal token`: join tokens from any host that has the administrator's key.

use crate::cluster::ask::Asker;
use crate::cluster::host::files;
use crate::cluster::host::record::DIR_DEFAULT;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Make, list and revoke join tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  shoal token create                      for any number of hosts, for a day; no monitors
  shoal token create --uses 1 --expires 1h --mons
                                          for one host, which may get a monitor
  shoal token ls                          with the hosts that joined by each
  shoal token revoke k7qf3                ends it at once; hosts that joined stay

Whoever has a token may add hosts, and with them OSDs that hold data. One with --mons also hands out the monitors' key, which opens
everything: keep it like the administrator's.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// The host's directory
    #[arg(long, global = true, default_value = DIR_DEFAULT)]
    dir: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print a new token
    Create {
        /// Time until it expires: 90s, 30m, 24h, 7d
        #[arg(long, default_value = "24h", value_parser = parse_duration)]
        expires: u32,
        /// Number of hosts that may join with it [default: any]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        uses: Option<u32>,
        /// Hosts that join with it may get a monitor
        #[arg(long)]
        mons: bool,
    },
    /// List tokens, without their keys
    Ls,
    /// End a token
    Revoke {
        /// Its id, as `shoal token ls` shows it
        id: String,
    },
}

/// Seconds of `90`, `90s`, `30m`, `24h` or `7d`.
fn parse_duration(text: &str) -> Result<u32, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let factor = match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(24 * 3600),
        _ => None,
    };
    let seconds =
        number.parse::<u32>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    seconds
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "expected a time such as 90s, 30m, 24h or 7d".to_owned())
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut admin = Asker::new(&files::admin_access(&args.dir)?)?;
    match &args.action {
        Action::Create { expires, uses, mons } => {
            let mut command = json!({ "prefix": "shoal token create", "expires": expires, "mons": mons });
            if let Some(uses) = uses {
                command["uses"] = (*uses).into();
            }
            let answer = admin.json(&command)?;
            println!("{}", answer["token"].as_str().context("the monitors' answer has no token")?);
            eprintln!("token {}, valid until {}", told(&answer, "id"), told(&answer, "expires"));
        }
        Action::Ls => print!("{}", admin.ask(&json!({ "prefix": "shoal token ls" }))?),
        Action::Revoke { id } => {
            ensure!(!id.is_empty(), "the token's id is missing: `shoal token ls` shows it");
            admin.ask(&json!({ "prefix": "shoal token revoke", "id": id }))?;
            println!("revoked {id}; hosts that joined with it stay");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
        for text in ["", "h", "0", "1w", "-1s", "99999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
