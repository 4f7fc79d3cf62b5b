// SPDX-License-Identifier: GPL-2.0

//! Bytes of a stream, encoded but not accepted by TCP yet.

use super::mark::Marker;
use crate::kapi::bindings;
use crate::kapi::context;
use crate::kapi::sync::Atomic;
use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::{
        null_mut,
        NonNull, //
    },
};
use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    },
};

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

    /// A chunk with room for `len` bytes, if there is memory. Any context.
    fn new(len: usize) -> Option<Self> {
        Pool::take().or_else(|| Self::allocate(len))
    }

    /// A whole chunk, to be written to from its beginning.
    ///
    /// # Safety
    ///
    /// `page` must be the first of `1 << ORDER` pages of the kernel's linear mapping; a reference of
    /// it passes to the chunk. Nobody else may refer to bytes of it that are not before `end` when
    /// the chunk is first used.
    unsafe fn whole(page: NonNull<bindings::page>) -> Self {
        // SAFETY: By the contract of this function.
        let data = unsafe { bindings::kapi_page_address(page.as_ptr()) };
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

    /// Allocates a chunk, a smaller one if need be.
    fn allocate(len: usize) -> Option<Self> {
        let mut order = Self::ORDER;
        loop {
            let cap = PAGE_SIZE << order;
            if cap < len {
                return None;
            }
            // SAFETY: Always safe to call.
            let page = unsafe { bindings::kapi_alloc_tx_pages(order) };
            if let Some(page) = NonNull::new(page) {
                // SAFETY: The pages were just allocated. They are of the kernel's linear mapping.
                let data = unsafe { bindings::kapi_page_address(page.as_ptr()) };
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

    fn pending(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    fn room(&self) -> usize {
        self.cap.saturating_sub(self.end)
    }

    /// The bytes that wait for TCP.
    fn bytes(&self) -> &[u8] {
        // SAFETY: `start <= cap`, by the type invariants.
        let data = unsafe { self.data.add(self.start) };
        // SAFETY: The bytes up to `end` are initialised, and nobody writes them as long as they are
        // pending.
        unsafe { core::slice::from_raw_parts(data.as_ptr(), self.pending()) }
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
        if self.is_whole() {
            Pool::give(self.page);
            return;
        }
        // SAFETY: The reference is ours by the type invariants. What TCP still refers to has
        // references of its own.
        unsafe { bindings::kapi_put_page(self.page.as_ptr()) };
    }
}

/// Pages of chunks that were sent, of all streams: those that TCP no longer refers to are used
/// again, which saves clearing them. The oldest one comes first; most others are still in flight.
///
/// # Invariants
///
/// Each of `SLOTS` is null, or the first of the pages of a whole chunk, with a reference of it.
pub(super) struct Pool;

static SLOTS: [Atomic<*mut bindings::page>; Pool::SIZE as usize] =
    [const { Atomic::new(null_mut()) }; Pool::SIZE as usize];
/// Where the next one goes, and where the oldest one may be; both count on for ever.
static NEWEST: Atomic<u32> = Atomic::new(0);
static OLDEST: Atomic<u32> = Atomic::new(0);

impl Pool {
    /// 4 MiB.
    const SIZE: u32 = 128;

    fn slot(at: u32) -> &'static Atomic<*mut bindings::page> {
        // In range, because of the remainder.
        &SLOTS[(at % Self::SIZE) as usize]
    }

    /// Takes the pages of a chunk, and a reference of them. Any context.
    fn give(page: NonNull<bindings::page>) {
        let at = NEWEST.fetch_add(1, Relaxed);
        // INVARIANT: As given; what was there is ours.
        Self::put(Self::slot(at).xchg(page.as_ptr(), Full));
    }

    /// The oldest one, if TCP has let go of it. Any context.
    fn take() -> Option<Chunk> {
        let (oldest, newest) = (OLDEST.load(Relaxed), NEWEST.load(Relaxed));
        if oldest == newest {
            return None;
        }
        // Those before that were overwritten.
        let ahead = newest.wrapping_sub(oldest);
        let at = oldest.wrapping_add(ahead.saturating_sub(Self::SIZE));
        // INVARIANT: What was there is ours.
        let page = NonNull::new(Self::slot(at).xchg(null_mut(), Full));
        let free = page.is_some_and(|page| {
            // SAFETY: A reference of it is ours.
            let refs = unsafe { bindings::kapi_page_refs(page.as_ptr()) };
            refs == 1
        });
        if let (Some(page), false) = (page, free) {
            // INVARIANT: It goes back, with its reference, or whatever came there instead goes.
            let other = Self::slot(at).xchg(page.as_ptr(), Full);
            Self::put(other);
            return None;
        }
        OLDEST.store(at.wrapping_add(1), Relaxed);
        // SAFETY: From a whole chunk, by the invariants; nobody else has a reference.
        page.map(|page| unsafe { Chunk::whole(page) })
    }

    /// Lets go of all pages. Nobody sends meanwhile.
    pub(super) fn clear() {
        for Rest(rest) in &RESTS {
            drop(Rest::into_chunk(rest.xchg(0, Full)));
        }
        for slot in &SLOTS {
            // INVARIANT: What was there is ours.
            Self::put(slot.xchg(null_mut(), Full));
        }
    }

    /// `page` is null or from a slot, and no longer there.
    fn put(page: *mut bindings::page) {
        if !page.is_null() {
            // SAFETY: Its reference was the slot's.
            unsafe { bindings::kapi_put_page(page) };
        }
    }
}

/// What a stream with nothing more to send has left of its chunk. The next one to send on that CPU
/// begins there, so that an idle stream holds no pages, and small messages need no new ones.
///
/// # Invariants
///
/// 0, or the physical address of the first byte that was never given away, in the pages of a whole
/// chunk, with a reference of them. It is not the first byte behind them.
#[repr(align(64))]
struct Rest(Atomic<u64>);

static RESTS: [Rest; Rest::COUNT] = [const { Rest(Atomic::new(0)) }; Rest::COUNT];

impl Rest {
    /// CPUs that are so far apart share one.
    const COUNT: usize = 64;

    fn here() -> &'static Self {
        // In range, because of the remainder.
        &RESTS[context::cpu() as usize % Self::COUNT]
    }

    /// Leaves what nobody was given of `chunk`, which has nothing pending. Any context.
    fn put(chunk: Chunk) {
        if !chunk.is_whole() || chunk.room() == 0 {
            return;
        }
        // The reference is the rest's now.
        let chunk = ManuallyDrop::new(chunk);
        // SAFETY: The pages are the chunk's.
        let base = unsafe { bindings::kapi_page_to_phys(chunk.page.as_ptr()) };
        // INVARIANT: There is room, so the address is inside of the pages.
        let rest = base.wrapping_add(chunk.end as u64);
        // What somebody else has left there meanwhile is for the pool.
        drop(Self::into_chunk(Self::here().0.xchg(rest, Full)));
    }

    /// What was left here, if that is room for `len` bytes. Any context.
    fn take(len: usize) -> Option<Chunk> {
        // Nothing is written if there is nothing.
        let rest = &Self::here().0;
        if rest.load(Relaxed) == 0 {
            return None;
        }
        Self::into_chunk(rest.xchg(0, Full)).filter(|chunk| chunk.room() >= len)
    }

    /// `rest` is from [`RESTS`], and no longer there.
    fn into_chunk(rest: u64) -> Option<Chunk> {
        if rest == 0 {
            return None;
        }
        // A chunk lies at a multiple of its size, as all pages that are allocated at once do.
        let used = rest % (PAGE_SIZE << Chunk::ORDER) as u64;
        // SAFETY: The address of pages of a whole chunk, by the type invariants.
        let page = unsafe { bindings::kapi_phys_to_page(rest.wrapping_sub(used)) };
        let page = NonNull::new(page)?;
        // SAFETY: As above, and the reference is ours now. Others refer to what was given away of the
        // pages at the most, which is before `used`.
        let mut chunk = unsafe { Chunk::whole(page) };
        chunk.start = used as usize;
        chunk.end = used as usize;
        Some(chunk)
    }
}

/// Bytes in pages of anybody, to be sent by reference.
///
/// # Invariants
///
/// Each element of `runs` describes a part of a page, which it has a reference of. All in front of
/// `first` is with TCP, and has none any more. There is room for `MAX` elements, or none.
struct Shared {
    runs: KVec<bindings::bio_vec>,
    first: usize,
    /// The mark of all of them.
    marker: Option<Marker>,
    /// No more of the message will come.
    complete: bool,
}

impl Shared {
    const MAX: usize = 128;

    const fn new() -> Self {
        Self {
            runs: KVec::new(),
            first: 0,
            marker: None,
            complete: false,
        }
    }

    /// Sees to it that there is room for `n` runs.
    fn make_room(&mut self, n: usize) -> bool {
        if self.runs.capacity() == 0 {
            match KVec::with_capacity(Self::MAX, GFP_ATOMIC | __GFP_NOWARN) {
                Ok(runs) => self.runs = runs,
                Err(_) => return false,
            }
        }
        let left = self.first..self.runs.len();
        if self.first != 0 && self.runs.spare_capacity_mut().len() < n {
            let count = left.len();
            self.runs.copy_within(left, 0);
            // INVARIANT: Those that are with TCP are forgotten.
            self.runs.truncate(count);
            self.first = 0;
        }
        self.runs.spare_capacity_mut().len() >= n
    }

    /// Appends `len` bytes at `addr`; whether there was room.
    ///
    /// # Safety
    ///
    /// They must be in one allocation of pages that are in the kernel's linear mapping, not of the
    /// slab allocator, and referenced by somebody now.
    unsafe fn push(&mut self, addr: *const u8, len: usize) -> bool {
        if self.runs.spare_capacity_mut().is_empty() {
            return false;
        }
        // SAFETY: By the contract of this function.
        let page = unsafe { bindings::kapi_get_page_of(addr.cast()) };
        let run = bindings::bio_vec {
            bv_page: page,
            bv_len: len as u32,
            bv_offset: (addr as usize % PAGE_SIZE) as u32,
        };
        // INVARIANT: With the reference just taken.
        self.runs.push_within_capacity(run).is_ok()
    }

    /// Forgets the last runs: only `len` of them stay.
    fn cut(&mut self, len: usize) {
        while self.runs.len() > len.max(self.first) {
            if let Some(run) = self.runs.pop() {
                // SAFETY: Its reference is ours by the type invariants.
                unsafe { bindings::kapi_put_page(run.bv_page) };
            }
        }
    }

    fn pending(&self) -> &[bindings::bio_vec] {
        self.runs.get(self.first..).unwrap_or(&[])
    }

    fn consume(&mut self, mut len: usize) {
        while let Some(run) = self.runs.get_mut(self.first) {
            let taken = len.min(run.bv_len as usize);
            len -= taken;
            run.bv_offset += taken as u32;
            run.bv_len -= taken as u32;
            if run.bv_len != 0 {
                return;
            }
            // SAFETY: Our reference by the type invariants; TCP has its own.
            unsafe { bindings::kapi_put_page(run.bv_page) };
            // INVARIANT: That one has none any more.
            self.first += 1;
        }
        self.runs.clear();
        self.first = 0;
        self.end();
    }

    /// Puts the mark on no more buffers, if TCP has all that it was for.
    fn end(&mut self) {
        if self.complete && self.runs.is_empty() {
            self.marker = None;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cut(0);
    }
}

/// Bytes of a stream that were encoded and wait for TCP to accept them.
///
/// Those that were copied are in private pages that TCP refers to, and that are never written
/// twice: what is retransmitted or looped back is what the CRC was computed over. Others may be
/// sent from where they are; they all come before those that were copied.
///
/// Keeps its last chunk for what comes next, until [`Self::rest`].
pub(crate) struct TxBuf {
    shared: Shared,
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

    /// See [`Self::few`].
    const FEW: usize = 512;

    /// The largest contiguous reservation.
    pub(crate) const MAX_FPDU: usize = PAGE_SIZE << Chunk::ORDER;

    /// An empty buffer, with no memory yet.
    pub(crate) const fn new() -> Self {
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
    pub(crate) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
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
            // The last one may have been kept with nothing pending: no need of it any more.
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
    pub(crate) fn commit(&mut self, len: usize) {
        let len = len.min(self.reserved);
        self.reserved = 0;
        if let Some(last) = self.last() {
            // INVARIANT: `reserve()` made sure that there is room.
            last.end = last.end.saturating_add(len).min(last.cap);
        }
    }

    /// Lets other streams have what is left of the last chunk, if nothing is pending. Any context.
    pub(crate) fn rest(&mut self) {
        self.reserved = 0;
        if self.used != 1 || self.chunk(0).is_none_or(|chunk| chunk.pending() != 0) {
            return;
        }
        if let Some(chunk) = self.chunks.get_mut(self.first).and_then(Option::take) {
            self.used = 0;
            Rest::put(chunk);
        }
    }

    /// How many bytes that were copied wait for TCP.
    pub(crate) fn pending(&self) -> usize {
        self.chunks.iter().flatten().map(Chunk::pending).sum()
    }

    /// Whether a message may be begun that is sent by reference: there is nothing pending. Any
    /// context.
    pub(crate) fn can_begin_shared(&self) -> bool {
        self.pending() == 0 && self.shared.pending().is_empty()
    }

    /// Begins a message that is sent by reference, with a mark of its own. Any context.
    pub(crate) fn begin_shared(&mut self, marker: Marker) {
        self.shared.complete = false;
        self.shared.marker = Some(marker);
    }

    /// All of that message was appended. Any context.
    pub(crate) fn end_shared(&mut self) {
        self.shared.complete = true;
        self.shared.end();
    }

    /// Whether `n` pages or parts of one may be appended by [`Self::share`] and
    /// [`Self::commit_shared`]. Not behind what was copied. Any context.
    pub(crate) fn can_share(&mut self, n: usize) -> bool {
        self.pending() == 0 && self.shared.make_room(n)
    }

    /// Makes the first `len` bytes of the last reservation pending, to be sent by reference.
    pub(crate) fn commit_shared(&mut self, len: usize) -> bool {
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

    /// Makes `len` bytes at `addr` pending, which stay there: whether there was room.
    ///
    /// # Safety
    ///
    /// They must be in one page of the kernel's linear mapping, not of the slab allocator, and
    /// pinned by somebody now.
    pub(in crate::kapi) unsafe fn share(&mut self, addr: *const u8, len: usize) -> bool {
        // SAFETY: By the contract of this function.
        unsafe { self.shared.push(addr, len) }
    }

    /// Where the bytes shared from now on begin, for [`Self::unshare`].
    pub(crate) fn mark(&self) -> usize {
        self.shared.runs.len()
    }

    /// Takes back what was shared since [`Self::mark`].
    pub(crate) fn unshare(&mut self, mark: usize) {
        self.shared.cut(mark);
    }

    /// What is to be sent by reference, before anything else.
    pub(super) fn shared(&self) -> &[bindings::bio_vec] {
        self.shared.pending()
    }

    /// The mark of what is to be sent by reference, for `msg_ubuf`.
    pub(super) fn marker(&self) -> Option<*mut bindings::ubuf_info> {
        self.shared.marker.as_ref().map(Marker::as_raw)
    }

    /// Takes note that TCP accepted the first `len` bytes of [`Self::shared`].
    pub(super) fn consume_shared(&mut self, len: usize) {
        self.shared.consume(len);
    }

    /// All that is pending, if it is so little that a copy is cheaper than a page of its own in the
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

    /// Takes note that TCP has copied the first `len` bytes of [`Self::few`].
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
