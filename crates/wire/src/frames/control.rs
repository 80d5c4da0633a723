//! Every frame that is not a message: its fields in order, encoded as Ceph encodes values.

use super::{FrameError, Tag};
use crate::features;
use crate::types::{EntityAddr, EntityAddrVec, EntityKind, UTime};
use bytes::Bytes;
use codec::{DecodeError, Features, Reader, Writer};

/// A flag of [`Control::ClientIdent`] and [`Control::ServerIdent`]: the session does not survive its socket.
pub const CONNECT_LOSSY: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The kind of the sender, and the address at which it sees the receiver.
    Hello {
        kind: EntityKind,
        peer_addr: EntityAddr,
    },
    AuthRequest {
        method: u32,
        preferred_modes: Vec<u32>,
        payload: Bytes,
    },
    AuthBadMethod {
        method: u32,
        result: i32,
        allowed_methods: Vec<u32>,
        allowed_modes: Vec<u32>,
    },
    AuthReplyMore {
        payload: Bytes,
    },
    AuthRequestMore {
        payload: Bytes,
    },
    AuthDone {
        global_id: u64,
        mode: u32,
        payload: Bytes,
    },
    /// HMAC-SHA256, under the session key, of all bytes that the sender had received before this frame.
    AuthSignature {
        signature: [u8; 32],
    },
    ClientIdent {
        addrs: EntityAddrVec,
        /// The address that the sender means to reach.
        target: EntityAddr,
        /// The number in my name: an OSD's id, a client's global id.
        id: i64,
        global_seq: u64,
        supported: Features,
        required: Features,
        flags: u64,
        cookie: u64,
    },
    ServerIdent {
        addrs: EntityAddrVec,
        id: i64,
        global_seq: u64,
        supported: Features,
        required: Features,
        flags: u64,
        cookie: u64,
    },
    IdentMissingFeatures {
        features: Features,
    },
    SessionReconnect {
        addrs: EntityAddrVec,
        client_cookie: u64,
        server_cookie: u64,
        global_seq: u64,
        connect_seq: u64,
        /// The last message I have.
        message_seq: u64,
    },
    SessionReset {
        full: bool,
    },
    SessionRetry {
        connect_seq: u64,
    },
    SessionRetryGlobal {
        global_seq: u64,
    },
    SessionReconnectOk {
        message_seq: u64,
    },
    Wait,
    Keepalive2 {
        stamp: UTime,
    },
    Keepalive2Ack {
        stamp: UTime,
    },
    Ack {
        seq: u64,
    },
    CompressionRequest {
        compress: bool,
        methods: Vec<u32>,
    },
    CompressionDone {
        compress: bool,
        method: u32,
    },
}

macro_rules! control {
    ($($tag:ident $name:ident { $($field:ident),* })*) => {
        impl Control {
            pub fn tag(&self) -> Tag {
                match self { $(Control::$name { .. } => Tag::$tag,)* }
            }

            /// The one segment of the frame.
            pub fn encode(&self, w: &mut Writer) {
                match self { $(Control::$name { $($field),* } => { $(Field::put($field, w);)* })* }
            }

            /// Bytes that a newer peer appended are left.
            pub fn decode(tag: Tag, segment: &[u8]) -> Result<Control, FrameError> {
                let mut r = Reader::new(segment);
                let r = &mut r;
                let parsed = match tag {
                    $(Tag::$tag => {
                        let get = |r: &mut Reader<'_>| {
                            let _ = &r;
                            Ok(Control::$name { $($field: Field::get(r)?),* })
                        };
                        get(r)
                    })*
                    _ => return Err(FrameError::UnknownTag(tag)),
                };
                parsed.map_err(|error| FrameError::Control { tag, error })
            }
        }
    };
}

control! {
    HELLO Hello { kind, peer_addr }
    AUTH_REQUEST AuthRequest { method, preferred_modes, payload }
    AUTH_BAD_METHOD AuthBadMethod { method, result, allowed_methods, allowed_modes }
    AUTH_REPLY_MORE AuthReplyMore { payload }
    AUTH_REQUEST_MORE AuthRequestMore { payload }
    AUTH_DONE AuthDone { global_id, mode, payload }
    AUTH_SIGNATURE AuthSignature { signature }
    CLIENT_IDENT ClientIdent { addrs, target, id, global_seq, supported, required, flags, cookie }
    SERVER_IDENT ServerIdent { addrs, id, global_seq, supported, required, flags, cookie }
    IDENT_MISSING_FEATURES IdentMissingFeatures { features }
    SESSION_RECONNECT SessionReconnect { addrs, client_cookie, server_cookie, global_seq, connect_seq, message_seq }
    SESSION_RESET SessionReset { full }
    SESSION_RETRY SessionRetry { connect_seq }
    SESSION_RETRY_GLOBAL SessionRetryGlobal { global_seq }
    SESSION_RECONNECT_OK SessionReconnectOk { message_seq }
    WAIT Wait { }
    KEEPALIVE2 Keepalive2 { stamp }
    KEEPALIVE2_ACK Keepalive2Ack { stamp }
    ACK Ack { seq }
    COMPRESSION_REQUEST CompressionRequest { compress, methods }
    COMPRESSION_DONE CompressionDone { compress, method }
}

impl Control {
    /// Features for the encoding of frames themselves, whatever the peer announces later.
    pub const FEATURES: Features = Features(features::MSG_ADDR2);
}

/// A field's form in a control frame; as everywhere, but for feature words and the one-byte kind.
trait Field: Sized {
    fn put(&self, w: &mut Writer);
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! as_everywhere {
    ($($t:ty),*) => {$(
        impl Field for $t {
            fn put(&self, w: &mut Writer) { w.put(self) }
            fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> { r.get() }
        }
    )*};
}
as_everywhere!(u32, i32, u64, i64, bool, Vec<u32>, Bytes, [u8; 32], EntityAddr, EntityAddrVec, UTime);

impl Field for EntityKind {
    fn put(&self, w: &mut Writer) {
        w.u8(self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u8().map(EntityKind)
    }
}

impl Field for Features {
    fn put(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u64().map(Features)
    }
}
