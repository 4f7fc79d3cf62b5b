// SPDX-License-Identifier: GPL-2.0

//! TCP sockets as a transport below a protocol in the kernel.

mod callbacks;
mod frozen;
mod listener;
mod locked;
mod mark;
mod replay;
pub mod skb;
mod socket;
mod state;
mod tx_buf;
mod vrf;

use base::{
    bindings,
    release::{
        ReleaseRef,
        Releases, //
    }, //
};
use kernel::prelude::*;

pub use callbacks::{
    Acceptor,
    SocketEvents, //
};
pub use frozen::Frozen;
pub use listener::{
    ListenOpts,
    Listener, //
};
pub use locked::{
    LockedSock,
    RxSock,
    SendSeq,
    SockView,
    TxSock, //
};
pub use mark::{
    Mark,
    Marker,
    OnRelease, //
};
pub use replay::Replay;
pub use skb::Skb;
pub use socket::Socket;
pub use state::TcpState;
pub use tx_buf::TxBuf;

/// The common resources of sockets.
///
/// Each socket, and each mark on a buffer, holds a [`ReleaseRef`], and the drop of this waits for
/// all of them.
pub struct Net(Releases);

impl Net {
    /// Makes the queue that releases sockets, and names it `name`. May sleep.
    pub fn new(name: &CStr) -> Result<Self> {
        Ok(Self(Releases::new(name)?))
    }

    /// Returns a new user. Any context.
    pub fn user(&self) -> ReleaseRef {
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
