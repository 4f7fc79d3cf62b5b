// SPDX-License-Identifier: GPL-2.0

//! The C API: what bindgen makes of `include/rust_bindings.h`.
//!
//! It is for the crates with abstractions, as `rust/bindings` is for the kernel crate. A type that
//! is complete in the kernel crate's bindings is taken from there.

#![doc(hidden)]
#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    reason = "generated code"
)]

pub use kernel::bindings::*;
use kernel::ffi;
use pin_init::MaybeZeroable;

// `rust/bindgen_parameters` of the kernel excludes this type.
type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!(env!("RUST_BINDINGS"));
