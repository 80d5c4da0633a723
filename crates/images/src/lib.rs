//! The manager's work on block images, its module `rbd_support`: tasks that flatten, remove and migrate images, purges of the trash
//! and mirror snapshots at scheduled times, and figures of single images. Without I/O: a client carries out its requests.
//!
//! Modules use only those above them:
//!
//! - `text`, `errors`: JSON, times and errors as stock's Python writes them.
//! - `cx`: procedures as async functions, and what they share. `pool`: operations on the objects of a namespace.
//! - `layout`, `image`: an image's objects and its header.
//! - `notices`, `lock`, `progress`, `owner`: notifications of its clients, its exclusive lock, work by the lock's owner.
//! - `snapshots`, `children`, `trash`, `remove`, `copying`, `flatten`, `migration`, `mirror`: the work on one image.
//! - `tasks`, `schedule`, `plan`: what is to be done, and when; the tables in the cluster.
//! - `figures`: operations and bytes of single images, as the OSDs count them.
//! - `support`: [`Support`], the machine.

mod children;
mod copying;
mod cx;
mod errors;
#[cfg(test)]
mod fake;
mod figures;
mod flatten;
mod image;
mod layout;
mod lock;
mod migration;
mod mirror;
mod notices;
mod owner;
mod plan;
mod pool;
mod progress;
mod remove;
mod schedule;
mod snapshots;
mod support;
mod tasks;
mod text;
mod trash;

pub use support::{Command, Input, May, Support};
