// SPDX-License-Identifier: GPL-2.0

//! Received data.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::kapi::{
    bindings,
    crc32c::{
        is_by_table,
        Crc32c, //
    },
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::{
        null,
        NonNull, //
    },
    slice, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*, //
};

/// How far [`Skb::peek`] looks ahead: all of a small FPDU, or the end of one and the header of the
/// next.
const AHEAD: usize = 128;

/// A range of bytes of a socket buffer.
///
/// # Invariants
///
/// - `skb` is valid for `'a`; `offset..offset + len` is inside it, and `offset + len` fits an `int`.
/// - The first `ahead_len` bytes of `ahead` are initialised: what is `ahead_at` bytes into the range.
pub(crate) struct Skb<'a> {
    skb: *mut bindings::sk_buff,
    offset: usize,
    len: usize,
    ahead: MaybeUninit<[u8; AHEAD]>,
    ahead_at: usize,
    ahead_len: usize,
    _skb: PhantomData<&'a bindings::sk_buff>,
}

impl Skb<'_> {
    /// # Safety
    ///
    /// `skb` must be valid for the lifetime of the result, the range inside it. No buffer is
    /// longer than `INT_MAX`.
    pub(super) unsafe fn new(skb: *mut bindings::sk_buff, offset: usize, len: usize) -> Self {
        // INVARIANT: By the contract of this function; nothing is initialised.
        Self {
            skb,
            offset,
            len,
            ahead: MaybeUninit::uninit(),
            ahead_at: 0,
            ahead_len: 0,
            _skb: PhantomData,
        }
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where `len` bytes from `offset` on are in the buffer; `None` if they are not in the range.
    fn at(&self, offset: usize, len: usize) -> Option<usize> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        self.offset.checked_add(offset)
    }

    /// The bytes from `offset` on, if they are what was looked ahead to.
    fn ahead(&self, offset: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: That many are initialised by the type invariants.
        let ahead = unsafe { slice::from_raw_parts(self.ahead.as_ptr().cast(), self.ahead_len) };
        let from = offset.checked_sub(self.ahead_at)?;
        ahead.get(from..)?.get(..len)
    }

    /// Up to `len` bytes from `offset` on: fewer at the end of the range, and 128 at the most. Any
    /// context.
    ///
    /// Small parts that follow each other are copied out of the buffer in one go.
    pub(crate) fn peek(&mut self, offset: usize, len: usize) -> Result<&[u8]> {
        let left = self.len.checked_sub(offset).ok_or(EINVAL)?;
        let len = len.min(left).min(AHEAD);
        if self.ahead(offset, len).is_none() {
            self.ahead_len = 0;
            let all = left.min(AHEAD);
            let dst = self.ahead.as_mut_ptr().cast();
            // SAFETY: There is room for `AHEAD` bytes.
            unsafe { self.copy_to_ptr(offset, dst, all) }?;
            // INVARIANT: Copied above.
            self.ahead_at = offset;
            self.ahead_len = all;
        }
        self.ahead(offset, len).ok_or(EINVAL)
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
        if let Some(bytes) = self.ahead(offset, len) {
            // SAFETY: Both are valid for `len` bytes; `dst` is no part of `self`, where nobody else
            // could write.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, len) };
            return Ok(());
        }
        let at = self.at(offset, len).ok_or(EINVAL)?;
        // CAST: Both fit, by the type invariants.
        // SAFETY: The range is inside the valid buffer by the type invariants; `dst` by the
        // contract of this function.
        to_result(unsafe {
            bindings::skb_copy_bits(self.skb, at as ffi::c_int, dst.cast(), len as ffi::c_int)
        })
    }

    /// Adds `len` bytes from `offset` on to a CRC. Any context.
    pub(crate) fn crc32c(&self, offset: usize, len: usize, crc: &mut Crc32c) -> Result {
        let at = self.at(offset, len).ok_or(EINVAL)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: The buffer is valid by the type invariants.
        let nested = || unsafe { bindings::siw_helper_skb_has_nested_list(self.skb) };
        // Of a list of buffers `skb_seq_read()` does not see what these have for lists in turn.
        if !is_by_table() || nested() {
            // CAST: Both fit, by the type invariants.
            crc.update_with(|crc| {
                // SAFETY: The range is inside the valid buffer by the type invariants: the
                // BUG_ON() at the end of `skb_crc32c()` does not trigger.
                unsafe { bindings::skb_crc32c(self.skb, at as ffi::c_int, len as ffi::c_int, crc) }
            });
            return Ok(());
        }
        let mut state = MaybeUninit::<bindings::skb_seq_state>::uninit();
        // CAST: Both fit, by the type invariants.
        let (from, to) = (at as u32, (at + len) as u32);
        // SAFETY: The buffer is valid by the type invariants; all of `state` is initialised.
        unsafe { bindings::skb_prepare_seq_read(self.skb, from, to, state.as_mut_ptr()) };
        let mut done = 0;
        loop {
            let mut data = null();
            // SAFETY: As above. It is called until it returns 0, so it unmaps what it maps.
            let run = unsafe { bindings::skb_seq_read(done, &mut data, state.as_mut_ptr()) };
            // What it gives may go on behind the end.
            let run = run.min(to - from - done);
            let Some(data) = NonNull::new(data.cast_mut()).filter(|_| run != 0) else {
                break;
            };
            // SAFETY: `run` bytes are there, until the next call.
            unsafe { crc.update_at(data, run as usize) };
            done += run;
        }
        if done != to - from {
            return Err(EFAULT);
        }
        Ok(())
    }
}
