// SPDX-License-Identifier: GPL-2.0

//! User memory whose pages come on demand, and go when the kernel wants them back.
//!
//! C header: [`include/linux/hmm.h`](srctree/include/linux/hmm.h)
//!
//! A table has the kernel's addresses of the pages that are there. A page gets into it in process
//! context, with a mutex of the memory locked and no notifier of the MM about to take the
//! page away. Before the kernel takes it away, a notifier clears its entry and waits for those who
//! may have read the entry. They are inside of a gate, which is entered inside of the region's. So
//! nobody reads or writes a page that is no longer the program's.

use core::ptr::{
    null_mut,
    NonNull, //
};

use kernel::{
    container_of,
    error::{
        from_err_ptr,
        to_result, //
    },
    impl_has_work,
    new_work,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

use crate::mem::{
    page_layout::PageLayout,
    programs::{
        Member,
        Programs, //
    }, //
};
use base::{
    bindings::{
        self,
        soft_gate,
        soft_odp,
        soft_odp_range, //
    },
    release::ReleaseRef,
    sync::AccessOnce,
    wq::WorkQueue, //
};

/// Pages of a leaf of the table. A fault brings at most so many at once.
const LEAF: usize = 512;

/// The most leaves: those of a TiB, whose pointers take 4 MiB.
const MAX_LEAVES: usize = 1 << 19;

/// Flags of an entry, whose other bits are the address of a page.
///
/// The page may be used.
const PRESENT: usize = 1;
/// It may be written to, too.
const WRITABLE: usize = 2;

/// Entries of the table, each 0 or the address of a page with flags. One that has only the address
/// is being cleared.
type Leaf = [Atomic<usize>; LEAF];

/// Returns the range of `pages` pages of the current process from `first` on, which is the address
/// of one. May sleep.
fn range(first: usize, pages: usize) -> Result<NonNull<soft_odp_range>> {
    // SAFETY: The address is aligned, and the pages end where addresses do, or before.
    let range = from_err_ptr(unsafe { bindings::soft_odp_get(first, pages) })?;
    NonNull::new(range).ok_or(EFAULT)
}

/// # Invariants
///
/// `odp` came from `soft_odp_get`, and knows `owner` as soon as it is in an [`OdpUmem`]. The
/// pointers in `leaves` are null or from a `KBox`, and stay.
#[pin_data(PinnedDrop)]
struct Inner {
    #[pin]
    work: Work<Self>,
    #[pin]
    owner: Opaque<soft_odp>,
    #[pin]
    gate: Opaque<soft_gate>,
    odp: NonNull<soft_odp_range>,
    leaves: KVVec<Atomic<*mut Leaf>>,
    layout: PageLayout,
    start: u64,
    len: u64,
    /// Counts the pages that are taken away.
    taken: Arc<Atomic<u64>>,
    member: Member,
    /// Dropped last: the end of the module waits for it.
    user: ReleaseRef,
}

/// User memory on demand.
///
/// # Invariants
///
/// The box is there until it is dropped.
pub struct OdpUmem(Option<Pin<KBox<Inner>>>);

// SAFETY: What changes is atomic, or under the mutex of `odp`.
unsafe impl Send for OdpUmem {}

// SAFETY: As above; a data race on the pages is one with the user, whose memory it is.
unsafe impl Sync for OdpUmem {}

// SAFETY: Any thread may release it.
unsafe impl Send for Inner {}

impl_has_work! {
    impl HasWork<Self> for Inner { self.work }
}

impl WorkItem for Inner {
    type Pointer = Pin<KBox<Self>>;

    /// Gives the memory back.
    fn run(this: Pin<KBox<Self>>) {
        drop(this);
    }
}

impl OdpUmem {
    /// Memory of the current process, `len` bytes from `start` on. No page is touched. `taken`
    /// counts the pages that the kernel takes away. May sleep.
    pub fn get(
        start: u64,
        len: u64,
        programs: &Arc<Programs>,
        taken: Arc<Atomic<u64>>,
        user: ReleaseRef,
    ) -> Result<Self> {
        start.checked_add(len).filter(|_| len != 0).ok_or(EINVAL)?;
        let layout = PageLayout::new(PAGE_SHIFT as u32, start).ok_or(EINVAL)?;
        let pages = layout.pages(len).ok_or(EINVAL)?;
        let count = usize::try_from(pages.div_ceil(LEAF as u64)).map_err(|_| ENOMEM)?;
        // A program may ask for all of its address space, but not for all memory.
        if count > MAX_LEAVES {
            return Err(ENOMEM);
        }
        let mut leaves = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            leaves
                .push_within_capacity(Atomic::new(null_mut()))
                .map_err(|_| ENOMEM)?;
        }
        let member = programs.join()?;
        let first = (start as usize) & !(PAGE_SIZE - 1);
        let inner = KBox::try_pin_init(
            try_pin_init!(Inner {
                work <- new_work!("odp"),
                owner: Opaque::new(soft_odp { clear: Some(clear) }),
                // SAFETY: The place of the gate is valid, and stays.
                gate <- Opaque::ffi_init(|gate| unsafe { bindings::soft_gate_init(gate) }),
                leaves,
                layout,
                start,
                len,
                taken,
                member,
                user,
                // INVARIANT: The list of leaves has only null pointers.
                odp: range(first, pages as usize)?,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The memory is valid. The owner stays until `soft_odp_release` has returned.
        unsafe { bindings::soft_odp_own(inner.odp.as_ptr(), inner.owner.get()) };
        // INVARIANT: It is there.
        Ok(Self(Some(inner)))
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.len)
    }

    /// The address of the first byte in the program.
    pub fn start(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.start)
    }

    /// Whether it is of the current process. Process context.
    pub fn is_of_current(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            // SAFETY: Valid by the type invariants.
            unsafe { bindings::soft_odp_is_of_current(inner.odp.as_ptr()) }
        })
    }

    /// The queue of the program, for items that bring its pages.
    pub fn queue(&self) -> Option<&WorkQueue> {
        self.0.as_ref()?.member.queue()
    }

    /// Whether 64 bits at `offset` are aligned and in one page.
    pub(super) fn is_word(&self, offset: u64) -> Option<bool> {
        let place = self.0.as_ref()?.layout.locate(offset)?;
        Some(place.within % size_of::<u64>() == 0)
    }

    /// Enters the gate: pages that [`Inside::locate`] finds stay until the guard is dropped. For
    /// one piece of work of bounded size; not from a hard interrupt.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let inner = self.0.as_ref()?;
        // SAFETY: The gate is initialised, and stays.
        let stayed = unsafe { bindings::soft_gate_enter_deeper(inner.gate.get()) };
        // INVARIANT: Just entered.
        Some(Inside {
            inner,
            stayed,
            _not_send: NotThreadSafe,
        })
    }

    /// Enters the pages of `len` bytes from `offset` on in the table, `write`: to be written to.
    /// With `fault` it brings them, and without it takes those that the program has mapped. Returns
    /// how many are new in the table. May sleep for any time.
    ///
    /// `EBUSY` if the kernel kept taking the pages away. Another error means that the program has
    /// no such memory there, that it may not write to it, that the kernel does not map it, or that
    /// there is no memory.
    pub fn map(&self, offset: u64, len: u64, write: bool, fault: bool) -> Result<u64> {
        let inner = self.0.as_ref().ok_or(EFAULT)?;
        let end = offset.checked_add(len).filter(|end| *end <= inner.len);
        let last = end.and_then(|end| end.checked_sub(1)).ok_or(EFAULT)?;
        let mut page = inner.layout.locate(offset).ok_or(EFAULT)?.page;
        let last = inner.layout.locate(last).ok_or(EFAULT)?.page;
        let mut new = 0;
        while page <= last {
            let count = (LEAF - page % LEAF).min(last - page + 1);
            new += inner.map_leaf(page, count, write, fault)?;
            page += count;
        }
        Ok(new)
    }
}

impl Inner {
    /// The leaf of a page, made if it is missing. May sleep.
    fn leaf(&self, page: usize) -> Result<&Leaf> {
        let slot = self.leaves.get(page / LEAF).ok_or(EFAULT)?;
        let mut leaf = slot.load(Acquire);
        if leaf.is_null() {
            let flags = GFP_KERNEL_ACCOUNT | kernel::alloc::flags::__GFP_ZERO;
            // A worker may be what brings the page.
            // SAFETY: Valid by the type invariants.
            let old = unsafe { bindings::soft_odp_charge(self.odp.as_ptr()) };
            let new = KBox::<Leaf>::new_uninit(flags);
            // SAFETY: From `soft_odp_charge` in this context.
            unsafe { bindings::soft_odp_charged(old) };
            // SAFETY: All of it is zero, which is a valid leaf.
            let new = KBox::into_raw(unsafe { new?.assume_init() });
            leaf = new;
            // INVARIANT: From a box, and nobody takes it out.
            if let Err(other) = slot.cmpxchg(null_mut(), new, Full) {
                // SAFETY: Made above, and nobody else knows it.
                drop(unsafe { KBox::from_raw(new) });
                leaf = other;
            }
        }
        // SAFETY: By the type invariants it is valid as long as `self`.
        Ok(unsafe { &*leaf })
    }

    /// Brings `count` pages of a leaf, from `page` on.
    fn map_leaf(&self, page: usize, count: usize, write: bool, fault: bool) -> Result<u64> {
        // Made before the mutex is locked, which the kernel takes to free memory.
        let leaf = self.leaf(page)?;
        let flags = GFP_KERNEL_ACCOUNT | kernel::alloc::flags::__GFP_ZERO;
        // SAFETY: All of it is zero, which is a number.
        let mut found = unsafe { KBox::<[usize; LEAF]>::new_uninit(flags)?.assume_init() };
        let odp = self.odp.as_ptr();
        // SAFETY: Valid by the type invariants; the pages are inside, as the leaves are, and the
        // array has room for a leaf.
        to_result(unsafe {
            bindings::soft_odp_map(odp, page, count, write, fault, found.as_mut_ptr())
        })?;
        let (mut new, mut usable) = (0, true);
        for (at, pfn) in (page..page + count).zip(found.iter()) {
            // SAFETY: Found just now; the mutex is locked.
            let addr = unsafe { bindings::soft_odp_page(*pfn, write) };
            let Some(entry) = leaf.get(at % LEAF) else {
                continue;
            };
            if addr == 0 {
                usable = !fault;
                continue;
            }
            let old = entry.read_once();
            let flags = match write {
                true => PRESENT | WRITABLE,
                false => PRESENT | old & WRITABLE,
            };
            new += u64::from(old & PRESENT == 0);
            entry.store(addr | flags, Release);
        }
        // SAFETY: `soft_odp_map` was successful.
        unsafe { bindings::soft_odp_unlock(odp) };
        match usable {
            true => Ok(new),
            false => Err(EFAULT),
        }
    }

    /// Calls `f` for the entries of the pages from `first` to `end`.
    fn for_each(&self, first: usize, end: usize, mut f: impl FnMut(&Atomic<usize>)) {
        let mut page = first;
        while page < end {
            let until = (page / LEAF + 1).saturating_mul(LEAF).min(end);
            let leaf = self
                .leaves
                .get(page / LEAF)
                .map_or(null_mut(), |leaf| leaf.load(Acquire));
            if !leaf.is_null() {
                // SAFETY: By the type invariants it is valid as long as `self`.
                let leaf = unsafe { &*leaf };
                for at in page..until {
                    if let Some(entry) = leaf.get(at % LEAF) {
                        f(entry);
                    }
                }
            }
            page = until;
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Inner {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Valid by the type invariants, and the owner is the one that `odp` knows.
        unsafe { bindings::soft_odp_release(self.odp.as_ptr(), self.owner.get()) };
        for leaf in &self.leaves {
            let leaf = leaf.read_once();
            if !leaf.is_null() {
                // SAFETY: From a box by the type invariants, and nobody uses it any more.
                drop(unsafe { KBox::from_raw(leaf) });
            }
        }
    }
}

/// A user of memory on demand.
///
/// # Invariants
///
/// This CPU is inside of the gate of the memory, and stays on this piece of work until it leaves.
pub(super) struct Inside<'a> {
    inner: &'a Inner,
    stayed: bool,
    _not_send: NotThreadSafe,
}

impl Inside<'_> {
    /// The address of the byte at `offset`, and the number of bytes from it to the end of its page.
    /// `EAGAIN` if the page is not there, or not to be written to. Valid as long as this guard.
    pub(super) fn locate(&self, offset: u64, write: bool) -> Result<(NonNull<u8>, usize)> {
        let place = self.inner.layout.locate(offset).ok_or(EFAULT)?;
        let leaf = self.inner.leaves.get(place.page / LEAF).ok_or(EFAULT)?;
        let leaf = leaf.load(Acquire);
        if leaf.is_null() {
            return Err(EAGAIN);
        }
        // SAFETY: By the type invariants of the memory it is valid as long as that.
        let leaf = unsafe { &*leaf };
        let entry = leaf.get(place.page % LEAF).ok_or(EFAULT)?.load(Acquire);
        let need = match write {
            true => PRESENT | WRITABLE,
            false => PRESENT,
        };
        if entry & need != need {
            return Err(EAGAIN);
        }
        // The address of a page is aligned.
        let addr = entry & !(PRESENT | WRITABLE) | place.within;
        Ok((NonNull::new(addr as *mut u8).ok_or(EFAULT)?, place.room))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: This CPU is inside of such a gate by the type invariants.
        unsafe { bindings::soft_gate_exit_deeper(self.stayed) };
    }
}

/// Takes the pages from `first` to `end` away. Nobody uses them after the return.
///
/// # Safety
///
/// `owner` is in an [`Inner`] whose memory has its mutex locked.
unsafe extern "C" fn clear(owner: *mut soft_odp, first: usize, end: usize) {
    // SAFETY: By the requirements of this function.
    let inner = unsafe { container_of!(Opaque::cast_from(owner), Inner, owner) };
    // SAFETY: By the requirements of this function; it is only read.
    let inner = unsafe { &*inner };
    let mut taken = 0u64;
    inner.for_each(first, end, |entry| {
        let old = entry.read_once();
        if old & PRESENT != 0 {
            entry.write_once(old & !PRESENT);
            taken += 1;
        }
    });
    if taken == 0 {
        return;
    }
    // SAFETY: The gate is initialised, and stays.
    unsafe { bindings::soft_gate_wait_deeper(inner.gate.get()) };
    inner.for_each(first, end, |entry| {
        let old = entry.read_once();
        if old & WRITABLE != 0 {
            // SAFETY: The page is the program's until the notifier returns.
            unsafe { bindings::soft_odp_dirty(old & !WRITABLE) };
        }
        entry.write_once(0);
    });
    inner.taken.add(taken, Relaxed);
}

impl Drop for OdpUmem {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            let user = inner.user.clone();
            user.run(inner);
        }
    }
}
