//! Health checks, each with the stock command that an operator types next.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub code: String,
    pub is_error: bool,
    pub is_muted: bool,
    pub summary: String,
    pub details: Vec<String>,
    pub remedy: Option<Remedy>,
}

/// A command, and the rest of the work in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub command: String,
    pub hint: String,
}

/// Code, command, hint. `{}` stands for the thing that [`subject`] finds.
const REMEDIES: &[(&str, &str, &str)] = &[
    ("AUTH_BAD_CAPS", "ceph auth ls", "then ceph auth caps"),
    (
        "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
        "ceph config set mon auth_allow_insecure_global_id_reclaim false",
        "",
    ),
    ("AUTH_INSECURE_GLOBAL_ID_RECLAIM", "ceph health detail", "update these clients"),
    ("BLUESTORE_SLOW_OP_ALERT", "ceph osd perf", "replace the device if it stays slow"),
    ("CACHE_POOL_NEAR_FULL", "ceph df", ""),
    ("DEVICE_HEALTH", "ceph device ls", ""),
    ("LARGE_OMAP_OBJECTS", "ceph log last 100", "the log names the objects"),
    ("MANY_OBJECTS_PER_PG", "ceph osd pool autoscale-status", ""),
    ("MGR_DOWN", "ceph mgr stat", "start a manager on its host"),
    ("MGR_MODULE_ERROR", "ceph mgr module ls", "then ceph mgr fail"),
    ("MGR_MODULE_DEPENDENCY", "ceph mgr module ls", ""),
    ("MON_CLOCK_SKEW", "ceph time-sync-status", "start chrony on the hosts of monitors"),
    ("MON_DISK_BIG", "ceph tell {} compact", ""),
    ("MON_DISK_CRIT", "df -h /var/lib/ceph", "free space on the monitor's host now"),
    ("MON_DISK_LOW", "df -h /var/lib/ceph", "free space on the monitor's host"),
    ("MON_DOWN", "ceph mon stat", "start the monitor on its host"),
    ("MON_MSGR2_NOT_ENABLED", "ceph mon enable-msgr2", ""),
    ("OBJECT_MISPLACED", "ceph pg stat", "recovery moves them"),
    ("OBJECT_UNFOUND", "ceph pg {} list_unfound", "start the OSDs that may have them"),
    ("OSDMAP_FLAGS", "ceph osd unset {}", "when the work is done"),
    ("OSD_BACKFILLFULL", "ceph osd df", "add OSDs, delete data, or ceph osd reweight"),
    ("OSD_CORE_STALLED", "ceph tell osd.{} dump_blocked_ops", ""),
    ("OSD_DEVICE_STALLED", "ceph osd out {}", "then replace the device"),
    ("OSD_DOWN", "ceph osd tree down", ""),
    ("OSD_FLAGS", "ceph osd dump", "then ceph osd unset-group"),
    ("OSD_FULL", "ceph osd df", "add OSDs or delete data; ceph osd set-full-ratio for room to do so"),
    ("OSD_HOST_DOWN", "ceph osd tree down", "start the host"),
    ("OSD_NEARFULL", "ceph osd df", "add OSDs, delete data, or ceph osd reweight-by-utilization"),
    ("OSD_NO_DOWN_OUT_INTERVAL", "ceph config set mon mon_osd_down_out_interval 600", ""),
    ("OSD_OUT_OF_ORDER_FULL", "ceph osd dump", "nearfull < backfillfull < full"),
    ("OSD_ROOT_DOWN", "ceph osd tree down", "start the hosts"),
    ("OSD_SCRUB_ERRORS", "ceph health detail", "then ceph pg repair"),
    ("OSD_SLOW_PING_TIME", "ceph tell mgr dump_osd_network", "look at the network of these hosts"),
    ("OSD_UNREACHABLE", "ceph osd dump", "compare with public_network"),
    ("OSD_UPGRADE_FINISHED", "ceph osd require-osd-release", ""),
    ("PG_AVAILABILITY", "ceph pg dump_stuck inactive", "start the OSDs that are down"),
    ("PG_BACKFILL_FULL", "ceph osd df", "add OSDs or delete data"),
    ("PG_DAMAGED", "ceph pg repair {}", ""),
    ("PG_DEGRADED", "ceph pg dump_stuck degraded", "recovery mends it while enough OSDs are up"),
    ("PG_NOT_DEEP_SCRUBBED", "ceph pg deep-scrub {}", ""),
    ("PG_NOT_SCRUBBED", "ceph pg scrub {}", ""),
    ("PG_RECOVERY_FULL", "ceph osd df", "add OSDs or delete data"),
    ("POOL_APP_NOT_ENABLED", "ceph osd pool application enable {} APP", "rbd, rgw, cephfs or rados"),
    ("POOL_BACKFILLFULL", "ceph osd df", ""),
    ("POOL_FULL", "ceph df", "delete data, or ceph osd pool set-quota"),
    ("POOL_MERGES_HELD", "ceph osd count-metadata shoal_merges_pgs", "restart the OSDs of older builds"),
    ("POOL_NEARFULL", "ceph df", ""),
    ("POOL_NEAR_FULL", "ceph df", "delete data, or ceph osd pool set-quota"),
    ("POOL_NO_REDUNDANCY", "ceph osd pool set {} size 3", ""),
    ("POOL_PG_NUM_NOT_POWER_OF_TWO", "ceph osd pool ls detail", "then ceph osd pool set {} pg_num"),
    ("POOL_TARGET_SIZE", "ceph osd pool autoscale-status", ""),
    ("POOL_TOO_FEW_PGS", "ceph osd pool autoscale-status", ""),
    ("POOL_TOO_MANY_PGS", "ceph osd pool autoscale-status", ""),
    ("RECENT_CRASH", "ceph crash ls-new", "then ceph crash archive-all"),
    ("RECENT_MGR_MODULE_CRASH", "ceph crash ls-new", "then ceph crash archive-all"),
    ("SLOW_OPS", "ceph tell {} dump_blocked_ops", ""),
    ("SMALLER_PGP_NUM", "ceph osd pool ls detail", "set pgp_num to pg_num"),
    ("TELEMETRY_CHANGED", "ceph telemetry on", "or ceph telemetry off"),
    ("TOO_FEW_OSDS", "ceph osd tree", "add OSDs"),
    ("TOO_FEW_PGS", "ceph osd pool autoscale-status", ""),
    ("TOO_MANY_PGS", "ceph osd pool autoscale-status", "add OSDs"),
];

/// Checks of `health detail`, or of `status` where that is missing. Errors come first, muted checks last.
pub fn checks(status: Option<&Value>, detail: Option<&Value>) -> Vec<Check> {
    let health = match (detail, status) {
        (Some(detail), _) => detail,
        (None, Some(status)) => &status["health"],
        (None, None) => return Vec::new(),
    };
    let mutes = health["mutes"].as_array().into_iter().flatten();
    let muted: Vec<&str> = mutes.filter_map(|mute| mute["code"].as_str()).collect();
    let mut checks: Vec<Check> = Vec::new();
    for (code, check) in health["checks"].as_object().into_iter().flatten() {
        let summary = check["summary"]["message"].as_str().unwrap_or("").to_owned();
        let lines = check["detail"].as_array().into_iter().flatten();
        let details: Vec<String> =
            lines.filter_map(|line| Some(line["message"].as_str()?.trim().into())).collect();
        checks.push(Check {
            code: code.clone(),
            is_error: check["severity"] == "HEALTH_ERR",
            is_muted: check["muted"] == true || muted.contains(&code.as_str()),
            remedy: remedy(code, &summary, &details),
            summary,
            details,
        });
    }
    checks.sort_by_key(|check| (check.is_muted, !check.is_error));
    checks
}

fn remedy(code: &str, summary: &str, details: &[String]) -> Option<Remedy> {
    // `OSD_SLOW_PING_TIME_BACK` and its like have the code's beginning; a whole code outranks a beginning.
    let whole = REMEDIES.iter().find(|(known, ..)| *known == code);
    let (_, command, hint) = whole.or_else(|| REMEDIES.iter().find(|(known, ..)| code.starts_with(known)))?;
    let mut remedy = Remedy { command: (*command).to_owned(), hint: (*hint).to_owned() };
    if command.contains("{}") || hint.contains("{}") {
        let subject = subject(code, summary, details).unwrap_or_else(|| "…".into());
        remedy.command = remedy.command.replace("{}", &subject);
        remedy.hint = remedy.hint.replace("{}", &subject);
    }
    if code == "OSD_DOWN"
        && let Some(hint) = down_osd(details)
    {
        remedy.hint = hint;
    }
    Some(remedy)
}

/// `start osd.2 on vm`, from `osd.2 (root=default,host=vm) is down`.
fn down_osd(details: &[String]) -> Option<String> {
    let down = details.iter().filter_map(|line| {
        let (name, rest) = line.split_once(" (")?;
        let host = rest.split_once("host=")?.1.split([',', ')']).next()?;
        Some(format!("{name} on {host}"))
    });
    let down: Vec<String> = down.collect();
    match &down[..] {
        [] => None,
        [one] => Some(format!("start {one}")),
        [first, rest @ ..] => Some(format!("start {first} and {} more", rest.len())),
    }
}

/// The flag, daemon, PG, pool or OSD that a check is about.
fn subject(code: &str, summary: &str, details: &[String]) -> Option<String> {
    let words = |text: &str| -> Vec<String> {
        let is_edge = |c: char| matches!(c, '\'' | '"' | ',' | '[' | ']' | '(' | ')' | ':');
        text.split_whitespace().map(|word| word.trim_matches(is_edge).to_owned()).collect()
    };
    let after = |text: &str, names: &[&str]| -> Option<String> {
        let words = words(text);
        words.iter().position(|word| names.contains(&word.as_str())).and_then(|n| words.get(n + 1).cloned())
    };
    let all = || details.iter().map(String::as_str).chain([summary]);
    match code {
        // `noout,noscrub flag(s) set`
        "OSDMAP_FLAGS" => summary.split([',', ' ']).next().map(str::to_owned),
        "SLOW_OPS" => {
            let inside = summary.split(['[', ']', ' ', ',']);
            inside
                .map(|word| word.trim_matches(','))
                .find(|w| w.starts_with("osd.") || w.starts_with("mon."))
                .map(Into::into)
        }
        code if code.starts_with("PG_") || code == "OBJECT_UNFOUND" => {
            all().find_map(|line| after(line, &["pg"]))
        }
        code if code.starts_with("POOL_") => all().find_map(|line| after(line, &["pool"])),
        code if code.starts_with("OSD_") => all().flat_map(words).find_map(|word| {
            let number = word.strip_prefix("osd.")?;
            let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            (digits > 0).then(|| number[..digits].to_owned())
        }),
        code if code.starts_with("MON_") => all().flat_map(words).find(|word| word.starts_with("mon.")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(code: &str, summary: &str, details: &[&str]) -> (String, String) {
        let details: Vec<Value> = details.iter().map(|line| json!({"message": line})).collect();
        let check = json!({"severity": "HEALTH_WARN", "summary": {"message": summary}, "detail": details});
        let mut health = json!({"checks": {}});
        health["checks"][code] = check;
        let remedy = checks(None, Some(&health)).remove(0).remedy.expect("a known code");
        (remedy.command, remedy.hint)
    }

    #[test]
    fn remedies_name_the_thing_at_fault() {
        let detail = ["osd.2 (root=default,host=vm) is down"];
        assert_eq!(
            one("OSD_DOWN", "1 osds down", &detail),
            ("ceph osd tree down".into(), "start osd.2 on vm".into())
        );
        let flags = one("OSDMAP_FLAGS", "noout,noscrub flag(s) set", &[]);
        assert_eq!(flags.0, "ceph osd unset noout");
        let slow = "1 slow ops, oldest one blocked for 35 sec, osd.4 has slow ops";
        assert_eq!(one("SLOW_OPS", slow, &[]).0, "ceph tell osd.4 dump_blocked_ops");
        let slow = "9 slow ops, oldest one blocked for 35 sec, daemons [osd.7,osd.9] have slow ops.";
        assert_eq!(one("SLOW_OPS", slow, &[]).0, "ceph tell osd.7 dump_blocked_ops");
        let damaged = ["pg 1.2f is active+clean+inconsistent, acting [0]"];
        assert_eq!(
            one("PG_DAMAGED", "Possible data damage: 1 pg inconsistent", &damaged).0,
            "ceph pg repair 1.2f"
        );
        let single = ["pool 'backups' has no replicas configured"];
        let summary = "1 pool(s) have no replicas configured";
        assert_eq!(one("POOL_NO_REDUNDANCY", summary, &single).0, "ceph osd pool set backups size 3");
        let stalled = ["osd.11's device answers no requests for 3.1 s"];
        assert_eq!(one("OSD_DEVICE_STALLED", "1 stalled", &stalled).0, "ceph osd out 11");
        assert_eq!(one("OSD_DEVICE_STALLED", "1 stalled", &[]).0, "ceph osd out …");
    }

    #[test]
    fn codes_with_endings_have_the_remedy_of_their_beginning() {
        assert_eq!(one("OSD_SLOW_PING_TIME_BACK", "", &[]).0, "ceph tell mgr dump_osd_network");
        assert_eq!(one("POOL_NEAR_FULL", "", &[]).0, "ceph df");
    }

    #[test]
    fn errors_come_first_and_muted_checks_last() {
        let check = |severity: &str, muted: bool| json!({"severity": severity, "summary": {"message": "m"}, "muted": muted});
        let health = json!({"checks": {
            "A": check("HEALTH_ERR", true), "B": check("HEALTH_WARN", false), "C": check("HEALTH_ERR", false),
        }});
        let status = json!({ "health": health });
        let codes: Vec<String> = checks(Some(&status), None).into_iter().map(|check| check.code).collect();
        assert_eq!(codes, ["C", "B", "A"]);
        assert_eq!(checks(None, None), []);
        assert_eq!(checks(Some(&status), None)[0].remedy, None, "an unknown code has no remedy");
    }

    #[test]
    fn remedy_codes_are_sorted_and_unique() {
        // A longer code stands before its own beginning, since the first beginning that fits is taken.
        for (n, (code, ..)) in REMEDIES.iter().enumerate() {
            assert!(REMEDIES[n + 1..].iter().all(|(later, ..)| later != code), "{code} is there twice");
        }
    }
}
