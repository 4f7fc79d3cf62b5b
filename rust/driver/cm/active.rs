// SPDX-License-Identifier: GPL-2.0

//! The active side: from `iw_connect` to CONNECT_REPLY.

use super::super::{
    qp::state::Phase,
    stats::Counter,
    DeviceRef,
    Siw, //
};
use super::{
    depth,
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    loopback,
    mpa_io,
    shown,
    up::find_qp,
    Step, //
};
use base::{
    addr::{
        Family,
        SockAddr, //
    },
    errno,
    sync::AccessOnce, //
};
use iwarp::{
    cm::{
        self,
        Input,
        Read,
        Side, //
    },
    mpa::{
        Initiator,
        Reply,
        RtrSet,
        MAX_FRAME, //
    },
    wire::terminate::TermCode, //
};
use kernel::prelude::*;
use rdma::iwcm::{
    CmEvent,
    CmId,
    ConnParam, //
};
use soft::tcp::Socket;

/// `iw_connect`: starts a connection. Unless this fails, CONNECT_REPLY reports the outcome.
pub(super) fn connect(dev: &DeviceRef, id: CmId<Siw>, param: &ConnParam<'_>) -> Result {
    let (ird, ord) = (depth(param.ird)?, depth(param.ord)?);
    let qp = find_qp(dev, &id, param.qpn)?;
    // iwpmd may map the remote port. It never maps the local one, because the host's TCP is used.
    let (local, remote) = (id.local_addr()?, id.m_remote_addr()?);
    if local.family() != remote.family() {
        return Err(EINVAL);
    }

    let rtr = if dev.params.lock().peer_to_peer {
        RtrSet::ALL
    } else {
        RtrSet::NONE
    };
    let mut config = mpa_io::config(dev, ird, ord, rtr);
    // The loopback interface has no other path.
    config.resume &= !local.is_loopback();
    let machine = KBox::new(Initiator::new(config), GFP_KERNEL_ACCOUNT)?;
    let mut frame = [0u8; MAX_FRAME];
    let len = machine
        .request(param.pdata, &mut frame)
        .map_err(|_| EINVAL)?;
    let mut request = KVec::new();
    request.extend_from_slice(frame.get(..len).unwrap_or(&[]), GFP_KERNEL_ACCOUNT)?;

    let sock = loopback::socket(dev, &id, &local)?;
    if remote.family() == Family::V6 && id.afonly() {
        sock.set_v6only()?;
    }
    if let Some(tos) = id.tos() {
        sock.set_tos(tos)?;
    }
    bind(&sock, &local)?;

    let inner = Inner::new(
        cm::Endpoint::new(Side::Active, false),
        Handshake::Initiator(machine, request),
    );
    let ep = Endpoint::new(dev.clone(), sock, inner)?;
    let mut inner = ep.inner.lock();
    let result = ep
        .open(remote.to_gid())
        .and_then(|()| ep.bind_new_qp(qp))
        .and_then(|()| ep.socket().connect(&remote).map(|_| ()));
    ep.trace(Step::Connect, &result);
    if result.is_ok() {
        ep.dev.stats.inc(Counter::ActiveConnects);
        inner.cm_id = Some(id);
    }
    // After a failure the core gets the error from this call and must get no event. The QP stays as
    // it is.
    ep.report(&mut inner, Input::Begun(result));
    if let (Err(_), Some(qp)) = (&result, ep.qp.as_ref()) {
        // A context that ended the QP meanwhile has left the flush to its connection.
        if qp.phase() >= Phase::Terminating {
            qp.abandon();
        }
        // Last, because from here on RESET may begin the QP anew.
        let _pair = qp.pair.lock();
        if qp.link.lock().is_none() {
            qp.managed.write_once(false);
        }
    }
    result
}

/// Binds to the local address of an identifier.
///
/// If the program has chosen no port, the core has taken one that is free among those of rdma_cm.
/// Any TCP connection of the host may use that one: then the connection gets another port. One
/// outside the range that the core takes from is the program's choice, and is not replaced.
fn bind(sock: &Socket, local: &SockAddr) -> Result {
    match sock.bind(local) {
        Err(e) if e == errno::eaddrinuse() && sock.is_ephemeral(local.port()) => {
            sock.bind(&local.with_port(0))
        }
        result => result,
    }
}

impl Endpoint {
    /// Sends the MPA request.
    #[inline(never)] // A frame may be made on the stack.
    pub(super) fn send_request(&self, inner: &Inner) -> Result {
        let Handshake::Initiator(machine, request) = &inner.hs else {
            return Err(EINVAL);
        };
        let sent = match &inner.pair {
            Some(pair) => pair.send_request(&self.socket(), machine),
            None => mpa_io::send(&self.socket().lock(), request),
        };
        self.trace(Step::Request, &sent);
        sent
    }

    /// Reads what has arrived of the MPA reply.
    pub(super) fn read_reply(&self, inner: &mut Inner) -> Read<Reply, Error> {
        match &mut inner.hs {
            Handshake::Initiator(machine, _) => mpa_io::read(&self.socket(), &mut **machine),
            _ => Read::End(EINVAL),
        }
    }

    /// Refuses a stream, because the peer's reply is not acceptable. A peer that agreed to the
    /// stream gets a Terminate (RFC 6581 9.1, 9.2). Returns whether TCP has taken it.
    #[inline(never)] // An FPDU is made on the stack.
    pub(super) fn refuse_stream(&self, inner: &Inner, code: TermCode) -> bool {
        let Handshake::Initiator(machine, _) = &inner.hs else {
            return false;
        };
        let sent = machine
            .negotiated()
            .is_some_and(|net| mpa_io::send_terminate(&self.socket(), &net, code).is_ok());
        if sent {
            self.dev.stats.inc(Counter::TxTerminate);
        }
        sent
    }

    /// Reports the connection to the core.
    pub(super) fn report_connected(&self, inner: &mut Inner) -> Result {
        let hs = core::mem::replace(&mut inner.hs, Handshake::None);
        let (Some(id), Handshake::Initiator(machine, _)) = (&inner.cm_id, &hs) else {
            return Err(EINVAL);
        };
        let (ird, ord) = inner.depth;
        id.upcall(CmEvent::ConnectReply {
            status: Ok(()),
            local: self.socket().local_addr().or_else(|_| id.local_addr())?,
            remote: self.socket().peer_addr().or_else(|_| id.m_remote_addr())?,
            ird,
            ord,
            pdata: shown(machine.private_data()),
        })
    }

    /// Reports to the core that the connection has not come up.
    pub(super) fn report_failed(&self, id: &CmId<Siw>, hs: &Handshake, e: Error) {
        self.dev.stats.inc(Counter::ConnectFailures);
        // A peer gives the reason for its refusal in the private data.
        let refused = match hs {
            Handshake::Initiator(machine, _) if e == errno::econnrefused() => {
                shown(machine.private_data())
            }
            _ => &[],
        };
        // The core must get the event even if there is no memory to copy the private data.
        if tell_refused(id, e, refused).is_err() {
            let _ = tell_refused(id, e, &[]);
        }
    }
}

fn tell_refused(id: &CmId<Siw>, e: Error, pdata: &[u8]) -> Result {
    id.upcall(CmEvent::ConnectReply {
        status: Err(e),
        local: id.local_addr()?,
        remote: id.remote_addr()?,
        ird: 0,
        ord: 0,
        pdata,
    })
}
