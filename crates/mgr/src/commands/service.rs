//! Services, progress, balancer: small, and the same for every cluster that has none of it going on.

use super::View;
use command::{Answer, Args, Json, object};

/// No daemon of another kind (gateways, dashboards) registers with shoal's manager yet: the map is empty.
pub(super) fn dump(view: &View<'_>, args: &Args) -> Answer {
    let map = object! {
        "epoch" => 1u32,
        "modified" => wire::text::stamp(view.pg_map.stamp),
        "services" => object! {},
    };
    Answer::json(args.format(), &map)
}

pub(super) fn status(_: &View<'_>, args: &Args) -> Answer {
    Answer::json(args.format(), &object! {})
}

pub(super) fn progress(_: &View<'_>, _: &Args) -> Answer {
    Answer::body("Nothing in progress")
}

pub(super) fn progress_json(_: &View<'_>, args: &Args) -> Answer {
    let none = || Json::Array(Vec::new());
    Answer::json(args.format(), &object! { "completed" => none(), "events" => none() })
}

/// There is no balancer: upmaps are a person's to set.
pub(super) fn balancer(_: &View<'_>, args: &Args) -> Answer {
    let state = object! {
        "active" => false,
        "last_optimize_duration" => "",
        "last_optimize_started" => "",
        "mode" => "none",
        "no_optimization_needed" => true,
        "optimize_result" => "",
        "plans" => Json::Array(Vec::new()),
    };
    Answer::json(args.format(), &state)
}
