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
mod loopback;
mod mpa_io;
mod pair;
mod passive;
mod probe;
mod session;
mod up;

use super::{
    DeviceRef,
    IbDevice,
    QpRef,
    Siw, //
};
use crate::QpObj;
use base::{
    addr::Family,
    errno, //
};
use kernel::{
    prelude::*,
    rbtree::{
        Entry,
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
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
use rdma::iwcm::{
    self,
    CmId,
    ConnParam, //
};
use soft::tcp::Socket;

pub(crate) use self::{
    endpoint::Endpoint,
    listener::Listener,
    loopback::Loopbacks,
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

/// The address of a peer, as a GID.
type Host = [u8; 16];

struct Map {
    refuse: bool,
    tree: RBTree<usize, (Arc<Endpoint>, Host)>,
    /// The same endpoints by host. So a host finds its own, however many others have.
    hosts: RBTree<Host, Connections>,
}

/// The connections of a host.
struct Connections {
    ids: RBTree<usize, ()>,
    searched: probe::Searched,
}

impl Connections {
    fn new() -> Self {
        Self {
            ids: RBTree::new(),
            searched: None,
        }
    }
}

/// The memory for an endpoint among those of its host.
struct Place {
    host: RBTreeNodeReservation<Host, Connections>,
    id: RBTreeNodeReservation<usize, ()>,
}

impl Place {
    /// Sleeps.
    fn new() -> Result<Self> {
        Ok(Self {
            host: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
            id: RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

impl Map {
    fn new() -> Self {
        Self {
            refuse: false,
            tree: RBTree::new(),
            hosts: RBTree::new(),
        }
    }

    fn enter(&mut self, host: Host, id: usize, place: Place) {
        let connections = match self.hosts.entry(host) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Connections::new(), place.host),
        };
        connections.ids.insert(place.id.into_node(id, ()));
    }

    fn leave(&mut self, host: &Host, id: usize) {
        let Some(mut entry) = self.hosts.find_mut(host) else {
            return;
        };
        let connections = entry.get_mut();
        connections.ids.remove(&id);
        if connections.ids.is_empty() {
            entry.remove();
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

    /// A number that no endpoint of this device has had.
    fn next_id(&self) -> usize {
        self.next.fetch_add(1, Relaxed)
    }

    /// Adds an endpoint whose peer is at `host`. Sleeps.
    ///
    /// Fails with `ECONNABORTED` after [`Self::abort_all`]. NFS tries again after that, and hands
    /// `ENODEV` to its users (`call_connect_status()` in net/sunrpc/clnt.c).
    fn insert(&self, ep: &Arc<Endpoint>, host: Host) -> Result {
        let node = RBTreeNode::new(ep.id, (ep.clone(), host), GFP_KERNEL_ACCOUNT)?;
        let place = Place::new()?;
        let mut map = self.map.lock();
        if map.refuse {
            return Err(errno::econnaborted());
        }
        map.enter(host, ep.id, place);
        let replaced = map.tree.insert(node);
        drop(map);
        drop(replaced);
        Ok(())
    }

    /// Notes that the peer of endpoint `id` is at `host` from now on. Sleeps.
    fn moved(&self, id: usize, host: Host, place: Place) {
        let mut map = self.map.lock();
        let Some((_, at)) = map.tree.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(at, host);
        map.leave(&before, id);
        map.enter(host, id, place);
    }

    fn remove(&self, id: usize) {
        let mut map = self.map.lock();
        let removed = map.tree.remove(&id);
        if let Some((_, host)) = &removed {
            map.leave(host, id);
        }
        drop(map);
        drop(removed);
    }

    fn get(&self, id: usize) -> Option<Arc<Endpoint>> {
        let map = self.map.lock();
        map.tree.get(&id).map(|(ep, _)| ep.clone())
    }

    fn first(&self) -> Option<Arc<Endpoint>> {
        self.at_or_behind(0)
    }

    /// Admits new connections again, after [`Self::abort_all`].
    pub(crate) fn admit(&self) {
        self.map.lock().refuse = false;
    }

    /// Starts to abort all connections, and admits no new ones. Does not wait.
    pub(crate) fn abort_all(&self) {
        self.map.lock().refuse = true;
        self.for_each(|ep| ep.request_teardown(Teardown::Abort(ENODEV)));
    }

    /// Calls `f` for the queue pair of each connection. Other than the table of queue pairs, this
    /// has those that are being destroyed, until nothing of theirs can be sent. May sleep.
    pub(crate) fn for_each_qp(&self, f: impl Fn(&QpObj)) {
        self.for_each(|ep| {
            if let Some(qp) = ep.qp.as_ref() {
                f(qp);
            }
        });
    }

    /// Calls `f` for each endpoint, without the lock, for which others would have to wait. May
    /// sleep.
    fn for_each(&self, f: impl Fn(&Arc<Endpoint>)) {
        let mut from = 0;
        while let Some(ep) = self.at_or_behind(from) {
            f(&ep);
            from = ep.id.saturating_add(1);
        }
    }

    fn at_or_behind(&self, id: usize) -> Option<Arc<Endpoint>> {
        let map = self.map.lock();
        let cursor = map.tree.cursor_lower_bound(&id)?;
        let (ep, _) = cursor.current().1;
        Some(ep.clone())
    }

    /// Aborts the connections whose local address the host no longer has. May sleep.
    pub(crate) fn abort_without_addr(&self) {
        self.for_each(|ep| {
            let socket = ep.socket();
            let local = socket.local_addr().map(listener::unmapped);
            if !local.is_ok_and(|local| !socket.has_addr(&local)) {
                return;
            }
            match ep.has_session() {
                true => ep.leave_path(),
                false => ep.request_teardown(Teardown::Abort(errno::eaddrnotavail())),
            }
        });
    }

    /// Has the connections with a session look whether their path is lost. May sleep.
    pub(crate) fn look_at_paths(&self) {
        self.for_each(|ep| {
            if ep.has_session() {
                ep.wake();
            }
        });
    }

    /// As [`Self::abort_all`], and waits until all are closed. May sleep.
    pub(crate) fn drain(&self) {
        self.abort_all();
        while let Some(ep) = self.first() {
            ep.wait_closed();
        }
    }
}

/// A socket in the namespace and the VRF of the device. May sleep.
fn new_socket(dev: &DeviceRef, family: Family) -> Result<Socket> {
    let ns = dev.netdev.net().ok_or(ENODEV)?;
    let sock = Socket::new(dev.shared.sockets.clone(), &ns, family)?;
    sock.bind_to_device(dev.netdev.vrf())?;
    Ok(sock)
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
    /// Connection over.
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
