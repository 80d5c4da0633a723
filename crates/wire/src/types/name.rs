//! Names that clients choose: objects, namespaces, locator keys, locks. Any bytes, as Ceph takes them.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use triomphe::ThinArc;

/// An immutable byte string: one word, shared by its clones, ordered bytewise.
///
/// Names are mostly text, but nothing may rely on it. [`fmt::Display`] is for people; what a machine reads gets the
/// bytes. The empty name takes no memory: most objects have neither namespace nor key.
///
/// Rejected: `Arc<[u8]>` (two words each in [`super::HObject`], which is copied with every request) and
/// [`bytes::Bytes`] (four words, and it would keep the message alive that the name came in).
#[derive(Clone, Default)]
pub struct Name(Option<ThinArc<(), u8>>);

impl Name {
    /// The name without bytes.
    pub const EMPTY: Name = Name(None);

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |shared| &shared.slice)
    }

    /// The name as text, if it is UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// Writes every byte that is not printable ASCII as `%xx`, and `%`, `:` and `/` too: the form in which Ceph's
    /// logs and admin commands show parts of an object's name (`hobject_t`'s `operator<<`).
    pub fn write_escaped(&self, f: &mut impl Write) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|&byte| match byte {
            b'%' | b':' | b'/' => write!(f, "%{byte:02x}"),
            b' '..=b'~' => f.write_char(byte.into()),
            _ => write!(f, "%{byte:02x}"),
        })
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Name {
        Name((!bytes.is_empty()).then(|| ThinArc::from_header_and_slice((), bytes)))
    }
}

impl<const N: usize> From<&[u8; N]> for Name {
    fn from(bytes: &[u8; N]) -> Name {
        Name::from(&bytes[..])
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Name {
        Name::from(&bytes[..])
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::from(text.as_bytes())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::from(text.as_bytes())
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::borrow::Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            // An object's name in a request's context and in the store's directory is the same memory.
            (Some(a), Some(b)) => a.ptr() == b.ptr() || a.slice == b.slice,
            _ => false,
        }
    }
}

impl Eq for Name {}

impl PartialEq<[u8]> for Name {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As the bytes themselves, so that a map may be asked with a slice.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Text as it is; `%`, control characters and bytes that are not UTF-8 as `%xx`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '%' | '\0'..' ' | '\x7f' => write!(f, "%{:02x}", c as u32)?,
                    _ => f.write_char(c)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "%{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Encode for Name {
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}

impl Decode for Name {
    const MIN_LEN: usize = 4;
    fn decode(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
        r.bytes().map(Name::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;
    use proptest::prelude::*;
    use std::collections::hash_map::DefaultHasher;

    #[test]
    fn name_is_one_word_even_when_optional() {
        assert_eq!(size_of::<Name>(), size_of::<usize>());
    }

    #[test]
    fn display_escapes_what_is_not_printable_text() {
        let shown = |bytes: &[u8]| Name::from(bytes).to_string();
        assert_eq!(shown(b"rbd_data.1/x:y"), "rbd_data.1/x:y");
        assert_eq!(shown("naïve".as_bytes()), "naïve");
        assert_eq!(shown(b"a\0b\nc\xff%"), "a%00b%0ac%ff%25");
        assert_eq!(shown(b"\xe2\x82"), "%e2%82");
        let mut escaped = String::new();
        Name::from("a/b:c%d é\n").write_escaped(&mut escaped).unwrap();
        assert_eq!(escaped, "a%2fb%3ac%25d %c3%a9%0a");
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0), Just(0xff), Just(b'a'), any::<u8>()], 0..6)
    }

    fn hash_of(value: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn name_orders_hashes_and_encodes_as_its_bytes(a in bytes(), b in bytes()) {
            let (x, y) = (Name::from(&a[..]), Name::from(b.clone()));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x == y, a == b);
            prop_assert_eq!(hash_of(&x), hash_of(&&a[..]));
            prop_assert_eq!(x.to_vec(Features::NONE), codec::Encode::to_vec(&a, Features::NONE));
            prop_assert_eq!(codec::decode_exact::<Name>(&x.to_vec(Features::NONE)), Ok(x));
        }
    }
}
