// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use core::marker::PhantomData;

use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

use base::{
    bindings::{
        self,
        net_device,
        rdma_link_ops, //
    },
    netdev::NetDev, //
};

/// The maker of devices of a kind.
pub trait LinkOps: 'static {
    /// Makes and registers a device above `ndev`. May sleep; the RTNL is not held.
    fn newlink(name: &CStr, ndev: &NetDev) -> Result;
}

/// A kind of link that can be added. The module should have the alias `rdma-link-<kind>`. Dropping
/// it may sleep.
///
/// # Examples
///
/// ```ignore
/// struct Link;
///
/// impl LinkOps for Link {
///     fn newlink(name: &CStr, ndev: &NetDev) -> Result {
///         if Device::<MyDriver>::find(ndev).is_some() {
///             return Err(EEXIST);
///         }
///         // The three as in the example of `Device`.
///         let new = Device::<MyDriver>::new(module, &cfg, data)?;
///         new.set_netdev(ndev)?;
///         new.register(name)
///     }
/// }
///
/// // From now on `rdma link add NAME type mine netdev NETDEV` calls it.
/// let link = KBox::pin_init(LinkRegistration::<Link>::new(c"mine"), GFP_KERNEL)?;
/// ```
///
/// # Invariants
///
/// `ops` is registered, and does not move.
#[pin_data(PinnedDrop)]
pub struct LinkRegistration<L: LinkOps> {
    #[pin]
    ops: Opaque<rdma_link_ops>,
    _p: PhantomData<fn() -> L>,
}

// SAFETY: The core locks its list.
unsafe impl<L: LinkOps> Send for LinkRegistration<L> {}

// SAFETY: There is nothing to be done with a shared reference.
unsafe impl<L: LinkOps> Sync for LinkRegistration<L> {}

impl<L: LinkOps> LinkRegistration<L> {
    /// Registers the kind. Fails with `EEXIST` if there is one of that name. May sleep.
    pub fn new(kind: &'static CStr) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|slot: *mut rdma_link_ops| {
                let ops = rdma_link_ops {
                    type_: kind.as_char_ptr(),
                    newlink: Some(newlink::<L>),
                    ..pin_init::zeroed()
                };
                // SAFETY: `slot` is a valid place.
                unsafe { slot.write(ops) };
                // SAFETY: It is complete, and stays there until it is dropped.
                unsafe { bindings::rdma_link_register(slot) };
                // SAFETY: Written above. Neighbours in the list change the entry, but not to null.
                let next = unsafe { (&raw const (*slot).list.next).read_volatile() };
                // The call only warns if the name is taken, and leaves the entry as it is.
                if next.is_null() {
                    return Err(EEXIST);
                }
                // INVARIANT: The entry is in the list.
                Ok(())
            }),
            _p: PhantomData,
        })
    }
}

#[pinned_drop]
impl<L: LinkOps> PinnedDrop for LinkRegistration<L> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by the type invariants. It waits for calls.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) };
    }
}

/// # Safety
///
/// Called by the core with a name and with a device that is held.
unsafe extern "C" fn newlink<L: LinkOps>(
    name: *const ffi::c_char,
    ndev: *mut net_device,
) -> ffi::c_int {
    // SAFETY: By the requirements of this function.
    let name = unsafe { CStr::from_char_ptr(name) };
    // SAFETY: As above; this takes a reference of its own.
    let ndev = unsafe { NetDev::from_raw(ndev) };
    match L::newlink(name, &ndev) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}
