// SPDX-License-Identifier: GPL-2.0

//! The provider.

#![forbid(unsafe_code)]
