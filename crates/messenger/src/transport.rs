//! One socket's bytes: banner, frames, the transcript that both sides sign, and the switch to secure mode.

use super::SocketId;
use bytes::{Buf, Bytes, BytesMut};
use codec::Rope;
use wire::cephx::Key;
use wire::frames::{
    Banner, Control, FRAME_LEN_MAX_BEFORE_AUTH, Frame, FrameDecoder, FrameEncoder, MODE_SECURE,
    MessageHeader, SecureKeys, Side, WriteQueue,
};

/// Maximum bytes from a peer before it is authenticated. A handshake is a few kilobytes.
const TRANSCRIPT_LEN_MAX: usize = 2 * FRAME_LEN_MAX_BEFORE_AUTH;

pub(super) struct Transport {
    pub socket: SocketId,
    pub side: Side,
    pub out: WriteQueue,
    /// Received bytes that are not a whole frame yet.
    partial: BytesMut,
    /// The endpoint has told the host that there are bytes to write.
    pub dirty: bool,
    encoder: FrameEncoder,
    decoder: FrameDecoder,
    transcript: Option<Transcript>,
    banner_seen: bool,
    frames_taken: u64,
}

/// Every byte before the signatures, in each direction.
#[derive(Default)]
struct Transcript {
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Transport {
    pub fn new(socket: SocketId, side: Side) -> Transport {
        let mut transport = Transport {
            socket,
            side,
            out: WriteQueue::new(),
            partial: BytesMut::new(),
            dirty: false,
            encoder: FrameEncoder::new(),
            decoder: FrameDecoder::new(),
            transcript: Some(Transcript::default()),
            banner_seen: false,
            frames_taken: 0,
        };
        transport.send_recorded(|_, out| out.put(&Banner::OURS.encode()));
        transport
    }

    /// Add received bytes. Before authentication their sum is bounded.
    pub fn receive(&mut self, bytes: BytesMut) -> Result<(), String> {
        if let Some(transcript) = &mut self.transcript {
            if transcript.received.len() + bytes.len() > TRANSCRIPT_LEN_MAX {
                return Err("too many bytes before authentication".into());
            }
            transcript.received.extend_from_slice(&bytes);
        }
        if self.partial.is_empty() {
            self.partial = bytes;
        } else {
            self.partial.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// See [`super::Endpoint::take_partial`]. The transcript has these bytes already: none are given then.
    pub fn take_partial(&mut self) -> BytesMut {
        match self.transcript {
            None => std::mem::take(&mut self.partial),
            Some(_) => BytesMut::new(),
        }
    }

    /// True once the peer's banner was there and acceptable.
    pub fn take_banner(&mut self) -> Result<bool, String> {
        if !self.banner_seen
            && let Some((_, len)) = Banner::decode(&self.partial).map_err(|e| e.to_string())?
        {
            self.partial.advance(len);
            self.banner_seen = true;
        }
        Ok(self.banner_seen)
    }

    pub fn is_banner_seen(&self) -> bool {
        self.banner_seen
    }

    pub fn next_frame(&mut self) -> Result<Option<Frame>, String> {
        let frame = self.decoder.decode(&mut self.partial).map_err(|e| e.to_string())?;
        self.frames_taken += u64::from(frame.is_some());
        Ok(frame)
    }

    pub fn frames_taken(&self) -> u64 {
        self.frames_taken
    }

    /// Length of the frame that is being received into a buffer of its own.
    pub fn large_len(&self) -> Option<usize> {
        self.decoder.own_len()
    }

    /// Bytes received of the present large frame, plus bytes written to the socket: it grows while the peer makes progress.
    pub fn progress(&mut self) -> u64 {
        let whole = self.large_len().unwrap_or(0);
        let missing = self.decoder.own_buffer().map_or(0, |(_, missing)| missing);
        whole.saturating_sub(missing) as u64 + self.out.written()
    }

    /// A large frame's own buffer; see [`FrameDecoder::own_buffer`].
    pub fn own_buffer(&mut self) -> Option<(&mut BytesMut, usize)> {
        self.decoder.own_buffer()
    }

    pub fn control(&mut self, frame: &Control) {
        self.send_recorded(|encoder, out| encoder.control(frame, out));
    }

    pub fn message(&mut self, header: &MessageHeader, front: Vec<u8>, middle: Bytes, data: Rope) {
        self.encoder.message(header, front, middle, data, &mut self.out);
    }

    /// Authentication is done: send our signature of the bytes received so far. Returns the signature that the peer must
    /// send. In secure mode everything from the signatures on is sealed.
    pub fn sign(
        &mut self,
        session_key: Option<&Key>,
        mode: u32,
        connection_secret: &[u8],
    ) -> Result<[u8; 32], String> {
        let transcript = self.transcript.take().ok_or("signatures twice")?;
        // Bytes that were received but not processed yet are no part of it.
        let taken = transcript.received.len() - self.partial.len();
        let sign = |bytes: &[u8]| session_key.map_or([0; 32], |key| key.hmac_sha256(bytes));
        let (ours, theirs) = (sign(&transcript.received[..taken]), sign(&transcript.sent));
        if mode == MODE_SECURE {
            let keys = SecureKeys::new(connection_secret, self.side).ok_or("no secret for secure mode")?;
            keys.install(&mut self.encoder, &mut self.decoder);
        }
        self.control(&Control::AuthSignature { signature: ours });
        Ok(theirs)
    }

    /// The peer's signature was right.
    pub fn trust(&mut self, message_len_max: usize) {
        self.decoder.set_frame_len_max(message_len_max);
    }

    fn send_recorded(&mut self, send: impl FnOnce(&mut FrameEncoder, &mut WriteQueue)) {
        match &mut self.transcript {
            None => send(&mut self.encoder, &mut self.out),
            Some(transcript) => {
                // A handshake's frames are small and rare: a queue of their own tells their bytes.
                let mut alone = WriteQueue::new();
                send(&mut self.encoder, &mut alone);
                for piece in alone.take() {
                    transcript.sent.extend_from_slice(&piece);
                    self.out.put(&piece);
                }
            }
        }
    }
}
