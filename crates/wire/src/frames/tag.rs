//! Types of frames.

/// A frame's tag. A number that shoal does not know survives, to be named in the error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u8);

macro_rules! tags {
    ($($name:ident = $n:literal),* $(,)?) => {
        impl Tag {
            $(pub const $name: Tag = Tag($n);)*

            pub fn name(self) -> &'static str {
                match self { $(Tag::$name => stringify!($name),)* _ => "unknown" }
            }
        }
    };
}

tags! {
    HELLO = 1,
    AUTH_REQUEST = 2,
    AUTH_BAD_METHOD = 3,
    AUTH_REPLY_MORE = 4,
    AUTH_REQUEST_MORE = 5,
    AUTH_DONE = 6,
    AUTH_SIGNATURE = 7,
    CLIENT_IDENT = 8,
    SERVER_IDENT = 9,
    IDENT_MISSING_FEATURES = 10,
    SESSION_RECONNECT = 11,
    SESSION_RESET = 12,
    SESSION_RETRY = 13,
    SESSION_RETRY_GLOBAL = 14,
    SESSION_RECONNECT_OK = 15,
    WAIT = 16,
    MESSAGE = 17,
    KEEPALIVE2 = 18,
    KEEPALIVE2_ACK = 19,
    ACK = 20,
    COMPRESSION_REQUEST = 21,
    COMPRESSION_DONE = 22,
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}
