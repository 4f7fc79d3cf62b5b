// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod completions;
pub(crate) mod end;
mod fifo;
mod irrq;
mod orq;
pub(crate) mod rq;
mod rx;
mod sgl;
pub(crate) mod sq;
pub(crate) mod state;
pub(crate) mod stream;
mod tx;
pub(crate) mod verbs;

use super::{
    cm::{
        Endpoint,
        Pair, //
    },
    device::Counted,
    stats::Stats,
    CqRef,
    DeviceRef,
    QpObj, //
};
use crate::kapi::{
    process::Process,
    rdma::{
        ObjId,
        QpCap,
        QpPath, //
    },
    sync::{
        Atomic,
        SpinLockIrq, //
    }, //
};
use iwarp::{
    mem::access::{
        Access,
        Consumer,
        Need,
        PdId,
        Rights, //
    },
    mem::stag::Stag, //
    qp::fsm::State,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use rq::Rq;
use sq::Sq;
use stream::Stream;

/// The driver's part of a queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// The program that made it, and alone may connect it; none: a kernel consumer.
    pub(crate) owner: Option<Process>,
    /// What it was made in; none: a kernel consumer.
    pub(crate) context: Option<ObjId>,
    /// Protection domain of everything the queue pair may touch.
    pub(crate) pd: PdId,
    /// Where sends complete.
    pub(crate) scq: CqRef,
    /// Where receives complete.
    pub(crate) rcq: CqRef,
    /// Send queue.
    #[pin]
    pub(crate) sq: Sq,
    /// Receive queue.
    #[pin]
    pub(crate) rq: Rq,
    /// The connected part: transmission, reception, what is under way.
    #[pin]
    pub(crate) stream: Stream,
    /// The connection, from the first handshake byte to its end.
    #[pin]
    pub(crate) link: SpinLockIrq<Option<Arc<Endpoint>>>,
    /// The wait for a connection without a connection manager; it ends with `link` or with the QP.
    #[pin]
    pub(crate) pair: SpinLockIrq<Option<Arc<Pair>>>,
    /// What was set of the path to the peer.
    #[pin]
    path: SpinLockIrq<QpPath>,
    /// The verbs' state.
    #[pin]
    fsm: SpinLockIrq<State>,
    /// The word of `iwarp::qp::phase`.
    phase: Atomic<u32>,
    /// Access flags of `modify_qp`.
    access: Atomic<u32>,
    /// They hold for the peer: the connection is, or will be, made without a connection manager.
    pub(crate) strict: Atomic<bool>,
    /// Negotiated read depths: inbound in the low, outbound in the high half.
    depths: Atomic<u32>,
    cap: QpCap,
    sig_all: bool,
    /// What it has counted and is not booked elsewhere yet.
    pub(crate) stats: Stats,
    /// The counter of the core it counts for; 0: the port.
    pub(crate) account: Atomic<u32>,
    /// The device.
    pub(crate) dev: DeviceRef,
    _counted: Counted,
}

impl Qp {
    /// Notes the negotiated read depths, for `query_qp`.
    pub(crate) fn set_depths(&self, ird: u16, ord: u16) {
        self.depths
            .store(u32::from(ird) | u32::from(ord) << 16, Relaxed);
    }
}

impl QpObj {
    /// The use of `len` bytes at `to` of what `stag` names, by this queue pair.
    #[inline]
    pub(crate) fn access_to(&self, stag: Stag, to: u64, len: u64, need: Need) -> Access {
        Access {
            stag,
            to,
            len,
            need,
            pd: self.pd,
            qp: self.qp_num(),
            consumer: match self.is_user() {
                true => Consumer::User,
                false => Consumer::Kernel,
            },
            remote: match self.strict.load(Relaxed) {
                true => Rights(self.access.load(Relaxed)),
                // What rdma_cm sets is not what the program wants, which has no say there.
                false => Rights::REMOTE_READ.union(Rights::REMOTE_WRITE),
            },
        }
    }
}
