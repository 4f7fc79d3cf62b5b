// SPDX-License-Identifier: GPL-2.0

//! The endpoint: one TCP connection, the callbacks of its socket, and the execution of what
//! `iwarp::cm::Endpoint` decides.
//!
//! `driver/locks.rs` lists the lock ranks. No lock is taken under `notes`. Socket callbacks take
//! neither `inner` nor any other lock that sleeps.

use super::super::{
    stats::Counter,
    DeviceRef,
    QpRef,
    Siw, //
};
use super::{
    hook::Hook,
    listener::Listener,
    pair::Pair,
    probe::Probing,
    session::{
        Inbox,
        Resumption, //
    },
    Host, //
};
use base::{
    context,
    errno,
    sync::SpinLockIrq,
    wq, //
};
use iwarp::{
    cm::{
        self,
        Action,
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
    },
    wire::session::Refused, //
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
use rdma::iwcm::CmId;
use soft::tcp::{
    Socket,
    TcpState, //
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
    /// How the connection goes on when its path is lost.
    pub(super) session: Option<KBox<Resumption>>,
    /// Private data of the refusal of a request.
    pub(super) refusal: Option<Refused>,
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
            session: None,
            refusal: None,
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

/// One TCP connection. With a session it may be one after another: all that refers to the
/// connection of a QP stays valid when its path is lost, see `super::session`.
#[pin_data]
pub(crate) struct Endpoint {
    pub(super) id: usize,
    pub(super) dev: DeviceRef,
    #[pin]
    sock: SpinLockIrq<Arc<Socket>>,
    /// There is a session.
    armed: Atomic<bool>,
    /// The path is to be left.
    pub(super) leaves: Atomic<bool>,
    /// For the request that the session goes on over another TCP connection.
    #[pin]
    pub(super) inbox: Mutex<Inbox>,
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

impl Endpoint {
    /// Makes an endpoint. It is in no table and has no callbacks yet: see [`Self::open`].
    pub(super) fn new(dev: DeviceRef, sock: Socket, inner: Inner) -> Result<Arc<Self>> {
        let sock = Arc::new(sock, GFP_KERNEL_ACCOUNT)?;
        let id = dev.endpoints.next_id();
        Arc::pin_init(
            pin_init!(Self {
                id,
                dev,
                sock <- ranked_spinlock!(Rank::EpSocket, sock),
                armed: Atomic::new(false),
                leaves: Atomic::new(false),
                inbox <- ranked_mutex!(Rank::Arrival, Inbox::new()),
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
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Enters the endpoint, whose peer is at `host`, in the device's table and takes over the
    /// socket's callbacks.
    ///
    /// The caller holds `inner`: a context that finds the endpoint in the table, to end it, has to
    /// wait until it is set up.
    pub(super) fn open(self: &Arc<Self>, host: Host) -> Result {
        self.dev.endpoints.insert(self, host)?;
        self.socket().attach(Hook::new(self, true)?)
    }

    /// Counts the loss of the stream, by what TCP says.
    #[cold]
    pub(super) fn count_loss(&self, e: Error) {
        if e == ETIMEDOUT {
            self.dev.stats.inc(Counter::PeerTimeout);
        } else if [errno::econnreset(), errno::epipe()].contains(&e) {
            self.dev.stats.inc(Counter::PeerReset);
        } else if [errno::ehostunreach(), errno::enetunreach()].contains(&e) {
            self.dev.stats.inc(Counter::NoRoute);
        }
    }

    /// The connection. Any context.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        self.sock.lock().clone()
    }

    /// The connection goes on over `sock`. Returns the former socket.
    pub(super) fn replace_socket(&self, sock: Arc<Socket>) -> Arc<Socket> {
        core::mem::replace(&mut *self.sock.lock(), sock)
    }

    /// Whether there is a session. Any context.
    pub(crate) fn has_session(&self) -> bool {
        self.armed.load(Acquire)
    }

    pub(super) fn arm_session(&self, armed: bool) {
        self.armed.store(armed, Release);
    }

    /// Has the connection go on over another path, if it has a session. Any context.
    pub(crate) fn leave_path(self: &Arc<Self>) {
        self.leaves.store(true, Release);
        self.wake();
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

    pub(super) fn stage(&self) -> Stage {
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
    pub(super) fn look_again(self: &Arc<Self>, inner: &Inner, ms: Msecs) {
        let left = |deadline: Jiffies| deadline.wrapping_sub(context::jiffies());
        let delay = inner.deadline.map_or(Jiffies::MAX, left);
        let delay = delay.min(msecs_to_jiffies(ms));
        self.dev.shared.cm.mod_delayed::<_, 1>(self.clone(), delay);
    }

    /// Ends [`Self::look_again`]: the next step is at the deadline, if there is one.
    pub(super) fn look_at_deadline(self: &Arc<Self>, inner: &Inner) {
        wq::cancel_delayed::<_, 1>(self);
        if inner.deadline.is_some() {
            self.look_again(inner, Msecs::MAX);
        }
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
            tcp: match self.socket().state() {
                _ if inner.session.as_ref().is_some_and(|it| it.is_parted()) => Tcp::Established,
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
        let mut inner = self.inner.lock();
        self.tend_session(&mut inner);
        self.run(&mut inner, Action::Look);
        self.await_session(&inner);
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
            Action::Release => {
                self.retire();
                return None;
            }

            Action::SendRequest => Input::RequestSent(self.send_request(inner)),
            Action::ReadError => {
                let error = self.socket().take_error().err();
                Input::SocketError(error.unwrap_or_else(errno::econnrefused))
            }
            Action::ReadReply => Input::Reply(self.read_reply(inner)),
            Action::SendTerminate(code) => Input::TerminateSent(self.refuse_stream(inner, code)),
            Action::Start(est) => Input::Started(self.start_stream(inner, &est, |_| Ok(()))),
            Action::Join(est) => self.join_attempt(inner, &est),
            Action::ReportConnected => Input::Reported(self.report_connected(inner)),
            Action::ReadRequest => Input::Request(self.read_request(inner)),
            Action::Offer => Input::Offered(self.offer(inner)),
            Action::Meet => self.meet(inner),
            Action::Refuse => Input::Refused(self.refuse_request(inner)),
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
