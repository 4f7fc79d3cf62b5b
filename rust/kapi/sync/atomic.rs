// SPDX-License-Identifier: GPL-2.0

//! Atomics that are instructions.
//!
//! Those of the kernel crate are calls of C functions, dozens for each message. On x86-64, the only
//! architecture here, a load or a store of a word is at least an acquire or a release, and whatever
//! has a lock prefix is a full barrier: whatever ordering is asked for comes to the same
//! instruction, and only the compiler has to be held back.

use core::{
    cell::UnsafeCell,
    sync::atomic::{
        compiler_fence,
        AtomicBool,
        AtomicI32,
        AtomicPtr,
        AtomicU16,
        AtomicU32,
        AtomicU64,
        AtomicU8,
        AtomicUsize,
        Ordering::{
            self,
            SeqCst, //
        }, //
    }, //
};
use kernel::sync::atomic::ordering::{
    AcquireOrRelaxed,
    Ordering as AnyOrdering,
    ReleaseOrRelaxed, //
};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the orderings are those of x86-64");

/// What a processor reads and writes at once.
///
/// # Safety
///
/// Its size is a power of two of at most eight bytes, and it is aligned to it.
pub(crate) unsafe trait Word: Copy {
    /// # Safety
    ///
    /// `at` is valid for reads and writes, and only accessed atomically meanwhile.
    unsafe fn xchg(at: *mut Self, new: Self) -> Self;

    /// # Safety
    ///
    /// As [`Self::xchg`].
    unsafe fn cmpxchg(at: *mut Self, old: Self, new: Self) -> Result<Self, Self>;
}

/// A word to count with.
///
/// # Safety
///
/// As [`Word`].
pub(crate) unsafe trait Number: Word {
    /// # Safety
    ///
    /// As [`Word::xchg`].
    unsafe fn fetch_add(at: *mut Self, n: Self) -> Self;

    /// # Safety
    ///
    /// As [`Word::xchg`].
    unsafe fn fetch_sub(at: *mut Self, n: Self) -> Self;
}

macro_rules! words {
    ($($word:ty = $core:ty $(where $p:ident)?;)*) => {$(
        // SAFETY: All of them are like that.
        unsafe impl $(<$p>)? Word for $word {
            #[inline(always)]
            unsafe fn xchg(at: *mut Self, new: Self) -> Self {
                // SAFETY: By the contract of this function.
                unsafe { <$core>::from_ptr(at) }.swap(new, SeqCst)
            }

            #[inline(always)]
            unsafe fn cmpxchg(at: *mut Self, old: Self, new: Self) -> Result<Self, Self> {
                // SAFETY: By the contract of this function.
                unsafe { <$core>::from_ptr(at) }.compare_exchange(old, new, SeqCst, SeqCst)
            }
        }
    )*};
}

macro_rules! numbers {
    ($($word:ty = $core:ty,)*) => {$(
        // SAFETY: All of them are like that.
        unsafe impl Number for $word {
            #[inline(always)]
            unsafe fn fetch_add(at: *mut Self, n: Self) -> Self {
                // SAFETY: By the contract of this function.
                unsafe { <$core>::from_ptr(at) }.fetch_add(n, SeqCst)
            }

            #[inline(always)]
            unsafe fn fetch_sub(at: *mut Self, n: Self) -> Self {
                // SAFETY: By the contract of this function.
                unsafe { <$core>::from_ptr(at) }.fetch_sub(n, SeqCst)
            }
        }
    )*};
}

words! {
    bool = AtomicBool;
    u8 = AtomicU8;
    u16 = AtomicU16;
    u32 = AtomicU32;
    i32 = AtomicI32;
    u64 = AtomicU64;
    usize = AtomicUsize;
    *mut T = AtomicPtr<T> where T;
}

numbers! {
    u32 = AtomicU32,
    i32 = AtomicI32,
    u64 = AtomicU64,
    usize = AtomicUsize,
}

/// As [`kernel::sync::atomic::Atomic`].
#[repr(transparent)]
pub(crate) struct Atomic<T: Word>(UnsafeCell<T>);

// SAFETY: A word is a value; what a pointer points to is its user's to think of.
unsafe impl<T: Word> Send for Atomic<T> {}

// SAFETY: A shared word is accessed atomically only.
unsafe impl<T: Word> Sync for Atomic<T> {}

impl<T: Word> Atomic<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// What is at `ptr`, as an atomic.
    ///
    /// # Safety
    ///
    /// `ptr` is aligned, and valid for reads and writes during `'a`. All accesses of the kernel to
    /// it are atomic meanwhile.
    pub(in crate::kapi) const unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
        // SAFETY: By the contract of this function; the representation is the same.
        unsafe { &*ptr.cast() }
    }

    #[inline(always)]
    pub(crate) fn load<O: AcquireOrRelaxed>(&self, _: O) -> T {
        // SAFETY: The reference is valid; a word is read at once.
        let value = unsafe { self.0.get().read_volatile() };
        compiler_fence(Ordering::Acquire);
        value
    }

    #[inline(always)]
    pub(crate) fn store<O: ReleaseOrRelaxed>(&self, value: T, _: O) {
        compiler_fence(Ordering::Release);
        // SAFETY: The reference is valid; a word is written at once.
        unsafe { self.0.get().write_volatile(value) };
    }

    #[inline(always)]
    pub(crate) fn xchg<O: AnyOrdering>(&self, new: T, _: O) -> T {
        // SAFETY: The reference is valid.
        unsafe { T::xchg(self.0.get(), new) }
    }

    /// `Err` has what was there instead of `old`.
    #[inline(always)]
    pub(crate) fn cmpxchg<O: AnyOrdering>(&self, old: T, new: T, _: O) -> Result<T, T> {
        // SAFETY: The reference is valid.
        unsafe { T::cmpxchg(self.0.get(), old, new) }
    }
}

impl<T: Number> Atomic<T> {
    #[inline(always)]
    pub(crate) fn fetch_add<O: AnyOrdering>(&self, n: T, _: O) -> T {
        // SAFETY: The reference is valid.
        unsafe { T::fetch_add(self.0.get(), n) }
    }

    #[inline(always)]
    pub(crate) fn fetch_sub<O: AnyOrdering>(&self, n: T, _: O) -> T {
        // SAFETY: The reference is valid.
        unsafe { T::fetch_sub(self.0.get(), n) }
    }
}
