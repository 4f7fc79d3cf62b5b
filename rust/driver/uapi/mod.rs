// SPDX-License-Identifier: GPL-2.0

//! The interface between the provider and its library in user space.
//!
//! Nothing here needs `unsafe`: the conversions between bytes and values are derived.

pub(crate) mod abi;

/// What bindgen makes of `include/siw_uapi.h`.
#[allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    reason = "generated code"
)]
mod generated {
    use kernel::ffi;

    include!(env!("SIW_UAPI"));
}
