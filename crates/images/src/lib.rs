//! The manager's work on block images, its module `rbd_support`: tasks that flatten and remove images, purges of the trash at
//! scheduled times, and figures of single images. Without I/O: a client carries out its requests.
//!
//! Modules use only those above them:
//!
//! - `text`, `errors`: JSON, times and errors as stock's Python writes them.
//! - `cx`: procedures as async functions, and what they share. `pool`: operations on the objects of a namespace.
//! - `layout`, `image`: an image's objects and its header.
//! - `notices`, `lock`: notifications of its clients, and its exclusive lock.
//! - `progress`, `children`, `trash`, `remove`, `flatten`: the work on one image.
//! - `tasks`, `schedule`, `purging`: what is to be done, and when; the tables in the cluster.
//! - `figures`: operations and bytes of single images, as the OSDs count them.
//! - `support`: [`Support`], the machine.

mod children;
mod cx;
mod errors;
mod figures;
mod flatten;
mod image;
mod layout;
mod lock;
mod notices;
mod pool;
mod progress;
mod purging;
mod remove;
mod schedule;
mod support;
mod tasks;
mod text;
mod trash;

pub use purging::OPTION as TRASH_PURGE_OPTION;
pub use support::{Command, Input, May, Support};
