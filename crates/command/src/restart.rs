//! `restart`: a daemon stops cleanly and runs the program that is installed by then, in the same process.

use crate::{Answer, Args, errno};

pub const SIGNATURE: &str = "restart name=started_at,type=CephString,req=false";
pub const HELP: &str = "stop cleanly and start again, with the program that is installed now";
/// The field of a daemon's metadata that tells its runs apart: the time of the start, to the microsecond.
pub const STARTED_AT: &str = "started_at";

/// The answer to `restart` at a daemon that started at `own`. An error where `started_at` names another run: the request came twice,
/// or reached another daemon.
pub fn answer(args: &Args, own: Option<&String>) -> Result<Answer, Answer> {
    match (args.text(STARTED_AT), own) {
        (Some(wanted), Some(own)) if wanted != *own => {
            Err(Answer::error(errno::ESTALE, format!("this daemon started at {own}, and not at {wanted}")))
        }
        _ => Ok(Answer::ok("restarting")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_of_another_run_is_refused() {
        let own = "2026-11-27T08:00:00.000001+0000".to_owned();
        let asked =
            |text: &str| answer(&Args::parse(text).unwrap(), Some(&own)).map_err(|answer| answer.result);
        assert!(asked(r#"{"prefix":"restart"}"#).is_ok());
        assert!(asked(&format!(r#"{{"prefix":"restart","started_at":"{own}"}}"#)).is_ok());
        let other = r#"{"prefix":"restart","started_at":"2026-11-27T08:00:00.000002+0000"}"#;
        assert_eq!(asked(other), Err(-errno::ESTALE));
    }
}
