// SPDX-License-Identifier: GPL-2.0

//! Bytes of a stream, encoded but not accepted by TCP yet.

use crate::kapi::bindings;
use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::page::PAGE_SIZE;

/// Physically contiguous pages with a run of bytes of the stream.
///
/// # Invariants
///
/// - `page` is the first of `cap` bytes of pages mapped at `data`, and a reference of it is ours.
/// - `start <= end <= cap`. Nothing before `end` is written again: TCP may refer to it.
struct Chunk {
    page: NonNull<bindings::page>,
    data: NonNull<u8>,
    cap: usize,
    start: usize,
    end: usize,
}

impl Chunk {
    /// The order of the pages of a chunk, if there is memory.
    const ORDER: u32 = 3;

    /// Allocates a chunk with room for `len` bytes. Any context.
    fn new(len: usize) -> Option<Self> {
        let mut order = Self::ORDER;
        loop {
            let cap = PAGE_SIZE << order;
            if cap < len {
                return None;
            }
            // SAFETY: Always safe to call.
            let page = unsafe { bindings::siw_helper_alloc_tx_pages(order) };
            if let Some(page) = NonNull::new(page) {
                // SAFETY: The pages were just allocated. They are of the kernel's linear mapping.
                let data = unsafe { bindings::siw_helper_page_address(page.as_ptr()) };
                // INVARIANT: As allocated.
                return Some(Self {
                    page,
                    // SAFETY: Mapped pages are not at address 0.
                    data: unsafe { NonNull::new_unchecked(data.cast()) },
                    cap,
                    start: 0,
                    end: 0,
                });
            }
            order = order.checked_sub(1)?;
        }
    }

    fn pending(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    fn room(&self) -> usize {
        self.cap.saturating_sub(self.end)
    }

    /// The bytes that were never given away.
    fn spare(&mut self) -> &mut [u8] {
        // SAFETY: `end <= cap`, by the type invariants.
        let data = unsafe { self.data.add(self.end) };
        // SAFETY: `room()` bytes from there on are ours alone, by the type invariants. They were
        // allocated zeroed.
        unsafe { core::slice::from_raw_parts_mut(data.as_ptr(), self.room()) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the type invariants. What TCP still refers to has
        // references of its own.
        unsafe { bindings::siw_helper_put_page(self.page.as_ptr()) };
    }
}

/// Bytes of a stream that were encoded and wait for TCP to accept them.
///
/// They are in private pages that TCP refers to, and that are never written twice: what is
/// retransmitted or looped back is what the CRC was computed over.
///
/// Keeps its last chunk for what comes next.
pub(crate) struct TxBuf {
    /// A ring of chunks: the first is sent from, the last is written to.
    chunks: [Option<Chunk>; TxBuf::CHUNKS],
    first: usize,
    used: usize,
    /// What the last `reserve()` gave.
    reserved: usize,
}

// SAFETY: The pages are of no particular thread, and used through `&mut self` only.
unsafe impl Send for TxBuf {}
// SAFETY: As above; `&self` only gives numbers.
unsafe impl Sync for TxBuf {}

impl TxBuf {
    /// How many chunks there can be.
    pub(super) const CHUNKS: usize = 16;

    /// The largest contiguous reservation.
    pub(crate) const MAX_FPDU: usize = PAGE_SIZE << Chunk::ORDER;

    /// An empty buffer, with no memory yet.
    pub(crate) const fn new() -> Self {
        Self {
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
    pub(crate) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.reserved = 0;
        if self.last().is_none_or(|last| last.room() < len) {
            if self.used == Self::CHUNKS {
                return None;
            }
            let chunk = Chunk::new(len)?;
            // The last one may have been kept with nothing pending: no need of it any more.
            if self.used == 1 && self.pending() == 0 {
                self.clear();
            }
            let slot = self.first.wrapping_add(self.used) % Self::CHUNKS;
            *self.chunks.get_mut(slot)? = Some(chunk);
            self.used = self.used.saturating_add(1);
        }
        self.reserved = len;
        self.last()?.spare().get_mut(..len)
    }

    /// Makes the first `len` bytes of the last reservation pending.
    pub(crate) fn commit(&mut self, len: usize) {
        let len = len.min(self.reserved);
        self.reserved = 0;
        if let Some(last) = self.last() {
            // INVARIANT: `reserve()` made sure that there is room.
            last.end = last.end.saturating_add(len).min(last.cap);
        }
    }

    /// How many bytes wait for TCP.
    pub(crate) fn pending(&self) -> usize {
        self.chunks.iter().flatten().map(Chunk::pending).sum()
    }

    /// Forgets all that is pending, and frees the memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Describes what is pending; returns how many elements are written, and the bytes in them.
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

    /// Takes note that TCP accepted the first `len` pending bytes.
    pub(super) fn consume(&mut self, mut len: usize) {
        self.reserved = 0;
        while let Some(chunk) = self.chunk(0) {
            let taken = len.min(chunk.pending());
            // INVARIANT: Not beyond `end`.
            chunk.start = chunk.start.saturating_add(taken);
            len = len.saturating_sub(taken);
            // The last chunk stays, if something fits in there.
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
