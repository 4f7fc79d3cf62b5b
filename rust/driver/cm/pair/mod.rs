// SPDX-License-Identifier: GPL-2.0

//! Connecting without a connection manager: `modify_qp` to RTR with an address vector.
//!
//! A [`Pair`] is a QP's wait for the peer QP that its program named. A rule that both ends can
//! compute (`iwarp::cm::pair::connects`) makes one end connect and the other one listen, at
//! [`PORT`] of the address in its source GID. Neither end knows when the other one reaches RTR, so
//! the connecting end tries until it is admitted. Each attempt is an [`Endpoint`] without a QP. The
//! one that succeeds gets the QP, and is like any other from then on, except that iw_cm gets no
//! events: it does not know the connection.
//!
//! Without a connection manager, programs do not expect to hear of the end of a connection either.
//! A QP whose peer is gone stays as it is until it has something to send, see
//! `Endpoint::leave_alone`.
//!
//! The pair's work item makes the attempts: `modify_qp` does not wait for the network, and its
//! caller may lack the right to bind the port. The lock of [`Doors`] is the outermost one, so no
//! endpoint is locked while a listener is destroyed.

mod attempt;
mod doors;
mod join;

use self::doors::Door;
use super::{
    Endpoint,
    Teardown,
    MAX_DEPTH, //
};
use crate::{
    qp::state::Phase,
    stats::Counter,
    DeviceRef,
    Qp,
    QpObj,
    QpRef, //
};
use base::{
    addr::SockAddr,
    context,
    errno,
    sync::{
        AccessOnce,
        SpinLockIrq, //
    },
    wq, //
};
use iwarp::{
    cm::pair::{
        connects,
        Hello, //
    },
    qp::fsm::Event, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};
use rdma::qp;

pub(crate) use self::doors::Doors;
pub(super) use self::doors::Lease;

/// The TCP port of accepting ends. It is not registered, not ephemeral, and privileged. The ports
/// of connecting ends are privileged too, so an unprivileged program cannot pose as the peer at
/// either end.
pub(super) const PORT: u16 = 290;

/// How long a pair refuses requests after one from the right host with wrong PSNs. At that rate
/// guessing 24 bits takes too long. The true peer tries again.
const SUSPICION_MS: Msecs = 1_000;

/// The pauses after a failed attempt: they double from the first to the last. So a connection comes
/// up at most about twice as late as the peer.
const FIRST_PAUSE_MS: Msecs = 1;
const LAST_PAUSE_MS: Msecs = 500;

/// The minimum time that work requests wait for the peer, whatever `timeout` says. That attribute
/// suits a network of microseconds, but a lost SYN costs TCP one second, and another one two more.
const LEAST_MS: u64 = 10_000;

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
    /// What this end sends, with the nonce of the attempt in progress.
    hello: Hello,
    ord: u16,
    /// When to try next. `None` during an attempt, and while listening.
    next: Option<Jiffies>,
    pause: Msecs,
    /// How long work requests wait for the peer. `None`: for ever.
    patience: Option<Jiffies>,
    /// When the waiting work requests have waited too long.
    deadline: Option<Jiffies>,
    attempt: Option<Arc<Endpoint>>,
    /// Until when all requests are refused.
    suspicious: Option<Jiffies>,
    door: Option<Door>,
    /// The wait has ended.
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

/// A read depth of the attributes, 1 at least: 0 would deny Reads to a program that does not set
/// it.
fn depth(asked: Option<u8>) -> u16 {
    asked.map_or(MAX_DEPTH, |depth| u16::from(depth).max(1))
}

/// 4.096 us times 2 to the power of `timeout`, for the first try and for every retry.
fn patience(path: &qp::Path) -> Option<Jiffies> {
    let exponent = path.timeout.unwrap_or(0);
    if exponent == 0 {
        return None;
    }
    let once = (4096u64 << exponent) / 1_000_000;
    let tries = u64::from(path.retry_cnt.unwrap_or(0) & 7) + 1;
    let ms = once.saturating_mul(tries).max(LEAST_MS);
    Some(msecs_to_jiffies(Msecs::try_from(ms).unwrap_or(Msecs::MAX)))
}

impl Pair {
    /// The wait of `qp` for the peer that `path` names. [`Self::begin`] starts it.
    pub(crate) fn new(qp: &QpObj, path: &qp::Path) -> Result<Arc<Self>> {
        let av = path.av.ok_or(EINVAL)?;
        let qpn = qp.qp_num();
        let peer_qpn = path.dest_qpn.ok_or(EINVAL)?;
        let rq_psn = path.rq_psn.ok_or(EINVAL)?;
        // Not an address.
        if av.sgid == qp.dev.hw_gid() {
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
                life: qp.dev.life(),
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
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// RTR: starts to listen or to connect.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.arm(&self.wait.lock());
    }

    /// RTS: work requests may be posted.
    pub(crate) fn rts(self: &Arc<Self>, path: &qp::Path) {
        let mut wait = self.wait.lock();
        wait.hello.sq_psn = path.sq_psn;
        wait.ord = depth(path.max_rd_atomic);
        wait.patience = patience(path);
        self.hurry(&mut wait);
    }

    /// Starts the clock, because work requests wait. Any context.
    pub(crate) fn posted(self: &Arc<Self>) {
        let mut wait = self.wait.lock();
        if let (None, Some(patience)) = (wait.deadline, wait.patience) {
            wait.deadline = Some(context::jiffies().wrapping_add(patience));
            self.hurry(&mut wait);
        }
    }

    /// Ends the wait. The caller takes care of the QP.
    pub(crate) fn cancel(self: &Arc<Self>) {
        if let Some(Some(attempt)) = self.end() {
            attempt.request_teardown(Teardown::Abort(errno::econnaborted()));
        }
    }

    /// As [`Self::cancel`], and waits until the pair no longer uses the QP. Sleeps.
    pub(crate) fn cancel_sync(self: &Arc<Self>) {
        self.cancel();
        wq::cancel_delayed_sync::<_, 0>(self);
        let door = self.wait.lock().door.take();
        drop(door);
    }

    /// Ends the wait, and returns the attempt in progress. `None` if the wait has ended before. The
    /// context that ends the wait decides what becomes of the QP. Any context.
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
            // The work item drops the door, which sleeps.
            self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), 0);
        }
        Some(attempt)
    }

    /// Queues the work item for the next attempt or the deadline.
    fn arm(self: &Arc<Self>, wait: &Wait) {
        let times = [wait.next, wait.deadline];
        let next = times.into_iter().flatten().map(left).min();
        if let (Some(delay), false) = (next, wait.over) {
            self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), delay);
        }
    }

    /// Tries at once, and starts over with the shortest pause.
    fn hurry(self: &Arc<Self>, wait: &mut Wait) {
        wait.pause = FIRST_PAUSE_MS;
        if wait.next.is_some() {
            wait.next = Some(context::jiffies());
        }
        self.arm(wait);
    }

    /// Schedules the next attempt, because one has failed.
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

    /// Fails the QP, because the peer has not come in time.
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

    /// The QP, while this is its pair.
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
        // A context that has ended the wait, and found no door, does not run the work item again.
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

    /// Ends the wait because there is a stream, and returns the QP.
    fn claim(self: &Arc<Self>) -> Option<QpRef> {
        let qp = self.qp()?;
        self.end()?;
        Some(qp)
    }
}

impl Qp {
    /// RTR with an address vector.
    pub(crate) fn expect_peer(self: &QpObj, path: &qp::Path) -> Result<Arc<Pair>> {
        if !self.dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        let new = Pair::new(self, path)?;
        let mut slot = self.pair.lock();
        let connected = self.link.lock().is_some() || self.phase() != Phase::Idle;
        if slot.is_some() || connected || self.managed.read_once() {
            // `new` is dropped after the lock.
            return Err(EINVAL);
        }
        *slot = Some(new.clone());
        Ok(new)
    }

    /// Fails the QP, because the peer cannot be reached or is gone. The first work request reports
    /// it. Sleeps.
    fn unreachable(self: &QpObj) {
        self.peer_gone();
        // The result does not matter: others may have ended the QP.
        let _ = self.step(Event::LlpLost);
        self.advance(Phase::Terminating);
        self.abandon();
    }
}
