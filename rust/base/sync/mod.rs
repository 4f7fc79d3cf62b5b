// SPDX-License-Identifier: GPL-2.0

//! Locks and lock-free primitives that the kernel crate lacks.

mod irq_lock;
mod once;
mod slot;

pub use super::version::smp_mb;
pub use irq_lock::SpinLockIrq;
pub use once::AccessOnce;
pub use slot::Slot;
