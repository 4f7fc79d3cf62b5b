// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the provider, `siw` in `/sys/kernel/tracing/events`. All may be hit in any
//! context.
//!
//! `include/trace/siw.h` defines them, `rust/trace/points.c` has their code. They have a crate of
//! their own because the driver may not call C. With no listener a tracepoint costs a no-op, and in
//! a kernel without tracepoints nothing.

use kernel::macros::paste;

/// Declares tracepoints, as [`kernel::tracepoint::declare_trace`] does for those that the kernel
/// crate has bindings of. The arguments are numbers, and are computed for a listener only.
macro_rules! declare_trace {
    ($($(#[$attr:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(paste! {
        $(#[$attr])*
        #[inline(always)]
        pub fn $name(args: impl FnOnce() -> ($($type),*)) {
            #[cfg(CONFIG_TRACEPOINTS)]
            {
                use kernel::{
                    bindings::tracepoint,
                    jump_label::static_branch_unlikely, //
                };

                // The layout of a key or a lock class does not matter here.
                #[allow(improper_ctypes)]
                extern "C" {
                    static [<__tracepoint_siw_ $name>]: tracepoint;
                    fn [<rust_do_trace_siw_ $name>]($($arg: $type),*);
                }

                // SAFETY: The static key of a tracepoint may be queried at any time.
                if unsafe { static_branch_unlikely!([<__tracepoint_siw_ $name>], tracepoint, key) }
                {
                    let ($($arg),*) = args();
                    // SAFETY: It takes numbers only, and may be called in any context.
                    unsafe { [<rust_do_trace_siw_ $name>]($($arg),*) }
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = args;
        }
    })*};
}

declare_trace! {
    /// A step of connection establishment or teardown.
    fn connect(qpn: u32, step: u32, status: i32);
    /// A batch of FPDUs handed to TCP, and how many of its bytes TCP accepted.
    fn send(qpn: u32, fpdus: u32, bytes: u32, accepted: u32);
    /// Bytes placed in memory.
    fn place(qpn: u32, stag: u32, to: u64, len: u32);
    /// A work request that is finished.
    fn complete(qpn: u32, wr_id: u64, opcode: u8, status: u32);
    /// A Terminate message sent or received (RFC 5040, 4.8).
    fn terminate(qpn: u32, rx: bool, layer: u8, etype: u8, code: u8);
}
