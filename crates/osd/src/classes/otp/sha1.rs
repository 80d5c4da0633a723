//! HMAC-SHA1 (RFC 2104, FIPS 180-1): what one-time passwords are made of.

const BLOCK_LEN: usize = 64;

pub(super) fn hmac(key: &[u8], message: &[u8]) -> [u8; 20] {
    let mut block = [0; BLOCK_LEN];
    if key.len() > BLOCK_LEN {
        block[..20].copy_from_slice(&sha1(&[key]));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = sha1(&[&block.map(|b| b ^ 0x36), message]);
    sha1(&[&block.map(|b| b ^ 0x5c), &inner])
}

fn sha1(pieces: &[&[u8]]) -> [u8; 20] {
    let mut message = pieces.concat();
    let bits = message.len() as u64 * 8;
    message.push(0x80);
    message.resize(message.len().next_multiple_of(BLOCK_LEN), 0);
    if message.len() * 8 - (bits as usize) < 72 {
        message.resize(message.len() + BLOCK_LEN, 0);
    }
    let at = message.len() - 8;
    message[at..].copy_from_slice(&bits.to_be_bytes());
    let mut h = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0u32];
    message.chunks_exact(BLOCK_LEN).for_each(|block| mix(&mut h, block));
    let mut out = [0; 20];
    out.chunks_exact_mut(4).zip(h).for_each(|(out, word)| out.copy_from_slice(&word.to_be_bytes()));
    out
}

fn mix(h: &mut [u32; 5], block: &[u8]) {
    let mut w = [0u32; 80];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    }
    for i in 16..80 {
        w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *h;
    for (i, word) in w.into_iter().enumerate() {
        let (f, k) = match i / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    h.iter_mut().zip([a, b, c, d, e]).for_each(|(h, x)| *h = h.wrapping_add(x));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: [u8; 20]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(hex(sha1(&[b"abc"])), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(sha1(&[two_blocks])), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        // RFC 2202, cases 1, 2 and 6.
        assert_eq!(hex(hmac(&[0x0b; 20], b"Hi There")), "b617318655057264e28bc0b6fb378c8ef146be00");
        assert_eq!(
            hex(hmac(b"Jefe", b"what do ya want for nothing?")),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        let long = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(hex(hmac(&[0xaa; 80], long)), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }
}
