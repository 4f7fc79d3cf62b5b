// SPDX-License-Identifier: GPL-2.0

//! The kernel API this driver needs and the kernel crate lacks.

mod bindings;
