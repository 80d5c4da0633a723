//! Why bytes could not be read.

use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("{what}: {needed} bytes promised at offset {offset}, {remaining} left")]
    Truncated { what: &'static str, needed: usize, remaining: usize, offset: usize },
    #[error("{remaining} bytes left over at offset {offset}")]
    Trailing { remaining: usize, offset: usize },
    #[error("{what}: written with compat version {compat}, at most {supported} is understood")]
    Incompatible { what: &'static str, compat: u8, supported: u8 },
    #[error("{what}: version {version} is older than the oldest that is read")]
    TooOld { what: &'static str, version: u8 },
    #[error("{what}: {value} is not a valid value at offset {offset}")]
    Invalid { what: &'static str, value: u64, offset: usize },
    #[error("{what}: not UTF-8 at offset {offset}")]
    NotUtf8 { what: &'static str, offset: usize },
}
