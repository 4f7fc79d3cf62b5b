// SPDX-License-Identifier: GPL-2.0

//! Text for C.

use core::fmt::{
    self,
    Write, //
};

/// Writes text into an array, truncated at its end.
pub(super) struct Clipped<'a>(core::slice::IterMut<'a, u8>);

impl<'a> Clipped<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self(out.iter_mut())
    }
}

impl Write for Clipped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for byte in s.bytes() {
            *self.0.next().ok_or(fmt::Error)? = byte;
        }
        Ok(())
    }
}
