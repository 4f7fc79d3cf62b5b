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
    },
    wq::Kind, //
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
    SendSock,
    SockView, //
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
/// Each socket, and each mark on a buffer, holds a [`ReleaseRef`], and the drop waits for all of
/// them. May sleep.
pub struct Net {
    sockets: Releases,
    _buffers: Buffers,
}

impl Net {
    /// Makes the queue that releases sockets, and names it `name`. May sleep.
    ///
    /// Fails with `ENOMEM`.
    pub fn new(name: &CStr) -> Result<Self> {
        let objects = "sockets, such as messages queued at a network device";
        Ok(Self {
            sockets: Releases::new(name, Kind::Unbound, objects)?,
            _buffers: Buffers,
        })
    }

    /// Returns a new user. Any context.
    pub fn user(&self) -> ReleaseRef {
        self.sockets.user()
    }
}

/// The buffers that streams share. They are dropped after all sockets. May sleep.
struct Buffers;

impl Drop for Buffers {
    fn drop(&mut self) {
        tx_buf::Pool::clear();
        // SAFETY: There are no users, so no stream sends.
        unsafe { bindings::soft_drop_frags() };
        // A softirq may still be in the last instructions of a callback of ours.
        // SAFETY: May sleep here.
        unsafe { bindings::synchronize_net() };
    }
}
