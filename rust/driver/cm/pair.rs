// SPDX-License-Identifier: GPL-2.0

//! Connecting without a connection manager: what stands behind `modify_qp` to RTR with an address vector.
//!
//! A [`Pair`] is a QP's wait for the one other QP that its program named. By a rule that both ends can
//! compute (`iwarp::cm::pair::connects`) one of them connects and the other one listens, at [`PORT`] of the
//! address that its source GID is. Neither knows when the other one gets to RTR: the one that connects
//! tries again until it is let in. Each try is an [`Endpoint`] that has no QP yet; the one that succeeds
//! gets it and from then on is like any other, except that iw_cm is told nothing, because it knows
//! nothing of the connection.
//!
//! Without a connection manager nobody expects to hear of the end of a connection either. A QP whose
//! peer is gone stays as it is until it has something to send, see `Endpoint::leave_alone`.
//!
//! The tries are made in the pair's work item: `modify_qp` does not wait for the network, and a user who
//! calls it may not bind the port. The lock in a pair is `Rank::Pair`. The one
//! in [`Doors`] is `Rank::Doors`, outside of all others: no endpoint is locked while a listener goes.

use super::super::{device::Device, qp::state::Phase, stats::Counter, DeviceRef, QpObj, QpRef};
use super::{
    endpoint::{Endpoint, Handshake, Inner, State, CONNECT_MS, RTR_MS},
    listener::{self, Listener, FIRST_FREE_PORT},
    mpa_io,
    teardown::{End, Teardown},
    MAX_DEPTH,
};
use crate::kapi::{
    context, errno,
    net::{LockedSock, Shutdown, SockAddr, Socket, TcpState},
    random,
    rdma::QpPath,
    sync::{
        Atomic,
        SpinLockIrq, //
    },
    wq,
};
use core::ops::Range;
use iwarp::{
    cm::pair::{connects, Fit, Hello},
    mpa::{Config, Established, Initiator, Responder, Revision, RtrSet, MAX_FRAME},
    qp::fsm::Event,
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc, Mutex},
    time::{msecs_to_jiffies, Jiffies, Msecs},
    workqueue::{impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem},
};

/// The TCP port of those who accept. Nobody has registered it, it is none of those that clients are
/// given, and it is privileged. So is the port of those who connect: a program without rights cannot
/// pose as the peer at either end.
const PORT: u16 = 290;

/// Ports tried to call from, before a pause.
const ATTEMPTS: usize = 16;

/// How long a pair takes no more requests after one from the right host that did not know the PSNs, which
/// have 24 bits: too long for guesses, and the peer comes again.
const SUSPICION_MS: Msecs = 1_000;

/// Pause after the first failure to connect; it doubles up to the last, so that a peer that is late finds
/// us about as late again at the most.
const FIRST_PAUSE_MS: Msecs = 1;
const LAST_PAUSE_MS: Msecs = 500;

/// The least a QP with something to send waits for its peer, whatever `timeout` says, which is meant for
/// a network of microseconds: a lost SYN costs TCP a second, another one two more.
const LEAST_MS: u64 = 10_000;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// The wait of a QP for its peer.
#[pin_data]
pub(crate) struct Pair {
    dev: DeviceRef,
    qpn: u32,
    local: SockAddr,
    remote: SockAddr,
    tos: u8,
    connects: bool,
    ird: u16,
    #[pin]
    wait: SpinLockIrq<Wait>,
    #[pin]
    work: DelayedWork<Pair>,
}

struct Wait {
    /// What we say. The nonce is the one of the try that is under way.
    hello: Hello,
    ord: u16,
    /// When to try next; `None` while a try is under way, or we listen.
    next: Option<Jiffies>,
    pause: Msecs,
    /// How long work requests wait for the peer; for ever, if there is none.
    patience: Option<Jiffies>,
    /// When those that wait have waited too long.
    deadline: Option<Jiffies>,
    attempt: Option<Arc<Endpoint>>,
    /// Until when requests are refused unseen.
    suspicious: Option<Jiffies>,
    door: Option<Door>,
    /// It has come to an end, one way or another.
    over: bool,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Pair { self.work }
}

impl WorkItem for Pair {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.turn();
    }
}

/// Time from now until `end`, 0 if that has passed.
fn left(end: Jiffies) -> Jiffies {
    match end.wrapping_sub(context::jiffies()) {
        left @ 0..=0x7fff_ffff => left,
        _ => 0,
    }
}

fn is_past(end: Option<Jiffies>) -> bool {
    end.is_some_and(|end| left(end) == 0)
}

/// A read depth of the attributes. None at all would leave a program that does not care without Reads.
fn depth(asked: Option<u8>) -> u16 {
    asked.map_or(MAX_DEPTH, |depth| u16::from(depth).clamp(1, MAX_DEPTH))
}

/// 4.096 us times 2 to the power of `timeout`, a first time and for every retry.
fn patience(path: &QpPath) -> Option<Jiffies> {
    let exponent = path.timeout.unwrap_or(0) & 31;
    if exponent == 0 {
        return None;
    }
    let once = (4096u64 << exponent) / 1_000_000;
    let tries = u64::from(path.retry_cnt.unwrap_or(0) & 7) + 1;
    let ms = once.saturating_mul(tries).max(LEAST_MS);
    Some(msecs_to_jiffies(Msecs::try_from(ms).unwrap_or(Msecs::MAX)))
}

impl Pair {
    /// The wait of `qp` for the peer that `path` names; [`Self::begin`] begins it.
    pub(crate) fn new(qp: &QpObj, path: &QpPath) -> Result<Arc<Self>> {
        let av = path.av.ok_or(EINVAL)?;
        let qpn = qp.qp_num();
        let peer_qpn = path.dest_qpn.ok_or(EINVAL)?;
        let rq_psn = path.rq_psn.ok_or(EINVAL)?;
        // GID 0 is not an address.
        if av.sgid_index == 0 {
            return Err(EINVAL);
        }
        let scope = qp.dev.netdev.ifindex();
        let local = SockAddr::from_gid(av.sgid, 0, scope);
        let remote = SockAddr::from_gid(av.dgid, PORT, scope);
        if local.family() != remote.family() || remote.is_any() {
            return Err(EINVAL);
        }
        let connects = connects((&av.sgid, qpn), (&av.dgid, peer_qpn)).ok_or(EINVAL)?;
        let wait = Wait {
            hello: Hello {
                qpn,
                peer_qpn,
                rq_psn,
                sq_psn: None,
                nonce: 0,
            },
            ord: MAX_DEPTH,
            next: Some(context::jiffies()),
            pause: FIRST_PAUSE_MS,
            patience: None,
            deadline: None,
            attempt: None,
            suspicious: None,
            door: None,
            over: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                dev: qp.dev.clone(),
                qpn,
                local,
                remote,
                tos: av.traffic_class,
                connects,
                ird: depth(path.max_dest_rd_atomic),
                wait <- ranked_spinlock!(Rank::Pair, wait),
                work <- new_delayed_work!("siw_pair_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// RTR: the peer may come, or is looked for.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.arm(&self.wait.lock());
    }

    /// RTS: work requests may be posted.
    pub(crate) fn rts(self: &Arc<Self>, path: &QpPath) {
        let mut wait = self.wait.lock();
        wait.hello.sq_psn = path.sq_psn;
        wait.ord = depth(path.max_rd_atomic);
        wait.patience = patience(path);
        self.hurry(&mut wait);
    }

    /// Work requests wait: from now on the time counts. Any context.
    pub(crate) fn posted(self: &Arc<Self>) {
        let mut wait = self.wait.lock();
        if let (None, Some(patience)) = (wait.deadline, wait.patience) {
            wait.deadline = Some(context::jiffies().wrapping_add(patience));
            self.hurry(&mut wait);
        }
    }

    /// Ends the wait. The QP is the caller's business.
    pub(crate) fn cancel(self: &Arc<Self>) {
        if let Some(Some(attempt)) = self.end() {
            attempt.request_teardown(Teardown::Abort(errno::econnaborted()));
        }
    }

    /// As [`Self::cancel`]; when it returns nothing of this does anything with the QP. Sleeps.
    pub(crate) fn cancel_sync(self: &Arc<Self>) {
        self.cancel();
        wq::cancel_delayed_sync::<_, 0>(self);
        let door = self.wait.lock().door.take();
        drop(door);
    }

    /// Ends the wait, and gives the last try; `None` if it has ended before. It is for whoever ends it to
    /// say what becomes of the QP. Any context.
    fn end(self: &Arc<Self>) -> Option<Option<Arc<Endpoint>>> {
        let mut wait = self.wait.lock();
        if wait.over {
            return None;
        }
        wait.over = true;
        let attempt = wait.attempt.take();
        let listened = wait.door.is_some();
        drop(wait);
        wq::cancel_delayed::<_, 0>(self);
        if listened {
            // The work lets go of the listener.
            self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), 0);
        }
        Some(attempt)
    }

    /// Has the work run when it is next to do something.
    fn arm(self: &Arc<Self>, wait: &Wait) {
        let times = [wait.next, wait.deadline];
        let next = times.into_iter().flatten().map(left).min();
        if let (Some(delay), false) = (next, wait.over) {
            self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), delay);
        }
    }

    /// There is more reason to try now than there was.
    fn hurry(self: &Arc<Self>, wait: &mut Wait) {
        wait.pause = FIRST_PAUSE_MS;
        if wait.next.is_some() {
            wait.next = Some(context::jiffies());
        }
        self.arm(wait);
    }

    /// A try has failed.
    pub(super) fn retry(self: &Arc<Self>) {
        let mut wait = self.wait.lock();
        let pause = wait.pause;
        wait.pause = pause.saturating_mul(2).min(LAST_PAUSE_MS);
        wait.next = Some(context::jiffies().wrapping_add(msecs_to_jiffies(pause)));
        self.arm(&wait);
        let attempt = wait.attempt.take();
        drop(wait);
        drop(attempt);
    }

    fn turn(self: &Arc<Self>) {
        let mut wait = self.wait.lock();
        if wait.over {
            let door = wait.door.take();
            drop(wait);
            drop(door);
            return;
        }
        if is_past(wait.deadline) {
            drop(wait);
            self.give_up();
            return;
        }
        let due = is_past(wait.next);
        if due {
            wait.next = None;
        }
        self.arm(&wait);
        drop(wait);
        if due {
            let result = if self.connects {
                self.connect()
            } else {
                self.listen()
            };
            if result.is_err() {
                self.retry();
            }
        }
    }

    /// The peer has not come in time.
    fn give_up(self: &Arc<Self>) {
        let Some(attempt) = self.end() else { return };
        if let Some(attempt) = attempt {
            attempt.request_teardown(Teardown::Abort(ETIMEDOUT));
        }
        self.dev.stats.inc(Counter::ConnectFailures);
        if let Some(qp) = self.qp() {
            qp.unreachable();
        }
    }

    /// The QP, as long as it waits with this.
    fn qp(self: &Arc<Self>) -> Option<QpRef> {
        let qp = self.dev.qps.get(self.qpn)?;
        let ours = qp
            .pair
            .lock()
            .as_ref()
            .is_some_and(|pair| Arc::ptr_eq(pair, self));
        ours.then_some(qp)
    }

    /// Listens for the peer.
    fn listen(self: &Arc<Self>) -> Result {
        let door = Door::open(&self.dev, self.local.with_port(PORT), self.remote.to_gid())?;
        // Whoever ends the wait now, and finds no door, does not run us again.
        let mut wait = self.wait.lock();
        let unused = if wait.over {
            Some(door)
        } else {
            wait.door.replace(door)
        };
        drop(wait);
        drop(unused);
        Ok(())
    }

    /// Starts to connect to the peer.
    fn connect(self: &Arc<Self>) -> Result {
        let dev = &self.dev;
        let mut nonce = [0; 8];
        random::fill(&mut nonce);
        let ord = {
            let mut wait = self.wait.lock();
            wait.hello.nonce = u64::from_ne_bytes(nonce);
            wait.ord
        };
        let machine = KBox::new(Initiator::new(config(dev, self.ird, ord)), GFP_KERNEL)?;
        let sock = self.call()?;
        let hs = Handshake::Initiator(machine, KVec::new());
        let ep = Endpoint::new(dev.clone(), sock, 0, Inner::new(State::Connecting, hs))?;
        let mut inner = ep.inner.lock();
        if let Err(e) = ep.open() {
            ep.end_socket(&mut inner, End::Reset);
            ep.retire();
            return Err(e);
        }
        inner.pair = Some(self.clone());
        ep.arm(&mut inner, CONNECT_MS);
        let mut wait = self.wait.lock();
        let over = wait.over;
        if !over {
            wait.attempt = Some(ep.clone());
        }
        drop(wait);
        if over {
            ep.request_teardown(Teardown::Abort(errno::econnaborted()));
        }
        drop(inner);
        ep.wake();
        Ok(())
    }

    /// A socket that connects to the peer, from a privileged port.
    fn call(&self) -> Result<Socket> {
        let net = self.dev.netdev.net().ok_or(ENODEV)?;
        let mut result = Err(errno::eaddrinuse());
        if !self.dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        for attempt in 0..ATTEMPTS {
            let sock = Socket::new(&net, self.remote.family())?;
            if self.tos != 0 {
                sock.set_tos(self.tos)?;
            }
            let from = self.local.with_port(self.dev.doors.next_port(attempt));
            match sock.bind(&from) {
                Ok(()) => {}
                // Somebody listens there.
                Err(e) if e == errno::eaddrinuse() => continue,
                Err(e) => return Err(e),
            }
            match sock.connect(&self.remote) {
                Ok(_) => return Ok(sock),
                // There is such a connection, or was a moment ago.
                Err(e) if e == errno::eaddrnotavail() => result = Err(e),
                Err(e) => return Err(e),
            }
        }
        result
    }

    /// The request to the peer, which is made when TCP is connected: we may know more by then.
    pub(super) fn send_request(&self, sock: &Socket, machine: &Initiator) -> Result {
        let hello = self.wait.lock().hello;
        let mut frame = [0; MAX_FRAME];
        let len = machine
            .request(&hello.emit(), &mut frame)
            .map_err(|_| EINVAL)?;
        mpa_io::send(&mut sock.lock(), frame.get(..len).unwrap_or(&[]))
    }

    /// Takes the QP out of the wait: it has its stream, or is about to.
    fn claim(self: &Arc<Self>) -> Option<QpRef> {
        let qp = self.qp()?;
        self.end()?;
        Some(qp)
    }
}

/// Revision 2 whatever the parameter says: either end may speak first, and read depths are negotiated.
fn config(dev: &Device, ird: u16, ord: u16) -> Config {
    Config {
        revision: Revision::Two,
        ..super::connect::config(dev, ird, ord, RtrSet::ALL)
    }
}

impl QpObj {
    /// RTR with an address vector.
    pub(crate) fn expect_peer(&self, path: &QpPath) -> Result<Arc<Pair>> {
        if !self.dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        let new = Pair::new(self, path)?;
        let mut slot = self.pair.lock();
        let connected = self.link.lock().is_some() || self.phase() != Phase::Idle;
        if slot.is_some() || connected {
            // It is dropped after the lock.
            return Err(EINVAL);
        }
        self.strict.store(true, Relaxed);
        *slot = Some(new.clone());
        Ok(new)
    }

    /// The peer cannot be reached, or is gone: the first work request says so. Sleeps.
    fn unreachable(&self) {
        self.peer_gone();
        // Any outcome will do: the QP may have been ended by others.
        let _ = self.step(Event::LlpLost);
        self.advance(Phase::Terminating);
        self.abandon();
    }
}

impl Endpoint {
    /// Gives the stream to the QP that has waited for it.
    fn join(
        self: &Arc<Self>,
        inner: &mut Inner,
        qp: QpRef,
        est: &Established,
        tell: impl FnOnce(&mut LockedSock<'_>) -> Result,
    ) -> Result {
        inner.paired = true;
        self.bind_qp(qp.clone(), Phase::Connecting)?;
        // Only now: `QpObj::step` looks for the one, and then for the other.
        let pair = qp.pair.lock().take();
        drop(pair);
        self.start_stream(inner, est, tell)
    }

    /// Connecting end: the other one has answered.
    pub(super) fn pair_accepted(
        self: &Arc<Self>,
        inner: &mut Inner,
        pair: &Arc<Pair>,
        est: &Established,
    ) -> bool {
        let Handshake::Initiator(machine, _) = &inner.hs else {
            return self.fail(inner, EINVAL);
        };
        let ours = pair.wait.lock().hello;
        let known = Hello::parse(machine.private_data())
            .is_some_and(|theirs| ours.fits(&theirs) == Fit::Yes && ours.nonce == theirs.nonce);
        if !known {
            self.dev.stats.inc(Counter::PairRefused);
            return self.fail(inner, errno::eproto());
        }
        let Some(qp) = pair.claim() else {
            return self.fail(inner, errno::econnaborted());
        };
        inner.pair = None;
        self.disarm(inner);
        if let Err(e) = self.join(inner, qp, est, |_| Ok(())) {
            return self.fail(inner, e);
        }
        self.dev.stats.inc(Counter::ActiveConnects);
        inner.hs = Handshake::None;
        inner.state = State::Up;
        true
    }

    /// Accepting end: lets the peer of a waiting QP in, and nobody else.
    pub(super) fn meet(self: &Arc<Self>, inner: &mut Inner) -> bool {
        self.leave_listener(inner);
        let Handshake::Responder(machine) = &inner.hs else {
            return self.fail(inner, EINVAL);
        };
        let mut frame = [0; MAX_FRAME];
        let found = self.find_pair(machine).and_then(|(pair, answer)| {
            let ord = pair.wait.lock().ord;
            let (len, est) = machine
                .accept(pair.ird, ord, &answer.emit(), &mut frame)
                .ok()?;
            Some((pair.claim()?, len, est))
        });
        let Some((qp, len, est)) = found else {
            return self.refuse(inner, &[]).is_ok();
        };
        // First the QP, which keeps silent, then the answer: nothing can fail once the peer thinks we
        // are up.
        let up = self.join(inner, qp, &est, |sock| {
            mpa_io::send(sock, frame.get(..len).unwrap_or(&[]))
        });
        if let Err(e) = up {
            return self.fail(inner, e);
        }
        self.dev.stats.inc(Counter::PassiveConnects);
        inner.hs = Handshake::None;
        inner.state = State::Up;
        // The peer's RTR lets us speak: by then it is there to hear us.
        inner.rtr_due = true;
        self.arm(inner, RTR_MS);
        true
    }

    /// Whom the request is for, and the answer.
    fn find_pair(&self, machine: &Responder) -> Option<(Arc<Pair>, Hello)> {
        let stranger = || self.dev.stats.inc(Counter::PairRefused);
        let Some(theirs) = Hello::parse(machine.private_data()) else {
            stranger();
            return None;
        };
        // It may not be here yet; then the peer comes again.
        let qp = self.dev.qps.get(theirs.peer_qpn)?;
        let pair = qp.pair.lock().clone()?;
        let (ours, suspicious) = {
            let wait = pair.wait.lock();
            (wait.hello, wait.suspicious)
        };
        let from = self.sock.peer_addr().ok()?.to_gid();
        let to = self.sock.local_addr().ok()?.to_gid();
        let fit = if pair.connects
            || pair.remote.to_gid() != from
            || pair.local.to_gid() != to
            || suspicious.is_some_and(|until| left(until) != 0)
        {
            Fit::No
        } else {
            let fit = ours.fits(&theirs);
            if fit == Fit::No {
                let until = context::jiffies().wrapping_add(msecs_to_jiffies(SUSPICION_MS));
                pair.wait.lock().suspicious = Some(until);
            }
            fit
        };
        match fit {
            Fit::Yes => {}
            Fit::Unknown => return None,
            Fit::No => {
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

    /// The connection has ended, without an error of ours or of the peer's. A QP that was connected without a connection manager
    /// does not care as long as it has nothing to send (see the top of this file); whether it is such a one.
    pub(super) fn leave_alone(self: &Arc<Self>, inner: &mut Inner) -> bool {
        let Some(qp) = self.qp.as_ref().filter(|_| inner.paired) else {
            return false;
        };
        qp.peer_gone();
        let end = match self.sock.state() {
            TcpState::CloseWait => End::Fin,
            _ => End::Reset,
        };
        self.quiesce();
        self.end_socket(inner, end);
        if let End::Fin = end {
            let _ = self.sock.shutdown(Shutdown::Send);
        }
        inner.state = State::Alone;
        qp.advance(Phase::PeerGone);
        // Somebody who has posted before that has found nobody to care for it.
        if qp.is_busy() {
            self.in_vain();
        }
        true
    }
}

/// The listeners of a device's pairs, one for an address, and the ports they call from.
#[pin_data]
pub(crate) struct Doors {
    port: Atomic<u32>,
    #[pin]
    list: Mutex<KVec<Opened>>,
}

struct Opened {
    addr: SockAddr,
    listener: Arc<Listener>,
}

impl Doors {
    /// None yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            port: Atomic::new(0),
            list <- ranked_mutex!(Rank::Doors, KVec::new()),
        })
    }

    /// A privileged port to call from, each in its turn: the last one may not be free yet.
    fn next_port(&self, attempt: usize) -> u16 {
        // NFS takes the upper ones, and wants them for itself; below are services.
        let range: Range<u16> = if attempt < ATTEMPTS / 2 {
            512..665
        } else {
            665..FIRST_FREE_PORT
        };
        let turn = self.port.fetch_add(1, Relaxed) as usize;
        range.clone().nth(turn % range.len()).unwrap_or(range.start)
    }

    /// Closes all listeners. Who has a share in one waits on, for nobody. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for closed in core::mem::take(&mut *list) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}

/// A share in the listener of an address: it listens as long as there is one. Dropping it sleeps.
struct Door {
    dev: DeviceRef,
    listener: Arc<Listener>,
    peer: [u8; 16],
}

impl Door {
    /// Listens at `addr` for `peer`.
    fn open(dev: &DeviceRef, addr: SockAddr, peer: [u8; 16]) -> Result<Self> {
        let mut list = dev.doors.list.lock();
        // Under the lock: `Doors::close` is to see what begins before it.
        if !dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        let listener = match list.iter().find(|open| open.addr == addr) {
            Some(open) => {
                open.listener.expect_from(peer)?;
                open.listener.clone()
            }
            None => {
                list.reserve(1, GFP_KERNEL)?;
                let listener = listener::listen_for_pairs(dev, &addr, BACKLOG)?;
                if let Err(e) = listener.expect_from(peer) {
                    let _ = listener::destroy_listen(listener);
                    return Err(e);
                }
                let opened = Opened {
                    addr,
                    listener: listener.clone(),
                };
                list.push(opened, GFP_KERNEL)?;
                listener
            }
        };
        Ok(Self {
            dev: dev.clone(),
            listener,
            peer,
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut list = self.dev.doors.list.lock();
        if !self.listener.forget(&self.peer) {
            return;
        }
        let Some(at) = list
            .iter()
            .position(|open| Arc::ptr_eq(&open.listener, &self.listener))
        else {
            return;
        };
        // Under the lock: the next one needs the address.
        if let Ok(closed) = list.remove(at) {
            let _ = listener::destroy_listen(closed.listener);
        }
    }
}
