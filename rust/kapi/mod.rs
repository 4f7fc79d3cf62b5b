// SPDX-License-Identifier: GPL-2.0

//! The kernel API this driver needs and the kernel crate lacks.

mod bindings;
pub(crate) mod context;
pub(crate) mod crc32c;
pub(crate) mod errno;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod rdma;
pub(crate) mod slot;
pub(crate) mod sync;
pub(crate) mod timer;
pub(crate) mod version;
pub(crate) mod wq;
