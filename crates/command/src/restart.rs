//! `restart`: a daemon stops cleanly and runs the program that is installed by then, in the same process.
//!
//! The host runs the installed program for its version first. The command is answered after that: a daemon whose new program does not
//! run refuses, and goes on with the old one.

use crate::{Answer, Args, errno};

pub const SIGNATURE: &str = "restart name=started_at,type=CephString,req=false";
pub const HELP: &str = "stop cleanly and start again, with the program that is installed now";
/// The field of a daemon's metadata that tells its runs apart: the time of the start, to the microsecond.
pub const STARTED_AT: &str = "started_at";

/// Admits a `restart` at a daemon that started at `own`. An error where `started_at` names another run: the request came twice, or
/// reached another daemon.
pub fn admit(args: &Args, own: Option<&String>) -> Result<(), Answer> {
    match (args.text(STARTED_AT), own) {
        (Some(wanted), Some(own)) if wanted != *own => {
            Err(Answer::error(errno::ESTALE, format!("this daemon started at {own}, and not at {wanted}")))
        }
        _ => Ok(()),
    }
}

/// The host's check of the installed program: the reason why it does not run, if it does not.
pub type Checked = Result<(), String>;

/// The answer to `restart` after the check.
pub fn answer_checked(checked: &Checked) -> Answer {
    match checked {
        Ok(()) => Answer::ok("restarting"),
        Err(why) => Answer::error(errno::ENOEXEC, format!("no restart: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_of_another_run_is_refused() {
        let own = "2026-11-27T08:00:00.000001+0000".to_owned();
        let asked =
            |text: &str| admit(&Args::parse(text).unwrap(), Some(&own)).map_err(|answer| answer.result);
        assert!(asked(r#"{"prefix":"restart"}"#).is_ok());
        assert!(asked(&format!(r#"{{"prefix":"restart","started_at":"{own}"}}"#)).is_ok());
        let other = r#"{"prefix":"restart","started_at":"2026-11-27T08:00:00.000002+0000"}"#;
        assert_eq!(asked(other), Err(-errno::ESTALE));
    }

    #[test]
    fn restart_with_a_broken_program_is_refused() {
        assert_eq!(answer_checked(&Ok(())).result, 0);
        let refusal = answer_checked(&Err("/opt/shoal --version fails".into()));
        assert_eq!(refusal.result, -errno::ENOEXEC);
        assert_eq!(refusal.status, "no restart: /opt/shoal --version fails");
    }
}
