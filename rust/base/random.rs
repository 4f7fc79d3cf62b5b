// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::bindings::{
    self,
    siphash_key_t, //
};

/// Fills `buf` with random bytes. Any context.
pub fn fill(buf: &mut [u8]) {
    // SAFETY: `buf` is valid for writes of its length.
    unsafe { bindings::get_random_bytes(buf.as_mut_ptr().cast(), buf.len()) }
}

/// A random number. Any context.
pub fn u32() -> u32 {
    let mut buf = [0; 4];
    fill(&mut buf);
    u32::from_ne_bytes(buf)
}

/// A random number. Any context.
pub fn u64() -> u64 {
    let mut buf = [0; 8];
    fill(&mut buf);
    u64::from_ne_bytes(buf)
}

/// A secret pseudorandom function: SipHash with a random key.
///
/// C header: [`include/linux/siphash.h`](srctree/include/linux/siphash.h)
pub struct SipHash(siphash_key_t);

impl SipHash {
    /// A function with a new key. Any context.
    pub fn new() -> Self {
        let word = || u64::from(u32()) << 32 | u64::from(u32());
        Self(siphash_key_t {
            key: [word(), word()],
        })
    }

    /// The value of the function. Any context.
    pub fn hash(&self, [a, b]: [u64; 2]) -> u64 {
        // SAFETY: The key is valid for reads.
        unsafe { bindings::siphash_2u64(a, b, &self.0) }
    }
}
