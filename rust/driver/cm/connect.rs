// SPDX-License-Identifier: GPL-2.0

//! From nothing to a stream, on both sides.

use super::super::{
    device::Device,
    qp::{state::Phase, stream::StreamParams},
    stats::Counter,
    DeviceRef, QpRef, Siw,
};
use super::{
    endpoint::{
        shown, Endpoint, Handshake, Inner, Owed, Stage, State, CONNECT_MS, HOLD_MS, REPLY_MS,
        RTR_MS,
    },
    mpa_io::{self, Progress},
    teardown::End,
    Step, MAX_DEPTH,
};
use crate::kapi::{
    context, errno,
    net::{Family, LockedSock, Socket, TcpState},
    rdma::{CmEvent, CmId, ConnParam},
};
use iwarp::{
    error::MpaError,
    mpa::{Config, Established, Initiator, Reply, Responder, Rtr, RtrSet, MAX_FRAME},
    qp::fsm::Event,
};
use kernel::{prelude::*, sync::Arc};

/// A peer that is silent while the connection is idle is found dead after 20 s: probes after 10 s,
/// every 2 s, 5 of them.
const KEEPALIVE: (u16, u16, u8) = (10, 2, 5);
/// The same while data is in flight, where TCP sends no probes.
const USER_TIMEOUT_MS: u32 = 20_000;

pub(super) fn config(dev: &Device, ird: u16, ord: u16, rtr: RtrSet) -> Config {
    let params = *dev.params.lock();
    Config {
        revision: params.mpa_rev,
        crc: params.crc,
        large_fpdus: params.large_fpdus,
        ird,
        ord,
        max_ird: MAX_DEPTH,
        max_ord: MAX_DEPTH,
        rtr,
    }
}

/// The responder's machine for a new connection.
pub(super) fn responder(dev: &Device) -> Responder {
    Responder::new(config(dev, MAX_DEPTH, MAX_DEPTH, RtrSet::NONE))
}

/// A read depth the application asks for.
fn depth(asked: u32) -> Result<u16> {
    u16::try_from(asked)
        .ok()
        .filter(|depth| *depth <= MAX_DEPTH)
        .ok_or(ENOMEM)
}

/// A read depth as an event of the core carries it.
pub(super) fn to_event(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// The queue pair of that number, if it is the caller's to connect.
///
/// The core takes the number from a program and does not ask whose it is. A program may name what
/// it has made itself; a kernel consumer runs in a thread of the kernel, or (as in a `mount`) in a
/// program's system call, and then it has tied the queue pair to `id`.
fn find_qp(dev: &Device, id: &CmId<Siw>, qpn: u32) -> Result<QpRef> {
    let qp = dev.qps.get(qpn).ok_or(EINVAL)?;
    let allowed = context::in_kthread()
        || match &qp.owner {
            Some(owner) => owner.is_current(),
            None => id.has_qp(&qp),
        };
    allowed.then_some(qp).ok_or_else(errno::eacces)
}

/// `iw_connect`: starts a connection. What comes of it is told by CONNECT_REPLY, unless this fails.
pub(crate) fn connect(dev: &DeviceRef, id: CmId<Siw>, param: &ConnParam<'_>) -> Result {
    let (ird, ord) = (depth(param.ird)?, depth(param.ord)?);
    let qp = find_qp(dev, &id, param.qpn)?;
    // The remote port may be mapped by iwpmd; the local one is never: TCP of the host is used.
    let (local, remote) = (id.local_addr()?, id.m_remote_addr()?);
    if local.family() != remote.family() {
        return Err(EINVAL);
    }

    let rtr = if dev.params.lock().peer_to_peer {
        RtrSet::ALL
    } else {
        RtrSet::NONE
    };
    let machine = KBox::new(Initiator::new(config(dev, ird, ord, rtr)), GFP_KERNEL)?;
    let mut frame = [0u8; MAX_FRAME];
    let len = machine
        .request(param.pdata, &mut frame)
        .map_err(|_| EINVAL)?;
    let mut request = KVec::new();
    request.extend_from_slice(frame.get(..len).unwrap_or(&[]), GFP_KERNEL)?;

    let net = dev.netdev.net().ok_or(ENODEV)?;
    let sock = Socket::new(&net, remote.family())?;
    if remote.family() == Family::V6 && id.afonly() {
        sock.set_v6only()?;
    }
    if let Some(tos) = id.tos() {
        sock.set_tos(tos)?;
    }
    sock.bind(&local)?;

    let ep = Endpoint::new(
        dev.clone(),
        sock,
        0,
        Inner::new(State::Connecting, Handshake::Initiator(machine, request)),
    )?;
    let mut inner = ep.inner.lock();
    let result = ep
        .open()
        .and_then(|()| ep.bind_qp(qp, Phase::Idle))
        .and_then(|()| ep.sock.connect(&remote));
    ep.trace(Step::Connect, &result);
    if let Err(e) = result {
        // The core hears it from us and must hear nothing else; the QP stays as it is.
        ep.end_socket(&mut inner, End::Reset);
        ep.retire();
        // Who has told the QP to end meanwhile has left the flush to its connection.
        if let Some(qp) = ep.qp.as_ref().filter(|qp| qp.phase() >= Phase::Terminating) {
            qp.abandon();
        }
        return Err(e);
    }
    ep.dev.stats.inc(Counter::ActiveConnects);
    inner.cm_id = Some(id);
    inner.owed = Owed::Reply;
    ep.arm(&mut inner, CONNECT_MS);
    drop(inner);
    ep.wake();
    Ok(())
}

/// The endpoint of a request, if its connection is still there.
fn find(dev: &DeviceRef, number: usize) -> Result<Arc<Endpoint>> {
    dev.endpoints.get(number).ok_or_else(errno::econnreset)
}

/// `iw_accept`: answers a request and hands the stream to the QP. On failure the connection is
/// reset, and no event follows.
pub(crate) fn accept(
    dev: &DeviceRef,
    id: CmId<Siw>,
    number: usize,
    param: &ConnParam<'_>,
) -> Result {
    let ep = find(dev, number)?;
    let mut inner = ep.inner.lock();
    if inner.state != State::Offered {
        return Err(errno::econnreset());
    }
    let result = ep.accept(&mut inner, id, param);
    ep.trace(Step::Accept, &result);
    match result {
        Ok(()) => {
            ep.dev.stats.inc(Counter::PassiveConnects);
            // What came while the reply was made, an end of the connection included, has to be
            // looked at.
            drop(inner);
            ep.wake();
        }
        Err(e) => {
            ep.note_cause(e);
            ep.finish(&mut inner, End::Reset);
        }
    }
    result
}

/// `iw_reject`: answers a request with a refusal. No event follows.
pub(crate) fn reject(dev: &DeviceRef, number: usize, pdata: &[u8]) -> Result {
    let ep = find(dev, number)?;
    let mut inner = ep.inner.lock();
    if inner.state != State::Offered {
        return Err(errno::econnreset());
    }
    ep.refuse(&mut inner, pdata)?;
    drop(inner);
    ep.wake();
    Ok(())
}

impl Endpoint {
    /// Answers a request with a refusal; the connection is given up in any case.
    pub(super) fn refuse(self: &Arc<Self>, inner: &mut Inner, pdata: &[u8]) -> Result {
        let Handshake::Responder(machine) = &inner.hs else {
            return Err(errno::econnreset());
        };
        let mut frame = [0u8; MAX_FRAME];
        let result = machine
            .reject(pdata, &mut frame)
            .map_err(|_| EINVAL)
            .and_then(|len| mpa_io::send(&mut self.sock.lock(), frame.get(..len).unwrap_or(&[])));
        self.dev.stats.inc(Counter::Rejects);
        match result {
            Ok(()) => self.await_close(inner),
            Err(e) => {
                self.fail(inner, e);
            }
        }
        result
    }

    /// Makes this the connection of `qp`, which has come to `latest` at the most.
    pub(super) fn bind_qp(self: &Arc<Self>, qp: QpRef, latest: Phase) -> Result {
        {
            let mut link = qp.link.lock();
            // `destroy_qp` leaves Idle before it looks at the link, so it cannot miss us.
            if link.is_some() || qp.phase() > latest {
                return Err(EINVAL);
            }
            *link = Some(self.clone());
        }
        self.qp.populate(qp);
        Ok(())
    }

    /// Gives the QP the connection: it receives, and it transmits if it need not wait for the peer's
    /// first FPDU. `tell` lets the peer send, if it could not before.
    pub(super) fn start_stream(
        self: &Arc<Self>,
        inner: &mut Inner,
        est: &Established,
        tell: impl FnOnce(&mut LockedSock<'_>) -> Result,
    ) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        if !inner.paired {
            // Else the program says when it is in RTS.
            qp.step(Event::Established)?;
        }
        let (idle, interval, count) = KEEPALIVE;
        self.sock.set_keepalive(idle, interval, count)?;
        self.sock.set_user_timeout(USER_TIMEOUT_MS)?;
        inner.depth = (to_event(est.ird), to_event(est.ord));
        qp.set_depths(est.ird, est.ord);
        let params = StreamParams {
            net: est.net,
            ird: u32::from(est.ird),
            ord: u32::from(est.ord),
            hold_tx: est.hold_tx,
            rtr: est.rtr,
        };
        qp.start(self, params, |sock| {
            tell(sock)?;
            self.set_stage(Stage::Stream);
            Ok(())
        })?;
        self.trace(Step::Up, &Ok(()));
        // What was there already.
        self.sock.run_data_ready();
        if !est.hold_tx {
            qp.end_hold();
        }
        Ok(())
    }

    /// Active side: is TCP connected?
    pub(super) fn turn_connecting(self: &Arc<Self>, inner: &mut Inner) -> bool {
        match self.sock.state() {
            TcpState::SynSent | TcpState::SynRecv => self.wait_on(inner),
            TcpState::Established | TcpState::CloseWait => {
                let Handshake::Initiator(machine, request) = &inner.hs else {
                    return self.fail(inner, EINVAL);
                };
                let sent = match &inner.pair {
                    Some(pair) => pair.send_request(&self.sock, machine),
                    None => mpa_io::send(&mut self.sock.lock(), request),
                };
                self.trace(Step::Request, &sent);
                match sent {
                    Ok(()) => {
                        inner.state = State::AwaitReply;
                        self.arm(inner, REPLY_MS);
                        true
                    }
                    Err(e) => self.fail(inner, e),
                }
            }
            _ => {
                let error = self.sock.take_error().err();
                self.fail(inner, error.unwrap_or_else(errno::econnrefused))
            }
        }
    }

    /// Active side: has the peer answered?
    pub(super) fn turn_await_reply(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let Handshake::Initiator(machine, _) = &mut inner.hs else {
            return self.fail(inner, EINVAL);
        };
        match mpa_io::read(&self.sock, &mut **machine) {
            Progress::Pending => self.wait_on(inner),
            Progress::End(e) => self.fail(inner, e),
            Progress::Bad(e) => self.bad_reply(inner, e),
            Progress::Whole(Reply::Rejected(_)) => {
                self.dev.stats.inc(Counter::Rejects);
                // Whatever has become of the connection since: this is the peer's answer.
                self.set_cause(errno::econnrefused());
                self.fail(inner, errno::econnrefused())
            }
            Progress::Whole(Reply::Accepted(est)) => match inner.pair.clone() {
                Some(pair) => self.pair_accepted(inner, &pair, &est),
                None => self.accepted(inner, &est),
            },
        }
    }

    fn accepted(self: &Arc<Self>, inner: &mut Inner, est: &Established) -> bool {
        self.disarm(inner);
        if let Err(e) = self.start_stream(inner, est, |_| Ok(())) {
            return self.fail(inner, e);
        }
        inner.state = State::Up;
        match self.tell_connected(inner) {
            Ok(()) => inner.owed = Owed::Close,
            // No memory for the event: the application cannot learn of the connection.
            Err(e) => self.request_teardown(super::Teardown::Abort(e)),
        }
        inner.hs = Handshake::None;
        true
    }

    fn tell_connected(&self, inner: &Inner) -> Result {
        let (Some(id), Handshake::Initiator(machine, _)) = (&inner.cm_id, &inner.hs) else {
            return Err(EINVAL);
        };
        let (ird, ord) = inner.depth;
        id.upcall(CmEvent::ConnectReply {
            status: Ok(()),
            local: self.sock.local_addr().or_else(|_| id.local_addr())?,
            remote: self.sock.peer_addr().or_else(|_| id.m_remote_addr())?,
            ird,
            ord,
            pdata: shown(machine.private_data()),
        })
    }

    /// The peer's reply does not do. Where it agreed to a stream, the peer is told in a Terminate
    /// (RFC 6581 9.1, 9.2).
    fn bad_reply(self: &Arc<Self>, inner: &mut Inner, error: MpaError) -> bool {
        let Handshake::Initiator(machine, _) = &inner.hs else {
            return self.fail(inner, EINVAL);
        };
        if let (Some(net), Some(code)) = (
            machine.negotiated(),
            iwarp::error::Error::Mpa(error).terminate(),
        ) {
            if mpa_io::send_terminate(&self.sock, &net, code).is_ok() {
                self.dev.stats.inc(Counter::TxTerminate);
                self.note_cause(errno::eproto());
                return self.drain_briefly(inner);
            }
        }
        self.fail(inner, errno::eproto())
    }

    fn accept(self: &Arc<Self>, inner: &mut Inner, id: CmId<Siw>, param: &ConnParam<'_>) -> Result {
        if self.sock.state() != TcpState::Established {
            return Err(errno::econnreset());
        }
        let (ird, ord) = (depth(param.ird)?, depth(param.ord)?);
        let Handshake::Responder(machine) = &inner.hs else {
            return Err(EINVAL);
        };
        let mut frame = [0u8; MAX_FRAME];
        let (len, est) = machine
            .accept(ird, ord, param.pdata, &mut frame)
            .map_err(|_| EINVAL)?;
        self.bind_qp(find_qp(&self.dev, &id, param.qpn)?, Phase::Idle)?;
        let (ird, ord) = (to_event(est.ird), to_event(est.ord));
        // First the QP, which keeps silent until it hears from the peer, then the reply, so that little
        // can fail once the peer thinks we are up.
        self.start_stream(inner, &est, |sock| {
            mpa_io::send(sock, frame.get(..len).unwrap_or(&[]))?;
            // Also if the peer's RTR is still to come: till then nothing is sent (RFC 6581 5), but the
            // core would let the application accept or reject once more, and take our ESTABLISHED
            // amiss. The event is queued before anything completes.
            id.upcall(CmEvent::Established { ird, ord })
        })?;
        inner.owed = Owed::Close;
        inner.hs = Handshake::None;
        inner.cm_id = Some(id);
        inner.state = State::Up;
        inner.rtr_due = matches!(est.rtr, Rtr::Expect(_));
        self.arm(inner, if inner.rtr_due { RTR_MS } else { HOLD_MS });
        Ok(())
    }
}
