//! The contents of a crash report, in stock's fields.
//!
//! Functions, source lines and the first line of the panic's message are in it. The values that an assertion compared are in the
//! daemon's log alone, and text that looks like a key is left out. Lengths are bounded, so that the monitors take each report.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use wire::text::stamp;
use wire::types::{UTime, Uuid};

const FRAMES_MAX: usize = 64;
const FUNCTION_CHARS_MAX: usize = 200;
const PLACE_CHARS_MAX: usize = 120;
const MESSAGE_CHARS_MAX: usize = 400;
/// The shortest run of base64 that is left out of a message. A cephx key has 40 characters.
const SECRET_CHARS_MIN: usize = 24;
/// The first words of functions between a panic and its report.
const MACHINERY: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "<std::",
    "<core::",
    "<alloc::",
    "rust_begin_unwind",
    "__rust",
    "tracing",
    "shoal::daemon::log",
    "shoal::daemon::crash",
];
/// The function that calls a thread's or a program's own code.
const OUTERMOST: &str = "__rust_begin_short_backtrace";

/// The facts of a process that are the same in all of its reports.
pub(super) struct Subject {
    /// Under the names of `ceph osd metadata`.
    pub host: BTreeMap<String, String>,
    /// The fields of os-release.
    pub os: BTreeMap<String, String>,
    pub version: &'static str,
}

pub(super) struct Panic {
    pub entity: String,
    pub process: String,
    pub thread: String,
    pub at: UTime,
    pub message: String,
    /// File and line.
    pub location: Option<(String, u32)>,
    /// As [`std::backtrace::Backtrace`] prints itself.
    pub backtrace: String,
}

/// The report's id and its text.
pub(super) fn report(subject: &Subject, panic: &Panic, unique: Uuid) -> (String, String) {
    let time = stamp(panic.at).replace("+0000", "Z");
    let id = format!("{time}_{unique}");
    let frames = frames(&panic.backtrace);
    let function = frames.first().map_or("unknown", |frame| frame.function.as_str());
    let (file, line) = match &panic.location {
        Some((file, line)) => (source_place(file), *line),
        None => ("unknown".to_owned(), 0),
    };
    let message = presentable(&panic.message);
    let host = |name: &str| Value::from(subject.host.get(name).cloned().unwrap_or_default());
    let os = |name: &str| Value::from(subject.os.get(name).cloned().unwrap_or_default());
    let thread = &panic.thread;
    let fields: [(&str, Value); 22] = [
        ("crash_id", id.clone().into()),
        ("timestamp", time.clone().into()),
        ("process_name", panic.process.clone().into()),
        ("entity_name", panic.entity.clone().into()),
        ("ceph_version", subject.version.into()),
        ("shoal_version", env!("CARGO_PKG_VERSION").into()),
        ("utsname_hostname", host("hostname")),
        ("utsname_sysname", host("os")),
        ("utsname_release", host("kernel_version")),
        ("utsname_version", host("kernel_description")),
        ("utsname_machine", host("arch")),
        ("os_name", os("NAME")),
        ("os_id", os("ID")),
        ("os_version_id", os("VERSION_ID")),
        ("os_version", os("VERSION")),
        ("assert_condition", message.clone().into()),
        ("assert_func", function.into()),
        ("assert_file", file.clone().into()),
        ("assert_line", line.into()),
        ("assert_thread_name", thread.clone().into()),
        // The manager finds thread and time by these words, and leaves them out of the signature.
        (
            "assert_msg",
            format!("{file}: panic in '{function}' thread {thread} time {time}\n{file}: {line}: {message}\n")
                .into(),
        ),
        ("backtrace", frames.iter().map(Frame::to_text).collect()),
    ];
    let fields: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    (id, format!("{:#}\n", Value::Object(fields)))
}

struct Frame {
    function: String,
    place: String,
}

impl Frame {
    /// In stock's form, `(FUNCTION) [ADDRESS]`, with the source line in the place of the address.
    fn to_text(&self) -> String {
        format!("({}) [{}]", self.function, self.place)
    }
}

/// The frames from the code that panicked up to the thread's first function.
fn frames(backtrace: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(frame) = frames.last_mut() {
                frame.place = source_place(place);
            }
        } else if let Some((number, function)) = line.split_once(": ")
            && number.parse::<u32>().is_ok()
        {
            let function = function.chars().take(FUNCTION_CHARS_MAX).collect();
            frames.push(Frame { function, place: "?".into() });
        }
    }
    let is_machinery = |frame: &Frame| MACHINERY.iter().any(|start| frame.function.starts_with(start));
    let own = frames.into_iter().skip_while(is_machinery);
    own.take_while(|frame| !frame.function.contains(OUTERMOST)).take(FRAMES_MAX).collect()
}

/// A source file without the folders of the machine that compiled it.
fn source_place(path: &str) -> String {
    let after = |mark: &str| path.rfind(mark).map(|at| &path[at + mark.len()..]);
    let of_package =
        || after("/registry/src/").and_then(|rest| rest.split_once('/')).map(|(_index, rest)| rest);
    let of_compiler =
        || path.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    let own = || after("/crates/").map(|rest| format!("crates/{rest}"));
    let short = of_package().or_else(of_compiler).map(str::to_owned).or_else(own);
    short.unwrap_or_else(|| path.to_owned()).chars().take(PLACE_CHARS_MAX).collect()
}

/// The first line of a message, without text that looks like a key.
fn presentable(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let run = rest.find(|c| !is_base64(c)).unwrap_or(rest.len());
        let word = &rest[..run];
        let has = |test: fn(&char) -> bool| word.chars().any(|c| test(&c));
        let is_mixed =
            has(char::is_ascii_digit) && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
        let is_hex = has(char::is_ascii_digit) && word.chars().all(|c| c.is_ascii_hexdigit());
        match word.len() >= SECRET_CHARS_MIN && (is_mixed || is_hex) {
            true => out.push_str("..."),
            false => out.push_str(word),
        }
        let gap = rest[run..].find(is_base64).map_or(rest.len(), |gap| run + gap);
        out.push_str(&rest[run..gap]);
        rest = &rest[gap..];
    }
    out.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKTRACE: &str = "   0: std::backtrace::Backtrace::create
   1: shoal::daemon::log::start::{{closure}}
             at ./crates/shoal/src/daemon/log.rs:55:25
   2: core::panicking::panic_fmt
             at /rustc/59807616e/library/core/src/panicking.rs:80:14
   3: osd::control::commands::<impl osd::control::Control>::run
             at /build/shoal/crates/osd/src/control/commands.rs:112:9
   4: core::ops::function::FnOnce::call_once
             at /rustc/59807616e/library/core/src/ops/function.rs:250:5
   5: mio::poll::Poll::poll
             at /build/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/mio-1.0.4/src/poll.rs:435:9
   6: std::sys::backtrace::__rust_begin_short_backtrace
   7: clone
";

    fn panic(message: &str) -> Panic {
        Panic {
            entity: "osd.3".into(),
            process: "ceph-osd".into(),
            thread: "osd-0".into(),
            at: UTime { sec: 1_800_000_000, nsec: 123_456_000 },
            message: message.into(),
            location: Some(("crates/osd/src/x.rs".into(), 7)),
            backtrace: BACKTRACE.into(),
        }
    }

    fn written(message: &str) -> Map<String, Value> {
        let subject = Subject {
            host: [("hostname".into(), "h1".into())].into(),
            os: [("ID".into(), "debian".into())].into(),
            version: "20.2.4",
        };
        let (id, text) = report(&subject, &panic(message), Uuid([1; 16]));
        assert_eq!(id, "2027-01-15T08:00:00.123456Z_01010101-0101-0101-0101-010101010101");
        let Value::Object(fields) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(fields["crash_id"], id);
        fields
    }

    #[test]
    fn report_names_daemon_place_and_callers() {
        let fields = written("index out of bounds");
        let text = |name: &str| fields[name].as_str().unwrap();
        assert_eq!(text("timestamp"), "2027-01-15T08:00:00.123456Z");
        assert_eq!((text("entity_name"), text("process_name")), ("osd.3", "ceph-osd"));
        assert_eq!((text("utsname_hostname"), text("os_id"), text("os_name")), ("h1", "debian", ""));
        assert_eq!(text("assert_func"), "osd::control::commands::<impl osd::control::Control>::run");
        assert_eq!(
            text("assert_msg"),
            "crates/osd/src/x.rs: panic in 'osd::control::commands::<impl osd::control::Control>::run' thread osd-0 time \
             2027-01-15T08:00:00.123456Z\ncrates/osd/src/x.rs: 7: index out of bounds\n"
        );
        let frames: Vec<&str> =
            fields["backtrace"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(
            frames,
            [
                "(osd::control::commands::<impl osd::control::Control>::run) [crates/osd/src/control/commands.rs:112:9]",
                "(core::ops::function::FnOnce::call_once) [library/core/src/ops/function.rs:250:5]",
                "(mio::poll::Poll::poll) [mio-1.0.4/src/poll.rs:435:9]",
            ]
        );
    }

    #[test]
    fn keys_and_compared_values_stay_out() {
        let shown = |message: &str| written(message)["assert_condition"].as_str().unwrap().to_owned();
        assert_eq!(
            shown("key AQBh1SlpAAAAABAAq3Ynh2kQ9rF1tb1KCRtC0A== of client.admin"),
            "key ... of client.admin"
        );
        assert_eq!(shown("secret 000102030405060708090a0b0c0d0e0f!"), "secret ...!");
        assert_eq!(
            shown("assertion `left == right` failed\n  left: \"private\"\n right: 2"),
            "assertion `left == right` failed"
        );
        let plain = "called `Option::unwrap()` on a `None` value: crates/osd/src/shard/replicated/peering.rs";
        assert_eq!(shown(plain), plain);
    }

    #[test]
    fn report_of_endless_text_is_bounded() {
        let mut endless = panic(&"message ".repeat(100_000));
        endless.backtrace = (0..5_000)
            .map(|n| format!("{n}: f{}\n  at {}\n", "u".repeat(5_000), "p".repeat(5_000)))
            .collect();
        let subject = Subject { host: BTreeMap::new(), os: BTreeMap::new(), version: "20.2.4" };
        let (_, text) = report(&subject, &endless, Uuid([1; 16]));
        assert!(text.len() < 32 << 10, "{}", text.len());
    }
}
