// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: the verbs.

use super::{
    rq::Rq,
    sq::Sq,
    state::Phase,
    stream::Stream,
    tx::sched::Poster,
    Qp, //
};
use crate::{
    cm::Teardown,
    datamover::Mover,
    limits::{
        self,
        Count, //
    },
    stats::Stats,
    uapi::abi,
    CqRef,
    QpObj,
    QpRef,
    Siw, //
};
use base::{
    context,
    errno,
    process::Process,
    sync::AccessOnce, //
};
use iwarp::{
    qp::fsm::{
        Actions,
        Event,
        State, //
    },
    wire::terminate::{
        TermCode,
        Terminate, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        Completion, //
    },
    task::Kuid, //
};
use rdma::{
    mr::access,
    qp,
    Details,
    RecvWrs,
    SendWrs,
    Udata, //
};

#[vtable]
impl qp::Operations<Siw> for Qp {
    /// Assigns a number, reports the rings to the program and publishes the QP.
    fn create<'a>(
        new: qp::New<'a, Siw>,
        attr: &qp::InitAttr<'_, Siw>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<(qp::Live<'a, Siw>, qp::Cap)> {
        if attr.create_flags() != 0 || !attr.is_rc() {
            return Err(errno::eopnotsupp());
        }
        let mut cap = attr.cap();
        // A program may ask for a queue of size 0, but libsiw always maps both.
        cap.max_send_wr = cap.max_send_wr.max(1);
        if attr.srq().is_none() {
            cap.max_recv_wr = cap.max_recv_wr.max(1);
        }
        if cap.max_send_wr > limits::QP_WR
            || cap.max_recv_wr > limits::QP_WR
            || cap.max_send_sge > limits::SGE
            || cap.max_recv_sge > limits::SGE
            || cap.max_inline_data > limits::INLINE
        {
            return Err(EINVAL);
        }
        let sig_all = attr.sig_all()?;
        let scq = CqRef::from(attr.send_cq().ok_or(EINVAL)?);
        let rcq = CqRef::from(attr.recv_cq().ok_or(EINVAL)?);
        let (pd, user) = (new.pd(), new.customer());
        let counted = Count::take(pd.dev(), |dev| &dev.counts.qp, limits::QP)?;
        let sq = Sq::new(user, cap.max_send_wr, cap.max_send_sge, sig_all)?;
        let rq = Rq::new(pd.id, user, attr.srq(), cap.max_recv_wr, cap.max_recv_sge)?;
        let dev = pd.dev().clone();
        let pd = pd.id;
        let entries = cap.max_send_wr.next_power_of_two();
        let owner = user.map(|_| Process::current());
        let mover = Mover::new(&dev.shared.movers, user.map(|_| Kuid::current_euid()))?;
        let context = user.map(|user| user.id());
        let extended =
            user.is_none_or(|user| user.ucontext().features & abi::feature::RFC7306 != 0);
        let given_up = Arc::pin_init(Completion::new(), GFP_KERNEL_ACCOUNT)?;
        let qp = new.init(try_pin_init!(Self {
            owner,
            context,
            extended,
            pd,
            scq,
            rcq,
            sq,
            rq <- rq,
            stream <- Stream::new(entries, mover, given_up),
            modify <- ranked_mutex!(Rank::QpModify, ()),
            resets: Atomic::new(false),
            link <- ranked_spinlock!(Rank::QpLink, None),
            pair <- ranked_spinlock!(Rank::QpPair, None),
            path <- ranked_spinlock!(Rank::QpPath, qp::Path::default()),
            fsm <- ranked_spinlock!(Rank::QpState, State::Reset),
            phase: Atomic::new(Phase::Idle.word()),
            access: Atomic::new(0),
            managed: Atomic::new(false),
            depths: Atomic::new(0),
            cap,
            sig_all,
            stats: Stats::new(),
            account: Atomic::new(0),
            dev,
            _counted: counted,
        }? Error))?;
        qp.set_qp_num(qp.dev.next_qpn().ok_or(ENOMEM)?);
        if let Some(udata) = udata {
            udata.respond_full(&abi::RespCreateQp {
                qp_id: qp.qp_num(),
                num_sqe: qp.sq.size(),
                num_rqe: qp.rq.size(),
                pad: 0,
                sq_key: qp.sq.key(),
                rq_key: qp.rq.key(),
            })?;
        }
        // Last: from here on connection management finds it.
        qp.dev.qps.insert(qp.qp_num(), QpRef::from(&*qp))?;
        let cap = qp.actual_cap();
        Ok((qp, cap))
    }

    fn modify(qp: &QpObj, attr: &qp::Attr<'_>) -> Result {
        if attr.has_unknown_bits() {
            return Err(errno::eopnotsupp());
        }
        let alone = qp.modify.lock();
        let result = qp.change(attr);
        drop(alone);
        if qp.scq.is_dead() || qp.rcq.is_dead() {
            qp.overrun();
        }
        result
    }

    fn query(qp: &QpObj) -> Result<qp::Info> {
        let depths = qp.depths.read_once();
        Ok(qp::Info {
            // A queue pair of iWARP has no RESET to be seen: a new one is in INIT, as rdma-core's
            // tests expect of it.
            state: match shown(qp.state()) {
                qp::State::Reset => qp::State::Init,
                state => state,
            },
            cap: qp.actual_cap(),
            path_mtu: qp.dev.netdev.mtu(),
            access: qp.access.read_once() | access::LOCAL_WRITE,
            // Reads that this side may have outstanding, and the peer.
            max_rd_atomic: (depths >> 16).min(255) as u8,
            max_dest_rd_atomic: (depths & 0xffff).min(255) as u8,
            sig_all: qp.sig_all,
            armed: qp.link.lock().as_ref().is_some_and(|ep| ep.has_session()),
            path: *qp.path.lock(),
        })
    }

    /// Nothing of the stream moves after the return.
    fn destroy(qp: &QpObj) {
        qp.dev.forget_qp(qp);
        // The first of them.
        if context::exiting() && qp.phase() < Phase::Terminating {
            qp.end_program();
        }
        // At once, because other queue pairs may wait for its turn at a region.
        qp.advance(Phase::Terminating);
        qp.stop_tx();
        qp.stop_control();
        qp.end_stream();
        qp.dev.settle_qp(qp);
    }

    /// A user's doorbell, or a kernel consumer's requests.
    fn post_send(qp: &QpObj, wrs: &mut SendWrs<'_, Siw>) -> Result {
        if qp.phase() == Phase::Idle {
            return Err(errno::enotconn());
        }
        if wrs.is_doorbell() {
            qp.kick(Poster::User);
            return Ok(());
        }
        let mut result = Ok(());
        let mut posted = false;
        for wr in wrs {
            result = qp.sq.post(&wr);
            if result.is_err() {
                break;
            }
            posted = true;
        }
        // An immediate error does not touch what was posted before it.
        if posted {
            qp.kick(Poster::Kernel);
        }
        result
    }

    fn post_recv(qp: &QpObj, wrs: &mut RecvWrs<'_>) -> Result {
        let mut result = Ok(());
        for wr in wrs {
            result = qp.rq.post(&wr);
            if result.is_err() {
                break;
            }
        }
        if qp.stream.awaits_recv() {
            qp.recv_posted();
        }
        if qp.phase() == Phase::Error {
            qp.restart_flush();
        }
        result
    }

    /// For `rdma resource show qp -dd`.
    fn describe(qp: &QpObj, out: &mut Details<'_>) -> Result {
        out.text(c"phase", fmt!("{:?}", qp.phase()))?;
        let endpoint = qp.link.lock().clone();
        if let Some(sock) = endpoint.map(|endpoint| endpoint.socket()) {
            // The addresses go with the connection.
            if let (Ok(local), Ok(peer)) = (sock.local_addr(), sock.peer_addr()) {
                out.text(c"local", fmt!("{local}"))?;
                out.text(c"peer", fmt!("{peer}"))?;
            }
        }
        let (wrs, reads, requests) = qp.stream.depths();
        for (name, value) in [
            (c"sq_size", qp.sq.size()),
            (c"rq_size", qp.rq.size()),
            (c"wrs_sent", wrs),
            (c"reads_out", reads),
            (c"reads_in", requests),
        ] {
            out.number(name, value.into())?;
        }
        Ok(())
    }
}

/// The state as verbs name it.
fn shown(state: State) -> qp::State {
    match state {
        State::Reset => qp::State::Reset,
        State::Idle => qp::State::Init,
        State::Rtr => qp::State::Rtr,
        State::Rts => qp::State::Rts,
        State::Closing => qp::State::Sqd,
        State::Drained | State::Terminate => qp::State::Sqe,
        State::Error => qp::State::Err,
    }
}

/// True if the read depths of `path` are within the device's limits.
fn is_within_limits(path: &qp::Path) -> bool {
    let within = |depth: Option<u8>, limit| depth.is_none_or(|depth| u32::from(depth) <= limit);
    within(path.max_rd_atomic, limits::ORD) && within(path.max_dest_rd_atomic, limits::IRD)
}

impl Qp {
    /// The sizes that consumers see.
    fn actual_cap(&self) -> qp::Cap {
        qp::Cap {
            max_send_wr: self.sq.size(),
            max_recv_wr: self.rq.size(),
            max_inline_data: limits::INLINE,
            ..self.cap
        }
    }
}

impl Qp {
    /// Judges a change: `EINVAL` unless verbs have it, with the attributes that they demand, or a
    /// connection manager asks for it. Those set little, and begin and end in more states.
    fn judge(self: &QpObj, attr: &qp::Attr<'_>) -> Result {
        use qp::State as S;
        let now = shown(self.state());
        if attr.is_standard(now) {
            return Ok(());
        }
        // A program that has named its peer connects without a connection manager.
        let managed = self.path.lock().av.is_none() && attr.is_from_cm();
        let asked_by_cm = match attr.state() {
            // `rdma_accept()` and `rdma_connect()` do both again if they are called again.
            Some(S::Init) => managed && matches!(now, S::Reset | S::Init | S::Rtr),
            Some(S::Rtr) => managed && matches!(now, S::Init | S::Rtr),
            // `rdma_disconnect()` needs a success although the connection has ended before.
            Some(S::Sqd | S::Sqe | S::Err) => attr.is_state_alone(),
            Some(S::Reset | S::Rts) => false,
            None => attr.is_from_cm(),
        };
        asked_by_cm.then_some(()).ok_or(EINVAL)
    }

    /// Changes the attributes and the state. Others are excluded. Sleeps.
    fn change(self: &QpObj, attr: &qp::Attr<'_>) -> Result {
        self.judge(attr)?;
        let path = attr.path(*self.path.lock())?;
        if !is_within_limits(&path) {
            return Err(EINVAL);
        }
        if let Some(leaves) = attr.leaves_path() {
            let link = self.link.lock().clone();
            let ep = link.filter(|ep| ep.has_session()).ok_or(EINVAL)?;
            if leaves {
                ep.leave_path();
            }
        }
        let waits = self.pair.lock().clone();
        let state = match attr.state() {
            None => None,
            Some(qp::State::Reset) => return self.renew(),
            Some(qp::State::Init) => Some(State::Idle),
            Some(qp::State::Rtr) => Some(State::Rtr),
            Some(qp::State::Rts) => Some(State::Rts),
            // There is no connection to close yet.
            Some(qp::State::Sqd | qp::State::Sqe) if waits.is_some() => Some(State::Error),
            Some(qp::State::Sqd) => Some(State::Closing),
            Some(qp::State::Sqe) => Some(State::Terminate),
            Some(qp::State::Err) => Some(State::Error),
        };
        // First, because the peer may come as soon as it is expected.
        if let Some(flags) = attr.access() {
            self.access.write_once(flags);
        }
        let begins = match state {
            Some(State::Rtr) if attr.has_av() => Some(self.expect_peer(&path)?),
            _ => None,
        };
        let Some(state) = state else {
            *self.path.lock() = path;
            return Ok(());
        };
        let actions = self.step(Event::Modify(state))?;
        *self.path.lock() = path;
        if let Some(pair) = begins {
            pair.begin();
        }
        if state == State::Rts {
            // The stream may be up already, or about to be.
            self.advance(Phase::Connecting);
            if let Some(pair) = &waits {
                pair.rts(&path);
            }
        }
        let how = if actions.contains(Actions::SEND_TERMINATE) {
            // The consumer does not say what is wrong (RFC 5040 8.2).
            if self.advance(Phase::Terminating) {
                *self.stream.owed.lock() = Some(Terminate::bare(TermCode::CATASTROPHIC));
            }
            Teardown::Terminate
        } else if actions.contains(Actions::ABORT) {
            // The consumer may have seen Sends complete, so TCP gets a moment to deliver them.
            Teardown::Local
        } else if actions.contains(Actions::CLOSE_GRACEFUL) {
            Teardown::Graceful
        } else if state == State::Error {
            Teardown::Local
        } else {
            return Ok(());
        };
        if state == State::Error || actions.contains(Actions::ABORT) {
            // Later work requests are accepted, and flushed with the others.
            self.advance(Phase::Terminating);
            if let Some(pair) = waits {
                pair.cancel();
            }
            // A receive posted later takes no message that is still coming in.
            self.stop_rx();
        }
        let endpoint = self.link.lock().clone();
        match endpoint {
            Some(endpoint) => endpoint.request_teardown(how),
            None => self.abandon(),
        }
        Ok(())
    }

    /// Ends the stream, or the wait for one, and waits until that is done. Kernel consumers find no
    /// completions of the queue pair afterwards. Sleeps, for 1.5 s at most.
    pub(super) fn end_stream(self: &QpObj) {
        // The outcome does not matter any more.
        let _ = self.step(Event::Modify(State::Error));
        self.advance(Phase::Terminating);
        let pair = self.pair.lock().take();
        if let Some(pair) = pair {
            pair.cancel_sync();
        }
        let endpoint = self.link.lock().clone();
        if let Some(endpoint) = endpoint {
            endpoint.teardown_sync();
        }
        self.finish();
        let left = self.link.lock().take();
        drop(left);
        self.scq.purge(self);
        if self.rcq.id() != self.scq.id() {
            self.rcq.purge(self);
        }
    }

    /// Ends a queue pair without a connection, whose teardown would end it. Process context.
    pub(crate) fn abandon(self: &QpObj) {
        self.enter_error();
        self.flushed();
    }

    /// Begins the teardown of all queue pairs of the program that has exited. The core destroys
    /// them one by one, and each may take a second; so all take it together. Process context.
    pub(crate) fn end_program(self: &QpObj) {
        if self.context.is_none() {
            return;
        }
        self.dev.qps.for_each(|_, other| {
            if other.context == self.context && other.advance(Phase::Terminating) {
                let endpoint = other.link.lock().clone();
                if let Some(endpoint) = endpoint {
                    endpoint.request_teardown(Teardown::Local);
                }
            }
        });
    }
}
