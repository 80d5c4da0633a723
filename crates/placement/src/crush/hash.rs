//! The hash that CRUSH draws with: Robert Jenkins' mix over two, three or four 32-bit words (`CRUSH_HASH_RJENKINS1`).
//!
//! How often and in which order the words meet differs with their number, and is what Ceph's `src/crush/hash.c` does.

/// The only hash function there is; a bucket with another number hashes everything to 0, as in Ceph.
pub(crate) const RJENKINS1: u8 = 0;

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

/// Jenkins' 96-bit mix. Public domain, see <http://burtleburtle.net/bob/hash/evahash.html>.
#[inline(always)]
pub(crate) fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    macro_rules! turn {
        ($p:ident, $q:ident, $r:ident, $shifted:expr) => {
            *$p = $p.wrapping_sub(*$q).wrapping_sub(*$r) ^ $shifted;
        };
    }
    turn!(a, b, c, *c >> 13);
    turn!(b, c, a, *a << 8);
    turn!(c, a, b, *b >> 13);
    turn!(a, b, c, *c >> 12);
    turn!(b, c, a, *a << 16);
    turn!(c, a, b, *b >> 5);
    turn!(a, b, c, *c >> 3);
    turn!(b, c, a, *a << 10);
    turn!(c, a, b, *b >> 15);
}

/// Hash two words.
#[inline]
pub fn hash2(mut a: u32, mut b: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut x, &mut a, &mut hash);
    mix(&mut b, &mut y, &mut hash);
    hash
}

/// Hash three words.
#[inline]
pub fn hash3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b ^ c;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut a, &mut hash);
    mix(&mut b, &mut x, &mut hash);
    mix(&mut y, &mut c, &mut hash);
    hash
}

/// Hash four words.
#[inline]
pub fn hash4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b ^ c ^ d;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut d, &mut hash);
    mix(&mut a, &mut x, &mut hash);
    mix(&mut y, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut d, &mut hash);
    hash
}
