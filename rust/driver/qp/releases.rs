// SPDX-License-Identifier: GPL-2.0

//! The release of memory that was sent by reference, for which send completions wait.

use crate::QpRef;
use base::sync::{
    AccessOnce,
    SpinLockIrq, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A queue pair whose FIFO waits for memory to be released.
#[pin_data]
pub(super) struct Releases {
    #[pin]
    pub(super) qp: SpinLockIrq<Option<QpRef>>,
}

impl Releases {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qp <- ranked_spinlock!(Rank::Releases, None),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Drops the reference to the queue pair; nothing waits any more.
    pub(super) fn forget(&self) {
        let qp = self.qp.lock().take();
        drop(qp);
    }

    /// Memory is released. The context that frees a buffer may hold locks that a consumer's
    /// completion handler takes, so a datamover posts the completion.
    pub(super) fn released(&self) {
        let qp = self.qp.lock().take();
        if let Some(qp) = qp {
            qp.enqueue_mover(qp.stream.home.read_once());
        }
    }
}
