// SPDX-License-Identifier: GPL-2.0

//! TCP sockets as a transport below a protocol in the kernel, and the devices they run over.

pub(crate) mod addr;
mod callbacks;
mod listener;
mod locked;
mod mark;
pub(crate) mod netdev;
mod notifier;
pub(crate) mod skb;
mod socket;
mod tx_buf;

use crate::kapi::{
    bindings,
    wq::{
        Kind,
        WorkQueue, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
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
    NetNs, //
};
pub(crate) use notifier::{
    AddrEvent,
    NetdevEvent,
    NetdevEvents,
    NetdevNotifier, //
};
pub(crate) use skb::Skb;
pub(crate) use socket::{
    Shutdown,
    Socket,
    TcpState, //
};
pub(crate) use tx_buf::TxBuf;

/// The queue that releases sockets. A socket may be dropped in any context, but its release may
/// sleep.
static RELEASE: Atomic<*mut WorkQueue> = Atomic::new(core::ptr::null_mut());

/// The common resources of all sockets.
///
/// It is made before, and dropped after, everything that uses sockets.
pub(crate) struct Net {
    // A box, for the address in `RELEASE`.
    queue: KBox<WorkQueue>,
}

impl Net {
    /// Makes the queue that releases sockets, and names it `name`. May sleep.
    pub(crate) fn init(name: &CStr) -> Result<Self> {
        let queue = KBox::new(WorkQueue::new(name, Kind::Unbound)?, GFP_KERNEL)?;
        RELEASE.store((&raw const *queue).cast_mut(), Release);
        Ok(Self { queue })
    }
}

impl Drop for Net {
    /// Waits until the sockets that were dropped are gone. May sleep.
    fn drop(&mut self) {
        // The release of one socket may drop another, which goes to the same queue.
        self.queue.drain();
        RELEASE.store(core::ptr::null_mut(), Release);
        mark::wait();
        tx_buf::Pool::clear();
        // A softirq may still be in the last instructions of a callback of ours.
        // SAFETY: May sleep here.
        unsafe { bindings::synchronize_net() };
    }
}

/// Runs `job` soon, in process context. Any context.
#[cold]
fn release_later(job: Pin<KBox<socket::Handle>>) {
    // SAFETY: The queue is valid as long as its address is there: `Net` is dropped after all that
    // has sockets.
    match unsafe { RELEASE.load(Acquire).as_ref() } {
        Some(queue) => queue.enqueue(job),
        None => kernel::workqueue::system_unbound().enqueue(job),
    }
}
