//! The first bytes on a connection: which protocol, and which of its features.
//!
//! `"ceph v2\n" | u16 length | u64 supported | u64 required | whatever a newer peer appends`

use thiserror::Error;

/// msgr2.1: shoal speaks nothing older.
pub const FEATURE_REVISION_1: u64 = 1;
/// On-wire compression: never offered, so a peer never asks for it.
pub const FEATURE_COMPRESSION: u64 = 2;

const PREFIX: &[u8; 8] = b"ceph v2\n";
const PREFIX_V1: &[u8; 8] = b"ceph v02";
/// The longest payload. A newer peer may append bytes, which are read past.
const PAYLOAD_LEN_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banner {
    pub supported: u64,
    pub required: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BannerError {
    #[error("the peer speaks msgr v1, which shoal does not")]
    MessengerV1,
    #[error("the peer does not speak Ceph's protocol")]
    NotCeph,
    #[error("a banner of {0} bytes")]
    Length(usize),
    #[error("the peer speaks msgr2.0; shoal needs 2.1")]
    Revision0,
    #[error("the peer requires messenger features {0:#x}, which shoal does not have")]
    Required(u64),
}

impl Banner {
    /// The banner of shoal. It requires nothing, as stock does, and refuses a 2.0 peer by the features of that peer.
    pub const OURS: Banner = Banner { supported: FEATURE_REVISION_1, required: 0 };
    pub const LEN: usize = 26;

    pub fn encode(self) -> [u8; Banner::LEN] {
        let mut out = [0; Banner::LEN];
        out[..8].copy_from_slice(PREFIX);
        out[8..10].copy_from_slice(&16u16.to_le_bytes());
        out[10..18].copy_from_slice(&self.supported.to_le_bytes());
        out[18..].copy_from_slice(&self.required.to_le_bytes());
        out
    }

    /// The banner at the start of `input` and its length, `None` until there is enough; an error as soon as the
    /// bytes cannot become a banner that shoal accepts.
    pub fn decode(input: &[u8]) -> Result<Option<(Banner, usize)>, BannerError> {
        let seen = input.len().min(8);
        if input[..seen] != PREFIX[..seen] {
            let v1 = input[..seen] == PREFIX_V1[..seen];
            // "ceph v" begins both: it takes the seventh byte to tell.
            return Err(if v1 { BannerError::MessengerV1 } else { BannerError::NotCeph });
        }
        let Some(len) = input.get(8..10) else { return Ok(None) };
        let len = u16::from_le_bytes([len[0], len[1]]) as usize;
        if !(16..=PAYLOAD_LEN_MAX).contains(&len) {
            return Err(BannerError::Length(len));
        }
        let Some(payload) = input.get(10..10 + len) else { return Ok(None) };
        let word = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        let banner = Banner { supported: word(0), required: word(8) };
        if banner.supported & FEATURE_REVISION_1 == 0 {
            return Err(BannerError::Revision0);
        }
        match banner.required & !Banner::OURS.supported {
            0 => Ok(Some((banner, 10 + len))),
            missing => Err(BannerError::Required(missing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_banner_reads_back_at_any_split() {
        let bytes = Banner::OURS.encode();
        for n in 0..bytes.len() {
            assert_eq!(Banner::decode(&bytes[..n]), Ok(None));
        }
        assert_eq!(Banner::decode(&bytes), Ok(Some((Banner::OURS, Banner::LEN))));
    }

    #[test]
    fn foreign_banners_are_refused_by_name() {
        assert_eq!(Banner::decode(b"ceph v027"), Err(BannerError::MessengerV1));
        assert_eq!(Banner::decode(b"GET / HTTP/1.1"), Err(BannerError::NotCeph));
        assert_eq!(Banner::decode(b"ceph v2\n\xff\xff"), Err(BannerError::Length(0xffff)));
        let old = Banner { supported: 0, required: 0 }.encode();
        assert_eq!(Banner::decode(&old), Err(BannerError::Revision0));
        let demanding = Banner { supported: 3, required: FEATURE_COMPRESSION }.encode();
        assert_eq!(Banner::decode(&demanding), Err(BannerError::Required(FEATURE_COMPRESSION)));
    }
}
