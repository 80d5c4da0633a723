//! What must hold of what clients saw.

mod history;
mod linear;

pub use history::{History, Summary};
pub use linear::{Act, Answer, Checker, Contents, Impossible, OpRef, Token};
