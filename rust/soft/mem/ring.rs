// SPDX-License-Identifier: GPL-2.0

//! Queues in memory that a user program maps.
//!
//! The other side may write to this memory at any time, whatever the protocol says, and knows
//! nothing of the kernel's memory model. No reference into it is ever made. There are two kinds of
//! access:
//!
//! - A volatile one is `READ_ONCE()` or `WRITE_ONCE()`: it happens once, whatever happens to the
//!   memory meanwhile, and orders nothing but a store that depends on what was read. This is the
//!   position of `kernel::io`, too. Elements are copied in and out that way, word by word.
//! - An atomic one of the kernel crate passes an element from one side to the other. It is
//!   `smp_load_acquire()`, `smp_store_release()` or `xchg()`, and orders as these do.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    }, //
};

use rdma::RingMem;

/// An element of a [`UserRing`]: 64-bit words, some of which are flags.
///
/// # Examples
///
/// ```ignore
/// #[repr(C)]
/// #[derive(Clone, Copy, FromBytes, IntoBytes)]
/// struct Elem {
///     cookie: u64,
///     len: u32,
///     status: u16,
///     flags: u16,
/// }
///
/// impl RingElem for Elem {
///     const FLAGS: usize = core::mem::offset_of!(Self, flags);
///     const WIDE: bool = true;
///
///     fn set_flags(&mut self, flags: u16) {
///         self.flags = flags;
///     }
/// }
/// ```
pub trait RingElem: FromBytes + IntoBytes + Copy {
    /// The offset of the flags in bytes, a multiple of their size.
    const FLAGS: usize;
    /// Whether the flags have two bytes, or one.
    const WIDE: bool;
    /// Words in front of those that not every element uses.
    const HEAD: usize = size_of::<Self>() / size_of::<u64>();

    /// Sets the flags of a copy.
    fn set_flags(&mut self, flags: u16);

    /// Words behind the head that mean something, once the head is known.
    fn body(&self) -> usize {
        0
    }
}

/// A ring of elements of type `T`.
///
/// # Invariants
///
/// `base` points to `mask + 1` elements inside `mem`, aligned to eight bytes.
pub struct UserRing<T: RingElem> {
    mem: Arc<RingMem>,
    base: NonNull<u8>,
    mask: u32,
    _p: PhantomData<T>,
}

// SAFETY: The memory goes with the ring; all accesses are volatile or atomic.
unsafe impl<T: RingElem> Send for UserRing<T> {}

// SAFETY: Shared or not, its accesses to the memory are volatile or atomic.
unsafe impl<T: RingElem> Sync for UserRing<T> {}

impl<T: RingElem> Clone for UserRing<T> {
    fn clone(&self) -> Self {
        Self {
            mem: self.mem.clone(),
            ..*self
        }
    }
}

impl<T: RingElem> UserRing<T> {
    const WORDS: usize = {
        assert!(size_of::<T>() % size_of::<u64>() == 0);
        assert!(align_of::<T>() == align_of::<u64>());
        assert!(T::HEAD <= size_of::<T>() / size_of::<u64>());
        size_of::<T>() / size_of::<u64>()
    };

    /// The offset of the flags, aligned and inside of the element.
    const FLAGS: usize = {
        let size = if T::WIDE { 2 } else { 1 };
        assert!(T::FLAGS % size == 0);
        assert!(T::FLAGS < size_of::<T>());
        T::FLAGS
    };

    /// A ring of `entries`, a power of two, `offset` bytes into `mem`.
    pub fn new(mem: Arc<RingMem>, offset: usize, entries: u32) -> Result<Self> {
        if !entries.is_power_of_two() || offset % size_of::<u64>() != 0 {
            return Err(EINVAL);
        }
        let base = (entries as usize)
            .checked_mul(size_of::<T>())
            .and_then(|len| mem.range(offset, len))
            .ok_or(EINVAL)?;
        // INVARIANT: `range` checked that the elements are inside; it starts at a page.
        Ok(Self {
            mem,
            base,
            mask: entries - 1,
            _p: PhantomData,
        })
    }

    /// The number of elements, a power of two.
    pub fn entries(&self) -> u32 {
        self.mask.wrapping_add(1)
    }

    fn elem(&self, i: u32) -> *mut u8 {
        let offset = (i & self.mask) as usize * size_of::<T>();
        // SAFETY: The index is masked; the element is inside by the type invariants.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Overwrites element `i`, modulo the number of elements.
    pub fn store(&self, i: u32, value: &T) {
        let src = (&raw const *value).cast::<u64>();
        let dst = self.elem(i).cast::<u64>();
        for n in 0..Self::WORDS {
            // SAFETY: `value` has `WORDS` words without padding, and the alignment was asserted.
            let word = unsafe { src.add(n).read() };
            // SAFETY: The element has as many; it is aligned by the type invariants.
            unsafe { dst.add(n).write_volatile(word) };
        }
    }

    fn flags_at(&self, i: u32) -> *mut u8 {
        // SAFETY: The flags are inside the element, see `FLAGS`.
        unsafe { self.elem(i).add(Self::FLAGS) }
    }

    /// The flags of element `i`, a hint. Only stores that depend on them come after this.
    pub fn flags(&self, i: u32) -> u16 {
        let flags = self.flags_at(i);
        if T::WIDE {
            // SAFETY: They are aligned, and valid as long as `mem` is.
            unsafe { flags.cast::<u16>().read_volatile() }
        } else {
            // SAFETY: A byte is always aligned; it is valid as long as `mem` is.
            u16::from(unsafe { flags.read_volatile() })
        }
    }

    /// The flags of element `i`. What was stored before they were set is seen after this.
    fn flags_acquire(&self, i: u32) -> u16 {
        let flags = self.flags_at(i);
        if T::WIDE {
            // SAFETY: They are aligned; all concurrent accesses in the kernel are atomic, or to
            // an element that the protocol gives to the one who accesses it.
            unsafe { Atomic::from_ptr(flags.cast::<i16>()) }.load(Acquire) as u16
        } else {
            // SAFETY: A byte is always aligned; concurrent accesses in the kernel are atomic, or to
            // an element that the protocol gives to the one who accesses it.
            u16::from(unsafe { Atomic::from_ptr(flags.cast::<i8>()) }.load(Acquire) as u8)
        }
    }

    /// Sets the flags of element `i`, after what precedes and before what follows.
    fn xchg_flags(&self, i: u32, value: u16) {
        let flags = self.flags_at(i);
        if T::WIDE {
            // SAFETY: They are aligned; whoever else in the kernel accesses them does so
            // atomically, or has been given the element by the protocol.
            unsafe { Atomic::from_ptr(flags.cast::<i16>()) }.xchg(value as i16, Full);
        } else {
            // SAFETY: They are aligned; whoever else in the kernel accesses them does so
            // atomically, or has been given the element by the protocol.
            unsafe { Atomic::from_ptr(flags.cast::<i8>()) }.xchg(value as i8, Full);
        }
    }

    /// Gives element `i` back to the other side, after what precedes.
    pub fn free(&self, i: u32) {
        let flags = self.flags_at(i);
        if T::WIDE {
            // SAFETY: They are aligned; whoever else in the kernel accesses them does so
            // atomically, or has been given the element by the protocol.
            unsafe { Atomic::from_ptr(flags.cast::<i16>()) }.store(0, Release);
        } else {
            // SAFETY: They are aligned; whoever else in the kernel accesses them does so
            // atomically, or has been given the element by the protocol.
            unsafe { Atomic::from_ptr(flags.cast::<i8>()) }.store(0, Release);
        }
    }

    /// The same as [`Self::free`], and before what follows.
    pub fn free_fenced(&self, i: u32) {
        self.xchg_flags(i, 0);
    }

    /// Passes element `i` with `flags` to the other side, after what precedes and before what
    /// follows. Those of `value` are zero.
    pub fn publish(&self, i: u32, value: &T, flags: u16) {
        self.store(i, value);
        self.xchg_flags(i, flags);
    }

    /// Copies element `i` into `copy` if its flags have `bit`; the flags of the copy are those that
    /// were tested. What the element has no use for stays as it was in `copy`.
    pub fn take(&self, i: u32, bit: u16, copy: &mut T) -> bool {
        // An empty queue is the usual end of a run, and needs no ordering.
        if self.flags(i) & bit == 0 {
            return false;
        }
        let flags = self.flags_acquire(i);
        if flags & bit == 0 {
            return false;
        }
        self.load(i, 0, T::HEAD, copy);
        copy.set_flags(flags);
        let body = copy.body().min(Self::WORDS - T::HEAD);
        self.load(i, T::HEAD, body, copy);
        true
    }

    /// Copies `len` words of element `i` from the `from`th on.
    fn load(&self, i: u32, from: usize, len: usize, copy: &mut T) {
        let src = self.elem(i).cast::<u64>();
        let dst = (&raw mut *copy).cast::<u64>();
        for n in (from..Self::WORDS).take(len) {
            // SAFETY: The element has `WORDS` words; it is aligned by the type invariants.
            let word = unsafe { src.add(n).read_volatile() };
            // SAFETY: `copy` has as many, the alignment was asserted, and any bytes make a valid
            // element, which is `FromBytes`.
            unsafe { dst.add(n).write(word) };
        }
    }
}

/// One 32-bit word that the program writes, too, such as the flags that arm a completion queue.
///
/// # Invariants
///
/// `word` points to an aligned word inside `_mem`.
pub struct CtrlWord {
    _mem: Arc<RingMem>,
    word: NonNull<u32>,
}

// SAFETY: The memory goes with the word; all accesses are volatile or atomic.
unsafe impl Send for CtrlWord {}

// SAFETY: Shared or not, its accesses to the memory are volatile or atomic.
unsafe impl Sync for CtrlWord {}

impl CtrlWord {
    /// The word `offset` bytes into `mem`.
    pub fn new(mem: Arc<RingMem>, offset: usize) -> Result<Self> {
        if offset % size_of::<u32>() != 0 {
            return Err(EINVAL);
        }
        let word = mem.range(offset, size_of::<u32>()).ok_or(EINVAL)?.cast();
        // INVARIANT: `range` checked that the word is inside; it starts at a page.
        Ok(Self { _mem: mem, word })
    }

    /// Reads the word. Only stores that depend on it come after this.
    pub fn load(&self) -> u32 {
        // SAFETY: Valid and aligned by the type invariants.
        unsafe { self.word.as_ptr().read_volatile() }
    }

    /// Writes the word, in no order.
    pub fn store(&self, value: u32) {
        // SAFETY: Valid and aligned by the type invariants.
        unsafe { self.word.as_ptr().write_volatile(value) }
    }

    /// Exchanges the word, after what precedes and before what follows.
    pub fn xchg(&self, value: u32) -> u32 {
        // SAFETY: Valid and aligned by the type invariants; all other accesses in the kernel are
        // volatile or atomic.
        unsafe { Atomic::from_ptr(self.word.as_ptr()) }.xchg(value, Full)
    }
}
