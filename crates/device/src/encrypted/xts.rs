//! AES-256-XTS over blocks of the device, by AWS-LC. The tweak is the number of the block.
//!
//! aws-lc-rs, the safe interface, has no XTS, so the functions of the library are called directly. The library chooses the
//! implementation at run time: VAES with AVX-512, AES-NI, ARM's instructions, or portable code.

use crate::BLOCK;
use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate,
    EVP_aes_256_xts,
};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};
use zeroize::Zeroizing;

/// Bytes of a data key: two keys of AES-256.
pub const DATA_KEY_BYTES: usize = 64;

/// The key that all blocks of a device are encrypted with. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; DATA_KEY_BYTES]>);

impl DataKey {
    /// `None` if both halves are equal: XTS with such a key is insecure, and the library refuses it.
    pub fn new(bytes: &[u8; DATA_KEY_BYTES]) -> Option<DataKey> {
        let (first, second) = bytes.split_at(DATA_KEY_BYTES / 2);
        (first != second).then(|| DataKey(Zeroizing::new(*bytes)))
    }

    pub fn bytes(&self) -> &[u8; DATA_KEY_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKey")
    }
}

/// One direction of the cipher with its expanded key, which the library wipes when it is dropped.
pub(super) struct Xts(NonNull<EVP_CIPHER_CTX>);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Decrypt = 0,
    Encrypt = 1,
}

#[allow(unsafe_code, reason = "the library has a C interface")]
impl Xts {
    pub fn new(key: &DataKey, direction: Direction) -> Xts {
        // SAFETY: no arguments. The result is owned here and freed once, by `drop`.
        let context = Xts(NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).expect("memory for a cipher"));
        // SAFETY: the context is valid, the key has the 64 bytes that the cipher reads, and a null tweak is set later.
        let is_ready = unsafe {
            let key = key.bytes().as_ptr();
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                null_mut(),
                key,
                null(),
                direction as i32,
            )
        };
        assert_eq!(is_ready, 1, "the halves of a data key differ");
        context
    }

    /// Appends the result for block `number` to `out`.
    pub fn append(&mut self, number: u64, from: &[u8], out: &mut Vec<u8>) {
        assert_eq!(from.len(), BLOCK);
        out.reserve(BLOCK);
        let room = &mut out.spare_capacity_mut()[..BLOCK];
        // SAFETY: `from` and `room` are blocks, and are distinct, as `out` is borrowed mutably.
        unsafe { self.block(number, from.as_ptr(), room.as_mut_ptr()) };
        // SAFETY: the block behind the old length is initialised.
        unsafe { out.set_len(out.len() + BLOCK) };
    }

    /// Replaces block `number` by the result.
    pub fn in_place(&mut self, number: u64, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK);
        let start = block.as_mut_ptr();
        // SAFETY: a block that is borrowed mutably; the library allows equal addresses.
        unsafe { self.block(number, start, start.cast()) };
    }

    /// # Safety
    /// `from` is readable and `to` writable for a block; they are equal or do not overlap.
    unsafe fn block(&mut self, number: u64, from: *const u8, to: *mut MaybeUninit<u8>) {
        let tweak = u128::from(number).to_le_bytes();
        let mut len = 0;
        // SAFETY: the context is valid and has its key; the tweak has 16 bytes; a direction of -1 keeps that of the key. The
        // caller guarantees the block. XTS writes as much as it reads.
        let is_done = unsafe {
            let context = self.0.as_ptr();
            EVP_CipherInit_ex(context, null(), null_mut(), null(), tweak.as_ptr(), -1) == 1
                && EVP_CipherUpdate(context, to.cast(), &mut len, from, BLOCK as i32) == 1
        };
        assert!(is_done && len == BLOCK as i32, "the cipher takes whole blocks");
    }
}

#[allow(unsafe_code, reason = "the counterpart of the allocation")]
impl Drop for Xts {
    fn drop(&mut self) {
        // SAFETY: made by `EVP_CIPHER_CTX_new`, and not freed before.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DataKey {
        DataKey::new(&std::array::from_fn(|i| i as u8)).unwrap()
    }

    /// XTS from its definition (IEEE 1619), on AES of one block by the same library's other interface.
    fn defined(key: &DataKey, number: u64, block: &[u8]) -> Vec<u8> {
        let cipher = |key: &[u8], block: [u8; 16]| {
            let mut out = [0; 16];
            let mut expanded = MaybeUninit::<aws_lc_sys::AES_KEY>::uninit();
            #[allow(unsafe_code, reason = "the library has a C interface")]
            // SAFETY: a key of 256 bits, and blocks of 16 bytes.
            unsafe {
                aws_lc_sys::AES_set_encrypt_key(key.as_ptr(), 256, expanded.as_mut_ptr());
                aws_lc_sys::AES_encrypt(block.as_ptr(), out.as_mut_ptr(), expanded.as_ptr());
            }
            u128::from_le_bytes(out)
        };
        let (first, second) = key.bytes().split_at(32);
        let mut tweak = cipher(second, u128::from(number).to_le_bytes());
        let mut out = Vec::new();
        for part in block.chunks(16) {
            let plain = u128::from_le_bytes(part.try_into().unwrap());
            let masked = cipher(first, (plain ^ tweak).to_le_bytes()) ^ tweak;
            out.extend_from_slice(&masked.to_le_bytes());
            tweak = tweak << 1 ^ if tweak >> 127 == 1 { 0x87 } else { 0 };
        }
        out
    }

    #[test]
    fn cipher_equals_the_definition_of_xts() {
        let block: Vec<u8> = (0..BLOCK).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut encrypt = Xts::new(&key(), Direction::Encrypt);
        let mut decrypt = Xts::new(&key(), Direction::Decrypt);
        for number in [0, 1, 0x1234_5678_9abc] {
            let mut out = Vec::new();
            encrypt.append(number, &block, &mut out);
            assert_eq!(out, defined(&key(), number, &block));
            let mut same = block.clone();
            encrypt.in_place(number, &mut same);
            assert_eq!(same, out);
            decrypt.in_place(number, &mut same);
            assert_eq!(same, block);
            decrypt.in_place(number + 1, &mut out);
            assert_ne!(out, block, "a block at another place");
        }
    }

    #[test]
    fn key_of_equal_halves_is_refused() {
        assert!(DataKey::new(&[7; 64]).is_none());
        assert_eq!(format!("{:?}", key()), "DataKey");
    }
}
