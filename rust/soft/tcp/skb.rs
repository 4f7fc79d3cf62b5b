// SPDX-License-Identifier: GPL-2.0

//! Received data.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use base::{
    bindings,
    crc32c::Crc32c, //
};
use core::{
    cell::Cell,
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
    prelude::*, //
};

/// The number of bytes that [`Skb::peek`] looks ahead: all of a small FPDU, or the end of one and
/// the header of the next.
const AHEAD: usize = 128;

/// A contiguous piece of a buffer.
type Piece = bindings::soft_skb_piece;

/// A range of bytes of a socket buffer.
///
/// # Invariants
///
/// - `sk` is a TCP socket that is locked for `'a`, and `skb` is in its receive queue.
/// - `skb` is valid for `'a`; `offset..offset + len` is inside it, and `offset + len` fits an
///   `int`.
/// - The first `ahead_len` bytes of `ahead` are initialised: what is `ahead_at` bytes into the
///   range.
/// - `piece` is a piece of `skb`, which does not change while the socket is locked, or none.
pub struct Skb<'a> {
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
    offset: usize,
    len: usize,
    ahead: MaybeUninit<[u8; AHEAD]>,
    ahead_at: usize,
    ahead_len: usize,
    /// The piece where the bytes begin that were read last.
    piece: Cell<Piece>,
    _skb: PhantomData<&'a bindings::sk_buff>,
}

impl Skb<'_> {
    /// # Safety
    ///
    /// `skb` must be in the receive queue of `sk`, a TCP socket that is locked, for the lifetime
    /// of the result, the range inside it. No buffer is longer than `INT_MAX`.
    pub(super) unsafe fn new(
        sk: *mut bindings::sock,
        skb: *mut bindings::sk_buff,
        offset: usize,
        len: usize,
    ) -> Self {
        // INVARIANT: By the contract of this function; nothing is initialised, and there is no
        // piece.
        Self {
            sk,
            skb,
            offset,
            len,
            ahead: MaybeUninit::uninit(),
            ahead_at: 0,
            ahead_len: 0,
            piece: Cell::new(Piece {
                part: null(),
                index: 0,
                start: 0,
            }),
            _skb: PhantomData,
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The position of `len` bytes from `offset` on in the buffer; `None` if they are not in the
    /// range.
    fn at(&self, offset: usize, len: usize) -> Option<usize> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        self.offset.checked_add(offset)
    }

    /// The bytes from `offset` on, if `ahead` has them.
    fn ahead(&self, offset: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: That many are initialised by the type invariants.
        let ahead = unsafe { slice::from_raw_parts(self.ahead.as_ptr().cast(), self.ahead_len) };
        let from = offset.checked_sub(self.ahead_at)?;
        ahead.get(from..)?.get(..len)
    }

    /// Up to `len` bytes from `offset` on: fewer at the end of the range, and at most 128. Any
    /// context.
    ///
    /// Small consecutive parts are copied out of the buffer at once.
    pub fn peek(&mut self, offset: usize, len: usize) -> Result<&[u8]> {
        let left = self.len.checked_sub(offset).ok_or(EINVAL)?;
        let len = len.min(left).min(AHEAD);
        if self.ahead(offset, len).is_none() {
            self.ahead_len = 0;
            let all = left.min(AHEAD);
            let at = self.at(offset, all).ok_or(EINVAL)?;
            let dst = self.ahead.as_mut_ptr().cast();
            // SAFETY: The range is inside the buffer, and `piece` one of it, by the type
            // invariants. There is room for `AHEAD` bytes.
            unsafe { copy(self.skb, &self.piece, at, dst, all) }?;
            // INVARIANT: Copied above.
            self.ahead_at = offset;
            self.ahead_len = all;
        }
        self.ahead(offset, len).ok_or(EINVAL)
    }

    /// Whether `len` bytes from `offset` on have been received, in this range and behind it.
    pub fn has_come(&self, offset: usize, len: usize) -> bool {
        if self.at(offset, len).is_some() {
            return true;
        }
        let Some(at) = self.at(offset, 0) else {
            return false;
        };
        // CAST: It fits by the type invariants.
        // SAFETY: Both are valid by the type invariants.
        let behind = unsafe { bindings::soft_rx_behind(self.sk, self.skb, at as u32) };
        len <= behind as usize
    }

    /// Calls `f` for each part of `len` bytes from `offset` on, in this buffer and those behind it.
    /// `f` gets the range, the offset in it, and the length. The bytes [have come](Self::has_come).
    fn for_each_part(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(&Self, usize, usize) -> Result,
    ) -> Result {
        let here = len.min(self.len.checked_sub(offset).ok_or(EINVAL)?);
        f(self, offset, here)?;
        let (mut left, mut skb, mut at) = (len - here, self.skb, self.offset + self.len);
        while left != 0 {
            let mut from = 0;
            // CAST: No buffer is longer than `INT_MAX`, by the contract of `new`.
            // SAFETY: Both are valid by the type invariants.
            skb = unsafe { bindings::soft_rx_next(self.sk, skb, at as u32, &mut from) };
            if skb.is_null() {
                return Err(EFAULT);
            }
            // SAFETY: Not null: a buffer in the queue of the locked socket, which stays there.
            let end = unsafe { bindings::skb_len(skb) } as usize;
            let from = from as usize;
            // SAFETY: The buffer is in the queue of the locked socket; `from` is inside.
            let part = unsafe { Self::new(self.sk, skb, from, end - from) };
            let n = left.min(part.len);
            f(&part, 0, n)?;
            left -= n;
            at = end;
        }
        Ok(())
    }

    /// Copies `dst.len()` bytes from `offset` on, in this range and behind it, which
    /// [have come](Self::has_come). Any context.
    pub fn copy_through(&self, offset: usize, dst: &mut [u8]) -> Result {
        let (mut to, len) = (dst.as_mut_ptr(), dst.len());
        self.for_each_part(offset, len, |part, from, n| {
            // SAFETY: The parts are `len` bytes in all.
            unsafe { part.copy_to_ptr(from, to, n) }?;
            // SAFETY: The parts do not exceed `dst`, so `to` ends behind its last byte at the most.
            to = unsafe { to.add(n) };
            Ok(())
        })
    }

    /// Adds `len` bytes from `offset` on, in this range and behind it, which
    /// [have come](Self::has_come), to a CRC. Any context.
    pub fn crc32c_through(&self, offset: usize, len: usize, crc: &mut Crc32c) -> Result {
        self.for_each_part(offset, len, |part, from, n| part.crc32c(from, n, crc))
    }

    /// Copies `len` bytes from `offset` on. Any context.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for writes of `len` bytes. Others may write there at the same time.
    pub unsafe fn copy_to_ptr(&self, offset: usize, dst: *mut u8, len: usize) -> Result {
        if let Some(bytes) = self.ahead(offset, len) {
            // SAFETY: Both are valid for `len` bytes; `dst` is no part of `self`, where nobody else
            // could write.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, len) };
            return Ok(());
        }
        let at = self.at(offset, len).ok_or(EINVAL)?;
        // SAFETY: The range is inside the buffer, and `piece` one of it, by the type invariants;
        // `dst` by the contract of this function.
        unsafe { copy(self.skb, &self.piece, at, dst, len) }
    }

    /// Adds `len` bytes from `offset` on to a CRC. Any context.
    pub fn crc32c(&self, offset: usize, len: usize, crc: &mut Crc32c) -> Result {
        let at = self.at(offset, len).ok_or(EINVAL)?;
        let mut sum = *crc;
        let summed = self.for_each_run(at, len, |data, n| {
            // SAFETY: The run is valid for reads of `n` bytes, by the contract of
            // `for_each_run()`.
            unsafe { sum.update_at(data, n) };
        });
        if summed.is_ok() {
            *crc = sum;
            return Ok(());
        }
        // A copy descends into all lists.
        for from in (0..len).step_by(AHEAD) {
            let mut bytes = [0; AHEAD];
            let n = AHEAD.min(len - from);
            // SAFETY: There is room for `AHEAD` bytes.
            unsafe { self.copy_to_ptr(offset + from, bytes.as_mut_ptr(), n) }?;
            crc.update(bytes.get(..n).ok_or(EINVAL)?);
        }
        Ok(())
    }

    /// Calls `f` with each contiguous run of `len` bytes of the buffer from `at` on.
    ///
    /// A run is valid for reads during the call, and others may write there at the same time.
    /// Fails with `EFAULT` if a byte cannot be read, or is in a list in a list.
    fn for_each_run(&self, at: usize, len: usize, mut f: impl FnMut(NonNull<u8>, usize)) -> Result {
        let (mut done, mut piece) = (0, self.piece.get());
        while done != len {
            let mut run = 0;
            // CAST: It fits by the type invariants.
            let at = (at + done) as u32;
            // SAFETY: The buffer is valid, and `piece` one of it: that of the type invariants, or
            // what the last call has left.
            let data = unsafe { bindings::soft_skb_at(self.skb, at, &mut run, &mut piece) };
            let data = NonNull::new(data.cast_mut()).ok_or(EFAULT)?;
            if done == 0 {
                // INVARIANT: It has just been found in the buffer.
                self.piece.set(piece);
            }
            let run = (run as usize).min(len - done);
            f(data.cast(), run);
            done += run;
        }
        Ok(())
    }
}

/// Copies `len` bytes from `at` on of a buffer. The search begins at `piece`, which gets that of
/// the first byte.
///
/// # Safety
///
/// - `skb` must be a valid buffer with that range, whose end fits an `int`, and `piece` one of it
///   or none.
/// - `dst` must be valid for writes of `len` bytes. It may be part of the buffer, and others may
///   write to both at the same time.
unsafe fn copy(
    skb: *const bindings::sk_buff,
    piece: &Cell<Piece>,
    at: usize,
    dst: *mut u8,
    len: usize,
) -> Result {
    // CAST: Both fit, by the contract of this function.
    let (at, bytes) = (at as u32, len as u32);
    // SAFETY: By the contract of this function; nobody else refers to the value of the cell.
    to_result(unsafe { bindings::soft_skb_copy(skb, at, dst.cast(), bytes, piece.as_ptr()) })
}
