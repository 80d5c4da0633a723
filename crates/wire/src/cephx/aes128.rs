//! The cipher of AES keys: AES-128 in CBC with one fixed initialisation vector and PKCS#7 padding.
//!
//! The same plaintext always gives the same ciphertext, which a proof of the key relies on.

use aes::Aes128;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};

pub(super) const KEY_LEN: usize = 16;
const IV: &[u8; 16] = b"cephsageyudagreg";

/// `key` is at least [`KEY_LEN`] long; more of it is not used.
pub(super) fn encrypt(key: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let cipher = cbc::Encryptor::<Aes128>::new_from_slices(&key[..KEY_LEN], IV);
    cipher.expect("lengths are right").encrypt_padded_vec::<Pkcs7>(plaintext)
}

pub(super) fn decrypt(key: &[u8], ciphertext: &[u8]) -> Option<Vec<u8>> {
    let cipher = cbc::Decryptor::<Aes128>::new_from_slices(&key[..KEY_LEN], IV);
    cipher.expect("lengths are right").decrypt_padded_vec::<Pkcs7>(ciphertext).ok()
}
