// SPDX-License-Identifier: GPL-2.0

//! How a connection meets the QP that waits for it.

use super::super::super::{
    qp::state::Phase,
    stats::Counter,
    QpRef, //
};
use super::super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    mpa_io, //
};
use super::{
    left,
    Pair,
    SUSPICION_MS, //
};
use base::{
    context,
    errno, //
};
use iwarp::{
    cm::{
        pair::{
            Fit,
            Hello, //
        },
        Input, //
    },
    mpa::{
        Established,
        Responder,
        MAX_FRAME, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies, //
};
use soft::tcp::SendSock;

impl Endpoint {
    /// Gives the stream to the QP that waits for it with `pair`.
    fn join(
        self: &Arc<Self>,
        inner: &mut Inner,
        (pair, qp): (&Arc<Pair>, QpRef),
        est: &Established,
        tell: impl FnOnce(&SendSock) -> Result,
    ) -> Result {
        let met = {
            let mut slot = qp.pair.lock();
            // Whoever takes the pair away, as RESET does, finds either it or the link.
            if !slot.as_ref().is_some_and(|here| Arc::ptr_eq(here, pair)) {
                return Err(errno::econnaborted());
            }
            self.bind_qp(qp.clone(), Phase::Connecting)?;
            slot.take()
        };
        drop(met);
        self.start_stream(inner, est, tell)?;
        inner.hs = Handshake::None;
        Ok(())
    }

    /// Connecting end: checks the answer of the other end, and gives the stream to the QP.
    pub(in super::super) fn join_attempt(
        self: &Arc<Self>,
        inner: &mut Inner,
        est: &Established,
    ) -> Input<Error> {
        let unclaimed = |e| Input::Joined {
            claimed: false,
            result: Err(e),
        };
        let (Some(pair), Handshake::Initiator(machine, _)) = (&inner.pair, &inner.hs) else {
            return unclaimed(EINVAL);
        };
        let ours = pair.wait.lock().hello;
        let known = Hello::parse(machine.private_data())
            .is_some_and(|theirs| ours.fits(&theirs) == Fit::Yes && ours.nonce == theirs.nonce);
        if !known {
            self.dev.stats.inc(Counter::PairRefused);
            return unclaimed(errno::eproto());
        }
        self.meet_life(machine.private_data());
        let Some(qp) = pair.claim() else {
            return unclaimed(errno::econnaborted());
        };
        let pair = pair.clone();
        inner.pair = None;
        let result = self.join(inner, (&pair, qp), est, |_| Ok(()));
        if result.is_ok() {
            self.dev.stats.inc(Counter::ActiveConnects);
        }
        Input::Joined {
            claimed: true,
            result,
        }
    }

    /// Accepting end: takes the request to the QP, or to the session, that it is for.
    pub(in super::super) fn meet(self: &Arc<Self>, inner: &mut Inner) -> Input<Error> {
        let peer = self.socket().peer_addr();
        let listener = inner.listener.as_ref();
        let expected =
            listener.is_some_and(|listener| peer.is_ok_and(|peer| listener.expects(&peer)));
        self.leave_listener(inner);
        if let Some(resume) = self.asks_to_resume(inner) {
            return self.pass_on(inner, resume);
        }
        if !expected {
            self.dev.stats.inc(Counter::PairRefused);
            return Input::Met(None);
        }
        Input::Met(self.meet_pair(inner))
    }

    /// Admits the peer of a waiting QP. `None` if this is not such a peer.
    #[inline(never)] // A frame is made on the stack.
    fn meet_pair(self: &Arc<Self>, inner: &mut Inner) -> Option<Result> {
        let Handshake::Responder(machine) = &inner.hs else {
            return Some(Err(EINVAL));
        };
        let mut frame = [0; MAX_FRAME];
        let (pair, answer) = self.find_pair(machine)?;
        let ord = pair.wait.lock().ord;
        self.meet_life(machine.private_data());
        let (len, est) = machine
            .accept(pair.ird, ord, &answer.emit(), &mut frame)
            .ok()?;
        let qp = pair.claim()?;
        // The QP starts, without transmitting, before the answer is sent: nothing can fail once the
        // peer takes the connection for established.
        let result = self.join(inner, (&pair, qp), &est, |sock| {
            mpa_io::send(sock, frame.get(..len).unwrap_or(&[]))
        });
        if result.is_ok() {
            self.dev.stats.inc(Counter::PassiveConnects);
        }
        Some(result)
    }

    /// Remembers in which life the peer is, which has sent that hello.
    fn meet_life(&self, hello: &[u8]) {
        if let (Some(theirs), Ok(host)) = (Hello::parse(hello), self.socket().peer_addr()) {
            self.dev.lives.lock().met(&host.to_gid(), &theirs.life);
        }
    }

    /// The pair that the request is for, and the answer.
    fn find_pair(&self, machine: &Responder) -> Option<(Arc<Pair>, Hello)> {
        let stranger = || self.dev.stats.inc(Counter::PairRefused);
        let Some(theirs) = Hello::parse(machine.private_data()) else {
            stranger();
            return None;
        };
        let from = self.socket().peer_addr().ok()?.to_gid();
        // Numbers do not come back, so a program that knows this one got it from a QP that is gone.
        let qp = self.dev.qps.get(theirs.peer_qpn);
        let Some(qp) = qp.filter(|_| !self.dev.lives.lock().is_over(&from, &theirs.life)) else {
            self.dev.stats.inc(Counter::PairStale);
            return None;
        };
        // The QP may not wait yet. The peer tries again.
        let pair = qp.pair.lock().clone()?;
        let (ours, suspicious) = {
            let wait = pair.wait.lock();
            (wait.hello, wait.suspicious)
        };
        let to = self.socket().local_addr().ok()?.to_gid();
        let fit = if pair.connects
            || pair.remote.to_gid() != from
            || pair.local.to_gid() != to
            || suspicious.is_some_and(|until| left(until) != 0)
        {
            Fit::Other
        } else {
            ours.fits(&theirs)
        };
        match fit {
            Fit::Yes => {}
            Fit::Unknown => return None,
            Fit::Other => {
                stranger();
                return None;
            }
            Fit::Guess => {
                let until = context::jiffies().wrapping_add(msecs_to_jiffies(SUSPICION_MS));
                pair.wait.lock().suspicious = Some(until);
                stranger();
                return None;
            }
        }
        let answer = Hello {
            nonce: theirs.nonce,
            ..ours
        };
        Some((pair, answer))
    }
}
