//! Reports of crashed daemons, which `ceph-crash` or a person posts. The monitors keep them, under the keys where stock's
//! manager looks for them; health warns of new ones until somebody archives them.

use aws_lc_rs::digest;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use wire::text::{parse_stamp, stamp};
use wire::types::{HealthCheck, HealthStatus, UTime};

/// Where the monitors keep reports, each under its id.
pub(crate) const PREFIX: &str = "mgr/crash/crash/";
/// As long as the monitors take a value.
const REPORT_BYTES_MAX: usize = 64 << 10;
/// A daemon that crashes again and again does not fill the monitors' store.
const REPORTS_MAX: usize = 4096;
/// Of one daemon: whoever has its key can post as many as it likes.
const REPORTS_OF_ONE_MAX: usize = 512;
/// Crashes that a warning describes.
const DESCRIBED_MAX: usize = 30;

/// One crash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub id: String,
    pub at: UTime,
    pub fields: Map<String, Value>,
}

impl Report {
    /// A posted report, or one that the monitors keep.
    pub fn parse(text: &[u8]) -> Result<Report, String> {
        if text.len() > REPORT_BYTES_MAX {
            return Err(format!("{} bytes, at most {REPORT_BYTES_MAX} may be", text.len()));
        }
        let fields = match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err("not a JSON object".into()),
            Err(why) => return Err(why.to_string()),
        };
        let field = |name: &str| match fields.get(name) {
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(format!("'{name}' is not text")),
            None => Err(format!("missing '{name}' field")),
        };
        let id = field("crash_id")?.to_owned();
        if id.is_empty() || id.contains(|c: char| c.is_control()) {
            return Err("'crash_id' is empty or has control characters".into());
        }
        let time = field("timestamp")?;
        let at = parse_stamp(time)
            .ok_or_else(|| format!("time data '{time}' does not match format '%Y-%m-%dT%H:%M:%S.%fZ'"))?;
        Ok(Report { id, at, fields })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// The daemon or client.
    pub fn entity(&self) -> Option<&str> {
        self.text("entity_name")
    }

    pub fn process(&self) -> Option<&str> {
        self.text("process_name")
    }

    /// A module of a manager crashed, and its daemon went on.
    fn is_of_module(&self) -> bool {
        self.fields.contains_key("mgr_module")
    }

    /// Adds `stack_sig`, by which crashes at the same place are known: SHA-256 over the names of the functions and the assertion.
    /// Times, threads, line numbers and addresses are left out, as in stock (`src/pybind/mgr/crash/module.py`).
    pub fn sign(&mut self) {
        let Some(Value::Array(backtrace)) = self.fields.get("backtrace") else { return };
        let mut digest = digest::Context::new(&digest::SHA256);
        let frames = backtrace.iter().filter_map(Value::as_str);
        frames.for_each(|frame| digest.update(function_of(frame).as_bytes()));
        if let Some(message) = self.text("assert_msg") {
            lasting_parts(message).into_iter().for_each(|part| digest.update(part.as_bytes()));
        }
        let signature = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.fields.insert("stack_sig".into(), signature.into());
    }

    pub fn is_new(&self) -> bool {
        !self.fields.contains_key("archived")
    }

    pub fn archived(&self, now: UTime) -> Report {
        let mut report = self.clone();
        let when = stamp(now);
        let when = when.split_once('+').map_or(&*when, |(time, _zone)| time).replace('T', " ");
        report.fields.insert("archived".into(), when.into());
        report
    }

    pub fn to_text(&self) -> String {
        Value::Object(self.fields.clone()).to_string()
    }
}

/// The function of a frame `(FUNCTION+OFFSET) [ADDRESS]`.
fn function_of(frame: &str) -> &str {
    let place = frame.rsplit_once(' ').map_or(frame, |(place, _address)| place);
    let mut inner = place.chars();
    inner.next();
    inner.next_back();
    inner.as_str().split('+').next().unwrap_or_default()
}

/// The parts of `FILE: In function 'F' thread T time WHEN FILE: LINE: WHY` that are the same in each such crash: the text before the
/// thread, and from the last colon on.
fn lasting_parts(message: &str) -> Vec<&str> {
    let parts = || {
        let end = message.rfind('\n')?;
        let why = message[..end].rfind(": ")?;
        let time = message[..why].rfind(" time ")?;
        let thread = message[..time].rfind(" thread ")?;
        Some(vec![&message[..thread], &message[why..end]])
    };
    parts().unwrap_or_else(|| vec![message])
}

/// A change of the reports that the monitors keep.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Put(Report),
    Remove(String),
}

/// The reports that the monitors keep, as of their last answer.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    known: BTreeMap<String, Report>,
    /// `false` until the monitors have told what they keep.
    is_loaded: bool,
}

impl Crashes {
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Takes the answer to `config-key dump`. Returns the keys whose values are no reports: they stay where they are.
    pub fn load(&mut self, dump: &[u8]) -> Result<Vec<String>, serde_json::Error> {
        let values: BTreeMap<String, String> = serde_json::from_slice(dump)?;
        self.known.clear();
        self.is_loaded = true;
        let mut damaged = Vec::new();
        for (key, value) in values {
            let Some(id) = key.strip_prefix(PREFIX) else { continue };
            match Report::parse(value.as_bytes()) {
                Ok(report) if report.id == id => {
                    self.known.insert(report.id.clone(), report);
                }
                _ => damaged.push(key),
            }
        }
        Ok(damaged)
    }

    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Put(report) => {
                self.known.insert(report.id.clone(), report);
            }
            Change::Remove(id) => {
                self.known.remove(&id);
            }
        }
    }

    pub fn get(&self, id: &str) -> Option<&Report> {
        self.known.get(id)
    }

    /// True if there is no room for another report of the same daemon.
    pub fn is_full_for(&self, report: &Report) -> bool {
        let of_it = self.known.values().filter(|known| known.entity() == report.entity());
        self.known.len() >= REPORTS_MAX || of_it.count() >= REPORTS_OF_ONE_MAX
    }

    /// The oldest first.
    pub fn by_time(&self) -> Vec<&Report> {
        self.select(|_| true)
    }

    /// Some of them, the oldest first.
    pub fn select(&self, wanted: impl Fn(&Report) -> bool) -> Vec<&Report> {
        let mut reports: Vec<&Report> = self.known.values().filter(|report| wanted(report)).collect();
        reports.sort_by_key(|report| report.at);
        reports
    }

    /// Those that are older than so many seconds, the oldest first.
    pub fn older_than(&self, now: UTime, seconds: i64) -> Vec<&Report> {
        let limit = i64::from(now.sec) - seconds;
        self.select(|report| i64::from(report.at.sec) < limit)
    }

    /// RECENT_CRASH and RECENT_MGR_MODULE_CRASH, in stock's words, for new reports of the last `warn_seconds`.
    pub fn health(&self, now: UTime, warn_seconds: u64) -> Vec<(String, HealthCheck)> {
        let since = u64::from(now.sec).saturating_sub(warn_seconds);
        let recent = self.select(|report| report.is_new() && u64::from(report.at.sec) > since);
        let (of_modules, of_daemons): (Vec<&Report>, Vec<&Report>) =
            recent.into_iter().partition(|report| report.is_of_module());
        let daemon = |report: &Report| {
            format!(
                "{} crashed on host {} at {}",
                report.entity().unwrap_or("unidentified daemon"),
                report.text("utsname_hostname").unwrap_or("(unknown)"),
                report.text("timestamp").unwrap_or("(unknown)"),
            )
        };
        let module = |report: &Report| {
            let name = report.text("mgr_module").unwrap_or("unidentified module");
            format!(
                "mgr module {name} crashed in daemon {}",
                daemon(report).replacen(" crashed on", " on", 1)
            )
        };
        let check = |code: &str, what: &str, reports: &[&Report], describe: &dyn Fn(&Report) -> String| {
            let mut detail: Vec<String> =
                reports.iter().take(DESCRIBED_MAX).map(|report| describe(report)).collect();
            if reports.len() > DESCRIBED_MAX {
                detail.push(format!("and {} more", reports.len() - DESCRIBED_MAX));
            }
            let check = HealthCheck {
                severity: HealthStatus::WARN,
                summary: format!("{} {what} have recently crashed", reports.len()),
                detail,
                count: reports.len() as i64,
            };
            (!reports.is_empty()).then(|| (code.to_owned(), check))
        };
        let daemons = check("RECENT_CRASH", "daemons", &of_daemons, &daemon);
        daemons
            .into_iter()
            .chain(check("RECENT_MGR_MODULE_CRASH", "mgr modules", &of_modules, &module))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK_ASSERT: &str = "f47419496fc357611d4e484a703d198e862571b87221259328480dca8379861b";
    const STOCK_PLAIN: &str = "19c1041342240f320fe4443a0d765a0cf391a93e514c110b5fc172cf283dcafa";

    fn post(text: &str) -> Result<Report, String> {
        Report::parse(text.as_bytes())
    }

    #[test]
    fn reports_without_id_or_time_are_refused() {
        let refused = |text: &str| post(text).unwrap_err();
        assert!(refused("nonsense").contains("line 1 column 2"));
        assert_eq!(refused("[]"), "not a JSON object");
        assert_eq!(refused("{}"), "missing 'crash_id' field");
        assert_eq!(refused(r#"{"crash_id":"x"}"#), "missing 'timestamp' field");
        assert_eq!(refused(r#"{"crash_id":5,"timestamp":""}"#), "'crash_id' is not text");
        assert!(
            refused(r#"{"crash_id":"x","timestamp":"yesterday"}"#)
                .starts_with("time data 'yesterday' does not")
        );
        assert!(
            refused(r#"{"crash_id":"a\nb","timestamp":"2026-01-01T00:00:00.000000Z"}"#).contains("control")
        );
        assert!(
            post(&format!("{{\"crash_id\":\"{}\"}}", "x".repeat(REPORT_BYTES_MAX)))
                .unwrap_err()
                .contains("bytes")
        );
        assert!(
            post(&format!("{}{}", "[".repeat(30_000), "]".repeat(30_000))).unwrap_err().contains("recursion")
        );
    }

    #[test]
    fn new_report_warns_until_archived_or_two_weeks_old() {
        let report =
            post(r#"{"crash_id":"x","timestamp":"2026-01-01T00:00:00.5Z","entity_name":"osd.1"}"#).unwrap();
        let at = report.at.sec;
        let mut crashes = Crashes::default();
        crashes.apply(Change::Put(report.clone()));
        let now = |sec| UTime { sec, nsec: 0 };
        const TWO_WEEKS: u64 = 14 * 86_400;
        let warnings = crashes.health(now(at + 60), TWO_WEEKS);
        let [(code, check)] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!(
            (&**code, &*check.summary, check.count),
            ("RECENT_CRASH", "1 daemons have recently crashed", 1)
        );
        assert_eq!(check.detail, ["osd.1 crashed on host (unknown) at 2026-01-01T00:00:00.5Z"]);
        assert!(crashes.health(now(at + 14 * 86_400), TWO_WEEKS).is_empty());
        let archived = report.archived(now(at + 61));
        assert_eq!(archived.text("archived"), Some("2026-01-01 00:01:01.000000"));
        crashes.apply(Change::Put(archived));
        assert!(crashes.health(now(at + 62), TWO_WEEKS).is_empty());
    }

    #[test]
    fn module_crashes_have_a_check_of_their_own() {
        let mut crashes = Crashes::default();
        for n in 0..33 {
            let module = if n < 2 { r#","mgr_module":"balancer""# } else { "" };
            let report = format!(
                r#"{{"crash_id":"{n}","timestamp":"2026-01-01T00:00:00.{n:06}Z","entity_name":"mgr.x"{module}}}"#
            );
            crashes.apply(Change::Put(post(&report).unwrap()));
        }
        let now = UTime { sec: crashes.get("0").unwrap().at.sec + 1, nsec: 0 };
        let checks = crashes.health(now, 60);
        let [(_, daemons), (code, modules)] = &checks[..] else { panic!("{checks:?}") };
        assert_eq!((daemons.count, daemons.detail.len(), &*daemons.detail[30]), (31, 31, "and 1 more"));
        assert_eq!(
            (&**code, &*modules.summary),
            ("RECENT_MGR_MODULE_CRASH", "2 mgr modules have recently crashed")
        );
        assert_eq!(
            modules.detail[1],
            "mgr module balancer crashed in daemon mgr.x on host (unknown) at 2026-01-01T00:00:00.000001Z"
        );
    }

    /// Signatures that stock's module computes for the same reports.
    #[test]
    fn signature_equals_that_of_stock() {
        let sign = |fields: &str| {
            let report = format!(r#"{{"crash_id":"x","timestamp":"2026-01-01T00:00:00.0Z"{fields}}}"#);
            let mut report = post(&report).unwrap();
            report.sign();
            report.text("stack_sig").map(str::to_owned)
        };
        let assertion = r#","backtrace":["(raise()+0x1) [0x7f]","(ceph::fail(char const*, int)+0x2) [0x55]","main"],
            "assert_msg":"a.cc: In function 'f' thread 7f time 2026-01-01\na.cc: 55: FAILED ceph_assert(x: y)\n""#;
        assert_eq!(sign(assertion).as_deref(), Some(STOCK_ASSERT));
        assert_eq!(sign(r#","backtrace":["(f()+0x1) [0x7f]"]"#).as_deref(), Some(STOCK_PLAIN));
        assert_eq!(sign(""), None);
    }

    #[test]
    fn dump_of_config_keys_is_loaded() {
        let mut crashes = Crashes::default();
        let dump = r#"{"mgr/crash/crash/x":"{\"crash_id\":\"x\",\"timestamp\":\"2026-01-01T00:00:00.000000Z\"}",
            "mgr/crash/crash/y":"{\"crash_id\":\"x\",\"timestamp\":\"2026-01-01T00:00:00.000000Z\"}",
            "mgr/crash/crash/z":"nonsense", "mgr/crash/other":"1"}"#;
        assert_eq!(crashes.load(dump.as_bytes()).unwrap(), ["mgr/crash/crash/y", "mgr/crash/crash/z"]);
        assert!(crashes.is_loaded() && crashes.get("x").is_some() && crashes.by_time().len() == 1);
        assert!(Crashes::default().load(b"[]").is_err());
    }
}
