// SPDX-License-Identifier: GPL-2.0

//! Marks on memory of others that TCP sends by reference.
//!
//! A mark goes with every buffer that refers to such memory, and with every clone and every part of
//! one, wherever it is: in TCP, in a queue, at a device. A probe of the path MTU would have no
//! mark, so nothing is sent by reference where TCP makes such probes. A mark has two effects. Code
//! that would keep such a buffer on this machine, or hand it to a local receiver, copies it first
//! (`skb_orphan_frags_rx`). And the mark shows when the last of the buffers is gone. The peer's
//! acknowledgement does not show that: a peer may acknowledge data that still waits in a queue
//! here, and the peer then gets what the memory contains when the data leaves the queue. That time
//! is finite, because a driver has to free what it has sent
//! (`Documentation/networking/driver.rst`).
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use base::{
    bindings,
    release::ReleaseRef, //
};
use core::{
    cell::UnsafeCell,
    ptr::NonNull, //
};
use kernel::{
    alloc::flags::{
        GFP_ATOMIC,
        __GFP_NOWARN, //
    },
    prelude::*,
    sync::Arc, //
};

/// The handler of a mark's release.
pub trait OnRelease: Send + Sync + 'static {
    /// The mark is released. Called in any context, also with locks of others held: must not sleep,
    /// send, or call back a consumer.
    fn released(&self);
}

/// # Invariants
///
/// As long as the count of `ubuf` is not 0, a reference of the [`Arc`] that this is in belongs to
/// it.
#[repr(C)]
struct Inner {
    // The first field, because the C side knows only this.
    ubuf: UnsafeCell<bindings::ubuf_info>,
    owner: Option<Arc<dyn OnRelease>>,
    _user: ReleaseRef,
}

// SAFETY: The C side changes nothing but the count, which is atomic.
unsafe impl Send for Inner {}
// SAFETY: What the C side changes through a shared one is the count, which is atomic.
unsafe impl Sync for Inner {}

static OPS: bindings::ubuf_info_ops = bindings::ubuf_info_ops {
    complete: Some(complete),
    link_skb: None,
};

/// The mark of one message. It tells whether it is released.
pub struct Mark(Arc<Inner>);

impl Mark {
    /// Makes a mark and the marker that puts it on buffers. Any context.
    pub fn new(user: ReleaseRef, owner: Option<Arc<dyn OnRelease>>) -> Result<(Self, Marker)> {
        let inner = Arc::new(
            Inner {
                ubuf: UnsafeCell::new(bindings::ubuf_info {
                    ops: &raw const OPS,
                    // The reference of the marker.
                    refcnt: bindings::refcount_t {
                        refs: bindings::atomic_t { counter: 1 },
                    },
                    flags: (bindings::SKBFL_ZEROCOPY_ENABLE
                        | bindings::SKBFL_SHARED_FRAG
                        | bindings::SKBFL_DONT_ORPHAN) as u8,
                }),
                owner,
                _user: user,
            },
            GFP_ATOMIC | __GFP_NOWARN,
        )?;
        // INVARIANT: This reference is the one that belongs to the count.
        let raw = Arc::into_raw(inner.clone());
        // SAFETY: An `Arc` is not at address 0.
        let ubuf = unsafe { NonNull::new_unchecked(raw.cast_mut()) }.cast();
        // INVARIANT: The count begins with this one.
        Ok((Self(inner), Marker(ubuf)))
    }

    /// Whether no buffer has the mark, and none will get it. Any context.
    pub fn is_released(&self) -> bool {
        // SAFETY: The mark is valid as long as the `Arc` is.
        unsafe { bindings::ubuf_refs(self.0.ubuf.get()) == 0 }
    }
}

/// The right to put a mark on buffers.
///
/// # Invariants
///
/// This is the `ubuf` of an [`Inner`], and owns one of its count.
pub struct Marker(NonNull<bindings::ubuf_info>);

// SAFETY: What is done with the mark is atomic.
unsafe impl Send for Marker {}
// SAFETY: A shared marker only gives its pointer away, and who gets that counts atomically.
unsafe impl Sync for Marker {}

impl Marker {
    /// The value for `msg_ubuf`, valid as long as the marker is.
    pub(super) fn as_raw(&self) -> *mut bindings::ubuf_info {
        self.0.as_ptr()
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        // SAFETY: The count is ours by the type invariants.
        unsafe { put(self.0.as_ptr()) };
    }
}

/// Drops one of the count.
///
/// # Safety
///
/// `ubuf` must be that of an [`Inner`], and the caller must own one of its count.
unsafe fn put(ubuf: *mut bindings::ubuf_info) {
    // SAFETY: By the contract of this function.
    if !unsafe { bindings::ubuf_put(ubuf) } {
        return;
    }
    // SAFETY: `ubuf` is the first field. By the type invariants there is a reference for the count,
    // which is 0 now.
    let inner = unsafe { Arc::from_raw(ubuf.cast::<Inner>().cast_const()) };
    if let Some(owner) = &inner.owner {
        owner.released();
    }
}

/// Called when a buffer with the mark is freed or was copied.
///
/// # Safety
///
/// `ubuf` must be that of an [`Inner`], and the caller must own one of its count.
unsafe extern "C" fn complete(
    _skb: *mut bindings::sk_buff,
    ubuf: *mut bindings::ubuf_info,
    _unshared: bool,
) {
    // SAFETY: By the contract of this function.
    unsafe { put(ubuf) };
}
