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
    release::{
        ReleaseRef,
        Releases, //
    }, //
};
use kernel::prelude::*;

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

/// The common resources of sockets.
///
/// Each socket, and each mark on a buffer, holds a [`ReleaseRef`], and the drop of this waits for
/// all of them.
pub(crate) struct Net(Releases);

impl Net {
    /// Makes the queue that releases sockets, and names it `name`. May sleep.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        Ok(Self(Releases::new(name)?))
    }

    /// Returns a new user. Any context.
    pub(crate) fn user(&self) -> ReleaseRef {
        self.0.user()
    }
}

impl Drop for Net {
    /// Waits until the sockets are released and no buffer has a mark. May sleep.
    fn drop(&mut self) {
        self.0.wait();
        tx_buf::Pool::clear();
        // SAFETY: There are no users, so no stream sends.
        unsafe { bindings::kapi_drop_frags() };
        // A softirq may still be in the last instructions of a callback of ours.
        // SAFETY: May sleep here.
        unsafe { bindings::synchronize_net() };
    }
}
