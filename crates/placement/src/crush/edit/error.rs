//! Reasons to refuse a change.

use super::bucket::BucketError;
use std::fmt;

/// The kind, by the errno that a command returns for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Refusal {
    NotFound = 2,
    Busy = 16,
    Exists = 17,
    NotABucket = 20,
    Invalid = 22,
    NoSpace = 28,
    OutOfRange = 34,
    NotEmpty = 39,
    Loop = 40,
    Overflow = 75,
    AlreadyDone = 114,
}

/// A kind and, where stock has words for it, the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    pub kind: Refusal,
    pub message: String,
}

impl EditError {
    pub(super) fn new(kind: Refusal, message: impl Into<String>) -> EditError {
        EditError { kind, message: message.into() }
    }

    /// As a command returns it: positive.
    pub fn errno(&self) -> i32 {
        self.kind as i32
    }
}

impl From<BucketError> for EditError {
    fn from(e: BucketError) -> EditError {
        match e {
            BucketError::Overflow => EditError::new(Refusal::OutOfRange, "the weights' sum is too large"),
            BucketError::TooManyItems => EditError::new(Refusal::Invalid, "too many items for a tree bucket"),
        }
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EditError {}
