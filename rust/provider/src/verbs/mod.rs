// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What the verbs do with the queues.

#![forbid(unsafe_code)]

mod post;
mod wc;

use crate::{
    ring::{
        Completions,
        Recvs,
        Sends, //
    },
    sys::{
        abi::feature,
        Doorbell,
        Errno,
        NewQp,
        NewSrq,
        Offer,
        Provider,
        RecvWrs,
        SendWrs,
        Wcs, //
    },
};
use std::sync::{
    Mutex,
    MutexGuard,
    PoisonError, //
};

/// A queue and its lock. Verbs may be called by any thread.
struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    fn new(queue: T) -> Self {
        Self(Mutex::new(queue))
    }

    /// Nothing panics under the lock, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A completion queue.
pub(crate) struct Cq {
    entries: Completions,
    /// Index of the next entry; wraps.
    get: Locked<u32>,
}

/// A receive queue, and the elements that a work request may have.
struct RecvQueue {
    queue: Locked<Recvs>,
    max_sge: u32,
}

/// A queue pair.
pub(crate) struct Qp {
    sends: Locked<Sends>,
    doorbell: Doorbell,
    max_sge: u32,
    sig_all: bool,
    /// The driver has windows.
    windows: bool,
    /// `None` if the queue pair uses a shared one, or cannot receive.
    recvs: Option<RecvQueue>,
}

/// A shared receive queue.
pub(crate) struct Srq(RecvQueue);

/// The provider.
pub(crate) struct Siw;

impl Provider for Siw {
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;

    const WANT: u32 = feature::WINDOWS;

    fn create_cq(queue: &Offer) -> Result<Cq, Errno> {
        Ok(Cq {
            entries: Completions::map(queue)?,
            get: Locked::new(0),
        })
    }

    fn poll_cq(cq: &Cq, out: &mut Wcs<'_>) {
        let mut get = cq.get.lock();
        while !out.is_full() {
            let Some(entry) = cq.entries.take(*get) else {
                break;
            };
            *get = get.wrapping_add(1);
            out.push(&wc::completion(&entry));
        }
    }

    fn req_notify_cq(cq: &Cq, solicited_only: bool) {
        cq.entries.arm(solicited_only);
    }

    fn create_qp(new: NewQp) -> Result<Qp, Errno> {
        let sends = Sends::map(&new.sends)?;
        let recvs = match &new.recvs {
            Some(queue) => Some(RecvQueue::map(queue, new.max_recv_sge)?),
            None => None,
        };
        Ok(Qp {
            sends: Locked::new(sends),
            doorbell: new.doorbell,
            max_sge: new.max_send_sge,
            sig_all: new.sig_all,
            windows: new.features & feature::WINDOWS != 0,
            recvs,
        })
    }

    fn post_send(qp: &Qp, wrs: &mut SendWrs<'_>) -> Result<(), Errno> {
        qp.send(wrs)
    }

    fn post_recv(qp: &Qp, wrs: &mut RecvWrs<'_>) -> Result<(), Errno> {
        qp.recvs.as_ref().ok_or(Errno::EINVAL)?.post(wrs)
    }

    fn create_srq(new: &NewSrq) -> Result<Srq, Errno> {
        Ok(Srq(RecvQueue::map(&new.recvs, new.max_sge)?))
    }

    fn post_srq_recv(srq: &Srq, wrs: &mut RecvWrs<'_>) -> Result<(), Errno> {
        srq.0.post(wrs)
    }
}
