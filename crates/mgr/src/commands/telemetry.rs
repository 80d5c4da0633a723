//! `telemetry …`: shoal sends no reports about itself to anybody. The commands say so in stock's words, so that scripts which
//! switch telemetry off go on.

use super::View;
use command::{Answer, Args, Json, errno, object};

const OFF: &str = "Please consider opting-in with `ceph telemetry on`.\nPreview sample reports with `ceph telemetry preview`.\n";

pub(super) fn off(_: &View<'_>, _: &Args) -> Answer {
    Answer::body(format!("Telemetry is currently not enabled, nothing to turn off. {OFF}"))
}

pub(super) fn show(_: &View<'_>, _: &Args) -> Answer {
    Answer::body(format!("Telemetry is off. {OFF}"))
}

pub(super) fn on(_: &View<'_>, args: &Args) -> Answer {
    match args.text("license").as_deref() {
        Some("sharing-1-0") => {
            Answer::error(errno::EOPNOTSUPP, "shoal has no telemetry: nothing is sent to anybody")
        }
        _ => Answer::error(
            errno::EPERM,
            "Telemetry data is licensed under the Community Data License Agreement - Sharing - Version 1.0 \
             (https://cdla.io/sharing-1-0/).\nTo enable, add '--license sharing-1-0' to the 'ceph telemetry on' command.",
        ),
    }
}

/// The keys of stock with the values of telemetry that is off.
pub(super) fn status(_: &View<'_>, _: &Args) -> Answer {
    let none = || Json::Raw("null".into());
    let json = object! {
        "channel_basic" => true,
        "channel_crash" => true,
        "channel_device" => true,
        "channel_ident" => false,
        "channel_perf" => false,
        "contact" => none(),
        "description" => none(),
        "device_url" => "https://telemetry.ceph.com/device",
        "enabled" => false,
        "interval" => 24u32,
        "last_opt_revision" => 1u32,
        "last_upload" => none(),
        "leaderboard" => false,
        "leaderboard_description" => none(),
        "log_level" => "",
        "log_to_cluster" => false,
        "log_to_cluster_level" => "info",
        "log_to_file" => false,
        "organization" => none(),
        "proxy" => none(),
        "sqlite3_killpoint" => 0u32,
        "url" => "https://telemetry.ceph.com/report",
    };
    Answer::body(json.pretty())
}
