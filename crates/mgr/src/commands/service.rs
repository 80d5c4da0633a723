//! Services and progress.

use super::{Reaction, View};
use crate::progress::Setting;
use command::{Answer, Args};

pub(super) fn dump(view: &View<'_>, args: &Args) -> Answer {
    Answer::json(args.format(), &view.services.dump())
}

pub(super) fn status(view: &View<'_>, args: &Args) -> Answer {
    Answer::json(args.format(), &view.services.status())
}

pub(super) fn progress(view: &View<'_>, _: &Args) -> Answer {
    match view.progress.text(view.now) {
        Some(text) => Answer::body(text),
        None => Answer::ok("Nothing in progress"),
    }
}

pub(super) fn progress_json(view: &View<'_>, args: &Args) -> Answer {
    Answer::json(args.format(), &view.progress.json(view.now))
}

pub(super) fn progress_on(view: &View<'_>, _: &Args) -> Reaction {
    match view.progress.is_on() {
        true => Answer::ok("progress already enabled!").into(),
        false => Reaction::SetProgress { setting: Setting::On, status: "progress enabled" },
    }
}

pub(super) fn progress_off(view: &View<'_>, _: &Args) -> Reaction {
    match view.progress.is_on() {
        true => Reaction::SetProgress { setting: Setting::Off, status: "progress disabled" },
        false => Answer::ok("progress already disabled!").into(),
    }
}

pub(super) fn progress_clear(_: &View<'_>, _: &Args) -> Reaction {
    Reaction::SetProgress { setting: Setting::Clear, status: "" }
}
