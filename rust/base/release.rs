// SPDX-License-Identifier: GPL-2.0

//! Deferred releases: for objects whose release may sleep, and whose last user may not.

use crate::{
    bindings,
    context,
    sync::AccessOnce,
    wq::{
        Kind,
        WorkQueue, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Relaxed,
        Release, //
    },
    workqueue::{
        RawWorkItem,
        WorkItem, //
    }, //
};

/// Milliseconds that the drop of [`Releases`] is silent before its first message, and between two.
const PATIENCE_MS: u32 = 10_000;

/// The queue of deferred releases.
///
/// Each object that may be released later holds a [`ReleaseRef`]. The drop waits until there are
/// none, and no thread is in the drop of one. An object may be data at a device of others, from
/// where nothing can take it, so the wait has no bound, and logs what it waits for. May sleep.
///
/// # Invariants
///
/// The pointer is that of a box, which this owns.
pub struct Releases(NonNull<Inner>);

/// A user of [`Releases`].
///
/// # Invariants
///
/// The pointer is that of the [`Releases`], and `users` counts this.
pub struct ReleaseRef(NonNull<Inner>);

struct Inner {
    queue: WorkQueue,
    /// The objects, for the log.
    objects: &'static str,
    /// Number of [`ReleaseRef`]s.
    users: Atomic<u64>,
}

// SAFETY: The fields of `Inner` may be dropped by any thread.
unsafe impl Send for Releases {}
// SAFETY: `Inner` is `Sync`.
unsafe impl Sync for Releases {}
// SAFETY: `Inner` is `Sync`.
unsafe impl Send for ReleaseRef {}
// SAFETY: `Inner` is `Sync`.
unsafe impl Sync for ReleaseRef {}

impl Releases {
    /// Makes the queue, and names it `name`. It is `kind`, and releases `objects`. May sleep.
    ///
    /// Fails with `ENOMEM`.
    pub fn new(name: &CStr, kind: Kind, objects: &'static str) -> Result<Self> {
        let inner = Inner {
            queue: WorkQueue::new(name, kind)?,
            objects,
            users: Atomic::new(0),
        };
        let inner = KBox::into_raw(KBox::new(inner, GFP_KERNEL)?);
        // SAFETY: A box is not at address 0.
        Ok(Self(unsafe { NonNull::new_unchecked(inner) }))
    }

    fn inner(&self) -> &Inner {
        // SAFETY: Valid by the type invariants.
        unsafe { self.0.as_ref() }
    }

    /// Returns a new user. Any context.
    pub fn user(&self) -> ReleaseRef {
        // Each user is in memory of its own, so 64 bits do not overflow.
        self.inner().users.fetch_add(1, Relaxed);
        // INVARIANT: Counted just now.
        ReleaseRef(self.0)
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        let Inner { users, objects, .. } = self.inner();
        while !context::poll(PATIENCE_MS, 1, || users.load(Acquire) == 0) {
            pr_warn!(
                "unloading waits for {} users of {}\n",
                users.read_once(),
                objects
            );
        }
        // The context that dropped the last one may still be in this module, and may be preempted.
        context::synchronize_tasks();
        // SAFETY: It is a box by the type invariants, and has no users.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

impl ReleaseRef {
    fn inner(&self) -> &Inner {
        // SAFETY: `Releases` waits for this, by the type invariants.
        unsafe { self.0.as_ref() }
    }

    /// Runs `job` here if this context may sleep, or else soon, in process context. Any context.
    pub fn run<T>(&self, job: Pin<KBox<T>>)
    where
        T: WorkItem<Pointer = Pin<KBox<T>>>,
        Pin<KBox<T>>: RawWorkItem<0> + Send + 'static,
    {
        // SAFETY: No requirements.
        if unsafe { bindings::may_sleep() } {
            T::run(job);
        } else {
            self.enqueue(job);
        }
    }

    /// Runs `job` soon, in process context. Any context.
    pub fn enqueue<W>(&self, job: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<0> + Send + 'static,
    {
        self.inner().queue.enqueue(job)
    }
}

impl Clone for ReleaseRef {
    fn clone(&self) -> Self {
        // Each user is in memory of its own, so 64 bits do not overflow.
        self.inner().users.fetch_add(1, Relaxed);
        // INVARIANT: Counted just now.
        Self(self.0)
    }
}

impl Drop for ReleaseRef {
    fn drop(&mut self) {
        // `Releases` may go as soon as this is done. What this user has done comes before.
        self.inner().users.fetch_sub(1, Release);
    }
}
