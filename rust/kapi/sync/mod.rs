// SPDX-License-Identifier: GPL-2.0

//! Locks and lock-free primitives that the kernel crate lacks.

mod irq_lock;
mod once;
mod slot;

pub(crate) use super::version::smp_mb;
pub(crate) use irq_lock::SpinLockIrq;
pub(crate) use once::AccessOnce;
pub(crate) use slot::Slot;
