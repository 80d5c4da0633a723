//! Frames to bytes.

use super::layout::{CRC_EPILOGUE_LEN, CRC_LEN, INLINE_LEN, LATE_COMPLETE, PREAMBLE_LEN};
use super::layout::{Layout, SECURE_EPILOGUE_LEN, SEGMENTS_MAX, TAG_LEN, padded};
use super::secure::Stream;
use super::{Control, Crc32c, MessageHeader, SecureKeys, Tag, WriteQueue, crc32c};
use bytes::{BufMut, Bytes, BytesMut};
use codec::{Rope, Writer};

/// Appends frames to a [`WriteQueue`]. Starts in crc mode.
#[derive(Default)]
pub struct FrameEncoder {
    secure: Option<Stream>,
}

impl FrameEncoder {
    pub fn new() -> FrameEncoder {
        FrameEncoder::default()
    }

    /// From the next frame on, seal.
    pub(super) fn secure(&mut self, tx: Stream) {
        self.secure = Some(tx);
    }

    pub fn control(&mut self, frame: &Control, out: &mut WriteQueue) {
        let mut w = Writer::new(Control::FEATURES);
        frame.encode(&mut w);
        self.raw(frame.tag(), [w.as_slice(), &[], &[], &[]], out);
    }

    /// A message. The data is kept as it is in crc mode; secure mode copies it, encrypted.
    pub fn message(
        &mut self,
        header: &MessageHeader,
        front: Vec<u8>,
        middle: Bytes,
        data: Rope,
        out: &mut WriteQueue,
    ) {
        let header = header.to_bytes();
        let lens = [header.len(), front.len(), middle.len(), data.len()];
        let layout = Layout::of(Tag::MESSAGE, lens.map(wire_len));
        match &mut self.secure {
            None => {
                let mut epilogue = Epilogue::new();
                out.put(&layout.preamble());
                out.put(&header);
                out.put(&crc32c(&header).to_le_bytes());
                if layout.count > 1 {
                    epilogue.set(1, crc32c(&front));
                    out.push(front.into());
                }
                if layout.count > 2 {
                    epilogue.set(2, crc32c(&middle));
                    out.push(middle);
                }
                if layout.count > 3 {
                    epilogue.set(3, crc_of(&data));
                    data.into_pieces().for_each(|piece| out.push(piece));
                }
                if layout.count > 1 {
                    out.put(&epilogue.0);
                }
            }
            Some(tx) => seal(tx, &layout, out, |segment, into| match segment {
                0 => into.put_slice(&header),
                1 => into.put_slice(&front),
                2 => into.put_slice(&middle),
                _ => data.pieces().iter().for_each(|piece| into.put_slice(piece)),
            }),
        }
    }

    /// Any frame from its segments.
    pub fn raw(&mut self, tag: Tag, segments: [&[u8]; SEGMENTS_MAX], out: &mut WriteQueue) {
        let layout = Layout::of(tag, segments.map(|s| wire_len(s.len())));
        match &mut self.secure {
            None => {
                let mut epilogue = Epilogue::new();
                out.put(&layout.preamble());
                for (i, segment) in segments.iter().enumerate().take(layout.count) {
                    out.put(segment);
                    match i {
                        0 if segment.is_empty() => {}
                        0 => out.put(&crc32c(segment).to_le_bytes()),
                        _ => epilogue.set(i, crc32c(segment)),
                    }
                }
                if layout.count > 1 {
                    out.put(&epilogue.0);
                }
            }
            Some(tx) => seal(tx, &layout, out, |segment, into| into.put_slice(segments[segment])),
        }
    }
}

/// Secure mode: everything is written in clear where it will be sent from, and encrypted in place.
fn seal(
    tx: &mut Stream,
    layout: &Layout,
    out: &mut WriteQueue,
    mut put_segment: impl FnMut(usize, &mut BytesMut),
) {
    let len = PREAMBLE_LEN + INLINE_LEN + TAG_LEN + layout.secure_offsets().1;
    out.write_contiguous(len, |buf, start| {
        buf.put_slice(&layout.preamble());
        put_segment(0, buf);
        let inline_end = start + PREAMBLE_LEN + INLINE_LEN;
        if buf.len() <= inline_end {
            buf.resize(inline_end, 0);
            let tag = tx.seal(&mut buf[start..]);
            buf.put_slice(tag.as_ref());
        } else {
            pad(buf, start + PREAMBLE_LEN);
            // The tag goes between the inline block and the rest: make room for it.
            let rest_len = buf.len() - inline_end;
            buf.put_bytes(0, TAG_LEN);
            buf.copy_within(inline_end..inline_end + rest_len, inline_end + TAG_LEN);
            let (first, rest) = buf[start..].split_at_mut(PREAMBLE_LEN + INLINE_LEN);
            let (first_tag, rest) = rest.split_at_mut(TAG_LEN);
            first_tag.copy_from_slice(tx.seal(first).as_ref());
            let tag = tx.seal(rest);
            buf.put_slice(tag.as_ref());
        }
        if layout.count > 1 {
            let body = buf.len();
            for segment in 1..layout.count {
                let at = buf.len();
                put_segment(segment, buf);
                pad(buf, at);
            }
            buf.put_u8(LATE_COMPLETE);
            buf.put_bytes(0, SECURE_EPILOGUE_LEN - 1);
            let tag = tx.seal(&mut buf[body..]);
            buf.put_slice(tag.as_ref());
        }
    });
}

/// Pad what was written since `at` to whole blocks.
fn pad(buf: &mut BytesMut, at: usize) {
    buf.resize(at + padded(buf.len() - at), 0);
}

/// `u8 status | crc of segments 1, 2 and 3`; absent segments count as zero, empty ones do not.
struct Epilogue([u8; CRC_EPILOGUE_LEN]);

impl Epilogue {
    fn new() -> Epilogue {
        let mut raw = [0; CRC_EPILOGUE_LEN];
        raw[0] = LATE_COMPLETE;
        Epilogue(raw)
    }

    fn set(&mut self, segment: usize, crc: u32) {
        let at = 1 + CRC_LEN * (segment - 1);
        self.0[at..at + CRC_LEN].copy_from_slice(&crc.to_le_bytes());
    }
}

fn crc_of(data: &Rope) -> u32 {
    if let Some(sum) = data.sum() {
        return sum;
    }
    match data.pieces() {
        [one] => crc32c(one),
        many => {
            let mut crc = Crc32c::new();
            many.iter().for_each(|piece| crc.update(piece));
            crc.finish()
        }
    }
}

fn wire_len(n: usize) -> u32 {
    u32::try_from(n).expect("a segment on the wire is under 4 GiB")
}

impl SecureKeys {
    /// Turn both directions of a connection to secure mode, from the next frame on.
    pub fn install(self, encoder: &mut FrameEncoder, decoder: &mut super::FrameDecoder) {
        encoder.secure(self.tx);
        decoder.secure(self.rx);
    }
}
