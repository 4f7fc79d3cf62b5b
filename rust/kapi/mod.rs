// SPDX-License-Identifier: GPL-2.0

//! Safe Rust for parts of the kernel that the kernel crate does not cover yet: RDMA providers
//! ([`rdma`]), TCP sockets inside the kernel ([`net`]), and the small modules that both need.
//!
//! This is a library: it knows neither the provider above it nor the protocol that the provider
//! speaks. `rust/samples` has a second user. A module cannot export a crate, so the library is
//! compiled into its user's crate, where it must be `crate::kapi`.
//!
//! All `unsafe` code is here, and so are all bindings of C functions. The C code that Rust cannot
//! call itself is in `rust/helpers`.

mod bindings;
pub(crate) mod context;
pub(crate) mod crc32c;
pub(crate) mod errno;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod rdma;
pub(crate) mod release;
pub(crate) mod slot;
pub(crate) mod sync;
pub(crate) mod timer;
pub(crate) mod version;
pub(crate) mod wq;
