// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod carrier;
mod completions;
mod control;
pub(crate) mod end;
mod fifo;
mod irrq;
mod late;
mod loans;
mod orq;
mod pager;
mod releases;
pub(crate) mod rq;
mod rx;
pub(crate) mod send_wr;
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
    limits::Counted,
    stats::Stats,
    CqRef,
    DeviceRef,
    QpObj, //
};
use base::{
    process::Process,
    sync::{
        AccessOnce,
        SpinLockIrq, //
    }, //
};
use iwarp::{
    mem::access::{
        Accessor,
        Consumer,
        PdId,
        Rights, //
    },
    qp::fsm::State, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        Mutex, //
    }, //
};
use rdma::{
    qp,
    ObjId, //
};
use rq::Rq;
use sq::Sq;
use stream::Stream;

/// The driver's part of a queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// The program that created the queue pair, and alone may connect it; `None`: a kernel
    /// consumer.
    pub(crate) owner: Option<Process>,
    /// The user context; `None`: a kernel consumer.
    pub(crate) context: Option<ObjId>,
    /// The consumer knows the extensions of RFC 7306.
    pub(crate) extended: bool,
    /// Protection domain of all memory that the queue pair may access.
    pub(crate) pd: PdId,
    /// CQ of the send queue.
    pub(crate) scq: CqRef,
    /// CQ of the receive queue.
    pub(crate) rcq: CqRef,
    /// Send queue.
    pub(crate) sq: Sq,
    /// Receive queue.
    #[pin]
    pub(crate) rq: Rq,
    /// The data path: transmission, reception, what is in progress.
    #[pin]
    pub(crate) stream: Stream,
    /// The connection, from the first byte of the handshake to its end.
    #[pin]
    pub(crate) link: SpinLockIrq<Option<Arc<Endpoint>>>,
    /// The wait for a connection without a connection manager. It ends when `link` is set or the QP
    /// goes.
    #[pin]
    pub(crate) pair: SpinLockIrq<Option<Arc<Pair>>>,
    /// The path to the peer, as set by `modify_qp`.
    #[pin]
    path: SpinLockIrq<qp::Path>,
    /// Held by `modify_qp`.
    #[pin]
    modify: Mutex<()>,
    /// It begins anew: what was posted is dropped without completions.
    pub(crate) resets: Atomic<bool>,
    /// The verbs' state.
    #[pin]
    fsm: SpinLockIrq<State>,
    /// The word of `iwarp::qp::phase`.
    phase: Atomic<u32>,
    /// Access flags of `modify_qp`.
    access: Atomic<u32>,
    /// Set once a connection manager has taken the queue pair. Changed with `pair` locked.
    pub(crate) managed: Atomic<bool>,
    /// Negotiated read depths: inbound in the low, outbound in the high half.
    depths: Atomic<u32>,
    cap: qp::Cap,
    sig_all: bool,
    /// Events counted and not booked on the device or a counter yet.
    pub(crate) stats: Stats,
    /// Number of the core's counter that the queue pair is bound to; 0: none.
    pub(crate) account: Atomic<u32>,
    /// The device.
    pub(crate) dev: DeviceRef,
    _counted: Counted,
}

impl Qp {
    /// Stores the negotiated read depths for `query_qp`.
    pub(crate) fn set_depths(&self, ird: u16, ord: u16) {
        self.depths
            .write_once(u32::from(ird) | u32::from(ord) << 16);
    }
}

impl Qp {
    /// The queue pair as an accessor, for its own work requests.
    #[inline]
    pub(crate) fn accessor(self: &QpObj) -> Accessor {
        Accessor {
            pd: self.pd,
            qp: self.qp_num(),
            consumer: match self.is_user() {
                true => Consumer::User,
                false => Consumer::Kernel,
            },
            remote: Rights::NONE,
        }
    }

    /// The same, for what the peer asks for.
    #[inline]
    pub(crate) fn peer_accessor(self: &QpObj) -> Accessor {
        Accessor {
            remote: match self.managed.read_once() {
                false => Rights(self.access.read_once()),
                // rdma_cm sets the flags itself, so they do not express what the program wants.
                true => Rights::REMOTE_READ
                    .union(Rights::REMOTE_WRITE)
                    .union(Rights::REMOTE_ATOMIC),
            },
            ..self.accessor()
        }
    }
}
