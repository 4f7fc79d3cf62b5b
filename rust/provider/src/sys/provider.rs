// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What a provider does itself. The other verbs are commands to the kernel, and nothing else.

use super::{
    errno::Errno,
    shared::{
        Doorbell,
        Offer, //
    },
    wc::{
        Wc,
        Wcs, //
    },
    wr::{
        RecvWrs,
        SendWr,
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
    /// The turn of a program that takes completions one by one.
    type Polling: Send;
    /// The turn of a program that builds work requests one by one, and what it has built.
    type Batch: Send;

    /// The features that the library implements, see `struct siw_ureq_alloc_ctx`.
    const WANT: u32;

    /// Makes what belongs to a completion queue.
    fn create_cq(queue: &Offer) -> Result<Self::Cq, Errno>;

    /// Goes over to the queue that `command` has the driver make. The entries of the one before
    /// that have not been polled come first. If the new one cannot be mapped, none come after them.
    fn resize_cq(
        cq: &Self::Cq,
        command: impl FnOnce() -> Result<Offer, Errno>,
    ) -> Result<(), Errno>;

    /// Takes completions off the queue until there is no room for more.
    fn poll_cq(cq: &Self::Cq, out: &mut Wcs<'_>);

    /// Begins to take completions one by one. Others who poll wait until [`Self::end_poll`], which
    /// may be called in another thread.
    fn start_poll(cq: &Self::Cq) -> Self::Polling;

    /// Takes the next completion, if there is one.
    fn next_poll(cq: &Self::Cq, polling: &mut Self::Polling) -> Option<Wc>;

    /// Lets others poll.
    fn end_poll(cq: &Self::Cq, polling: Self::Polling);

    /// Asks for an event at the next completion, or at the next one that is solicited or has
    /// failed.
    fn req_notify_cq(cq: &Self::Cq, solicited_only: bool);

    /// Makes what belongs to a queue pair.
    fn create_qp(new: NewQp) -> Result<Self::Qp, Errno>;

    /// Posts work requests until one fails, and leaves `wrs` at that one.
    fn post_send(qp: &Self::Qp, wrs: &mut SendWrs<'_>) -> Result<(), Errno>;

    /// The work requests that can be built with these features: `enum
    /// ibv_qp_create_send_ops_flags`.
    fn send_ops(features: u32) -> u64;

    /// Begins to build work requests. Others who post to the queue wait until [`Self::post_batch`]
    /// or [`Self::abort_batch`], which may be called in another thread.
    fn start_batch(qp: &Self::Qp) -> Self::Batch;

    /// Adds a work request, which is judged as by [`Self::post_send`]. It is not posted yet.
    fn add_to_batch(qp: &Self::Qp, batch: &mut Self::Batch, wr: &SendWr<'_>) -> Result<(), Errno>;

    /// Posts what was added. If it fails, nothing is posted that the driver had not taken before it
    /// failed.
    fn post_batch(qp: &Self::Qp, batch: Self::Batch) -> Result<(), Errno>;

    /// Forgets what was added.
    fn abort_batch(qp: &Self::Qp, batch: Self::Batch);

    /// [`Self::post_send`] for receive work requests.
    fn post_recv(qp: &Self::Qp, wrs: &mut RecvWrs<'_>) -> Result<(), Errno>;

    /// Makes what belongs to a shared receive queue.
    fn create_srq(new: &NewSrq) -> Result<Self::Srq, Errno>;

    /// Goes over to the queue that `command` has the driver make, and the index at which the next
    /// element of it goes. If it cannot be mapped, what is posted afterwards is lost.
    fn resize_srq(
        srq: &Self::Srq,
        command: impl FnOnce() -> Result<(Offer, u32), Errno>,
    ) -> Result<(), Errno>;

    /// The same as [`Self::post_recv`].
    fn post_srq_recv(srq: &Self::Srq, wrs: &mut RecvWrs<'_>) -> Result<(), Errno>;
}
