//! msgr2.1 framing, in crc and secure mode (Ceph's `doc/dev/msgr2.rst`, `src/msg/async/frames_v2.h`).
//!
//! ```text
//! crc      preamble 32 | segment 0, crc 4 | segment 1 | segment 2 | segment 3 | epilogue 13
//!                        `- absent if empty  `------- only with more than one segment -----'
//! secure   preamble 32, inline 48, tag 16 | rest of segment 0, tag 16 | segments 1..3, epilogue 16, tag 16
//!          `------- one sealing ---------'  `- only if > 48 bytes --'   `- only with more than one segment -'
//!
//! preamble u8 tag | u8 segments (1..=4) | 4 x (u32 length, u16 alignment) | u8 flags | u8 0 | u32 crc of these 28
//! epilogue u8 status (0x.e complete, 0x.1 aborted) | crc: 3 x u32; secure: 15 zeroes
//! ```
//!
//! In secure mode segments are padded with zeroes to 16 bytes, and each sealing takes the next nonce. A frame's
//! last segment is never empty unless it is the only one.
//!
//! - [`Banner`] comes before everything. msgr2.0 and msgr v1 peers are refused there.
//! - [`FrameEncoder`] appends frames to a [`WriteQueue`], which one vectored write empties.
//! - [`FrameDecoder`] takes frames from a shared read buffer, or says that a large one wants a buffer of its own.
//! - [`Control`] is every frame that is not a message; [`MessageHeader`] opens those that are.

mod banner;
mod control;
mod crc;
mod decoder;
mod encoder;
mod layout;
mod message;
mod queue;
mod secure;
mod tag;
#[cfg(test)]
mod tests;

pub use banner::{Banner, BannerError, FEATURE_COMPRESSION, FEATURE_REVISION_1};
pub use control::{CONNECT_LOSSY, Control};
pub use crc::{Crc32c, crc32c};
pub use decoder::{Frame, FrameDecoder, FrameError, OWN_BUFFER_MIN};
pub use encoder::FrameEncoder;
pub use message::MessageHeader;
pub use queue::WriteQueue;
pub use secure::{CONNECTION_SECRET_LEN, SecureKeys, Side};
pub use tag::Tag;

/// Frames over this are refused from a peer that has not proved who it is.
pub const FRAME_LEN_MAX_BEFORE_AUTH: usize = 32 << 10;

/// A connection's mode (`CEPH_CON_MODE_*`).
pub const MODE_CRC: u32 = 1;
pub const MODE_SECURE: u32 = 2;
