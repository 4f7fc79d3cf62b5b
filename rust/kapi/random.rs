// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::kapi::bindings;

/// Fills `buf` with random bytes. Any context.
pub(crate) fn fill(buf: &mut [u8]) {
    // SAFETY: `buf` is valid for writes of its length.
    unsafe { bindings::get_random_bytes(buf.as_mut_ptr().cast(), buf.len()) }
}

/// A random number. Any context.
pub(crate) fn u32() -> u32 {
    let mut buf = [0; 4];
    fill(&mut buf);
    u32::from_ne_bytes(buf)
}
