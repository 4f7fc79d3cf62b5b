// SPDX-License-Identifier: GPL-2.0

//! TCP sockets as a transport below a protocol in the kernel, and the devices they run over.

pub(crate) mod addr;
mod callbacks;
mod frozen;
mod listener;
mod locked;
mod mark;
pub(crate) mod netdev;
mod notifier;
mod replay;
pub(crate) mod skb;
mod socket;
mod state;
mod tx_buf;
mod vrf;

use crate::kapi::{
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
};

pub(crate) use addr::{
    Family,
    SockAddr, //
};
pub(crate) use callbacks::{
    Acceptor,
    SocketEvents, //
};
pub(crate) use frozen::Frozen;
pub(crate) use listener::{
    ListenOpts,
    Listener, //
};
pub(crate) use locked::{
    LockedSock,
    RxSock,
    SendSeq,
    SockView,
    TxSock, //
};
pub(crate) use mark::{
    Mark,
    Marker,
    OnRelease, //
};
pub(crate) use netdev::{
    arphrd,
    NetDev,
    NetNs,
    LOOPBACK_IFINDEX, //
};
pub(crate) use notifier::{
    AddrEvent,
    NetdevEvent,
    NetdevEvents,
    NetdevNotifier, //
};
pub(crate) use replay::Replay;
pub(crate) use skb::Skb;
pub(crate) use socket::Socket;
pub(crate) use state::TcpState;
pub(crate) use tx_buf::TxBuf;

/// How long the drop of [`Net`] is silent before its first message, and between two messages.
const PATIENCE_MS: u32 = 10_000;

/// The common resources of sockets.
///
/// Each socket, and each mark on a buffer, holds a [`NetRef`], and the drop of this waits for all
/// of them.
///
/// # Invariants
///
/// The pointer is that of a box, which this owns.
pub(crate) struct Net(NonNull<Inner>);

/// A user of [`Net`].
///
/// # Invariants
///
/// The pointer is that of the [`Net`], and `users` counts this.
pub(crate) struct NetRef(NonNull<Inner>);

struct Inner {
    /// Releases sockets. A socket may be dropped in any context, but its release may sleep.
    queue: WorkQueue,
    /// The number of [`NetRef`]s.
    users: Atomic<u64>,
}

// SAFETY: What it owns may be dropped by any thread.
unsafe impl Send for Net {}
// SAFETY: What it points to is `Sync`.
unsafe impl Sync for Net {}
// SAFETY: What it points to is `Sync`.
unsafe impl Send for NetRef {}
// SAFETY: What it points to is `Sync`.
unsafe impl Sync for NetRef {}

impl Net {
    /// Makes the queue that releases sockets, and names it `name`. May sleep.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        let inner = Inner {
            queue: WorkQueue::new(name, Kind::Unbound)?,
            users: Atomic::new(0),
        };
        let inner = KBox::into_raw(KBox::new(inner, GFP_KERNEL)?);
        // SAFETY: A box is not at address 0.
        Ok(Self(unsafe { NonNull::new_unchecked(inner) }))
    }

    /// A new user. Any context.
    pub(crate) fn user(&self) -> NetRef {
        // SAFETY: Valid by the type invariants.
        let inner = unsafe { self.0.as_ref() };
        // Each user is in memory of its own, so 64 bits do not overflow.
        inner.users.fetch_add(1, Relaxed);
        // INVARIANT: Counted just now.
        NetRef(self.0)
    }
}

impl Drop for Net {
    /// Waits until the sockets are released and no buffer has a mark. May sleep.
    ///
    /// Data of a released socket may still be queued at a network device, and nothing can take it
    /// from there. So the wait has no bound, and logs what it waits for.
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariants.
        let users = &unsafe { self.0.as_ref() }.users;
        while !context::poll(PATIENCE_MS, 1, || users.load(Acquire) == 0) {
            pr_warn!(
                "unloading waits for {} users of sockets, as are messages queued at a network device\n",
                users.read_once()
            );
        }
        // The context that dropped the last one may still be in this module, and may be preempted.
        context::synchronize_tasks();
        tx_buf::Pool::clear();
        // SAFETY: There are no users, so no stream sends.
        unsafe { bindings::kapi_drop_frags() };
        // A softirq may still be in the last instructions of a callback of ours.
        // SAFETY: May sleep here.
        unsafe { bindings::synchronize_net() };
        // SAFETY: It is a box by the type invariants, and has no users.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

impl NetRef {
    fn inner(&self) -> &Inner {
        // SAFETY: `Net` waits for this, by the type invariants.
        unsafe { self.0.as_ref() }
    }

    /// Runs `job` soon, in process context. Any context.
    fn release_later(&self, job: Pin<KBox<socket::Handle>>) {
        self.inner().queue.enqueue(job);
    }
}

impl Clone for NetRef {
    fn clone(&self) -> Self {
        // Each user is in memory of its own, so 64 bits do not overflow.
        self.inner().users.fetch_add(1, Relaxed);
        // INVARIANT: Counted just now.
        Self(self.0)
    }
}

impl Drop for NetRef {
    fn drop(&mut self) {
        // `Net` may go as soon as this is done. What this user has done comes before.
        self.inner().users.fetch_sub(1, Release);
    }
}
