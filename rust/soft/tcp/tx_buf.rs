// SPDX-License-Identifier: GPL-2.0

//! Bytes of a stream, encoded but not accepted by TCP yet.

mod chunk;
mod shared;

pub(super) use self::chunk::Pool;
use crate::tcp::{
    mark::Marker,
    tx_buf::{
        chunk::{
            Chunk,
            Rest, //
        },
        shared::Shared, //
    }, //
};
use base::bindings;
use core::mem::MaybeUninit;
use kernel::page::PAGE_SIZE;

/// Bytes of a stream that were encoded and wait for TCP to accept them.
///
/// Copied bytes are in private pages that TCP refers to. No byte there is written twice, so
/// retransmitted and looped-back bytes are those that the CRC was computed over. Other bytes may be
/// sent by reference. They all come before the copied ones.
///
/// The last chunk is kept for the next bytes, until [`Self::rest`].
pub struct TxBuf {
    shared: Shared,
    /// A ring of chunks. Bytes are sent from the first and written to the last.
    chunks: [Option<Chunk>; TxBuf::CHUNKS],
    first: usize,
    used: usize,
    /// The result of the last `reserve()`.
    reserved: usize,
}

// SAFETY: The pages are of no particular thread, and used through `&mut self` only.
unsafe impl Send for TxBuf {}
// SAFETY: As above; `&self` only gives numbers.
unsafe impl Sync for TxBuf {}

impl TxBuf {
    /// The maximum number of chunks.
    pub(super) const CHUNKS: usize = 16;

    /// See [`Self::few`].
    const FEW: usize = 512;

    /// The largest contiguous reservation.
    pub const MAX_FPDU: usize = PAGE_SIZE << Chunk::ORDER;

    /// An empty buffer, without memory.
    pub const fn new() -> Self {
        Self {
            shared: Shared::new(),
            chunks: [const { None }; Self::CHUNKS],
            first: 0,
            used: 0,
            reserved: 0,
        }
    }

    /// The `n`th chunk in use.
    fn chunk(&mut self, n: usize) -> Option<&mut Chunk> {
        let slot = self.first.wrapping_add(n) % Self::CHUNKS;
        self.chunks.get_mut(slot)?.as_mut()
    }

    fn last(&mut self) -> Option<&mut Chunk> {
        self.chunk(self.used.checked_sub(1)?)
    }

    /// Room for `len` contiguous bytes at the end of the stream. Any context.
    ///
    /// All of it must be written before [`Self::commit`]. `None`: no memory now, more than
    /// [`Self::MAX_FPDU`], or so much is pending that some must be sent first.
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.reserved = 0;
        if self.last().is_none_or(|last| last.room() < len) {
            if self.used == Self::CHUNKS {
                return None;
            }
            let rest = match self.used {
                0 => Rest::take(len),
                _ => None,
            };
            let chunk = match rest {
                Some(rest) => rest,
                None => Chunk::new(len)?,
            };
            // The last chunk may be kept with nothing pending. It is not needed any more.
            if self.used == 1 && self.pending() == 0 {
                self.chunks = [const { None }; Self::CHUNKS];
                self.used = 0;
            }
            let slot = self.first.wrapping_add(self.used) % Self::CHUNKS;
            *self.chunks.get_mut(slot)? = Some(chunk);
            self.used = self.used.saturating_add(1);
        }
        self.reserved = len;
        self.last()?.spare().get_mut(..len)
    }

    /// Makes the first `len` bytes of the last reservation pending.
    pub fn commit(&mut self, len: usize) {
        let len = len.min(self.reserved);
        self.reserved = 0;
        if let Some(last) = self.last() {
            // INVARIANT: `reserve()` made sure that there is room.
            last.end = last.end.saturating_add(len).min(last.cap);
        }
    }

    /// Leaves the rest of the last chunk to other streams, if nothing is pending. Any context.
    pub fn rest(&mut self) {
        self.reserved = 0;
        if self.used != 1 || self.chunk(0).is_none_or(|chunk| chunk.pending() != 0) {
            return;
        }
        if let Some(chunk) = self.chunks.get_mut(self.first).and_then(Option::take) {
            self.used = 0;
            Rest::put(chunk);
        }
    }

    /// The number of copied bytes that wait for TCP.
    pub fn pending(&self) -> usize {
        self.chunks.iter().flatten().map(Chunk::pending).sum()
    }

    /// Whether a message to be sent by reference may be begun: nothing is pending. Any context.
    pub fn can_begin_shared(&self) -> bool {
        self.pending() == 0 && self.shared.pending().is_empty()
    }

    /// Begins a message that is sent by reference, with a mark of its own. Any context.
    pub fn begin_shared(&mut self, marker: Marker) {
        self.shared.complete = false;
        self.shared.marker = Some(marker);
    }

    /// Ends the message that is sent by reference: all of it was appended. Any context.
    pub fn end_shared(&mut self) {
        self.shared.complete = true;
        self.shared.end();
    }

    /// Whether `n` pages or parts of one may be appended by [`Self::share`] and
    /// [`Self::commit_shared`]. Not behind what was copied. Any context.
    pub fn can_share(&mut self, n: usize) -> bool {
        self.pending() == 0 && self.shared.make_room(n)
    }

    /// Makes the first `len` bytes of the last reservation pending, to be sent by reference.
    pub fn commit_shared(&mut self, len: usize) -> bool {
        let len = len.min(self.reserved);
        self.reserved = 0;
        let Some(last) = self.last() else {
            return false;
        };
        let addr = last.spare().as_ptr();
        // INVARIANT: `reserve()` made sure that there is room. They are not sent from here.
        last.end = last.end.saturating_add(len).min(last.cap);
        last.start = last.end;
        // SAFETY: They are inside of the pages of the chunk, whose reference is ours.
        unsafe { self.shared.push(addr, len) }
    }

    /// Makes `len` bytes at `addr` pending, by reference. Returns whether there was room.
    ///
    /// # Safety
    ///
    /// They must be in one page of the kernel's linear mapping, not of the slab allocator, and
    /// pinned during the call.
    pub unsafe fn share(&mut self, addr: *const u8, len: usize) -> bool {
        // SAFETY: By the contract of this function.
        unsafe { self.shared.push(addr, len) }
    }

    /// The position of the next shared byte, for [`Self::unshare`].
    pub fn mark(&self) -> usize {
        self.shared.runs.len()
    }

    /// Removes the bytes that were shared since [`Self::mark`].
    pub fn unshare(&mut self, mark: usize) {
        self.shared.cut(mark);
    }

    /// The bytes to be sent by reference, before all others.
    pub(super) fn shared(&self) -> &[bindings::bio_vec] {
        self.shared.pending()
    }

    /// The mark of the bytes to be sent by reference, for `msg_ubuf`.
    pub(super) fn marker(&self) -> Option<*mut bindings::ubuf_info> {
        self.shared.marker.as_ref().map(Marker::as_raw)
    }

    /// Removes the first `len` bytes of [`Self::shared`], which TCP accepted.
    pub(super) fn consume_shared(&mut self, len: usize) {
        self.shared.consume(len);
    }

    /// All pending bytes, if they are so few that a copy is cheaper than a page of their own in the
    /// socket buffer.
    #[inline]
    pub(super) fn few(&mut self) -> Option<&[u8]> {
        if self.used != 1 || !self.shared().is_empty() {
            return None;
        }
        let chunk = self.chunk(0)?;
        (1..=Self::FEW)
            .contains(&chunk.pending())
            .then(|| chunk.bytes())
    }

    /// Removes the first `len` bytes of [`Self::few`], which TCP copied.
    #[inline]
    pub(super) fn forget_few(&mut self, len: usize) {
        self.reserved = 0;
        let Some(chunk) = self.chunk(0) else {
            return;
        };
        // INVARIANT: Not beyond `end`. Of what was pending nothing is given away, so if that is all
        // there is room again where it was.
        if len >= chunk.pending() {
            chunk.end = chunk.start;
        } else {
            chunk.start = chunk.start.saturating_add(len);
        }
    }

    /// Describes the pending bytes. Returns the number of elements written and of bytes in them.
    pub(super) fn fill(
        &mut self,
        bvec: &mut [MaybeUninit<bindings::bio_vec>; Self::CHUNKS],
    ) -> (u32, usize) {
        let mut n = 0;
        let mut len = 0usize;
        let mut slots = bvec.iter_mut();
        for i in 0..self.used {
            let Some(chunk) = self.chunk(i).filter(|chunk| chunk.pending() > 0) else {
                continue;
            };
            let Some(slot) = slots.next() else {
                break;
            };
            slot.write(bindings::bio_vec {
                bv_page: chunk.page.as_ptr(),
                bv_len: chunk.pending() as u32,
                bv_offset: chunk.start as u32,
            });
            n += 1;
            len = len.saturating_add(chunk.pending());
        }
        (n, len)
    }

    /// Removes the first `len` pending bytes, which TCP accepted.
    pub(super) fn consume(&mut self, mut len: usize) {
        self.reserved = 0;
        while let Some(chunk) = self.chunk(0) {
            let taken = len.min(chunk.pending());
            // INVARIANT: Not beyond `end`.
            chunk.start = chunk.start.saturating_add(taken);
            len = len.saturating_sub(taken);
            // The last chunk is kept if it has room.
            if chunk.pending() > 0 || (self.used == 1 && self.has_room()) {
                break;
            }
            if let Some(slot) = self.chunks.get_mut(self.first) {
                *slot = None;
            }
            self.first = self.first.wrapping_add(1) % Self::CHUNKS;
            self.used = self.used.saturating_sub(1);
        }
    }

    fn has_room(&mut self) -> bool {
        self.last().is_some_and(|last| last.room() > 0)
    }
}
