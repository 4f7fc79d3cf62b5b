// SPDX-License-Identifier: GPL-2.0

//! The mark of buffers that TCP sends by reference from memory of others.
//!
//! It makes whoever would keep such a buffer on this machine, or hand it to a local receiver, copy
//! it first (`skb_orphan_frags_rx`): the owner may write to the memory as soon as the peer has
//! acknowledged it, and a local peer acknowledges what it has not read yet. Nothing else is asked of
//! it: the pages have references of their own, and when the memory is given back to its owner
//! follows from what is acknowledged. So one mark serves all.

use crate::kapi::{
    bindings,
    context, //
};
use core::cell::UnsafeCell;

struct Mark(UnsafeCell<bindings::ubuf_info>);

// SAFETY: The C side changes nothing but the count, which is atomic.
unsafe impl Sync for Mark {}

static OPS: bindings::ubuf_info_ops = bindings::ubuf_info_ops {
    complete: Some(complete),
    link_skb: None,
};

static MARK: Mark = Mark(UnsafeCell::new(bindings::ubuf_info {
    ops: &raw const OPS,
    // Ours.
    refcnt: bindings::refcount_t {
        refs: bindings::atomic_t { counter: 1 },
    },
    flags: (bindings::SKBFL_ZEROCOPY_ENABLE
        | bindings::SKBFL_SHARED_FRAG
        | bindings::SKBFL_DONT_ORPHAN) as u8,
}));

/// The mark, for `msg_ubuf`. It is valid until [`wait`] returns.
pub(super) fn get() -> *mut bindings::ubuf_info {
    MARK.0.get()
}

/// Waits until no buffer has the mark any more. May sleep.
///
/// There must be no sockets any more; what they had sent may still be queued at a device.
pub(super) fn wait() {
    // SAFETY: The mark is valid.
    while unsafe { bindings::siw_helper_ubuf_refs(get()) } != 1 {
        context::msleep(1);
    }
}

/// A buffer with the mark is freed, or was copied.
///
/// # Safety
///
/// `ubuf` must be valid, and a reference of the caller's.
unsafe extern "C" fn complete(
    _skb: *mut bindings::sk_buff,
    ubuf: *mut bindings::ubuf_info,
    _unshared: bool,
) {
    // SAFETY: By the contract of this function.
    unsafe { bindings::siw_helper_ubuf_put(ubuf) };
}
