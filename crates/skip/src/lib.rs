//! Skipped tests that are counted. libtest decides before a test runs whether it is ignored; a test that finds out while
//! it runs that a tool or a device is missing would return and count as passed.
//!
//! [`skip!`] ends a test and announces it with its reason. Each announcement is one line on the standard error that libtest
//! does not capture and, where `SHOAL_SKIPS` names a file, one line in that file: `whole` or `part`, the test's name and
//! the reason, separated by tabs. `tests/run` prints these lines and subtracts skipped tests from those that passed.
//! [`skip_part!`] announces that a test left out one of its cases and goes on.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Names the file that announcements are appended to.
pub const FILE_VARIABLE: &str = "SHOAL_SKIPS";

/// Ends a test that cannot run here: `skip!("{tool} is not installed")`. Stands in the test function itself, not in a
/// helper: it returns from the function that it stands in.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::announce("whole", module_path!(), format_args!($($reason)+));
        return;
    }};
}

/// Announces that a test leaves out one of its cases, and goes on.
#[macro_export]
macro_rules! skip_part {
    ($($reason:tt)+) => {
        $crate::announce("part", module_path!(), format_args!($($reason)+))
    };
}

/// Ends a test that needs a program which is not on the `PATH`: `need_program!("crushtool")`.
#[macro_export]
macro_rules! need_program {
    ($name:expr) => {
        if !$crate::has_program($name) {
            $crate::skip!("{} is not installed", $name);
        }
    };
}

/// True if a folder of the `PATH` holds a program of this name.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Writes one announcement; the macros call it.
pub fn announce(extent: &str, module: &str, reason: impl Display) {
    let thread = std::thread::current();
    let (binary, _) = module.split_once("::").unwrap_or((module, ""));
    // libtest names a test's thread after the test, unless it runs all tests on the main thread.
    let test = thread.name().filter(|name| *name != "main").unwrap_or(module);
    let line = line(extent, &format!("{binary}::{test}"), &reason.to_string());
    let _ = std::io::stderr().write_all(format!("skip: {line}").as_bytes());
    if let Some(path) = std::env::var_os(FILE_VARIABLE) {
        append(Path::new(&path), &line);
    }
}

fn line(extent: &str, test: &str, reason: &str) -> String {
    format!("{extent}\t{test}\t{}\n", reason.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A test whose skip cannot be counted fails.
fn append(path: &Path, line: &str) {
    let file = File::options().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("{FILE_VARIABLE}={}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_keeps_a_reason_of_several_lines_on_one() {
        assert_eq!(
            line("part", "device::loop", "no loop device:\n\tdenied"),
            "part\tdevice::loop\tno loop device: denied\n"
        );
    }

    #[test]
    fn append_adds_to_what_is_there() {
        let path = std::env::temp_dir().join(format!("shoal-skips-{}", std::process::id()));
        append(&path, "one\n");
        append(&path, "two\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn program_is_found_on_the_path_only() {
        assert!(has_program("sh"));
        assert!(!has_program("no-program-of-this-name"));
    }
}
