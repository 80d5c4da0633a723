//! The answer to a command: an errno, a line for people, a body.

use crate::{Format, Json, errno};
use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answer {
    /// 0, or a negative errno.
    pub result: i32,
    /// A line for a person; `ceph` prints it on standard error.
    pub status: String,
    /// The command's result; `ceph` prints it on standard output.
    pub body: Bytes,
}

impl Answer {
    pub fn ok(status: impl Into<String>) -> Answer {
        Answer { status: status.into(), ..Answer::default() }
    }

    pub fn body(body: impl Into<Bytes>) -> Answer {
        Answer { body: body.into(), ..Answer::default() }
    }

    /// A document in the format that was asked for. A command without a plain form of its own prints pretty JSON there.
    pub fn json(format: Format, json: &Json) -> Answer {
        Answer::body(format.render(json))
    }

    pub fn with_status(self, status: impl Into<String>) -> Answer {
        Answer { status: status.into(), ..self }
    }

    /// `errno` is positive, as `errno.h` has it.
    pub fn error(errno: i32, status: impl Into<String>) -> Answer {
        Answer { result: -errno, status: status.into(), body: Bytes::new() }
    }

    pub fn invalid(status: impl Into<String>) -> Answer {
        Answer::error(errno::EINVAL, status)
    }
}
