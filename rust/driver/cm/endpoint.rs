// SPDX-License-Identifier: GPL-2.0

//! The endpoint: one TCP connection and the state of its handshake, its stream, its end.
//!
//! `inner` is `Rank::Endpoint`, `close` is `Rank::EpClose`. Socket callbacks take neither `inner` nor
//! anything that sleeps.

use super::super::{stats::Counter, DeviceRef, QpRef, Siw};
use super::{
    listener::{self, Listener},
    pair::Pair,
    teardown::{Close, End},
    Step,
};
use crate::kapi::{
    context, errno,
    net::{RxSock, SockView, Socket, SocketEvents, TcpState, TxSock},
    rdma::{CmEvent, CmId},
    sync::{
        Atomic,
        SpinLockIrq, //
    },
    wq,
};
use iwarp::mpa::{Initiator, Responder};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Acquire, Release},
        Arc, Completion, Mutex, SetOnce,
    },
    time::{msecs_to_jiffies, Jiffies, Msecs},
    workqueue::{
        impl_has_delayed_work, impl_has_work, new_delayed_work, new_work, DelayedWork, Work,
        WorkItem,
    },
};

/// Time for the TCP connection to come up. TCP's own limit is beyond two minutes.
pub(super) const CONNECT_MS: Msecs = 10_000;
/// Time for the MPA reply, which includes what the peer's application takes to accept.
pub(super) const REPLY_MS: Msecs = 10_000;
/// Time for the MPA request on a new connection.
pub(super) const REQUEST_MS: Msecs = 10_000;
/// Time for our application to answer a request. It may never: the core drops a request without a
/// word if the listener goes first.
pub(super) const ACCEPT_MS: Msecs = 60_000;
/// Time for the first FPDU when an RTR message was agreed.
pub(super) const RTR_MS: Msecs = 10_000;
/// How long a responder is silent at the most when no RTR message was agreed. RFC 5044 7.1.2 wants it
/// silent until the first FPDU, but then a program whose accepting side speaks first waits for ever, and
/// most programs know nothing of that rule. By now the initiator has read our reply and is no longer in
/// the state that the rule protects.
pub(super) const HOLD_MS: Msecs = 100;
/// Pause before a request is offered again to a core whose backlog is full, and before a listener
/// that ran out of memory looks again.
pub(super) const RETRY_MS: Msecs = 50;
/// How often it is offered.
const MAX_OFFERS: u32 = 200;

/// State of an endpoint; the picture is in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The SYN is out.
    Connecting,
    /// The MPA request is out.
    AwaitReply,
    /// The peer's MPA request is not complete.
    AwaitRequest,
    /// The request is to be handed to the core.
    Offering,
    /// The core has the request.
    Offered,
    /// The QP has the stream.
    Up,
    /// The peer is done or gone; the QP is to consume what has come till then.
    Settling,
    /// The connection is over, and the QP does not care: it was connected without a connection manager.
    Alone,
    /// TCP is to take our Terminate, and what goes before it.
    Terminating,
    /// Our FIN is out; the peer's acknowledgement is awaited for a bounded time.
    Draining,
    /// The end. The socket is dead, the last upcall is made.
    Closed,
}

/// Upcalls the core is still to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// None: no id of this connection is known to the core, or all is said.
    Nothing,
    /// CONNECT_REPLY.
    Reply,
    /// CLOSE.
    Close,
}

/// State of the MPA handshake.
pub(super) enum Handshake {
    /// Not begun, or over.
    None,
    /// Ours is the request, kept until TCP is connected.
    Initiator(KBox<Initiator>, KVec<u8>),
    /// Ours is the reply.
    Responder(KBox<Responder>),
}

/// What [`Endpoint::step`] works on.
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) owed: Owed,
    pub(super) hs: Handshake,
    pub(super) cm_id: Option<CmId<Siw>>,
    /// Where the connection came in, until it is offered.
    pub(super) listener: Option<Arc<Listener>>,
    /// Whose try this is, until it has succeeded or failed.
    pub(super) pair: Option<Arc<Pair>>,
    /// The QP was connected without a connection manager.
    pub(super) paired: bool,
    /// IRD and ORD for the next upcall.
    pub(super) depth: (u8, u8),
    /// Jiffies at which the state has lasted too long.
    deadline: Option<Jiffies>,
    /// An RTR message was agreed: the first FPDU has to come by the deadline.
    pub(super) rtr_due: bool,
    offers: u32,
    /// The draining is of the short kind.
    pub(super) hurried: bool,
}

impl Inner {
    pub(super) fn new(state: State, hs: Handshake) -> Self {
        Self {
            state,
            owed: Owed::Nothing,
            hs,
            cm_id: None,
            listener: None,
            pair: None,
            paired: false,
            depth: (0, 0),
            deadline: None,
            rtr_due: false,
            offers: 0,
            hurried: false,
        }
    }

    /// Whether a deadline is set.
    pub(super) fn is_armed(&self) -> bool {
        self.deadline.is_some()
    }
}

/// Who gets the events of the socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The endpoint.
    Handshake = 0,
    /// The QP, for data and space.
    Stream = 1,
    /// Nobody for data; the endpoint for space.
    Terminating = 2,
    /// Nobody, for data and space.
    Closed = 3,
}

/// One TCP connection.
#[pin_data]
pub(crate) struct Endpoint {
    pub(super) id: usize,
    /// Number of the listener it came in through; 0 on the active side.
    pub(super) origin: usize,
    pub(super) dev: DeviceRef,
    pub(super) sock: Arc<Socket>,
    /// Holds the QP until the endpoint is freed. The other direction, `Qp::link`, is cut when it is
    /// closed.
    pub(super) qp: SetOnce<QpRef>,
    stage: Atomic<u32>,
    first_fpdu: Atomic<bool>,
    #[pin]
    pub(super) close: SpinLockIrq<Close>,
    #[pin]
    pub(super) inner: Mutex<Inner>,
    #[pin]
    work: Work<Endpoint, 0>,
    #[pin]
    timer: DelayedWork<Endpoint, 1>,
    #[pin]
    pub(super) closed: Completion,
}

impl_has_work! {
    impl HasWork<Self, 0> for Endpoint { self.work }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Endpoint { self.timer }
}

impl WorkItem<0> for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.step();
    }
}

impl WorkItem<1> for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.step();
    }
}

/// What the socket holds: the callbacks need a counted reference to queue the endpoint.
struct Hook(Arc<Endpoint>);

impl SocketEvents for Hook {
    fn data_ready(&self, sk: &mut RxSock<'_>) {
        match self.0.stage() {
            // After the stream: the peer goes on sending, so there may be no orderly end.
            Stage::Handshake | Stage::Closed => self.0.wake(),
            Stage::Stream => {
                if let Some(qp) = self.0.qp.as_ref() {
                    qp.rx_ready(sk);
                }
            }
            Stage::Terminating => {}
        }
    }

    fn write_space(&self, sk: &SockView, tx: Option<TxSock<'_>>) {
        match (self.0.stage(), self.0.qp.as_ref()) {
            (Stage::Stream, Some(qp)) => qp.tx_space(sk, tx),
            (Stage::Terminating, _) if sk.space() == 0 => {}
            (stage, _) => {
                sk.clear_nospace();
                if stage == Stage::Terminating {
                    self.0.wake();
                }
            }
        }
    }

    fn state_change(&self, sk: &SockView) {
        // The error is for the status of the CLOSE upcall; whoever calls into the socket next may
        // take it away. What happens after our FIN is no reason any more.
        if let (TcpState::Close, Some(e), true) =
            (sk.state(), sk.error(), self.0.stage() != Stage::Closed)
        {
            self.0.note_cause(e);
        }
        self.0.wake();
    }

    fn error_report(&self, sk: &SockView) {
        self.state_change(sk);
    }
}

impl Endpoint {
    /// Makes an endpoint. It is in no table and has no callbacks yet: see [`Self::open`].
    pub(super) fn new(
        dev: DeviceRef,
        sock: Socket,
        origin: usize,
        inner: Inner,
    ) -> Result<Arc<Self>> {
        let sock = Arc::new(sock, GFP_KERNEL)?;
        let id = dev.endpoints.next_id();
        Arc::pin_init(
            pin_init!(Self {
                id,
                origin,
                dev,
                sock,
                qp: SetOnce::new(),
                stage: Atomic::new(Stage::Handshake as u32),
                first_fpdu: Atomic::new(false),
                close <- ranked_spinlock!(Rank::EpClose, Close::new()),
                inner <- ranked_mutex!(Rank::Endpoint, inner),
                work <- new_work!("siw_ep_work"),
                timer <- new_delayed_work!("siw_ep_timer"),
                closed <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Enters the endpoint in the device's table and takes over the socket's callbacks.
    ///
    /// With `inner` locked by the caller: whoever finds it there, to end it, has to wait until it
    /// is set up.
    pub(super) fn open(self: &Arc<Self>) -> Result {
        self.dev.endpoints.insert(self)?;
        self.sock.attach(Arc::new(Hook(self.clone()), GFP_KERNEL)?)
    }

    /// The connection.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        self.sock.clone()
    }

    /// Queues a [`Self::step`]. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // If it is queued already, that run will see what there is to see; the caller's reference
        // is not the one given back.
        let _ = self.dev.shared.cm.enqueue::<_, 0>(self.clone());
    }

    /// Tells that the responder has received its first good FPDU. Any context.
    pub(crate) fn first_fpdu(self: &Arc<Self>) {
        self.first_fpdu.store(true, Release);
        self.wake();
    }

    pub(super) fn seen_fpdu(&self) -> bool {
        self.first_fpdu.load(Acquire)
    }

    fn stage(&self) -> Stage {
        match self.stage.load(Acquire) {
            0 => Stage::Handshake,
            1 => Stage::Stream,
            2 => Stage::Terminating,
            _ => Stage::Closed,
        }
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u32, Release);
    }

    /// Gives the current state `ms` from now.
    pub(super) fn arm(self: &Arc<Self>, inner: &mut Inner, ms: Msecs) {
        let delay = msecs_to_jiffies(ms);
        // Set before the timer is: when the timer fires the deadline has passed.
        inner.deadline = Some(context::jiffies().wrapping_add(delay));
        self.dev.shared.cm.mod_delayed::<_, 1>(self.clone(), delay);
    }

    /// Has the current state looked at again in `ms`, or at its deadline if that comes first.
    pub(super) fn look_again(self: &Arc<Self>, inner: &Inner, ms: Msecs) {
        let left = |deadline: Jiffies| deadline.wrapping_sub(context::jiffies());
        let delay = inner.deadline.map_or(Jiffies::MAX, left);
        let delay = delay.min(msecs_to_jiffies(ms));
        self.dev.shared.cm.mod_delayed::<_, 1>(self.clone(), delay);
    }

    pub(super) fn disarm(self: &Arc<Self>, inner: &mut Inner) {
        if inner.deadline.take().is_some() {
            wq::cancel_delayed::<_, 1>(self);
        }
    }

    pub(super) fn expired(&self, inner: &Inner) -> bool {
        inner
            .deadline
            .is_some_and(|deadline| context::jiffies().wrapping_sub(deadline) <= Jiffies::MAX / 2)
    }

    /// Makes all progress that can be made now. May sleep, but not for the network.
    fn step(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        while self.turn(&mut inner) {}
    }

    /// A connection that is not up has to make room: what has come of the request by now decides. May
    /// sleep, but not for the network.
    pub(super) fn evict(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.listener.is_none() {
            return;
        }
        self.arm(&mut inner, 0);
        inner.offers = MAX_OFFERS;
        while self.turn(&mut inner) {}
    }

    /// One look at the connection; whether another one is due.
    fn turn(self: &Arc<Self>, inner: &mut Inner) -> bool {
        match inner.state {
            State::Closed => return false,
            State::Up => return self.turn_up(inner),
            State::Settling => return self.turn_settling(inner),
            State::Alone => return self.turn_alone(inner),
            State::Terminating => return self.turn_terminating(inner),
            State::Draining => return self.turn_draining(inner),
            _ => {}
        }
        if self.teardown_asked().is_some() {
            return self.fail(inner, errno::econnaborted());
        }
        match inner.state {
            State::Connecting => self.turn_connecting(inner),
            State::AwaitReply => self.turn_await_reply(inner),
            State::AwaitRequest => self.turn_await_request(inner),
            State::Offering => self.turn_offering(inner),
            _ => self.turn_offered(inner),
        }
    }

    /// Ends a connection that never came up, or not to the core's knowledge.
    pub(super) fn fail(self: &Arc<Self>, inner: &mut Inner, status: Error) -> bool {
        self.note_cause(status);
        self.finish(inner, End::Reset);
        false
    }

    /// Nothing has come in: that is all right until the deadline.
    pub(super) fn wait_on(self: &Arc<Self>, inner: &mut Inner) -> bool {
        if self.expired(inner) {
            self.dev.stats.inc(Counter::Timeouts);
            self.fail(inner, ETIMEDOUT);
        }
        false
    }

    /// Hands the peer's request to the core.
    fn turn_offering(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let Some(listener) = inner.listener.clone().filter(|l| l.is_open()) else {
            return self.fail(inner, errno::econnaborted());
        };
        if self.sock.state() != TcpState::Established {
            return self.fail(inner, errno::econnreset());
        }
        let Some(id) = listener.cm_id() else {
            return self.meet(inner);
        };
        let result = self.offer(inner, id);
        self.trace(Step::Offer, &result);
        match result {
            Ok(()) => {
                inner.state = State::Offered;
                self.leave_listener(inner);
                self.arm(inner, ACCEPT_MS);
                true
            }
            Err(_) if inner.offers < MAX_OFFERS => {
                // More requests are on their way to the application than it gave as backlog.
                inner.offers = inner.offers.saturating_add(1);
                self.arm(inner, RETRY_MS);
                false
            }
            Err(e) => self.fail(inner, e),
        }
    }

    fn offer(&self, inner: &Inner, id: &CmId<Siw>) -> Result {
        let Handshake::Responder(machine) = &inner.hs else {
            return Err(EINVAL);
        };
        let (ird, ord) = inner.depth;
        id.upcall(CmEvent::ConnectRequest {
            number: self.id,
            local: listener::unmapped(self.sock.local_addr()?),
            remote: listener::unmapped(self.sock.peer_addr()?),
            ird,
            ord,
            pdata: shown(machine.private_data()),
        })
    }

    /// The application is to answer; look whether the peer is still there.
    fn turn_offered(self: &Arc<Self>, inner: &mut Inner) -> bool {
        if self.sock.state() == TcpState::Established {
            self.wait_on(inner)
        } else {
            self.fail(inner, errno::econnreset())
        }
    }
}

/// As much of the private data as an event of the core can carry: its length is a `u8` there.
pub(super) fn shown(pdata: &[u8]) -> &[u8] {
    pdata.get(..usize::from(u8::MAX)).unwrap_or(pdata)
}
