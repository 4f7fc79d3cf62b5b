// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What the verbs do with the queues.

#![forbid(unsafe_code)]

mod post;
mod turn;
mod wc;

use self::turn::Turn;

use crate::{
    ring::{
        Completions,
        Notifier,
        Recvs,
        Sends, //
    },
    sys::{
        abi::{
            feature,
            send_ops, //
        },
        Doorbell,
        Errno,
        NewQp,
        NewSrq,
        Offer,
        Provider,
        RecvWrs,
        SendWr,
        SendWrs,
        Wc,
        Wcs, //
    },
};
use core::mem;
use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        MutexGuard,
        PoisonError, //
    }, //
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
    entries: Turn<Entries>,
    /// Where notifications of the current queue are asked for. A program may do that while it
    /// polls.
    notifier: Locked<Notifier>,
}

/// The entries of a completion queue.
pub(crate) struct Entries {
    /// Queues from before a resize, the oldest first, with entries that have not been polled. The
    /// driver adds none.
    old: VecDeque<Completions>,
    /// The queue that the driver fills.
    current: Completions,
}

impl Entries {
    fn take(&mut self) -> Option<Wc> {
        while let Some(oldest) = self.old.front_mut() {
            if let Some(entry) = oldest.take() {
                return Some(wc::completion(&entry));
            }
            self.old.pop_front();
        }
        Some(wc::completion(&self.current.take()?))
    }
}

/// A receive queue, and the elements that a work request may have.
struct RecvQueue {
    /// `None` if it is lost: it was resized, and could not be mapped.
    queue: Locked<Option<Recvs>>,
    max_sge: u32,
}

/// A queue pair.
pub(crate) struct Qp {
    sends: Turn<Sends>,
    doorbell: Doorbell,
    max_sge: u32,
    sig_all: bool,
    /// The driver has windows.
    windows: bool,
    /// The driver has the extensions of RFC 7306.
    rfc7306: bool,
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
    type Polling = Entries;
    type Batch = Sends;

    const WANT: u32 = feature::WINDOWS | feature::RFC7306 | feature::RESIZE_SRQ;

    fn create_cq(queue: &Offer) -> Result<Cq, Errno> {
        let current = Completions::map(queue)?;
        Ok(Cq {
            notifier: Locked::new(current.notifier()),
            entries: Turn::new(Entries {
                old: VecDeque::new(),
                current,
            }),
        })
    }

    fn resize_cq(cq: &Cq, command: impl FnOnce() -> Result<Offer, Errno>) -> Result<(), Errno> {
        // Nobody polls or arms the old queue while the driver takes over from it.
        cq.entries.with(|entries| {
            let mut notifier = cq.notifier.lock();
            entries.old.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            let current = Completions::map(&command()?)?;
            *notifier = current.notifier();
            let old = mem::replace(&mut entries.current, current);
            if !old.is_empty() {
                entries.old.push_back(old);
            }
            Ok(())
        })
    }

    fn poll_cq(cq: &Cq, out: &mut Wcs<'_>) {
        cq.entries.with(|entries| {
            while !out.is_full() {
                let Some(wc) = entries.take() else {
                    break;
                };
                out.push(&wc);
            }
        });
    }

    fn start_poll(cq: &Cq) -> Entries {
        cq.entries.take()
    }

    fn next_poll(_cq: &Cq, polling: &mut Entries) -> Option<Wc> {
        polling.take()
    }

    fn end_poll(cq: &Cq, polling: Entries) {
        cq.entries.give(polling);
    }

    fn req_notify_cq(cq: &Cq, solicited_only: bool) {
        cq.notifier.lock().arm(solicited_only);
    }

    fn create_qp(new: NewQp) -> Result<Qp, Errno> {
        let sends = Sends::map(&new.sends)?;
        let recvs = match &new.recvs {
            Some(queue) => Some(RecvQueue::map(queue, new.max_recv_sge)?),
            None => None,
        };
        Ok(Qp {
            sends: Turn::new(sends),
            doorbell: new.doorbell,
            max_sge: new.max_send_sge,
            sig_all: new.sig_all,
            windows: new.features & feature::WINDOWS != 0,
            rfc7306: new.features & feature::RFC7306 != 0,
            recvs,
        })
    }

    fn post_send(qp: &Qp, wrs: &mut SendWrs<'_>) -> Result<(), Errno> {
        qp.send(wrs)
    }

    fn send_ops(features: u32) -> u64 {
        let windows = match features & feature::WINDOWS {
            0 => 0,
            _ => send_ops::LOCAL_INV | send_ops::BIND_MW,
        };
        let rfc7306 = match features & feature::RFC7306 {
            0 => 0,
            _ => {
                send_ops::SEND_WITH_IMM
                    | send_ops::RDMA_WRITE_WITH_IMM
                    | send_ops::ATOMIC_CMP_AND_SWP
                    | send_ops::ATOMIC_FETCH_AND_ADD
            }
        };
        send_ops::SEND
            | send_ops::SEND_WITH_INV
            | send_ops::RDMA_WRITE
            | send_ops::RDMA_READ
            | windows
            | rfc7306
    }

    fn start_batch(qp: &Qp) -> Sends {
        qp.sends.take()
    }

    fn add_to_batch(qp: &Qp, batch: &mut Sends, wr: &SendWr<'_>) -> Result<(), Errno> {
        qp.push(batch, wr)
    }

    fn post_batch(qp: &Qp, mut batch: Sends) -> Result<(), Errno> {
        let result = qp.publish(&mut batch);
        qp.sends.give(batch);
        result.map_err(|(error, _)| error)
    }

    fn abort_batch(qp: &Qp, mut batch: Sends) {
        batch.discard();
        qp.sends.give(batch);
    }

    fn post_recv(qp: &Qp, wrs: &mut RecvWrs<'_>) -> Result<(), Errno> {
        qp.recvs.as_ref().ok_or(Errno::EINVAL)?.post(wrs)
    }

    fn create_srq(new: &NewSrq) -> Result<Srq, Errno> {
        Ok(Srq(RecvQueue::map(&new.recvs, new.max_sge)?))
    }

    fn resize_srq(
        srq: &Srq,
        command: impl FnOnce() -> Result<(Offer, u32), Errno>,
    ) -> Result<(), Errno> {
        // Nobody posts while the driver copies what is posted.
        let mut queue = srq.0.queue.lock();
        let (offer, put) = command()?;
        // The driver has gone over: what is posted to the old queue would be lost.
        *queue = None;
        *queue = Some(Recvs::map(&offer, put)?);
        Ok(())
    }

    fn post_srq_recv(srq: &Srq, wrs: &mut RecvWrs<'_>) -> Result<(), Errno> {
        srq.0.post(wrs)
    }
}
