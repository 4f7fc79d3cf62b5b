// SPDX-License-Identifier: GPL-2.0

//! The CRC of an MPA FPDU (RFC 5044, 4.4): CRC32c as iSCSI has it.

use crate::kapi::bindings;

/// A CRC32c in the making.
///
/// It starts with all ones, its complement is sent, least significant byte first.
#[derive(Clone, Copy)]
pub(crate) struct Crc32c(u32);

impl Crc32c {
    /// The CRC of nothing.
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    /// Goes on with `data`. Any context.
    pub(crate) fn update(&mut self, data: &[u8]) {
        // SAFETY: `data` is valid for reads of its length.
        self.0 = unsafe { bindings::crc32c(self.0, data.as_ptr().cast(), data.len()) };
    }

    /// Goes on with what `f` computes from the state so far.
    pub(in crate::kapi) fn update_with(&mut self, f: impl FnOnce(u32) -> u32) {
        self.0 = f(self.0);
    }

    /// Whether what it has gone over ended with the CRC of all before: then it is this, whatever that was.
    pub(crate) fn is_good(self) -> bool {
        self.finish() == 0x4867_4bc7u32.to_le_bytes()
    }

    /// The CRC as it is on the wire.
    pub(crate) const fn finish(self) -> [u8; 4] {
        (!self.0).to_le_bytes()
    }
}
