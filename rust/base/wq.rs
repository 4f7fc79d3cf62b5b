// SPDX-License-Identifier: GPL-2.0

//! Owned work queues, and the cancellation of work.
//!
//! The items are those of [`kernel::workqueue`].
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    ffi,
    prelude::*,
    sync::Arc,
    task::might_sleep,
    time::Jiffies,
    workqueue::{
        HasDelayedWork,
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

/// How a queue runs its items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On any CPU, many at a time.
    Unbound,
    /// The same, for items that may wait for programs or for memory to be freed.
    Waiting,
    /// As `Waiting`, at most so many at a time on each NUMA node.
    Few(u8),
    /// On the CPU that they were queued for.
    PerCpu,
}

/// An owned work queue. [`Kind::Unbound`] and [`Kind::PerCpu`] make progress under memory pressure,
/// too.
///
/// # Invariants
///
/// The pointer is a valid work queue that this owns.
pub struct WorkQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues may be used and destroyed from any thread.
unsafe impl Send for WorkQueue {}
// SAFETY: Work queues may be used from several threads at once: the C side locks.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Makes a queue. May sleep.
    pub fn new(name: &CStr, kind: Kind) -> Result<Self> {
        might_sleep();
        let flags = match kind {
            Kind::Unbound => bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
            Kind::Waiting | Kind::Few(_) => bindings::wq_flags_WQ_UNBOUND,
            Kind::PerCpu => bindings::wq_flags_WQ_PERCPU | bindings::wq_flags_WQ_MEM_RECLAIM,
        };
        let most = match kind {
            Kind::Few(most) => most.into(),
            _ => 0,
        };
        // SAFETY: The name is valid for the duration of the call, which copies it.
        let wq = unsafe { bindings::alloc_workqueue(name.as_char_ptr(), flags, most) };
        // INVARIANT: It was just made.
        NonNull::new(wq).map(Self).ok_or(ENOMEM)
    }

    /// Queues an item for that CPU, or this one if that is not online. Any context.
    ///
    /// An item is in a queue at most once, and never runs twice at a time. A CPU that is going
    /// offline leaves its items to the others.
    pub fn enqueue_on<W, const ID: u64>(&self, cpu: u32, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        // A CPU that was never online has no worker, so the item would wait forever.
        // SAFETY: Always safe to call; the helper checks the number.
        let cpu = if unsafe { bindings::cpu_online(cpu) } {
            cpu as ffi::c_int
        } else {
            bindings::wq_misc_consts_WORK_CPU_UNBOUND as ffi::c_int
        };
        let wq = self.0.as_ptr();
        let queue = move |work| {
            // SAFETY: The queue is valid by the type invariants, and `__enqueue` gives a valid
            // item, which stays so until it runs.
            unsafe { bindings::queue_work_on(cpu, wq, work) }
        };
        // SAFETY: `queue_work_on()` returns false only for an item that is in a queue. The item
        // is `Send` and static.
        unsafe { item.__enqueue(queue) }
    }

    /// Arms a delayed item, or re-arms it. Any context.
    ///
    /// It stays as it is if another caller arms it meanwhile, or [`cancel_delayed_sync`] is waiting
    /// for it: `mod_delayed_work_on()` does not tell that from success, the reference of the queue
    /// would be lost.
    pub fn mod_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        cancel_delayed::<T, ID>(&item);
        // The queue returns a reference that it does not take.
        let _ = self.enqueue_delayed::<_, ID>(item, delay);
    }

    /// Waits until all items that are queued now have run. May sleep.
    pub fn flush(&self) {
        might_sleep();
        // SAFETY: Valid by the type invariants.
        unsafe { bindings::flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for WorkQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: Valid by the type invariants, for as long as `self` is.
        unsafe { Queue::from_raw(self.0.as_ptr().cast()) }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        might_sleep();
        // SAFETY: Owned by the type invariants. It waits for what is queued.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// Returns the `work_struct` of an item.
///
/// # Safety
///
/// `item` must point to a valid `T`.
unsafe fn raw_work<T: HasWork<T, ID>, const ID: u64>(item: *const T) -> *mut bindings::work_struct {
    // SAFETY: `item` is valid by the contract of this function.
    let work = unsafe { T::raw_get_work(item.cast_mut()) };
    // SAFETY: `raw_get_work` returns a valid pointer.
    unsafe { Work::raw_get(work) }
}

/// The `delayed_work` of an item.
///
/// # Safety
///
/// `item` must point to a valid `T`.
unsafe fn raw_delayed<T: HasDelayedWork<T, ID>, const ID: u64>(
    item: *const T,
) -> *mut bindings::delayed_work {
    // SAFETY: By the contract of this function.
    let work = unsafe { raw_work::<T, ID>(item) };
    // SAFETY: By `HasDelayedWork` this is the `work` of a `delayed_work`.
    unsafe { kernel::container_of!(work, bindings::delayed_work, work) }
}

/// Drops the reference a queue had to an item it no longer has.
///
/// # Safety
///
/// The item was queued as an `Arc` and has just been taken from the queue.
unsafe fn taken_back<T>(item: &Arc<T>, was_pending: bool) -> bool {
    if was_pending {
        // SAFETY: Queueing did `Arc::into_raw`, and the queue will not use that reference any
        // more, by the contract of this function.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
    was_pending
}

/// Takes a delayed item from its queue, and waits until it is not running. May sleep.
///
/// Returns whether it was queued. Not from the item itself.
pub fn cancel_delayed_sync<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    might_sleep();
    // SAFETY: An `Arc` points to a valid item.
    let dwork = unsafe { raw_delayed::<T, ID>(Arc::as_ptr(item)) };
    // SAFETY: `dwork` is inside of the item, which is valid as long as `item`.
    let pending = unsafe { bindings::cancel_delayed_work_sync(dwork) };
    // SAFETY: `WorkItem::Pointer` is `Arc<T>`, so that is what was queued.
    unsafe { taken_back(item, pending) }
}

/// Takes a delayed item from its queue; it may still be running. Any context.
pub fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    // SAFETY: An `Arc` points to a valid item.
    let dwork = unsafe { raw_delayed::<T, ID>(Arc::as_ptr(item)) };
    // SAFETY: `dwork` is inside of the item, which is valid as long as `item`.
    let pending = unsafe { bindings::cancel_delayed_work(dwork) };
    // SAFETY: `WorkItem::Pointer` is `Arc<T>`, so that is what was queued. `item` still holds a
    // reference, so this is not the last one.
    unsafe { taken_back(item, pending) }
}
