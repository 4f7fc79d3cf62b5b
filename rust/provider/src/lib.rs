// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The provider library of siw: what libibverbs loads to talk to the driver.
//!
//! It takes the place of rdma-core's libsiw, with this driver and with the C driver. There are
//! three rooms: [`sys`] has all of C, [`ring`] the queues that are shared with the kernel, and
//! [`verbs`] what the verbs do with them.
//!
//! The library is a guest in any program, so nothing here panics, prints, or changes the state of
//! the process. What the kernel answers, and what is found in shared memory, is checked before use.

#![deny(
    missing_docs,
    non_ascii_idents,
    rust_2018_idioms,
    unreachable_pub,
    unsafe_code,
    unsafe_op_in_unsafe_fn
)]
#![deny(
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks
)]
#![cfg_attr(
    not(any(test, fuzzing)),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

mod ring;
mod sys;
mod verbs;

/// The fuzz target: calls of a program, and answers of a kernel, that `data` says.
#[cfg(fuzzing)]
pub fn fuzz(data: &[u8]) {
    sys::fuzz(data);
}

/// The dynamic linker calls this when libibverbs loads the library.
#[used]
#[link_section = ".init_array"]
#[allow(
    unsafe_code,
    reason = "the section has to be named; it holds functions"
)]
static REGISTER: sys::Constructor = sys::register::<verbs::Siw>;
