// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the driver, `siw` in `/sys/kernel/tracing/events`. All may be hit in any context.

use crate::kapi::bindings;
use kernel::jump_label::static_branch_unlikely;

// What is in a key or a lock class is none of our business.
#[allow(improper_ctypes)]
extern "C" {
    static __tracepoint_siw_send: kernel::bindings::tracepoint;
    static __tracepoint_siw_place: kernel::bindings::tracepoint;
    static __tracepoint_siw_complete: kernel::bindings::tracepoint;
}

/// Whether anybody listens to a tracepoint: on the paths of every message nothing else is to cost
/// anything.
macro_rules! enabled {
    ($tracepoint:path) => {
        // SAFETY: The static key of a tracepoint may be asked at any time.
        unsafe { static_branch_unlikely!($tracepoint, kernel::bindings::tracepoint, key) }
    };
}

/// A step of connection establishment or teardown.
pub(crate) fn connect(qpn: u32, step: u32, status: i32) {
    // SAFETY: Takes numbers only, and may be called in any context.
    unsafe { bindings::siw_helper_trace_connect(qpn, step, status) }
}

/// A batch of FPDUs handed to TCP, and how much of it TCP took.
#[inline(always)]
pub(crate) fn send(qpn: u32, fpdus: u32, bytes: u32, accepted: u32) {
    if enabled!(__tracepoint_siw_send) {
        // SAFETY: As in `connect`.
        unsafe { bindings::siw_helper_trace_send(qpn, fpdus, bytes, accepted) }
    }
}

/// Bytes placed in memory.
#[inline(always)]
pub(crate) fn place(qpn: u32, stag: u32, to: u64, len: u32) {
    if enabled!(__tracepoint_siw_place) {
        // SAFETY: As in `connect`.
        unsafe { bindings::siw_helper_trace_place(qpn, stag, to, len) }
    }
}

/// A work request that is finished.
#[inline(always)]
pub(crate) fn complete(qpn: u32, wr_id: u64, opcode: u8, status: u32) {
    if enabled!(__tracepoint_siw_complete) {
        // SAFETY: As in `connect`.
        unsafe { bindings::siw_helper_trace_complete(qpn, wr_id, opcode, status) }
    }
}

/// A Terminate message sent or received (RFC 5040, 4.8).
pub(crate) fn terminate(qpn: u32, rx: bool, layer: u8, etype: u8, code: u8) {
    // SAFETY: As in `connect`.
    unsafe { bindings::siw_helper_trace_terminate(qpn, rx, layer, etype, code) }
}
