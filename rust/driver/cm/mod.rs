// SPDX-License-Identifier: GPL-2.0

//! Connection management: the implementation of the core's iw_cm operations.
//!
//! An [`Endpoint`] is one TCP connection, from the SYN to the last upcall. [`Endpoint::step`] does
//! all the work on it, under the endpoint's mutex. Socket callbacks, timers and requests from other
//! contexts only leave a note and queue the endpoint on the CM work queue. Each step reads the
//! socket and the notes again, so a spurious wake-up is harmless and none is lost. An endpoint
//! waits neither for another endpoint nor for the network.
//!
//! A pure state machine, [`iwarp::cm::Endpoint`], makes the decisions. [`Endpoint::step`] gives it
//! the facts, performs the actions that it asks for, and reports their outcome.
//!
//! QPs that connect without a connection manager use the same endpoints, see [`pair`].
//! iwcm (`core/iwcm.c`) answers a breach of its contract with `BUG()`:
//!
//! - An active id gets exactly one CONNECT_REPLY, and CLOSE only after one without error.
//! - A passive id gets ESTABLISHED once, from within `accept`, and CLOSE after that.
//! - An id whose `connect` or `accept` failed gets no event.
//!
//! [`iwarp::cm::Owed`] holds what is due. DISCONNECT is never sent, because CLOSE follows at once.

pub(crate) mod endpoint;
pub(crate) mod listener;

mod active;
mod closing;
mod hook;
mod mpa_io;
mod pair;
mod passive;
mod probe;
mod session;
mod up;

use super::{
    IbDevice,
    QpRef,
    Siw, //
};
use crate::{
    driver::QpObj,
    kapi::{
        errno,
        net::NetNs,
        rdma::iwcm::{
            self,
            CmId,
            ConnParam, //
        }, //
    },
    trace, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

pub(crate) use self::{
    endpoint::Endpoint,
    listener::Listener,
    pair::{
        Doors,
        Pair, //
    },
    session::Sessions, //
};

#[vtable]
impl iwcm::Provider<Siw> for Siw {
    type Listener = Listener;

    fn get_qp(dev: &IbDevice, qpn: u32) -> Option<QpRef> {
        dev.qps.get(qpn)
    }

    fn connect(dev: &IbDevice, id: CmId<Self>, param: &ConnParam<'_>) -> Result {
        active::connect(dev, id, param)
    }

    fn accept(dev: &IbDevice, id: CmId<Self>, number: usize, param: &ConnParam<'_>) -> Result {
        passive::accept(dev, id, number, param)
    }

    fn reject(dev: &IbDevice, number: usize, pdata: &[u8]) -> Result {
        passive::reject(dev, number, pdata)
    }

    fn create_listen(dev: &IbDevice, id: CmId<Self>, backlog: u32) -> Result<Arc<Listener>> {
        listener::create_listen(dev, id, backlog)
    }

    fn destroy_listen(listener: Arc<Listener>) -> Result {
        listener::destroy_listen(listener)
    }
}

/// How a connection is to end.
pub(crate) type Teardown = iwarp::cm::Teardown<Error>;

/// The largest IRD and ORD. The C driver has the same.
pub(crate) const MAX_DEPTH: u16 = 128;

/// Checks a read depth that the application asks for.
fn depth(asked: u32) -> Result<u16> {
    u16::try_from(asked)
        .ok()
        .filter(|depth| *depth <= MAX_DEPTH)
        .ok_or(ENOMEM)
}

/// A read depth as an event of the core carries it.
fn to_event(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// As much of the private data as an event of the core can carry: its length is a `u8` there.
fn shown(pdata: &[u8]) -> &[u8] {
    pdata.get(..usize::from(u8::MAX)).unwrap_or(pdata)
}

/// All endpoints of a device that are not closed.
#[pin_data]
pub(crate) struct Endpoints {
    next: Atomic<usize>,
    #[pin]
    map: Mutex<Map>,
}

struct Map {
    refuse: bool,
    searched: probe::Searched,
    tree: RBTree<usize, Arc<Endpoint>>,
}

impl Map {
    fn new() -> Self {
        Self {
            refuse: false,
            searched: None,
            tree: RBTree::new(),
        }
    }
}

impl Endpoints {
    /// Creates an empty set.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            next: Atomic::new(1),
            map <- ranked_mutex!(Rank::Endpoints, Map::new()),
        })
    }

    /// A number that no endpoint or listener of this device has had.
    fn next_id(&self) -> usize {
        self.next.fetch_add(1, Relaxed)
    }

    fn insert(&self, ep: &Arc<Endpoint>) -> Result {
        let node = RBTreeNode::new(ep.id, ep.clone(), GFP_KERNEL)?;
        let mut map = self.map.lock();
        if map.refuse {
            return Err(ENODEV);
        }
        let replaced = map.tree.insert(node);
        drop(map);
        drop(replaced);
        Ok(())
    }

    fn remove(&self, id: usize) {
        let node = self.map.lock().tree.remove_node(&id);
        drop(node);
    }

    fn get(&self, id: usize) -> Option<Arc<Endpoint>> {
        self.map.lock().tree.get(&id).cloned()
    }

    fn first(&self) -> Option<Arc<Endpoint>> {
        self.map.lock().tree.values().next().cloned()
    }

    /// Wakes the connections that `listener` has not passed on, because it is gone.
    fn wake_children(&self, listener: usize) {
        let map = self.map.lock();
        for ep in map.tree.values().filter(|ep| ep.origin == listener) {
            ep.wake();
        }
    }

    /// Admits new connections again, after [`Self::abort_all`].
    pub(crate) fn admit(&self) {
        self.map.lock().refuse = false;
    }

    /// Starts to abort all connections, and admits no new ones. Does not wait.
    pub(crate) fn abort_all(&self) {
        let mut map = self.map.lock();
        map.refuse = true;
        for ep in map.tree.values() {
            ep.request_teardown(Teardown::Abort(ENODEV));
        }
    }

    /// Calls `f` for the queue pair of each connection. Other than the table of queue pairs, this
    /// has those that are being destroyed, until nothing of theirs can be sent. May sleep.
    pub(crate) fn for_each_qp(&self, f: impl Fn(&QpObj)) {
        let mut from = 0;
        // Without the lock for the call, for which others would have to wait.
        while let Some(ep) = self.at_or_behind(from) {
            if let Some(qp) = ep.qp.as_ref() {
                f(qp);
            }
            from = ep.id.saturating_add(1);
        }
    }

    fn at_or_behind(&self, id: usize) -> Option<Arc<Endpoint>> {
        let map = self.map.lock();
        let cursor = map.tree.cursor_lower_bound(&id)?;
        Some(cursor.current().1.clone())
    }

    /// Aborts the connections whose local address the host no longer has. May sleep.
    pub(crate) fn abort_without_addr(&self, net: &NetNs) {
        let map = self.map.lock();
        for ep in map.tree.values() {
            let local = ep.socket().local_addr().map(listener::unmapped);
            if !local.is_ok_and(|local| !net.has_addr(&local)) {
                continue;
            }
            match ep.has_session() {
                true => ep.leave_path(),
                false => ep.request_teardown(Teardown::Abort(errno::eaddrnotavail())),
            }
        }
    }

    /// Has the connections with a session look whether their path is lost. May sleep.
    pub(crate) fn look_at_paths(&self) {
        let map = self.map.lock();
        for ep in map.tree.values().filter(|ep| ep.has_session()) {
            ep.wake();
        }
    }

    /// As [`Self::abort_all`], and waits until all are closed. May sleep.
    pub(crate) fn drain(&self) {
        self.abort_all();
        while let Some(ep) = self.first() {
            ep.wait_closed();
        }
    }
}

/// The steps that the tracepoint `connect` shows. `include/trace/siw.h` names them.
#[derive(Clone, Copy)]
enum Step {
    /// Active side: TCP connection begun.
    Connect = 1,
    /// MPA request sent.
    Request = 2,
    /// Passive side: MPA request handed to the core.
    Offer = 3,
    /// MPA reply sent.
    Accept = 4,
    /// Stream up.
    Up = 5,
    /// Teardown begun.
    Teardown = 6,
    /// /// Connection over.
    Closed = 7,
}

impl Endpoint {
    fn trace<T>(&self, step: Step, result: &Result<T>) {
        trace::connect(|| {
            let status = result.as_ref().map_or_else(|e| e.to_errno(), |_| 0);
            let qpn = self.qp.as_ref().map_or(0, |qp| qp.qp_num());
            (qpn, step as u32, status)
        });
    }
}
