// SPDX-License-Identifier: GPL-2.0

//! Sessions: a connection that goes on over another path when its own is lost.
//!
//! The machine is [`iwarp::session::Session`]. It is part of the connection's [`Endpoint`], under
//! its mutex, and takes its steps in [`Endpoint::step`]. The endpoint stays the same when the
//! stream goes over to another TCP connection, because all sorts of contexts refer to it: the QP,
//! those that ask for the end of the connection or wait for it, the identifier of iw_cm. Only its
//! socket is replaced.
//!
//! The initiator's attempts have no endpoints, only sockets ([`attempt`]). The responder's are
//! accepted by the listeners for pairs. The endpoint of one ends when its request has come, and
//! leaves its socket in the [`Inbox`] of the connection. So no endpoint is locked with another one.
//!
//! The socket of a carrier that is given up is frozen. From then on it is only memory: what the
//! peer has not acknowledged, to be sent again (`soft::tcp::Replay`). Sockets of attempts that are
//! given up are frozen, too, and kept until the session has a carrier: an RST of one could reach a
//! peer that has taken it as its carrier.

mod attempt;
mod request;
mod watch;

use self::{
    attempt::Attempt,
    request::Arrival,
    watch::Watch, //
};
use super::super::{
    qp::end::Cause,
    stats::Counter,
    DeviceRef, //
};
use super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    hook::Hook,
    mpa_io,
    pair::Lease,
    Place, //
};
use iwarp::{
    cm::State,
    session::{
        Action,
        Event,
        Role,
        Session,
        Step, //
    },
    wire::session::{
        Offer,
        Positions,
        Resumed, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use rdma::qp::Event as QpEvent;
use soft::tcp::{
    Frozen,
    Socket, //
};

pub(super) use self::request::Inbox;
pub(crate) use self::request::Sessions;

/// Pause before it is tried again to give up a carrier that is in use, in milliseconds.
const BUSY_MS: u64 = 2;

/// How a connection goes on when its path is lost.
pub(super) struct Resumption {
    machine: Session,
    offer: Offer,
    /// The type of service that the consumer has asked for.
    tos: Option<u8>,
    start: Instant<Monotonic>,
    /// Position of the stream at the beginning of the carrier.
    base: u64,
    watch: Watch,
    /// The carrier is to be given up.
    giving_up: bool,
    /// It has been.
    parted: bool,
    /// The initiator's attempt.
    attempt: Option<Attempt>,
    /// The requests of the peer that have no answer yet.
    arrivals: KVec<KBox<Arrival>>,
    /// Attempts that were given up.
    silent: KVec<Frozen>,
    /// When the machine wants to look, in milliseconds since `start`.
    due: Option<u64>,
    /// Responder: the share in the listeners.
    lease: Option<Lease>,
}

impl Resumption {
    fn new(role: Role, offer: &Offer, dev: &DeviceRef) -> Self {
        Self {
            machine: Session::new(role, offer),
            offer: *offer,
            tos: None,
            start: Instant::now(),
            base: 0,
            watch: Watch::new(),
            giving_up: false,
            parted: false,
            attempt: None,
            arrivals: KVec::new(),
            silent: KVec::new(),
            due: None,
            lease: (role == Role::Responder).then(|| Lease::new(dev)),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(0)
    }

    /// Whether the connection has no carrier: its socket is frozen.
    pub(super) fn is_parted(&self) -> bool {
        self.parted
    }

    /// Closes the attempt `gen`, which has no outcome.
    fn close(&mut self, gen: u32) {
        if let Some(attempt) = self.attempt.take_if(|attempt| attempt.gen == gen) {
            attempt.close();
        }
        self.arrivals.retain(|arrival| arrival.resume.gen != gen);
    }
}

impl Endpoint {
    /// Begins the session that was agreed upon. Without memory the connection lives as long as its
    /// path.
    pub(super) fn begin_session(self: &Arc<Self>, inner: &mut Inner, offer: &Offer) {
        let role = match inner.hs {
            Handshake::Responder(_) => Role::Responder,
            _ => Role::Initiator,
        };
        let session = Resumption::new(role, offer, &self.dev);
        let Ok(session) = KBox::new(session, GFP_KERNEL) else {
            return;
        };
        let sessions = &self.dev.shared.sessions;
        if role == Role::Responder && sessions.insert(offer.session, self).is_err() {
            return;
        }
        inner.session = Some(session);
        self.arm_session(true);
    }

    /// Ends the session, if there is one.
    pub(super) fn end_session(self: &Arc<Self>, inner: &mut Inner) {
        if let Some(session) = inner.session.take() {
            self.close_session(inner, session);
        }
    }

    fn close_session(self: &Arc<Self>, inner: &Inner, mut session: KBox<Resumption>) {
        self.arm_session(false);
        // The one of the initiator may have the same number, on the same host.
        if session.lease.is_some() {
            self.dev.shared.sessions.remove(session.machine.id());
        }
        let arrival = self.inbox.lock().close();
        drop(arrival);
        if let Some(attempt) = session.attempt.take() {
            attempt.close();
        }
        // The timer holds the endpoint, and with it the QP.
        self.look_at_deadline(inner);
    }

    /// Makes all progress with the session that can be made now.
    pub(super) fn tend_session(self: &Arc<Self>, inner: &mut Inner) {
        let Some(mut session) = inner.session.take() else {
            return;
        };
        let asked = self.notes.lock().asked().is_some();
        if inner.fsm.state() == State::Up && !asked {
            session.tos = inner.cm_id.as_ref().and_then(|id| id.tos());
            self.progress(&mut session);
        } else {
            self.feed(&mut session, Event::End);
        }
        if session.machine.has_ended() {
            self.close_session(inner, session);
        } else {
            inner.session = Some(session);
        }
    }

    /// Has the session looked after again in time.
    pub(super) fn await_session(self: &Arc<Self>, inner: &Inner) {
        let Some(session) = &inner.session else {
            return;
        };
        let mut ms = match session.parted {
            true => u64::MAX,
            false => watch::PERIOD_MS,
        };
        if session.giving_up {
            ms = ms.min(BUSY_MS);
        }
        if let Some(due) = session.due {
            ms = ms.min(due.saturating_sub(session.now()));
        }
        if let Ok(ms) = u32::try_from(ms) {
            self.look_again(inner, ms);
        }
    }

    fn progress(self: &Arc<Self>, session: &mut Resumption) {
        if session.giving_up {
            let carrier = session.machine.last_carrier();
            if let Some(event) = self.give_up(session, carrier) {
                self.feed(session, event);
            }
        }
        let arrival = self.inbox.lock().take();
        if let Some(arrival) = arrival {
            let resume = arrival.resume;
            // Without memory the peer gets no answer, and tries again.
            if session.arrivals.push(arrival, GFP_KERNEL).is_ok() {
                let at = self.positions(session);
                self.feed(session, Event::Request { resume, at });
            }
        }
        if let Some(event) = self.attempt_news(session) {
            self.feed(session, event);
        }
        if let Some(carrier) = session.machine.carrier() {
            let leaves = self.leaves.load(Acquire);
            let path = session.watch.look(session.now(), &self.socket());
            if leaves || path.is_suspect() {
                self.feed(session, Event::PathLost { carrier });
            }
        }
        self.feed(session, Event::Look);
    }

    /// Where the stream is.
    fn positions(&self, session: &Resumption) -> Positions {
        let Some(qp) = self.qp.as_ref() else {
            return Positions::default();
        };
        match session.parted {
            true => qp.positions_parted(&self.socket()),
            false => qp.positions(&self.socket(), session.base),
        }
    }

    /// Gives the machine an event, and does what it asks for until it waits.
    fn feed(self: &Arc<Self>, session: &mut Resumption, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next {
            let step = session.machine.step(session.now(), event);
            next = self.follow(session, step);
        }
    }

    /// Does what a step asks for. Returns the outcome, if there is one by now.
    fn follow(self: &Arc<Self>, session: &mut Resumption, step: Step) -> Option<Event> {
        session.due = step.due;
        if let Some(gen) = step.drop {
            session.close(gen);
        }
        if step.migrated {
            self.dev.stats.inc(Counter::Resumes);
            if let Some(qp) = self.qp.as_ref() {
                qp.event(QpEvent::PathMig);
            }
        }
        if step.refused.is_some() {
            self.dev.stats.inc(Counter::ResumeRefused);
        }
        match step.action {
            Action::Wait => None,
            Action::GiveUp { carrier } => {
                session.giving_up = true;
                self.give_up(session, carrier)
            }
            Action::Connect { gen, address } => self.begin_attempt(session, gen, address),
            Action::SendResume(resume) => self.send_resume(session, &resume),
            Action::Abandon { gen } => Some(self.abandon_attempt(session, gen)),
            Action::Adopt { gen, reply, skip } => {
                let ok = self.adopt(session, gen, reply, skip).is_ok();
                Some(Event::Adopted { gen, ok })
            }
            Action::Refuse(refused) => {
                session.refuse(&refused);
                Some(Event::Look)
            }
            Action::Fail => {
                self.dev.stats.inc(Counter::ResumeFailures);
                if let Some(qp) = self.qp.as_ref() {
                    qp.event(QpEvent::PathMigErr);
                    qp.fail(Cause::Lost(ETIMEDOUT));
                }
                None
            }
        }
    }

    /// Gives up the carrier. `None` if that takes more time.
    fn give_up(&self, session: &mut Resumption, carrier: u32) -> Option<Event> {
        let qp = self.qp.as_ref()?;
        let socket = self.socket();
        if !session.parted {
            if !qp.suspend_tx() {
                return None;
            }
            match qp.give_up(&socket, session.base) {
                Ok(()) => session.parted = true,
                Err(ENOMEM) => return None,
                // It has ended in another way, which the endpoint takes care of.
                Err(_) => {
                    session.giving_up = false;
                    qp.resume_tx();
                    return Some(Event::End);
                }
            }
        }
        // The peer knows that this has come.
        qp.receive_here();
        socket.run_data_ready();
        if self.unread() {
            return None;
        }
        session.giving_up = false;
        self.leaves.store(false, Release);
        let at = qp.positions_parted(&socket);
        Some(Event::GivenUp { carrier, at })
    }

    /// Makes the attempt `gen` the carrier.
    fn adopt(
        self: &Arc<Self>,
        session: &mut Resumption,
        gen: u32,
        reply: Option<Resumed>,
        skip: u64,
    ) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        let (socket, hook, frame) = match reply {
            Some(resumed) => {
                let arrival = session.take_arrival(gen).ok_or(EINVAL)?;
                let frame = arrival.accept(&resumed)?;
                let hook = Hook::new(self, false)?;
                arrival.socket.attach(hook.clone())?;
                (arrival.socket.clone(), hook, frame)
            }
            None => {
                let attempt = session.attempt.take_if(|attempt| attempt.gen == gen);
                let attempt = attempt.ok_or(EINVAL)?;
                (attempt.socket, attempt.hook, KVec::new())
            }
        };
        let gone = session
            .tos
            .map_or(Ok(()), |tos| socket.set_tos(tos))
            .and_then(|()| self.go_over(&socket, skip, &frame));
        let Ok(base) = gone else {
            socket.detach();
            return gone.map(|_| ());
        };
        hook.take_over();
        session.base = base;
        session.parted = false;
        session.watch = Watch::new();
        // What was asked for meanwhile was about the path that is lost.
        self.leaves.store(false, Release);
        qp.resume_tx();
        socket.run_data_ready();
        // The peer has moved, too.
        session.silent.clear();
        Ok(())
    }

    /// Replaces the socket. Returns the position of the stream on it.
    fn go_over(&self, socket: &Arc<Socket>, skip: u64, frame: &[u8]) -> Result<u64> {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        self.watch_peer(socket, true)?;
        let host = socket.peer_addr()?.to_gid();
        let place = Place::new()?;
        let old = self.socket();
        old.detach();
        let base = qp.go_over(socket, skip, |locked| match frame.is_empty() {
            true => Ok(()),
            false => mpa_io::send(locked, frame),
        })?;
        drop(self.replace_socket(socket.clone()));
        self.dev.endpoints.moved(self.id, host, place);
        Ok(base)
    }
}
