// SPDX-License-Identifier: GPL-2.0

//! Tables from numbers to objects.

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu,
        Refcount, //
    },
    types::Opaque, //
};

use crate::bindings::{
    self,
    xarray, //
};

/// The target of an [`RcuArc`]. `rcu` is at offset 0, for `kfree_rcu`.
#[repr(C)]
#[pin_data]
struct Inner<E> {
    rcu: Opaque<bindings::callback_head>,
    refs: Refcount,
    #[pin]
    data: E,
}

/// A counted reference. The object is dropped with the last one. Its memory is kept until all RCU
/// readers that may have found it are gone.
///
/// # Invariants
///
/// `ptr` came from a `KBox`, and this reference is counted.
pub struct RcuArc<E> {
    ptr: NonNull<Inner<E>>,
    _p: PhantomData<Inner<E>>,
}

// SAFETY: As for `Arc`: it shares `&E`, and may drop an `E`.
unsafe impl<E: Send + Sync> Send for RcuArc<E> {}

// SAFETY: A shared one gives `&E`, and can be cloned into one that drops the `E` elsewhere.
unsafe impl<E: Send + Sync> Sync for RcuArc<E> {}

// As for `Arc`: to move the reference does not move the object.
impl<E> Unpin for RcuArc<E> {}

impl<E> RcuArc<E> {
    /// A new object, initialised in place. May sleep.
    pub fn pin_init(data: impl PinInit<E, Error>) -> Result<Self> {
        let inner = KBox::try_pin_init(
            try_pin_init!(Inner {
                rcu: Opaque::uninit(),
                refs: Refcount::new(1),
                data <- data,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: It stays where it is until it is dropped.
        let ptr = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });
        // INVARIANT: The reference is the one that `refs` began with.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(EINVAL)?,
            _p: PhantomData,
        })
    }

    fn inner(&self) -> &Inner<E> {
        // SAFETY: Valid by the type invariants.
        unsafe { self.ptr.as_ref() }
    }

    fn into_raw(self) -> *mut Inner<E> {
        core::mem::ManuallyDrop::new(self).ptr.as_ptr()
    }

    /// # Safety
    ///
    /// `ptr` came from `into_raw`, and the reference is not used otherwise.
    unsafe fn from_raw(ptr: NonNull<Inner<E>>) -> Self {
        // INVARIANT: By the requirements of this function.
        Self {
            ptr,
            _p: PhantomData,
        }
    }

    /// Takes a reference to an object that RCU protects, unless it is being dropped.
    ///
    /// # Safety
    ///
    /// The caller is in an RCU read-side critical section in which `ptr` was found.
    unsafe fn get_live(ptr: NonNull<Inner<E>>) -> Option<Self> {
        // SAFETY: The memory is there until the section ends, and so is the counter.
        let refs = unsafe { &(*ptr.as_ptr()).refs }.as_atomic().as_ptr();
        // SAFETY: `refs` points to the `refcount_t`.
        let live = unsafe { bindings::refcount_inc_not_zero(refs.cast()) };
        // INVARIANT: Counted.
        live.then(|| Self {
            ptr,
            _p: PhantomData,
        })
    }
}

impl<E> Deref for RcuArc<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.inner().data
    }
}

impl<E> Clone for RcuArc<E> {
    fn clone(&self) -> Self {
        self.inner().refs.inc();
        // INVARIANT: Counted.
        Self {
            ptr: self.ptr,
            _p: PhantomData,
        }
    }
}

impl<E> Drop for RcuArc<E> {
    fn drop(&mut self) {
        if !self.inner().refs.dec_and_test() {
            return;
        }
        let ptr = self.ptr.as_ptr();
        // SAFETY: This was the last reference, and `get_live` makes no new one.
        unsafe { core::ptr::drop_in_place(&raw mut (*ptr).data) };
        // SAFETY: It came from a `KBox`, that is kmalloc, and `rcu` is at offset 0.
        unsafe { bindings::kfree_rcu(ptr.cast()) };
    }
}

/// A table of objects that is read under RCU, in any context.
///
/// # Invariants
///
/// Every entry of `xa` is from [`RcuArc::into_raw`].
#[pin_data(PinnedDrop)]
pub struct RcuTable<E> {
    #[pin]
    xa: Opaque<xarray>,
    _p: PhantomData<RcuArc<E>>,
}

// SAFETY: The xarray locks; the entries may be sent.
unsafe impl<E: Send + Sync> Send for RcuTable<E> {}

// SAFETY: As above, and the entries may be shared.
unsafe impl<E: Send + Sync> Sync for RcuTable<E> {}

fn init_xa() -> impl PinInit<Opaque<xarray>> {
    Opaque::ffi_init(|slot| {
        // SAFETY: `slot` is a valid place for an xarray.
        unsafe { bindings::table_init(slot) }
    })
}

impl<E> RcuTable<E> {
    /// An empty table.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            xa <- init_xa(),
            _p: PhantomData,
        })
    }

    /// The object with this index. Any context.
    pub fn get(&self, index: u32) -> Option<RcuArc<E>> {
        let _guard = rcu::read_lock();
        // SAFETY: The xarray is initialised.
        let entry = unsafe { bindings::xa_load(self.xa.get(), index as usize) };
        let entry = NonNull::new(entry.cast::<Inner<E>>())?;
        // SAFETY: Found in this section, by the type invariants.
        unsafe { RcuArc::get_live(entry) }
    }

    /// Enters an object, unless the index is taken (`EBUSY`). May sleep.
    pub fn insert(&self, index: u32, entry: RcuArc<E>) -> Result {
        let raw = entry.into_raw();
        // SAFETY: The xarray is initialised; the table takes the reference.
        to_result(unsafe { bindings::table_insert(self.xa.get(), index as usize, raw.cast()) })
            .inspect_err(|_| {
                // SAFETY: The table did not take it.
                drop(unsafe { RcuArc::from_raw(NonNull::new_unchecked(raw)) });
            })
    }

    /// Takes an object out. May sleep.
    pub fn remove(&self, index: u32) -> Option<RcuArc<E>> {
        // SAFETY: The xarray is initialised.
        let entry = unsafe { bindings::xa_erase_irq(self.xa.get(), index as usize) };
        let entry = NonNull::new(entry.cast::<Inner<E>>())?;
        // SAFETY: The table gives up its reference.
        Some(unsafe { RcuArc::from_raw(entry) })
    }

    /// Calls `f` for each entry, without any lock held.
    pub fn for_each(&self, mut f: impl FnMut(u32, RcuArc<E>)) {
        let mut index = 0;
        // SAFETY: The xarray is initialised, and `index` is valid.
        while !unsafe { bindings::xa_next(self.xa.get(), &mut index) }.is_null() {
            if let Some(entry) = self.get(index as u32) {
                f(index as u32, entry);
            }
            index += 1;
        }
    }
}

#[pinned_drop]
impl<E> PinnedDrop for RcuTable<E> {
    fn drop(self: Pin<&mut Self>) {
        let mut index = 0;
        // SAFETY: The xarray is initialised, and `index` is valid.
        while !unsafe { bindings::xa_next(self.xa.get(), &mut index) }.is_null() {
            drop(self.remove(index as u32));
        }
        // SAFETY: The xarray is initialised, and not used any more.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// A table of objects that count their own references.
///
/// Their memory may be freed as soon as the last reference is gone, so a lookup takes the lock.
///
/// # Invariants
///
/// Every entry of `xa` is from [`ARef::into_raw`].
#[pin_data(PinnedDrop)]
pub struct ObjTable<O: AlwaysRefCounted> {
    #[pin]
    xa: Opaque<xarray>,
    _p: PhantomData<ARef<O>>,
}

// SAFETY: The xarray locks; the entries may be sent.
unsafe impl<O: AlwaysRefCounted + Send + Sync> Send for ObjTable<O> {}

// SAFETY: As above, and the entries may be shared.
unsafe impl<O: AlwaysRefCounted + Send + Sync> Sync for ObjTable<O> {}

impl<O: AlwaysRefCounted> ObjTable<O> {
    /// An empty table.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            xa <- init_xa(),
            _p: PhantomData,
        })
    }

    /// Finds the first object from `*index` on, and sets `*index`.
    fn find(&self, index: &mut usize, exact: bool) -> Option<ARef<O>> {
        let xa = self.xa.get();
        // SAFETY: The xarray is initialised.
        let flags = unsafe { bindings::xa_lock_irqsave(xa) };
        let entry = if exact {
            // SAFETY: The xarray is initialised, and locked.
            unsafe { bindings::xa_load(xa, *index) }
        } else {
            // SAFETY: As above; `index` is valid.
            unsafe { bindings::xa_next(xa, index) }
        };
        let found = NonNull::new(entry.cast::<O>()).map(|obj| {
            // SAFETY: The table has a reference, which cannot go away under the lock.
            ARef::from(unsafe { obj.as_ref() })
        });
        // SAFETY: Locked above.
        unsafe { bindings::xa_unlock_irqrestore(xa, flags) };
        found
    }

    /// The object with this number. Any context.
    pub fn get(&self, index: u32) -> Option<ARef<O>> {
        self.find(&mut (index as usize), true)
    }

    /// Enters an object, unless the number is taken (`EBUSY`). May sleep.
    pub fn insert(&self, index: u32, obj: ARef<O>) -> Result {
        let raw = ARef::into_raw(obj);
        // SAFETY: The xarray is initialised; the table takes the reference.
        to_result(unsafe {
            bindings::table_insert(self.xa.get(), index as usize, raw.as_ptr().cast())
        })
        .inspect_err(|_| {
            // SAFETY: The table did not take it.
            drop(unsafe { ARef::from_raw(raw) });
        })
    }

    /// Takes an object out. May sleep.
    pub fn remove(&self, index: u32) -> Option<ARef<O>> {
        // SAFETY: The xarray is initialised.
        let entry = unsafe { bindings::xa_erase_irq(self.xa.get(), index as usize) };
        let entry = NonNull::new(entry.cast::<O>())?;
        // SAFETY: The table gives up its reference.
        Some(unsafe { ARef::from_raw(entry) })
    }

    /// Calls `f` for each object, without any lock held.
    pub fn for_each(&self, mut f: impl FnMut(u32, ARef<O>)) {
        let mut index = 0;
        while let Some(obj) = self.find(&mut index, false) {
            f(index as u32, obj);
            index += 1;
        }
    }
}

#[pinned_drop]
impl<O: AlwaysRefCounted> PinnedDrop for ObjTable<O> {
    fn drop(self: Pin<&mut Self>) {
        let mut index = 0;
        while self.find(&mut index, false).is_some() {
            drop(self.remove(index as u32));
        }
        // SAFETY: The xarray is initialised, and not used any more.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}
