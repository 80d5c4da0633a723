//! What must hold of what clients saw.

mod history;
mod linear;
mod violation;

pub use history::{History, Summary};
pub use linear::{Act, Answer, Checker, Contents, Impossible, OpRef, Token};
pub use violation::{Promise, Violation};
