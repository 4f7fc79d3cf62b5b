// SPDX-License-Identifier: GPL-2.0

//! The endpoint: one TCP connection, the callbacks of its socket, and the execution of what
//! `iwarp::cm::Endpoint` decides.
//!
//! `driver/locks.rs` lists the lock ranks. No lock is taken under `notes`. Socket callbacks take
//! neither `inner` nor any other lock that sleeps.

use super::{
    super::{
        stats::Counter,
        DeviceRef,
        QpRef,
        Siw, //
    },
    listener::Listener,
    pair::Pair,
    probe::Probing, //
};
use crate::kapi::{
    context,
    errno,
    net::{
        RxSock,
        SockView,
        Socket,
        SocketEvents,
        TcpState,
        TxSock, //
    },
    rdma::iwcm::CmId,
    sync::SpinLockIrq,
    wq, //
};
use iwarp::{
    cm::{
        self,
        Action,
        Cause,
        Count,
        End,
        Facts,
        Input,
        Notes,
        Tcp,
        Timer, //
    },
    mpa::{
        Initiator,
        Responder, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Completion,
        Mutex,
        SetOnce, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

/// State of the MPA handshake.
pub(super) enum Handshake {
    /// Not begun, or over.
    None,
    /// This side sends the request, which is kept until TCP is connected.
    Initiator(KBox<Initiator>, KVec<u8>),
    /// This side sends the reply.
    Responder(KBox<Responder>),
}

/// What [`Endpoint::step`] works on: the machine, and what its actions need.
pub(super) struct Inner {
    pub(super) fsm: cm::Endpoint,
    pub(super) hs: Handshake,
    pub(super) cm_id: Option<CmId<Siw>>,
    /// The listener that accepted the connection, until the request is offered.
    pub(super) listener: Option<Arc<Listener>>,
    /// The pair that makes this attempt, until it has succeeded or failed.
    pub(super) pair: Option<Arc<Pair>>,
    /// IRD and ORD for the next upcall.
    pub(super) depth: (u8, u8),
    /// When the state has lasted too long, in jiffies.
    deadline: Option<Jiffies>,
}

impl Inner {
    pub(super) fn new(fsm: cm::Endpoint, hs: Handshake) -> Self {
        Self {
            fsm,
            hs,
            cm_id: None,
            listener: None,
            pair: None,
            depth: (0, 0),
            deadline: None,
        }
    }
}

/// Who gets the data and the space of the socket. Changes of its state always go to the endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The endpoint for data; nobody for space.
    Handshake = 0,
    /// The QP, for data and space.
    Stream = 1,
    /// Nobody for data; the endpoint for space.
    Terminating = 2,
    /// The endpoint for data; nobody for space.
    Closed = 3,
}

/// One TCP connection.
#[pin_data]
pub(crate) struct Endpoint {
    pub(super) id: usize,
    /// Number of the listener that accepted it; 0 on the active side.
    pub(super) origin: usize,
    pub(super) dev: DeviceRef,
    pub(super) sock: Arc<Socket>,
    /// Holds the QP until the endpoint is freed. The reference back, `Qp::link`, is dropped when
    /// the connection is closed.
    pub(super) qp: SetOnce<QpRef>,
    stage: Atomic<u32>,
    first_fpdu: Atomic<bool>,
    pub(super) probing: Probing,
    #[pin]
    pub(super) notes: SpinLockIrq<Notes<Error>>,
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

/// The socket's hold on the endpoint. The callbacks need a counted reference to queue it.
struct Hook(Arc<Endpoint>);

impl SocketEvents for Hook {
    fn data_ready(&self, sk: &mut RxSock<'_>) {
        match self.0.stage() {
            // In `Closed`, a peer that goes on sending may rule out an orderly end.
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
        // The error is kept for the status of the CLOSE upcall, because the next call into the
        // socket may clear it. An error after our FIN is not the cause of the end.
        let stage = self.0.stage();
        if let (TcpState::Close, Some(e), true) = (sk.state(), sk.error(), stage != Stage::Closed) {
            let first = self.0.notes.lock().note(Cause::Host(e));
            if first && stage != Stage::Handshake {
                self.0.count_loss(e);
            }
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
                probing: Probing::new(),
                notes <- ranked_spinlock!(Rank::EpNotes, Notes::new()),
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
    /// The caller holds `inner`: a context that finds the endpoint in the table, to end it, has to
    /// wait until it is set up.
    pub(super) fn open(self: &Arc<Self>) -> Result {
        self.dev.endpoints.insert(self)?;
        self.sock.attach(Arc::new(Hook(self.clone()), GFP_KERNEL)?)
    }

    /// Counts the loss of the stream, by what TCP says.
    #[cold]
    fn count_loss(&self, e: Error) {
        if e == ETIMEDOUT {
            self.dev.stats.inc(Counter::PeerTimeout);
        } else if [errno::econnreset(), errno::epipe()].contains(&e) {
            self.dev.stats.inc(Counter::PeerReset);
        } else if [errno::ehostunreach(), errno::enetunreach()].contains(&e) {
            self.dev.stats.inc(Counter::NoRoute);
        }
    }

    /// The connection.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        self.sock.clone()
    }

    /// Queues a [`Self::step`]. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // If it is queued already, that run sees the news, and `enqueue` returns the clone, which
        // is dropped.
        let _ = self.dev.shared.cm.enqueue::<_, 0>(self.clone());
    }

    /// Notes that the responder has received its first good FPDU. Any context.
    pub(crate) fn first_fpdu(self: &Arc<Self>) {
        self.first_fpdu.store(true, Release);
        self.wake();
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

    /// Sets the deadline to `ms` from now.
    fn arm(self: &Arc<Self>, inner: &mut Inner, ms: Msecs) {
        let delay = msecs_to_jiffies(ms);
        // The deadline is set before the timer, so it has passed when the timer fires.
        inner.deadline = Some(context::jiffies().wrapping_add(delay));
        self.dev.shared.cm.mod_delayed::<_, 1>(self.clone(), delay);
    }

    /// Runs a step in `ms`, or at the deadline if that comes first.
    fn look_again(self: &Arc<Self>, inner: &Inner, ms: Msecs) {
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

    fn expired(&self, inner: &Inner) -> bool {
        inner
            .deadline
            .is_some_and(|deadline| context::jiffies().wrapping_sub(deadline) <= Jiffies::MAX / 2)
    }

    /// The present state of the connection.
    fn facts(&self, inner: &Inner) -> Facts {
        let notes = *self.notes.lock();
        Facts {
            first_fpdu: self.first_fpdu.load(Acquire),
            asked: notes.asked(),
            vain: notes.vain(),
            tcp: match self.sock.state() {
                TcpState::SynSent | TcpState::SynRecv => Tcp::Opening,
                TcpState::Established => Tcp::Established,
                TcpState::CloseWait => Tcp::PeerClosed,
                TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck => Tcp::Closing,
                TcpState::FinWait2 => Tcp::FinAcked,
                TcpState::TimeWait | TcpState::Close | TcpState::Listen => Tcp::Over,
            },
            expired: self.expired(inner),
            listening: inner.listener.as_ref().is_some_and(|l| l.is_open()),
        }
    }

    /// Makes all progress that can be made now. May sleep, but not for the network.
    fn step(self: &Arc<Self>) {
        self.run(&mut self.inner.lock(), Action::Look);
    }

    /// Makes room for another connection, unless the request is complete by now. May sleep, but not
    /// for the network.
    pub(super) fn evict(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let action = self.decide(&mut inner, Input::Evict);
        self.run(&mut inner, action);
    }

    /// Gives the machine an outcome from outside [`Self::step`]. If the machine asks for another
    /// look, the work queue takes it.
    pub(super) fn report(self: &Arc<Self>, inner: &mut Inner, input: Input<Error>) {
        match self.decide(inner, input) {
            Action::Look => self.wake(),
            action => self.run(inner, action),
        }
    }

    /// One step of the machine, without performing the action that it returns.
    pub(super) fn decide(self: &Arc<Self>, inner: &mut Inner, input: Input<Error>) -> Action {
        let facts = self.facts(inner);
        let step = inner.fsm.step(facts, input);
        if let Some(cause) = step.note {
            self.notes.lock().note(cause);
        }
        if let Some(count) = step.count {
            self.dev.stats.inc(match count {
                Count::Timeout => Counter::Timeouts,
                Count::Eviction => Counter::Evictions,
                Count::Reject => Counter::Rejects,
                Count::Abort => Counter::Aborts,
                Count::DrainTimeout => Counter::DrainTimeouts,
            });
        }
        match step.timer {
            Timer::Keep => {}
            Timer::Set(deadline) => self.arm(inner, deadline.ms()),
            Timer::Stop => self.disarm(inner),
        }
        step.action
    }

    /// Performs `action` and those that follow from it.
    fn run(self: &Arc<Self>, inner: &mut Inner, mut action: Action) {
        while let Some(outcome) = self.perform(inner, action) {
            action = self.decide(inner, outcome);
        }
    }

    /// Performs one action. Returns the outcome if the machine waits for it.
    fn perform(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Option<Input<Error>> {
        Some(match action {
            // The answer is made in `accept`.
            Action::Wait | Action::Decline | Action::Answer => return None,
            Action::WaitFor(ms) => {
                self.look_again(inner, ms);
                return None;
            }
            Action::Look => Input::Look,
            Action::Drop => {
                self.end_socket(inner, End::Reset);
                self.retire();
                return None;
            }

            Action::SendRequest => Input::RequestSent(self.send_request(inner)),
            Action::ReadError => {
                let error = self.sock.take_error().err();
                Input::SocketError(error.unwrap_or_else(errno::econnrefused))
            }
            Action::ReadReply => Input::Reply(self.read_reply(inner)),
            Action::SendTerminate(code) => Input::TerminateSent(self.refuse_stream(inner, code)),
            Action::Start(est) => Input::Started(self.start_stream(inner, &est, |_| Ok(()))),
            Action::Join(est) => self.join_attempt(inner, &est),
            Action::ReportConnected => Input::Reported(self.report_connected(inner)),
            Action::ReadRequest => Input::Request(self.read_request(inner)),
            Action::Offer => Input::Offered(self.offer(inner)),
            Action::Meet => Input::Met(self.meet(inner)),
            Action::Refuse => Input::Refused(self.refuse(inner, &[])),
            Action::EndHold => {
                self.end_hold();
                return None;
            }

            Action::Settle { late } => self.settle(late),
            Action::StreamOver { event, how } => {
                self.end_stream(event, how);
                Input::Look
            }
            Action::LeaveAlone(end) => {
                self.leave_alone(inner, end);
                Input::Look
            }
            Action::Quiesce(how) => self.begin_teardown(how),
            Action::BeginTerminate => Input::TerminateReady(self.begin_terminate()),
            Action::PushTerminate => Input::Pushed(self.push_terminate()),
            Action::SendFin => Input::FinSent(self.send_fin()),
            Action::Peek => Input::Unread(self.unread()),
            Action::Finish { end, owed } => {
                self.finish(inner, end, owed);
                return None;
            }
        })
    }
}
