// SPDX-License-Identifier: GPL-2.0

//! Received data.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::kapi::{
    bindings,
    crc32c::Crc32c, //
};
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    ffi,
    prelude::*, //
};

/// A range of bytes of a socket buffer.
///
/// # Invariants
///
/// `skb` is valid for `'a`; `offset..offset + len` is inside it, and `offset + len` fits an `int`.
#[derive(Clone, Copy)]
pub(crate) struct Skb<'a> {
    skb: *mut bindings::sk_buff,
    offset: usize,
    len: usize,
    _skb: PhantomData<&'a bindings::sk_buff>,
}

impl Skb<'_> {
    /// # Safety
    ///
    /// `skb` must be valid for the lifetime of the result, the range inside it. No buffer is
    /// longer than `INT_MAX`.
    pub(super) unsafe fn new(skb: *mut bindings::sk_buff, offset: usize, len: usize) -> Self {
        // INVARIANT: By the contract of this function.
        Self {
            skb,
            offset,
            len,
            _skb: PhantomData,
        }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A range inside this one.
    pub(crate) fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // INVARIANT: Inside the range, hence inside the buffer.
        Some(Self {
            offset: self.offset.checked_add(offset)?,
            len,
            ..*self
        })
    }

    /// Copies `dst.len()` bytes from `offset` on. Any context.
    pub(crate) fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result {
        // SAFETY: `dst` is valid for writes of its length.
        unsafe { self.copy_to_ptr(offset, dst.as_mut_ptr(), dst.len()) }
    }

    /// Copies `len` bytes from `offset` on. Any context.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for writes of `len` bytes. Others may write there at the same time.
    pub(in crate::kapi) unsafe fn copy_to_ptr(
        &self,
        offset: usize,
        dst: *mut u8,
        len: usize,
    ) -> Result {
        let range = self.sub(offset, len).ok_or(EINVAL)?;
        // CAST: Both fit, by the type invariants.
        // SAFETY: The range is inside the valid buffer by the type invariants; `dst` by the
        // contract of this function.
        to_result(unsafe {
            bindings::skb_copy_bits(
                range.skb,
                range.offset as ffi::c_int,
                dst.cast(),
                range.len as ffi::c_int,
            )
        })
    }

    /// Adds `len` bytes from `offset` on to a CRC. Any context.
    pub(crate) fn crc32c(&self, offset: usize, len: usize, crc: &mut Crc32c) -> Result {
        let range = self.sub(offset, len).ok_or(EINVAL)?;
        if range.is_empty() {
            return Ok(());
        }
        // CAST: Both fit, by the type invariants.
        crc.update_with(|crc| {
            // SAFETY: The range is inside the valid buffer by the type invariants: the BUG_ON()
            // at the end of `skb_crc32c()` does not trigger.
            unsafe {
                bindings::skb_crc32c(
                    range.skb,
                    range.offset as ffi::c_int,
                    range.len as ffi::c_int,
                    crc,
                )
            }
        });
        Ok(())
    }
}
