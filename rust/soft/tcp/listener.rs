// SPDX-License-Identifier: GPL-2.0

//! TCP listeners.

use crate::tcp::{
    callbacks::{
        self,
        Acceptor,
        Owner, //
    },
    socket::{
        Handle,
        Shutdown,
        Socket, //
    }, //
};
use base::{
    addr::SockAddr,
    bindings,
    netdev::NetNs,
    release::ReleaseRef, //
};
use core::mem::ManuallyDrop;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    task::might_sleep, //
};

/// How a [`Listener`] listens.
#[derive(Clone, Copy)]
pub struct ListenOpts {
    /// How many connections may wait to be accepted.
    pub backlog: u32,
    /// The index of the device or VRF to listen on; 0: all devices outside of VRFs.
    pub ifindex: u32,
    /// Whether to leave IPv4 to other sockets.
    pub v6only: bool,
    /// The type of service or traffic class.
    pub tos: Option<u8>,
}

/// A listening socket. May be dropped in any context.
pub struct Listener(ManuallyDrop<Pin<KBox<Handle>>>);

impl Listener {
    /// Listens on `addr`. May sleep.
    pub fn new(
        user: ReleaseRef,
        ns: &NetNs,
        addr: &SockAddr,
        opts: &ListenOpts,
        acceptor: Arc<dyn Acceptor>,
    ) -> Result<Self> {
        let this = Self(ManuallyDrop::new(Handle::create(user, ns, addr.family())?));
        if opts.v6only {
            this.0.set_v6only()?;
        }
        if let Some(tos) = opts.tos {
            this.0.set_tos(tos)?;
        }
        this.0.bind_to_device(opts.ifindex)?;
        this.0.bind(addr)?;
        let owner = KBox::new(Owner::Listener(acceptor), GFP_KERNEL_ACCOUNT)?;
        let ours = callbacks::listener(this.0.stock());
        // SAFETY: The socket is valid as long as the handle is. Callbacks and owner fit.
        unsafe { callbacks::swap(this.0.sk(), &ours, Some(owner)) }?;
        let backlog = i32::try_from(opts.backlog).unwrap_or(i32::MAX);
        // SAFETY: The socket is valid as long as the handle is.
        to_result(unsafe { bindings::kernel_listen(this.0.sock(), backlog) })?;
        Ok(this)
    }

    /// Accepts a connection, if there is one. May sleep, but does not wait for one.
    pub fn accept(&self) -> Result<Option<Socket>> {
        self.0.accept()
    }

    /// Stops listening. No callback runs after this, and connections not accepted are reset. May
    /// sleep.
    pub fn close(&self) {
        might_sleep();
        self.0.detach();
        // The socket may not have begun to listen.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: Not used after this.
        Handle::release_later(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}
