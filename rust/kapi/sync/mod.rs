// SPDX-License-Identifier: GPL-2.0

//! Locks and reference counts that the kernel crate lacks.

mod drain;
mod irq_lock;
mod rw_sem;

pub(crate) use drain::DrainRef;
pub(crate) use irq_lock::{
    SpinLockIrq,
    SpinLockIrqGuard, //
};
pub(crate) use rw_sem::{
    RwSem,
    RwSemReadGuard,
    RwSemWriteGuard, //
};
