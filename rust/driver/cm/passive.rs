// SPDX-License-Identifier: GPL-2.0

//! The passive side: from the MPA request to the answer of the consumer.

use super::super::{
    stats::Counter,
    DeviceRef,
    Siw, //
};
use super::{
    depth,
    endpoint::{
        Endpoint,
        Handshake,
        Inner,
        Stage, //
    },
    listener,
    loopback,
    mpa_io,
    shown,
    to_event,
    up::find_qp,
    Step, //
};
use base::errno;
use iwarp::{
    cm::{
        Action,
        Input,
        Read, //
    },
    mpa::{
        Established,
        Request,
        MAX_FRAME, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::iwcm::{
    CmEvent,
    CmId,
    ConnParam, //
};
use soft::tcp::TcpState;

/// The endpoint of a request, if its connection still exists.
fn find(dev: &DeviceRef, number: usize) -> Result<Arc<Endpoint>> {
    dev.endpoints.get(number).ok_or_else(errno::econnreset)
}

/// `iw_accept`: answers a request and hands the stream to the QP. On failure the connection is
/// reset, and no event follows.
pub(super) fn accept(
    dev: &DeviceRef,
    id: CmId<Siw>,
    number: usize,
    param: &ConnParam<'_>,
) -> Result {
    let ep = find(dev, number)?;
    let mut inner = ep.inner.lock();
    let Action::Answer = ep.decide(&mut inner, Input::Accept) else {
        return Err(errno::econnreset());
    };
    let answered = ep.answer(&mut inner, id, param);
    ep.trace(Step::Accept, &answered);
    let result = answered.map(|_| ());
    if result.is_ok() {
        ep.dev.stats.inc(Counter::PassiveConnects);
    }
    ep.report(&mut inner, Input::Answered(answered));
    result
}

/// `iw_reject`: answers a request with a refusal. No event follows.
pub(super) fn reject(dev: &DeviceRef, number: usize, pdata: &[u8]) -> Result {
    let ep = find(dev, number)?;
    let mut inner = ep.inner.lock();
    let Action::Refuse = ep.decide(&mut inner, Input::Reject) else {
        return Err(errno::econnreset());
    };
    let result = ep.refuse(&inner, pdata);
    ep.report(&mut inner, Input::Refused(result));
    result
}

impl Endpoint {
    /// Reads what has arrived of the MPA request.
    pub(super) fn read_request(&self, inner: &mut Inner) -> Read<Request, Error> {
        let Handshake::Responder(machine) = &mut inner.hs else {
            return Read::End(EINVAL);
        };
        let read = mpa_io::read(&self.socket(), &mut **machine);
        if let Read::Whole(request) = &read {
            // The core gets the depths of the peer, as from the C driver: the peer's IRD is our
            // ORD.
            inner.depth = (to_event(request.ord), to_event(request.ird));
            self.probe_others();
        }
        read
    }

    /// Hands the peer's request to the core.
    pub(super) fn offer(&self, inner: &mut Inner) -> Result {
        let result = self.report_request(inner);
        self.trace(Step::Offer, &result);
        if result.is_ok() {
            self.leave_listener(inner);
        }
        result
    }

    fn report_request(&self, inner: &Inner) -> Result {
        let (Some(id), Handshake::Responder(machine)) = (
            inner
                .listener
                .as_ref()
                .and_then(|listener| listener.cm_id()),
            &inner.hs,
        ) else {
            return Err(EINVAL);
        };
        let (ird, ord) = inner.depth;
        let local = listener::unmapped(self.socket().local_addr()?);
        id.upcall(CmEvent::ConnectRequest {
            number: self.id,
            local: loopback::own_addr(&self.dev, local)?,
            remote: listener::unmapped(self.socket().peer_addr()?),
            ird,
            ord,
            pdata: shown(machine.private_data()),
        })
    }

    /// Answers a request that no consumer gets with a refusal.
    pub(super) fn refuse_request(&self, inner: &Inner) -> Result {
        match &inner.refusal {
            Some(refused) => self.refuse(inner, &refused.emit()),
            None => self.refuse(inner, &[]),
        }
    }

    /// Answers a request with a refusal.
    #[inline(never)] // A frame is made on the stack.
    pub(super) fn refuse(&self, inner: &Inner, pdata: &[u8]) -> Result {
        let Handshake::Responder(machine) = &inner.hs else {
            return Err(EINVAL);
        };
        let mut frame = [0u8; MAX_FRAME];
        let result = machine
            .reject(pdata, &mut frame)
            .map_err(|_| EINVAL)
            .and_then(|len| mpa_io::send(&self.socket().lock(), frame.get(..len).unwrap_or(&[])));
        self.dev.stats.inc(Counter::Rejects);
        if result.is_ok() {
            self.set_stage(Stage::Closed);
        }
        result
    }

    /// Answers a request with a reply that accepts it, and hands the stream to the QP.
    fn answer(
        self: &Arc<Self>,
        inner: &mut Inner,
        id: CmId<Siw>,
        param: &ConnParam<'_>,
    ) -> Result<Established> {
        if self.socket().state() != TcpState::Established {
            return Err(errno::econnreset());
        }
        let (ird, ord) = (depth(param.ird)?, depth(param.ord)?);
        let Handshake::Responder(machine) = &mut inner.hs else {
            return Err(EINVAL);
        };
        if machine.may_offer(param.pdata.len()) {
            // Without one the connection lives as long as its path.
            if let Ok(offer) = self.new_offer() {
                machine.offer(offer);
            }
        }
        let mut frame = [0u8; MAX_FRAME];
        let (len, est) = machine
            .accept(ird, ord, param.pdata, &mut frame)
            .map_err(|_| EINVAL)?;
        self.bind_new_qp(find_qp(&self.dev, &id, param.qpn)?)?;
        let (ird, ord) = (to_event(est.ird), to_event(est.ord));
        // The QP starts before the reply is sent, so that little can fail once the peer takes the
        // connection for established. It transmits nothing until it hears from the peer.
        self.start_stream(inner, &est, |sock| {
            mpa_io::send(sock, frame.get(..len).unwrap_or(&[]))?;
            // ESTABLISHED does not wait for the peer's RTR. Nothing is sent until then (RFC 6581
            // 5), but the core would let the application accept or reject once more, and would then
            // not accept ESTABLISHED. The event is queued before anything completes.
            id.upcall(CmEvent::Established { ird, ord })
        })?;
        inner.hs = Handshake::None;
        inner.cm_id = Some(id);
        Ok(est)
    }
}
