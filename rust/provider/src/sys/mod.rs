// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! All that touches C: libibverbs, the kernel, and the memory of programs.
//!
//! The library is generic over a [`Provider`], which is safe code. Here is what lies below it: the
//! interface of libibverbs ([`private`], and `bindings` from its public headers), the operations
//! that it calls ([`ops`]), commands to the kernel, shared memory, and work requests and
//! completions as programs see them.

#![allow(unsafe_code, reason = "all unsafe code is in this room")]

pub(crate) mod abi;
mod build;
mod calls;
mod command;
mod counted;
mod cq;
mod device;
mod domain;
mod errno;
mod lid;
mod memory;
mod object;
mod ops;
mod poll;
mod private;
mod provider;
mod qp;
mod shared;
mod srq;
#[cfg(any(test, fuzzing))]
mod tests;
mod wc;
mod window;
mod wr;

#[cfg(fuzzing)]
pub(crate) use self::tests::random::run as fuzz;
pub(crate) use self::{
    counted::Counted,
    errno::Errno,
    ops::{
        register,
        Constructor, //
    },
    provider::{
        NewQp,
        NewSrq,
        Provider, //
    },
    shared::{
        Doorbell,
        Offer,
        Shared, //
    },
    wc::{
        Wc,
        Wcs,
        With, //
    },
    wr::{
        RecvWrs,
        SendWr,
        SendWrs,
        Sge, //
    }, //
};

/// What bindgen makes of `include/siw_provider.h`.
#[allow(
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    reason = "generated code"
)]
mod bindings {
    include!(env!("SIW_PROVIDER_BINDINGS"));
}
