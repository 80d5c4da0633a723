//! Reports for people: one self-contained HTML file, plots as SVG, tables as CSV.
//!
//! - [`group`]: the rounds of a point put together.
//! - [`charts`]: drawing, by plotters.
//! - [`figures`]: which charts a set of points gives.
//! - [`names`]: what tells points apart.
//! - [`html`]: the page.
//! - [`csv`]: the tables.
//! - [`summary`]: the paragraph for a mail.

pub mod charts;
pub mod csv;
pub mod figures;
pub mod group;
pub mod html;
pub mod names;
pub mod summary;

pub use group::Group;
