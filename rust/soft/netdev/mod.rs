// SPDX-License-Identifier: GPL-2.0

//! Network devices below RDMA devices.

pub mod notifier;
