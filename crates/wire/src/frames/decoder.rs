//! Bytes to frames, without copying them twice.
//!
//! A host reads whatever the socket has into a shared buffer and hands it to [`FrameDecoder::decode`] until that
//! wants more. A small frame is sliced from the shared buffer. A large data segment gets a buffer of its own, exactly
//! of its length and on a page: what had arrived of it is copied there, the rest is read straight into it
//! ([`FrameDecoder::own_buffer`]). Exactly, because the store may keep it: 4 MiB and a little is another size class.
//! In secure mode, where the segments are sealed as one, it is the whole frame that gets the buffer.

use super::layout::{CRC_EPILOGUE_LEN, CRC_LEN, INLINE_LEN, LATE_ABORTED, LATE_COMPLETE, LATE_MASK};
use super::layout::{Layout, PREAMBLE_LEN, SEGMENTS_MAX, TAG_LEN};
use super::secure::Stream;
use super::{Control, FRAME_LEN_MAX_BEFORE_AUTH, MessageHeader, Tag, crc32c};
use crate::messages::Payload;
use bytes::{BufMut, Bytes, BytesMut};
use codec::DecodeError;
use thiserror::Error;

/// More than this gets a buffer of its own.
pub const OWN_BUFFER_MIN: usize = 32 << 10;
const PAGE_LEN: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("the preamble's checksum is wrong")]
    PreambleCrc,
    #[error("a frame of {0} segments")]
    Segments(u8),
    #[error("flags {0:#x}, which were not negotiated")]
    Flags(u8),
    #[error("the last segment is empty")]
    LastSegmentEmpty,
    #[error("a frame of {len} bytes; at most {max} are accepted")]
    TooLong { len: usize, max: usize },
    #[error("segment {0}'s checksum is wrong")]
    SegmentCrc(usize),
    #[error("the frame was tampered with, or sealed with another key")]
    Sealed,
    #[error("late status {0:#x}")]
    LateStatus(u8),
    #[error("{0:?} is not a frame that shoal knows")]
    UnknownTag(Tag),
    #[error("{0:?} with {1} segments")]
    ControlSegments(Tag, usize),
    #[error("a message header of {0} bytes")]
    HeaderLength(usize),
    #[error("{tag:?}: {error}")]
    Control { tag: Tag, error: DecodeError },
}

/// A whole frame whose checksums or seals were right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub tag: Tag,
    pub count: usize,
    pub segments: [Bytes; SEGMENTS_MAX],
    /// The checksum of the last segment of four, in crc mode.
    pub data_sum: Option<u32>,
}

impl Frame {
    pub fn control(&self) -> Result<Control, FrameError> {
        match self.count {
            1 => Control::decode(self.tag, &self.segments[0]),
            n => Err(FrameError::ControlSegments(self.tag, n)),
        }
    }

    pub fn message(self) -> Result<(MessageHeader, Payload), FrameError> {
        let [header, front, middle, data] = self.segments;
        Ok((MessageHeader::from_bytes(&header)?, Payload { front, middle, data, data_sum: self.data_sum }))
    }
}

/// Starts in crc mode, with the bound for peers that are not authenticated.
pub struct FrameDecoder {
    secure: Option<Stream>,
    frame_len_max: usize,
    state: State,
}

enum State {
    Preamble,
    /// The preamble is taken off the input; `body` bytes follow. `inline` is secure mode's first part of segment 0.
    Body {
        layout: Layout,
        body: usize,
        inline: Bytes,
    },
    /// As `Body`, the body collecting in `buffer`.
    Own {
        layout: Layout,
        body: usize,
        inline: Bytes,
        buffer: BytesMut,
    },
    /// Crc mode, with a large data segment: `len` bytes come before it.
    Head {
        layout: Layout,
        len: usize,
    },
    /// The data segment is collecting.
    Data {
        layout: Layout,
        head: Bytes,
        data: BytesMut,
    },
    Epilogue {
        layout: Layout,
        head: Bytes,
        data: Bytes,
    },
}

impl Default for FrameDecoder {
    fn default() -> FrameDecoder {
        FrameDecoder { secure: None, frame_len_max: FRAME_LEN_MAX_BEFORE_AUTH, state: State::Preamble }
    }
}

impl FrameDecoder {
    pub fn new() -> FrameDecoder {
        FrameDecoder::default()
    }

    pub(super) fn secure(&mut self, rx: Stream) {
        self.secure = Some(rx);
    }

    /// The longest frame that is accepted, by its segments' sum.
    pub fn set_frame_len_max(&mut self, max: usize) {
        self.frame_len_max = max;
    }

    /// Take the next whole frame off `input`; `None` when it takes more bytes. Whatever is left in `input` must
    /// come back in front of what is read next, but for a frame with a buffer of its own, for which `input` is
    /// emptied. After an error the connection is lost.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        loop {
            match std::mem::replace(&mut self.state, State::Preamble) {
                State::Preamble => {
                    if !self.take_preamble(input)? {
                        return Ok(None);
                    }
                }
                State::Body { layout, body, inline } => {
                    if input.len() < body {
                        self.state = State::Body { layout, body, inline };
                        return Ok(None);
                    }
                    if let Some(frame) = self.finish(layout, input.split_to(body), inline)? {
                        return Ok(Some(frame));
                    }
                }
                State::Own { layout, body, inline, mut buffer } => {
                    let start = buffer.len();
                    let n = (body - start).min(input.len());
                    buffer.put_slice(&input.split_to(n));
                    if buffer.len() < body {
                        self.state = State::Own { layout, body, inline, buffer };
                        return Ok(None);
                    }
                    if let Some(frame) = self.finish(layout, buffer, inline)? {
                        return Ok(Some(frame));
                    }
                }
                State::Head { layout, len } => {
                    if input.len() < len {
                        self.state = State::Head { layout, len };
                        return Ok(None);
                    }
                    // Copied, so that the large frame does not hold what small ones share.
                    let head = Bytes::copy_from_slice(&input.split_to(len));
                    self.state = State::Data { layout, head, data: page_buffer(layout.data_len()) };
                }
                State::Data { layout, head, mut data } => {
                    let n = (layout.data_len() - data.len()).min(input.len());
                    data.put_slice(&input.split_to(n));
                    if data.len() < layout.data_len() {
                        self.state = State::Data { layout, head, data };
                        return Ok(None);
                    }
                    self.state = State::Epilogue { layout, head, data: data.freeze() };
                }
                State::Epilogue { layout, head, data } => {
                    if input.len() < CRC_EPILOGUE_LEN {
                        self.state = State::Epilogue { layout, head, data };
                        return Ok(None);
                    }
                    let epilogue = input.split_to(CRC_EPILOGUE_LEN);
                    if let Some(frame) = finish_crc(&layout, &head, data, &epilogue)? {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    /// When a large segment or frame is under way: where its next bytes go, and how many are missing. After filling
    /// it, call [`FrameDecoder::decode`] again.
    pub fn own_buffer(&mut self) -> Option<(&mut BytesMut, usize)> {
        match &mut self.state {
            State::Own { body, buffer, .. } => {
                let missing = *body - buffer.len();
                Some((buffer, missing))
            }
            State::Data { layout, data, .. } => {
                let missing = layout.data_len() - data.len();
                Some((data, missing))
            }
            _ => None,
        }
    }

    /// Memory of the large segment or frame that is being received, until it is given out.
    pub fn own_len(&self) -> Option<usize> {
        match &self.state {
            State::Own { body, .. } => Some(*body),
            State::Data { layout, .. } | State::Epilogue { layout, .. } => Some(layout.data_len()),
            _ => None,
        }
    }

    /// Bytes that the next call of [`FrameDecoder::decode`] needs in its input, at least.
    pub fn wants(&self) -> usize {
        match &self.state {
            State::Preamble => self.preamble_len(),
            State::Body { body, .. } => *body,
            State::Own { body, buffer, .. } => body - buffer.len(),
            State::Head { len, .. } => *len,
            State::Data { layout, data, .. } => layout.data_len() - data.len(),
            State::Epilogue { .. } => CRC_EPILOGUE_LEN,
        }
    }

    fn preamble_len(&self) -> usize {
        match self.secure {
            None => PREAMBLE_LEN,
            Some(_) => PREAMBLE_LEN + INLINE_LEN + TAG_LEN,
        }
    }

    /// False when there is not enough of it.
    fn take_preamble(&mut self, input: &mut BytesMut) -> Result<bool, FrameError> {
        if input.len() < self.preamble_len() {
            return Ok(false);
        }
        let (layout, inline) = match &mut self.secure {
            None => {
                let layout = Layout::parse(input[..PREAMBLE_LEN].try_into().expect("length was checked"))?;
                bytes::Buf::advance(input, PREAMBLE_LEN);
                (layout, Bytes::new())
            }
            Some(rx) => {
                let mut raw = input.split_to(PREAMBLE_LEN + INLINE_LEN + TAG_LEN);
                if !rx.open(&mut raw) {
                    return Err(FrameError::Sealed);
                }
                let layout = Layout::parse(raw[..PREAMBLE_LEN].try_into().expect("length was checked"))?;
                (layout, raw.freeze().slice(PREAMBLE_LEN..PREAMBLE_LEN + INLINE_LEN))
            }
        };
        let len = layout.logical_len();
        if len > self.frame_len_max {
            return Err(FrameError::TooLong { len, max: self.frame_len_max });
        }
        let (offsets, body) = match self.secure {
            None => layout.crc_offsets(),
            Some(_) => layout.secure_offsets(),
        };
        let before_data = offsets[SEGMENTS_MAX - 1];
        let has_large_data = layout.data_len() > OWN_BUFFER_MIN && before_data <= OWN_BUFFER_MIN;
        self.state = if self.secure.is_none() && has_large_data {
            State::Head { layout, len: before_data }
        } else if body > OWN_BUFFER_MIN {
            State::Own { layout, body, inline, buffer: aligned_buffer(offsets[3], body) }
        } else {
            State::Body { layout, body, inline }
        };
        Ok(true)
    }

    /// `None` when the sender gave the frame up half way.
    fn finish(&mut self, layout: Layout, body: BytesMut, inline: Bytes) -> Result<Option<Frame>, FrameError> {
        match &mut self.secure {
            None => {
                let body = body.freeze();
                if layout.count == 1 {
                    return finish_crc(&layout, &body, Bytes::new(), &[]);
                }
                let epilogue = body.len() - CRC_EPILOGUE_LEN;
                let data = epilogue - layout.data_len();
                finish_crc(&layout, &body.slice(..data), body.slice(data..epilogue), &body[epilogue..])
            }
            Some(rx) => Ok(finish_secure(rx, &layout, body, inline)?.map(|segments| Frame {
                tag: layout.tag,
                count: layout.count,
                segments,
                data_sum: None,
            })),
        }
    }
}

/// A buffer for `len` bytes, on a page, of exactly that length where the allocator puts such on pages by itself.
fn page_buffer(len: usize) -> BytesMut {
    let buffer = BytesMut::with_capacity(len);
    if (buffer.as_ptr() as usize).is_multiple_of(PAGE_LEN) { buffer } else { aligned_buffer(0, len) }
}

/// A buffer for `len` bytes whose `data_at`th lies on a page.
fn aligned_buffer(data_at: usize, len: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(len + PAGE_LEN - 1);
    let skip = (buffer.as_ptr() as usize + data_at).wrapping_neg() % PAGE_LEN;
    buffer.put_bytes(0, skip);
    buffer.split_off(skip)
}

/// `head` is everything before the data segment, `epilogue` is empty when there is but one segment.
fn finish_crc(
    layout: &Layout,
    head: &Bytes,
    data: Bytes,
    epilogue: &[u8],
) -> Result<Option<Frame>, FrameError> {
    let sum_at = |raw: &[u8], at: usize| {
        u32::from_le_bytes(raw[at..at + CRC_LEN].try_into().expect("length was checked"))
    };
    let (offsets, _) = layout.crc_offsets();
    let mut before_data = *layout;
    before_data.lens[SEGMENTS_MAX - 1] = 0;
    let mut segments = slice_segments(&before_data, &offsets, head);
    segments[SEGMENTS_MAX - 1] = data;
    if !segments[0].is_empty() && crc32c(&segments[0]) != sum_at(head, segments[0].len()) {
        return Err(FrameError::SegmentCrc(0));
    }
    let mut data_sum = None;
    if layout.count > 1 {
        if !is_complete(epilogue[0])? {
            return Ok(None);
        }
        for (i, segment) in segments.iter().enumerate().take(layout.count).skip(1) {
            let sum = sum_at(epilogue, 1 + CRC_LEN * (i - 1));
            if crc32c(segment) != sum {
                return Err(FrameError::SegmentCrc(i));
            }
            data_sum = (i == SEGMENTS_MAX - 1).then_some(sum);
        }
    }
    Ok(Some(Frame { tag: layout.tag, count: layout.count, segments, data_sum }))
}

fn finish_secure(
    rx: &mut Stream,
    layout: &Layout,
    mut body: BytesMut,
    inline: Bytes,
) -> Result<Option<[Bytes; SEGMENTS_MAX]>, FrameError> {
    let (offsets, _) = layout.secure_offsets();
    let beyond = layout.beyond_inline_len();
    let first_len = layout.lens[0] as usize;
    let first = if beyond == 0 {
        inline.slice(..first_len)
    } else {
        if !rx.open(&mut body[..beyond + TAG_LEN]) {
            return Err(FrameError::Sealed);
        }
        let mut joined = BytesMut::with_capacity(INLINE_LEN + beyond);
        joined.put_slice(&inline);
        joined.put_slice(&body[..beyond]);
        joined.freeze().slice(..first_len)
    };
    let mut complete = true;
    if layout.count > 1 {
        if !rx.open(&mut body[offsets[1]..]) {
            return Err(FrameError::Sealed);
        }
        let status = body.len() - TAG_LEN - super::layout::SECURE_EPILOGUE_LEN;
        complete = is_complete(body[status])?;
    }
    let mut rest = *layout;
    rest.lens[0] = 0;
    let mut segments = slice_segments(&rest, &offsets, &body.freeze());
    segments[0] = first;
    Ok(complete.then_some(segments))
}

fn slice_segments(layout: &Layout, offsets: &[usize; SEGMENTS_MAX], body: &Bytes) -> [Bytes; SEGMENTS_MAX] {
    std::array::from_fn(|i| match layout.lens[i] as usize {
        0 => Bytes::new(),
        len => body.slice(offsets[i]..offsets[i] + len),
    })
}

fn is_complete(status: u8) -> Result<bool, FrameError> {
    match status & LATE_MASK {
        LATE_COMPLETE => Ok(true),
        LATE_ABORTED => Ok(false),
        _ => Err(FrameError::LateStatus(status)),
    }
}
