//! `rbd task` and `rbd trash purge schedule`: the host has the tables and does the work.

use super::{Reaction, View};
use command::Args;

/// The module, as capabilities name it.
pub(crate) const MODULE: &str = "rbd_support";

pub(super) fn ask(_: &View<'_>, _: &Args) -> Reaction {
    Reaction::AskImages
}
