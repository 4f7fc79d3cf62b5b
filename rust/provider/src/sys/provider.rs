// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What a provider does itself. The other verbs are commands to the kernel, and nothing else.

use super::{
    errno::Errno,
    shared::{
        Doorbell,
        Offer, //
    },
    wc::Wcs,
    wr::{
        RecvWrs,
        SendWrs, //
    }, //
};

/// A queue pair that the kernel has made.
pub(crate) struct NewQp {
    /// Its send queue.
    pub(crate) sends: Offer,
    /// Its receive queue; none if it uses a shared one.
    pub(crate) recvs: Option<Offer>,
    /// The doorbell of the send queue.
    pub(crate) doorbell: Doorbell,
    /// Elements that a send work request may have.
    pub(crate) max_send_sge: u32,
    /// Elements that a receive work request may have.
    pub(crate) max_recv_sge: u32,
    /// Whether all send work requests complete.
    pub(crate) sig_all: bool,
    /// The features that library and driver use, of [`feature`](super::abi::feature).
    pub(crate) features: u32,
}

/// A shared receive queue that the kernel has made.
pub(crate) struct NewSrq {
    /// The queue.
    pub(crate) recvs: Offer,
    /// Elements that a work request may have.
    pub(crate) max_sge: u32,
}

/// The verbs that do not go to the kernel, or not only. A program may call them in any thread, even
/// at once for one object. Where they fail while they create an object, the kernel's object is
/// destroyed.
pub(crate) trait Provider: 'static {
    /// What belongs to a completion queue.
    type Cq: Send + Sync;
    /// What belongs to a queue pair.
    type Qp: Send + Sync;
    /// What belongs to a shared receive queue.
    type Srq: Send + Sync;

    /// The features that the library implements, see `struct siw_ureq_alloc_ctx`.
    const WANT: u32;

    /// Makes what belongs to a completion queue.
    fn create_cq(queue: &Offer) -> Result<Self::Cq, Errno>;

    /// Takes completions off the queue until there is no room for more.
    fn poll_cq(cq: &Self::Cq, out: &mut Wcs<'_>);

    /// Asks for an event at the next completion, or at the next one that is solicited or has
    /// failed.
    fn req_notify_cq(cq: &Self::Cq, solicited_only: bool);

    /// Makes what belongs to a queue pair.
    fn create_qp(new: NewQp) -> Result<Self::Qp, Errno>;

    /// Posts work requests until one fails, and leaves `wrs` at that one.
    fn post_send(qp: &Self::Qp, wrs: &mut SendWrs<'_>) -> Result<(), Errno>;

    /// The same for receive work requests.
    fn post_recv(qp: &Self::Qp, wrs: &mut RecvWrs<'_>) -> Result<(), Errno>;

    /// Makes what belongs to a shared receive queue.
    fn create_srq(new: &NewSrq) -> Result<Self::Srq, Errno>;

    /// The same as [`Self::post_recv`].
    fn post_srq_recv(srq: &Self::Srq, wrs: &mut RecvWrs<'_>) -> Result<(), Errno>;
}
