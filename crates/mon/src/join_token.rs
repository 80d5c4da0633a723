//! The text of a join token: one line that an operator types on a new host (`shoal join TOKEN`).
//!
//! ```text
//! shoal1-  base64url( fsid 16 | expires u32 | id | key | u8 count, monitors | checksum 4 )
//! monitor: u8 4 or 6 | address | u16 port
//! ```
//!
//! The checksum is the start of a SHA-256 over the bytes before it. It finds typing errors; the key is what proves anything.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use codec::{Decode, DecodeError, Features, Reader, Writer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use wire::cephx::Key;
use wire::types::{AuthName, EntityKind, Uuid};

/// The version of the text. Another version has another word.
const PREFIX: &str = "shoal1-";
/// Every text that begins so is a token of some version.
const FAMILY: &str = "shoal";
const CHECKSUM_LEN: usize = 4;
/// Entities of tokens: `client.join-ID`.
const ENTITY: &str = "join-";

/// Everything that a new host needs to reach the monitors and prove that it may join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub fsid: Uuid,
    /// Wall clock of the monitors, in seconds.
    pub expires: u32,
    pub id: String,
    pub key: Key,
    pub monitors: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("this is no join token: one begins with shoal1-, and `shoal token create` prints it")]
    Foreign,
    #[error("this token is of another version of shoal: install the version that the cluster runs")]
    Version,
    #[error("this token is mistyped or cut off: copy the whole line that `shoal token create` printed")]
    Mistyped,
}

impl JoinToken {
    pub fn entity(&self) -> AuthName {
        entity_of(&self.id)
    }
}

/// The entity of the token `id`.
pub fn entity_of(id: &str) -> AuthName {
    AuthName::new(EntityKind::CLIENT, format!("{ENTITY}{id}"))
}

/// The id of the token that an entity belongs to.
pub fn id_of(entity: &AuthName) -> Option<&str> {
    if entity.kind == EntityKind::CLIENT { entity.id.strip_prefix(ENTITY) } else { None }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref()[..CHECKSUM_LEN].try_into().expect("SHA-256 is longer")
}

fn put_monitor(w: &mut Writer, addr: SocketAddr) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            w.u8(4);
            w.raw(&ip.octets());
        }
        IpAddr::V6(ip) => {
            w.u8(6);
            w.raw(&ip.octets());
        }
    }
    w.u16(addr.port());
}

fn address<const N: usize>(r: &mut Reader<'_>) -> Result<[u8; N], DecodeError> {
    Ok(r.take("address", N)?.try_into().expect("as long as asked for"))
}

fn get_monitor(r: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let ip: IpAddr = match r.u8()? {
        4 => Ipv4Addr::from(address::<4>(r)?).into(),
        6 => Ipv6Addr::from(address::<16>(r)?).into(),
        other => return Err(r.invalid("address family", other)),
    };
    Ok(SocketAddr::new(ip, r.u16()?))
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut w = Writer::new(Features::ALL);
        w.put(&self.fsid);
        w.u32(self.expires);
        w.put(&self.id);
        w.put(&self.key);
        w.u8(self.monitors.len() as u8);
        self.monitors.iter().take(u8::MAX.into()).for_each(|addr| put_monitor(&mut w, *addr));
        let mut bytes = w.into_vec();
        bytes.extend(checksum(&bytes));
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for JoinToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<JoinToken, TokenError> {
        // A terminal or a mail program may have broken the line.
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let Some(body) = text.strip_prefix(PREFIX) else {
            let is_kin = text.strip_prefix(FAMILY).is_some_and(|rest| {
                rest.split_once('-')
                    .is_some_and(|(n, _)| !n.is_empty() && n.bytes().all(|c| c.is_ascii_digit()))
            });
            return Err(if is_kin { TokenError::Version } else { TokenError::Foreign });
        };
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Mistyped)?;
        let content = bytes.len().checked_sub(CHECKSUM_LEN).ok_or(TokenError::Mistyped)?;
        let (content, sum) = bytes.split_at(content);
        if checksum(content) != sum {
            return Err(TokenError::Mistyped);
        }
        let mut r = Reader::new(content);
        let token = read(&mut r).map_err(|_| TokenError::Mistyped)?;
        if r.remaining() > 0 || token.key.usable().is_err() || token.monitors.is_empty() {
            return Err(TokenError::Mistyped);
        }
        Ok(token)
    }
}

fn read(r: &mut Reader<'_>) -> Result<JoinToken, DecodeError> {
    let (fsid, expires, id, key) = (r.get()?, r.u32()?, r.get()?, Key::decode(r)?);
    let count = r.u8()?;
    let monitors = (0..count).map(|_| get_monitor(r)).collect::<Result<_, _>>()?;
    Ok(JoinToken { fsid, expires, id, key, monitors })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Random;
    use wire::cephx::KeyKind;
    use wire::types::UTime;

    fn token() -> JoinToken {
        let created = UTime { sec: 1_700_000_000, nsec: 9 };
        JoinToken {
            fsid: Uuid([7; 16]),
            expires: 1_700_086_400,
            id: "k7qf3".into(),
            key: Key::generate(KeyKind::Aes, created, &mut Random::from_number(3)),
            monitors: vec!["10.0.0.1:3300".parse().unwrap(), "[fd00::2]:3300".parse().unwrap()],
        }
    }

    #[test]
    fn text_of_a_token_reads_back() {
        let text = token().to_string();
        assert!(text.len() < 160 && text.bytes().all(|c| c.is_ascii_graphic()), "{text}");
        assert_eq!(text.parse(), Ok(token()));
        assert_eq!(format!(" {}\n{}\n", &text[..30], &text[30..]).parse(), Ok(token()), "a broken line");
        assert_eq!(token().entity().to_string(), "client.join-k7qf3");
        assert_eq!(id_of(&token().entity()), Some("k7qf3"));
        assert_eq!(id_of(&"client.admin".parse().unwrap()), None);
    }

    #[test]
    fn every_mistyped_letter_is_noticed() {
        let text = token().to_string();
        for at in PREFIX.len()..text.len() {
            let mut wrong = text.clone().into_bytes();
            wrong[at] = if wrong[at] == b'x' { b'y' } else { b'x' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert_eq!(wrong.parse::<JoinToken>(), Err(TokenError::Mistyped), "letter {at}");
            assert_eq!(text[..at].parse::<JoinToken>(), Err(TokenError::Mistyped), "cut off at {at}");
        }
    }

    #[test]
    fn texts_that_are_no_token_say_so() {
        assert_eq!("AQDlEgJrsEyBIRAA".parse::<JoinToken>(), Err(TokenError::Foreign));
        assert_eq!("".parse::<JoinToken>(), Err(TokenError::Foreign));
        assert_eq!("shoal2-AAAA".parse::<JoinToken>(), Err(TokenError::Version));
    }
}
