// SPDX-License-Identifier: GPL-2.0

//! Pages with bytes of a stream, their allocation and their reuse.

use base::{
    bindings,
    context,
    sync::AccessOnce, //
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    }, //
};

/// Physically contiguous pages with a run of bytes of the stream.
///
/// # Invariants
///
/// - `page` is the first of `cap` bytes of pages mapped at `data`, and this owns a reference of it.
/// - `start <= end <= cap`. Nothing before `end` is written again: TCP may refer to it.
pub(super) struct Chunk {
    pub(super) page: NonNull<bindings::page>,
    data: NonNull<u8>,
    pub(super) cap: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Chunk {
    /// The page order of a whole chunk, if there is memory.
    pub(super) const ORDER: u32 = 3;

    /// A chunk with room for `len` bytes, if there is memory. Any context.
    pub(super) fn new(len: usize) -> Option<Self> {
        Pool::take().or_else(|| Self::allocate(len))
    }

    /// A whole chunk, to be written to from its beginning.
    ///
    /// # Safety
    ///
    /// `page` must be the first of `1 << ORDER` pages of the kernel's linear mapping; a reference
    /// of it passes to the chunk. Nobody else may refer to bytes of it that are not before `end`
    /// when the chunk is first used.
    unsafe fn whole(page: NonNull<bindings::page>) -> Self {
        // SAFETY: By the contract of this function.
        let data = unsafe { bindings::page_address(page.as_ptr()) };
        // INVARIANT: By the contract of this function.
        Self {
            page,
            // SAFETY: Mapped pages are not at address 0.
            data: unsafe { NonNull::new_unchecked(data.cast()) },
            cap: PAGE_SIZE << Self::ORDER,
            start: 0,
            end: 0,
        }
    }

    /// Allocates a chunk, a smaller one if memory is short.
    fn allocate(len: usize) -> Option<Self> {
        let mut order = Self::ORDER;
        loop {
            let cap = PAGE_SIZE << order;
            if cap < len {
                return None;
            }
            // SAFETY: Always safe to call.
            let page = unsafe { bindings::alloc_tx_pages(order) };
            if let Some(page) = NonNull::new(page) {
                // SAFETY: The pages were just allocated. They are of the kernel's linear mapping.
                let data = unsafe { bindings::page_address(page.as_ptr()) };
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

    fn is_whole(&self) -> bool {
        self.cap == PAGE_SIZE << Self::ORDER
    }

    pub(super) fn pending(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    pub(super) fn room(&self) -> usize {
        self.cap.saturating_sub(self.end)
    }

    /// The bytes that wait for TCP.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start <= cap`, by the type invariants.
        let data = unsafe { self.data.add(self.start) };
        // SAFETY: The bytes up to `end` are initialised, and nobody writes them as long as they are
        // pending.
        unsafe { core::slice::from_raw_parts(data.as_ptr(), self.pending()) }
    }

    /// The bytes that were never given away.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        // SAFETY: `end <= cap`, by the type invariants.
        let data = unsafe { self.data.add(self.end) };
        // SAFETY: `room()` bytes from there on are ours alone, by the type invariants. They were
        // allocated zeroed.
        unsafe { core::slice::from_raw_parts_mut(data.as_ptr(), self.room()) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.is_whole() {
            Pool::give(self.page);
            return;
        }
        // SAFETY: The reference is ours by the type invariants. What TCP still refers to has
        // references of its own.
        unsafe { bindings::put_page(self.page.as_ptr()) };
    }
}

/// Pages of sent chunks, of all streams. Pages that TCP no longer refers to are reused, which saves
/// clearing them. Those that came last are in one ring, and those that had to make room for them in
/// another. If the peers are near, the first one is enough, and its pages are still in a cache.
pub(crate) struct Pool;

/// 512 KiB.
static RECENT: Ring<16> = Ring::new();
/// 8 MiB.
static OLDER: Ring<256> = Ring::new();

impl Pool {
    /// Takes the pages of a chunk, and a reference of them. Any context.
    fn give(page: NonNull<bindings::page>) {
        if let Some(older) = RECENT.give(page) {
            if let Some(rest) = OLDER.give(older) {
                put(rest);
            }
        }
    }

    /// One that TCP no longer refers to, if there is one to be found. Any context.
    fn take() -> Option<Chunk> {
        RECENT.take().or_else(|| OLDER.take())
    }

    /// Drops all pages. No stream may send meanwhile.
    pub(crate) fn clear() {
        for Rest(rest) in &RESTS {
            drop(Rest::into_chunk(rest.xchg(0, Acquire)));
        }
        RECENT.clear();
        OLDER.clear();
    }
}

/// Drops the reference of a page that was in a ring.
fn put(page: NonNull<bindings::page>) {
    // SAFETY: The reference was the ring's, and the page is no longer there.
    unsafe { bindings::put_page(page.as_ptr()) };
}

/// Pages in the order in which they came. The oldest one is tried first, because most others are
/// still in flight.
///
/// # Invariants
///
/// Each slot is null, or the first of the pages of a whole chunk, with a reference of it.
struct Ring<const SIZE: usize> {
    slots: [Atomic<*mut bindings::page>; SIZE],
    /// The slots of the next and of the oldest entry. Both are running counts.
    newest: Atomic<u32>,
    oldest: Atomic<u32>,
}

impl<const SIZE: usize> Ring<SIZE> {
    const fn new() -> Self {
        // Running counts wrap around.
        const { assert!(SIZE.is_power_of_two()) };
        // INVARIANT: All are null.
        Self {
            slots: [const { Atomic::new(null_mut()) }; SIZE],
            newest: Atomic::new(0),
            oldest: Atomic::new(0),
        }
    }

    fn slot(&self, at: u32) -> &Atomic<*mut bindings::page> {
        // In range, because of the remainder.
        &self.slots[at as usize % SIZE]
    }

    /// Takes the pages of a chunk, and a reference of them. Returns those that have to make room.
    fn give(&self, page: NonNull<bindings::page>) -> Option<NonNull<bindings::page>> {
        let at = self.newest.fetch_add(1, Relaxed);
        // INVARIANT: As given; what was there is ours.
        NonNull::new(self.slot(at).xchg(page.as_ptr(), Full))
    }

    /// The oldest one, if TCP no longer refers to it.
    fn take(&self) -> Option<Chunk> {
        let (oldest, newest) = (self.oldest.read_once(), self.newest.read_once());
        if oldest == newest {
            return None;
        }
        // Older ones had to make room.
        let ahead = newest.wrapping_sub(oldest);
        let at = oldest.wrapping_add(ahead.saturating_sub(SIZE as u32));
        // INVARIANT: What was there is ours.
        let page = NonNull::new(self.slot(at).xchg(null_mut(), Acquire));
        let free = page.is_some_and(|page| {
            // SAFETY: A reference of it is ours.
            let refs = unsafe { bindings::page_refs(page.as_ptr()) };
            refs == 1
        });
        if let (Some(page), false) = (page, free) {
            // INVARIANT: It goes back, with its reference, or whatever came there instead goes.
            if let Some(other) = NonNull::new(self.slot(at).xchg(page.as_ptr(), Full)) {
                put(other);
            }
            return None;
        }
        self.oldest.write_once(at.wrapping_add(1));
        // SAFETY: From a whole chunk, by the invariants; nobody else has a reference.
        page.map(|page| unsafe { Chunk::whole(page) })
    }

    /// Drops all pages.
    fn clear(&self) {
        for slot in &self.slots {
            // INVARIANT: What was there is ours.
            if let Some(page) = NonNull::new(slot.xchg(null_mut(), Acquire)) {
                put(page);
            }
        }
    }
}

/// The rest of the chunk of a stream that has nothing more to send. The next stream to send on that
/// CPU begins there. So an idle stream holds no pages, and small messages need no new ones.
///
/// # Invariants
///
/// 0, or the physical address of the first byte that was never given away, in the pages of a whole
/// chunk, with a reference of them. It is not the first byte behind them.
#[repr(align(64))]
pub(super) struct Rest(Atomic<u64>);

static RESTS: [Rest; Rest::COUNT] = [const { Rest(Atomic::new(0)) }; Rest::COUNT];

impl Rest {
    /// The number of rests. CPUs whose numbers are equal modulo it share one.
    const COUNT: usize = 64;

    fn here() -> &'static Self {
        // In range, because of the remainder.
        &RESTS[context::cpu() as usize % Self::COUNT]
    }

    /// Leaves what nobody was given of `chunk`, which has nothing pending. Any context.
    pub(super) fn put(chunk: Chunk) {
        if !chunk.is_whole() || chunk.room() == 0 {
            return;
        }
        // The reference is the rest's now.
        let chunk = ManuallyDrop::new(chunk);
        // SAFETY: The pages are the chunk's.
        let base = unsafe { bindings::page_to_phys(chunk.page.as_ptr()) };
        // INVARIANT: There is room, so the address is inside of the pages.
        let rest = base.wrapping_add(chunk.end as u64);
        // A rest that another context has left there meanwhile goes to the pool.
        drop(Self::into_chunk(Self::here().0.xchg(rest, Full)));
    }

    /// The rest on this CPU, if it has room for `len` bytes. Any context.
    pub(super) fn take(len: usize) -> Option<Chunk> {
        // Most of the time there is one: a look before would be one access more.
        Self::into_chunk(Self::here().0.xchg(0, Acquire)).filter(|chunk| chunk.room() >= len)
    }

    /// `rest` is from [`RESTS`], and no longer there.
    fn into_chunk(rest: u64) -> Option<Chunk> {
        if rest == 0 {
            return None;
        }
        // A chunk lies at a multiple of its size, as all pages that are allocated at once do.
        let used = rest % (PAGE_SIZE << Chunk::ORDER) as u64;
        // SAFETY: The address of pages of a whole chunk, by the type invariants.
        let page = unsafe { bindings::phys_to_page(rest.wrapping_sub(used)) };
        let page = NonNull::new(page)?;
        // SAFETY: As above, and the reference is ours now. Others refer to what was given away of
        // the pages at the most, which is before `used`.
        let mut chunk = unsafe { Chunk::whole(page) };
        chunk.start = used as usize;
        chunk.end = used as usize;
        Some(chunk)
    }
}
