// SPDX-License-Identifier: GPL-2.0

//! Locks that the kernel crate lacks.

mod irq_lock;

pub(crate) use irq_lock::SpinLockIrq;
