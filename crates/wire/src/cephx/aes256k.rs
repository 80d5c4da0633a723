//! The cipher of `aes256k` keys: AES256-CTS-HMAC-SHA384-192 of RFC 8009.
//!
//! `AES-256-CBC-CS3(Ke, confounder | plaintext) | HMAC-SHA384(Ki, 16 zeroes | that ciphertext)[..24]`, where Ke and
//! Ki are derived from the key for each usage.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aws_lc_rs::{constant_time, hmac};
use cts::{CbcCs3, Decrypt, Encrypt, KeyIvInit};
use zeroize::Zeroize;

pub(super) const KEY_LEN: usize = 32;
const CONFOUNDER_LEN: usize = 16;
const HASH_LEN: usize = 24;
const IV: [u8; 16] = [0; 16];

/// The usage's keys for encryption and for integrity.
struct Derived {
    ke: [u8; 32],
    ki: [u8; HASH_LEN],
}

pub(super) fn encrypt(
    key: &[u8],
    usage: u32,
    confounder: &[u8; CONFOUNDER_LEN],
    plaintext: &[u8],
) -> Vec<u8> {
    let keys = Derived::new(key, usage);
    let mut out = Vec::with_capacity(CONFOUNDER_LEN + plaintext.len() + HASH_LEN);
    out.extend_from_slice(confounder);
    out.extend_from_slice(plaintext);
    if let Ok(block) = <&mut [u8; 16]>::try_from(&mut out[..]) {
        // The `cts` crate gets a single block wrong; under a zero vector it is the block cipher itself.
        Aes256::new(&Array(keys.ke)).encrypt_block(block.into());
    } else {
        let cipher = CbcCs3::<Aes256>::new_from_slices(&keys.ke, &IV).expect("lengths are right");
        cipher.encrypt(&mut out).expect("there is a whole block");
    }
    let hash = keys.hash(&out);
    out.extend_from_slice(&hash);
    out
}

pub(super) fn decrypt(key: &[u8], usage: u32, ciphertext: &[u8]) -> Option<Vec<u8>> {
    let body_len = ciphertext.len().checked_sub(HASH_LEN).filter(|&n| n >= CONFOUNDER_LEN)?;
    let (body, hash) = ciphertext.split_at(body_len);
    let keys = Derived::new(key, usage);
    constant_time::verify_slices_are_equal(hash, &keys.hash(body)).ok()?;
    let mut out = body.to_vec();
    if let Ok(block) = <&mut [u8; 16]>::try_from(&mut out[..]) {
        Aes256::new(&Array(keys.ke)).decrypt_block(block.into());
    } else {
        let cipher = CbcCs3::<Aes256>::new_from_slices(&keys.ke, &IV).expect("lengths are right");
        cipher.decrypt(&mut out).ok()?;
    }
    out.drain(..CONFOUNDER_LEN);
    Some(out)
}

impl Drop for Derived {
    fn drop(&mut self) {
        self.ke.zeroize();
        self.ki.zeroize();
    }
}

impl Derived {
    fn new(key: &[u8], usage: u32) -> Derived {
        let (mut ke, mut ki) = ([0; 32], [0; HASH_LEN]);
        derive(key, usage, 0xaa, &mut ke);
        derive(key, usage, 0x55, &mut ki);
        Derived { ke, ki }
    }

    fn hash(&self, ciphertext: &[u8]) -> [u8; HASH_LEN] {
        let key = hmac::Key::new(hmac::HMAC_SHA384, &self.ki);
        let mut context = hmac::Context::with_key(&key);
        context.update(&IV);
        context.update(ciphertext);
        context.sign().as_ref()[..HASH_LEN].try_into().expect("SHA-384 is 48 bytes")
    }
}

/// KDF-HMAC-SHA2: `HMAC(key, 1 | usage | purpose | 0 | bits)`, integers big-endian, cut to length.
fn derive(key: &[u8], usage: u32, purpose: u8, out: &mut [u8]) {
    let mut label = [0; 14];
    label[3] = 1;
    label[4..8].copy_from_slice(&usage.to_be_bytes());
    label[8] = purpose;
    label[10..].copy_from_slice(&(8 * out.len() as u32).to_be_bytes());
    let digest = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA384, key), &label);
    out.copy_from_slice(&digest.as_ref()[..out.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(s: &str) -> Vec<u8> {
        (0..s.len() / 2).map(|i| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    const BASE_KEY: &str = "6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52";

    /// RFC 8009, appendix A, "Sample results for key derivation".
    #[test]
    fn keys_are_derived_as_the_rfc_shows() {
        let keys = Derived::new(&hex(BASE_KEY), 2);
        assert_eq!(keys.ke.to_vec(), hex("56AB22BEE63D82D7BC5227F6773F8EA7A5EB1C825160C38312980C442E5C7E49"));
        assert_eq!(keys.ki.to_vec(), hex("69B16514E3CD8E56B82010D5C73012B622C4D00FFC23ED1F"));
    }

    /// RFC 8009, appendix A, "Sample encryptions".
    #[test]
    fn bytes_are_sealed_as_the_rfc_shows() {
        let samples = [
            (
                "",
                "F764E9FA15C276478B2C7D0C4E5F58E4",
                "41F53FA5BFE7026D91FAF9BE959195A058707273A96A40F0A01960621AC612748B9BBFBE7EB4CE3C",
            ),
            (
                "000102030405",
                "B80D3251C1F6471494256FFE712D0B9A",
                "4ED7B37C2BCAC8F74F23C1CF07E62BC7B75FB3F637B9F559C7F664F69EAB7B6092237526EA0D1F61CB20D69D10F2",
            ),
            (
                "000102030405060708090A0B0C0D0E0F",
                "53BF8A0D105265D4E276428624CE5E63",
                "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F68CF51F14D798C2273F35DF574D1F\
                 932E40C4FF255B36A266",
            ),
            (
                "000102030405060708090A0B0C0D0E0F1011121314",
                "763E65367E864F02F55153C7E3B58AF1",
                "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2B2A602AC86FEF6ECB647D6295FAE\
                 077A1FEB517508D2C16B4192E01F62",
            ),
        ];
        let key = hex(BASE_KEY);
        for (plain, confounder, sealed) in samples {
            let confounder = hex(confounder).try_into().unwrap();
            assert_eq!(encrypt(&key, 2, &confounder, &hex(plain)), hex(sealed));
            assert_eq!(decrypt(&key, 2, &hex(sealed)), Some(hex(plain)));
            assert_eq!(decrypt(&key, 3, &hex(sealed)), None, "another usage has other keys");
        }
    }

    #[test]
    fn short_ciphertext_does_not_open() {
        for n in 0..CONFOUNDER_LEN + HASH_LEN {
            assert_eq!(decrypt(&hex(BASE_KEY), 2, &vec![0; n]), None);
        }
    }
}
