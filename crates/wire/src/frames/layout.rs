//! A frame's lengths on the wire, and its preamble.

use super::crc::crc32c_from_zero;
use super::{FrameError, Tag};

pub(super) const PREAMBLE_LEN: usize = 32;
/// In secure mode the first bytes of segment 0 travel with the preamble.
pub(super) const INLINE_LEN: usize = 48;
pub(super) const TAG_LEN: usize = 16;
pub(super) const CRC_LEN: usize = 4;
pub(super) const CRC_EPILOGUE_LEN: usize = 13;
pub(super) const SECURE_EPILOGUE_LEN: usize = 16;
pub(super) const SEGMENTS_MAX: usize = 4;

pub(super) const LATE_COMPLETE: u8 = 0xe;
pub(super) const LATE_ABORTED: u8 = 0x1;
pub(super) const LATE_MASK: u8 = 0xf;

/// Alignments that stock announces: words, and pages for a message's data.
const ALIGNMENTS: [u16; SEGMENTS_MAX] = [8, 8, 8, 4096];

/// The contents of a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub tag: Tag,
    pub count: usize,
    pub lens: [u32; SEGMENTS_MAX],
}

impl Layout {
    /// The layout of a frame whose segments have these lengths: trailing empty ones are left out.
    pub fn of(tag: Tag, lens: [u32; SEGMENTS_MAX]) -> Layout {
        let count = lens.iter().rposition(|&n| n > 0).map_or(1, |last| last + 1);
        Layout { tag, count, lens }
    }

    pub fn preamble(&self) -> [u8; PREAMBLE_LEN] {
        let mut out = [0; PREAMBLE_LEN];
        out[0] = self.tag.0;
        out[1] = self.count as u8;
        for (i, (len, alignment)) in self.lens.iter().zip(ALIGNMENTS).enumerate().take(self.count) {
            let at = 2 + 6 * i;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
            out[at + 4..at + 6].copy_from_slice(&alignment.to_le_bytes());
        }
        let covered: &[u8; 28] = out[..28].try_into().expect("28 of 32 bytes");
        let crc = crc32c_from_zero(covered);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub fn parse(raw: &[u8; PREAMBLE_LEN]) -> Result<Layout, FrameError> {
        let covered: &[u8; 28] = raw[..28].try_into().expect("28 of 32 bytes");
        let said = u32::from_le_bytes(raw[28..].try_into().expect("four bytes"));
        if crc32c_from_zero(covered) != said {
            return Err(FrameError::PreambleCrc);
        }
        let count = raw[1] as usize;
        if !(1..=SEGMENTS_MAX).contains(&count) {
            return Err(FrameError::Segments(raw[1]));
        }
        if raw[26] != 0 {
            // The one flag there is says "compressed", which was never negotiated.
            return Err(FrameError::Flags(raw[26]));
        }
        let mut lens = [0; SEGMENTS_MAX];
        for (i, len) in lens.iter_mut().enumerate().take(count) {
            let at = 2 + 6 * i;
            *len = u32::from_le_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        }
        if count > 1 && lens[count - 1] == 0 {
            return Err(FrameError::LastSegmentEmpty);
        }
        Ok(Layout { tag: Tag(raw[0]), count, lens })
    }

    /// The sum of the segments. At most 16 GiB: no overflow.
    pub fn logical_len(&self) -> usize {
        self.lens[..self.count].iter().map(|&n| n as usize).sum()
    }

    /// The last of four segments.
    pub fn data_len(&self) -> usize {
        self.lens[SEGMENTS_MAX - 1] as usize
    }

    /// Where each segment is in the bytes that follow the preamble (and, in secure mode, its inline block), in
    /// crc mode; and how many bytes those are.
    pub fn crc_offsets(&self) -> ([usize; SEGMENTS_MAX], usize) {
        let mut at = 0;
        let mut offsets = [0; SEGMENTS_MAX];
        for (i, (offset, &len)) in offsets.iter_mut().zip(&self.lens).enumerate().take(self.count) {
            *offset = at;
            at += len as usize;
            if i == 0 && len > 0 {
                at += CRC_LEN;
            }
        }
        (offsets, at + if self.count > 1 { CRC_EPILOGUE_LEN } else { 0 })
    }

    /// The same in secure mode. Segment 0's offset is where its part beyond the inline block begins.
    pub fn secure_offsets(&self) -> ([usize; SEGMENTS_MAX], usize) {
        let mut at = 0;
        let mut offsets = [0; SEGMENTS_MAX];
        let beyond = self.beyond_inline_len();
        if beyond > 0 {
            at += beyond + TAG_LEN;
        }
        for (offset, &len) in offsets.iter_mut().zip(&self.lens).take(self.count).skip(1) {
            *offset = at;
            at += padded(len as usize);
        }
        (offsets, at + if self.count > 1 { SECURE_EPILOGUE_LEN + TAG_LEN } else { 0 })
    }

    /// Bytes of segment 0, padded, beyond the inline block.
    pub fn beyond_inline_len(&self) -> usize {
        padded(self.lens[0] as usize).saturating_sub(INLINE_LEN)
    }
}

pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(16)
}
