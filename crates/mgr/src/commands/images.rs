//! `rbd task`, `rbd trash purge schedule`, `rbd mirror snapshot schedule` and `rbd perf image`: the host has the tables and the figures, and does the work.

use super::{Reaction, View};
use command::Args;

/// The module, as capabilities name it.
pub(crate) const MODULE: &str = "rbd_support";

pub(super) fn ask(_: &View<'_>, _: &Args) -> Reaction {
    Reaction::AskImages
}
