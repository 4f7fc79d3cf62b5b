// SPDX-License-Identifier: GPL-2.0

//! Listeners, and the admission of incoming connections.

use super::super::{
    stats::Counter,
    DeviceRef,
    Siw, //
};
use super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    mpa_io, //
};
use base::{
    addr::{
        Family,
        SockAddr, //
    },
    context,
    errno,
    netdev::{
        NetNs,
        LOOPBACK_IFINDEX, //
    },
    wq, //
};
use iwarp::cm::{
    self,
    Deadline,
    Input,
    Side, //
};
use kernel::{
    pr_info_once,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    }, //
};
use rdma::iwcm::CmId;
use soft::tcp::{
    self,
    Acceptor,
    ListenOpts,
    Socket, //
};

/// The most connections of one listener without a complete request, in all and from one host. A
/// peer that connects and sends nothing occupies an endpoint for [`Deadline::Request`]. A
/// connection beyond the limit replaces the oldest one of its host, or of all, so silent peers do
/// not block others.
const MAX_EMBRYOS: usize = 2048;
const MAX_OF_HOST: usize = 1024;

/// The first port that any program may bind. Those below it take `CAP_NET_BIND_SERVICE`.
pub(super) const FIRST_FREE_PORT: u16 = 1024;

/// A QP that waits for a connection: the address of its peer, and a number that no other wait on
/// the device has had.
pub(super) type Waiting = (super::Host, usize);

/// A listening socket.
#[pin_data]
pub(crate) struct Listener {
    dev: DeviceRef,
    /// The identifier whose owner gets the connections. Without one they are for waiting QPs, see
    /// `super::pair`.
    cm_id: Option<CmId<Siw>>,
    /// The waiting QPs, see `super::pair`.
    #[pin]
    expected: Mutex<RBTree<Waiting, ()>>,
    /// It is for sessions, too, whose peers come from anywhere.
    public: Atomic<bool>,
    /// Set right after creation; the socket's callback needs the listener first.
    sock: SetOnce<tcp::Listener>,
    open: Atomic<bool>,
    #[pin]
    embryos: Mutex<Embryos>,
    #[pin]
    work: DelayedWork<Listener>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Listener { self.work }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.accept_all();
    }
}

struct Hook(Arc<Listener>);

impl Acceptor for Hook {
    fn connection_ready(&self) {
        self.0.wake();
    }
}

/// `iw_create_listen`.
pub(super) fn create_listen(dev: &DeviceRef, id: CmId<Siw>, backlog: u32) -> Result<Arc<Listener>> {
    let addr = id.local_addr()?;
    let ns = dev.netdev.net();
    let ns = ns.filter(|ns| id.net() == *ns && id.sees_device(ns));
    let ifindex = dev.netdev.ifindex();
    let server = id.server();
    let opts = ListenOpts {
        backlog,
        // For a wildcard id the core listens on every device. Each one accepts what comes in
        // through its own interface.
        ifindex: match addr.is_any() {
            true => ifindex,
            false => dev.netdev.vrf(),
        },
        // The core sets `afonly` for every IPv4 id, where `v6only` would hide the socket.
        v6only: addr.family() == Family::V6 && id.afonly(),
        tos: id.tos(),
    };
    let listener = Listener::new(dev, Some(id), RBTree::new())?;
    // For a wildcard id the core makes a listener on the devices of all namespaces. Those of
    // others, those with the interface of another one, and those of a namespace that ends are not
    // the server's: their listeners have no socket, because an error would fail the server.
    let Some(ns) = ns else {
        return Ok(listener);
    };
    // The core takes a loopback address for a wildcard.
    let joins = addr.is_any() || addr.is_loopback();
    let alone = !(addr.is_loopback() || addr.is_any() && ifindex == LOOPBACK_IFINDEX);
    let mut result = Ok(());
    if alone {
        result = listener.listen(&ns, &addr, &opts);
    }
    if joins && result.is_ok() {
        let loopbacks = &dev.shared.loopbacks;
        result = loopbacks.join(server, &listener, &ns, &addr, &opts);
    }
    match result {
        // The server is older than the device. If this failed, rdma_cm would drop the device for
        // all programs.
        Err(e) if joins && dev.is_being_added() => {
            pr_info_once!(
                "an RDMA server is not reached over a new device: port {}, error {}\n",
                addr.port(),
                e.to_errno()
            );
            Ok(listener)
        }
        Err(e) => {
            let _ = destroy_listen(listener);
            Err(e)
        }
        Ok(()) => Ok(listener),
    }
}

/// Listens in a VRF for the peer of `waiting`, or, without one, for the peers of sessions. The
/// listener knows which of them before the first connection arrives.
pub(super) fn listen_for_pairs(
    dev: &DeviceRef,
    addr: &SockAddr,
    vrf: u32,
    backlog: u32,
    waiting: Option<Waiting>,
) -> Result<Arc<Listener>> {
    let opts = ListenOpts {
        backlog,
        ifindex: vrf,
        v6only: false,
        tos: None,
    };
    let mut expected = RBTree::new();
    if let Some(waiting) = waiting {
        expected.try_create_and_insert(waiting, (), GFP_KERNEL_ACCOUNT)?;
    }
    let ns = dev.netdev.net().ok_or(ENODEV)?;
    let listener = Listener::new(dev, None, expected)?;
    listener.listen(&ns, addr, &opts)?;
    Ok(listener)
}

/// Accepts connections from `sock` while `open`, and has them admitted. An error means that memory
/// is short, most likely: there may be more connections. May sleep.
pub(super) fn accept_from(
    sock: &tcp::Listener,
    open: impl Fn() -> bool,
    admit: impl Fn(Socket) -> Result,
) -> Result {
    while open() {
        let Some(child) = sock.accept()? else {
            break;
        };
        // A child that cannot be admitted is closed when it is dropped.
        admit(child)?;
        context::cond_resched();
    }
    Ok(())
}

/// `iw_destroy_listen`: stops listening and drops connections without a complete request. Those
/// that the core knows stay.
pub(super) fn destroy_listen(listener: Arc<Listener>) -> Result {
    listener.open.store(false, Release);
    if let Some(sock) = listener.sock.as_ref() {
        sock.close();
    }
    wq::cancel_delayed_sync::<_, 0>(&listener);
    if let Some(id) = &listener.cm_id {
        listener.dev.shared.loopbacks.leave(id.server(), &listener);
    }
    listener.wake_embryos();
    Ok(())
}

impl Listener {
    fn new(
        dev: &DeviceRef,
        cm_id: Option<CmId<Siw>>,
        expected: RBTree<Waiting, ()>,
    ) -> Result<Arc<Self>> {
        let public = cm_id.is_none() && expected.is_empty();
        Arc::pin_init(
            pin_init!(Self {
                cm_id,
                expected <- ranked_mutex!(Rank::Expected, expected),
                public: Atomic::new(public),
                dev: dev.clone(),
                sock: SetOnce::new(),
                open: Atomic::new(true),
                embryos <- ranked_mutex!(Rank::Embryos, Embryos::new()),
                work <- new_delayed_work!("siw_listener"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn listen(self: &Arc<Self>, ns: &NetNs, addr: &SockAddr, opts: &ListenOpts) -> Result {
        let hook = Arc::new(Hook(self.clone()), GFP_KERNEL_ACCOUNT)?;
        let sock = tcp::Listener::new(self.dev.shared.sockets.clone(), ns, addr, opts, hook)?;
        self.sock.populate(sock);
        // Connections may have come in before `sock` was set.
        self.wake();
        Ok(())
    }

    pub(super) fn dev(&self) -> &DeviceRef {
        &self.dev
    }

    pub(super) fn cm_id(&self) -> Option<&CmId<Siw>> {
        self.cm_id.as_ref()
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Acquire)
    }

    /// Adds a QP. Sleeps.
    pub(super) fn remember(&self, waiting: Waiting) -> Result {
        let node = RBTreeNode::new(waiting, (), GFP_KERNEL_ACCOUNT)?;
        self.expected.lock().insert(node);
        Ok(())
    }

    /// Removes a QP, unless [`Self::forget_all`] has. Sleeps.
    pub(super) fn forget(&self, waiting: &Waiting) {
        self.expected.lock().remove(waiting);
    }

    /// Forgets all QPs.
    pub(super) fn forget_all(&self) {
        let expected = core::mem::replace(&mut *self.expected.lock(), RBTree::new());
        drop(expected);
    }

    /// Whether no QP waits.
    pub(super) fn expects_nobody(&self) -> bool {
        self.expected.lock().is_empty()
    }

    /// Whether it is for sessions, too.
    pub(super) fn is_public(&self) -> bool {
        self.public.load(Acquire)
    }

    pub(super) fn set_public(&self, public: bool) {
        self.public.store(public, Release);
    }

    /// Whether a connection from `peer` may be for a pair: the host is one that a QP waits for, and
    /// the port is one that unprivileged programs cannot bind.
    pub(super) fn expects(&self, peer: &SockAddr) -> bool {
        if peer.port() >= FIRST_FREE_PORT {
            return false;
        }
        let host = unmapped(*peer).to_gid();
        let expected = self.expected.lock();
        let first = expected.cursor_lower_bound(&(host, 0));
        first.is_some_and(|at| at.current().0 .0 == host)
    }

    fn wake(self: &Arc<Self>) {
        self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), 0);
    }

    /// Wakes the connections that it has not passed on, because it is gone. Sleeps.
    fn wake_embryos(&self) {
        let mut from = 0;
        while let Some(id) = self.embryo_from(from) {
            if let Some(ep) = self.dev.endpoints.get(id) {
                ep.wake();
            }
            from = id.saturating_add(1);
        }
    }

    fn embryo_from(&self, id: usize) -> Option<usize> {
        let embryos = self.embryos.lock();
        let cursor = embryos.tree.cursor_lower_bound(&id)?;
        Some(*cursor.current().0)
    }

    fn accept_all(self: &Arc<Self>) {
        let Some(sock) = self.sock.as_ref() else {
            return;
        };
        let accepted = accept_from(sock, || self.is_open(), |child| self.admit(child));
        if accepted.is_err() {
            let delay = msecs_to_jiffies(Deadline::Retry.ms());
            self.dev.shared.cm.mod_delayed::<_, 0>(self.clone(), delay);
        }
    }

    /// Makes an endpoint of a new connection.
    pub(super) fn admit(self: &Arc<Self>, child: Socket) -> Result {
        let expected = self.cm_id.is_some()
            || self.is_public()
            || child.peer_addr().is_ok_and(|peer| self.expects(&peer));
        if !expected {
            self.dev.stats.inc(Counter::PairRefused);
            child.abort(errno::econnrefused());
            return Ok(());
        }
        // The child of a wildcard listener inherits the binding to the interface. With one to the
        // VRF at most, the stream can follow a route through another interface. A link-local
        // address has no route without its interface.
        if !matches!(child.local_addr()?, SockAddr::V6 { scope, .. } if scope != 0) {
            child.bind_to_vrf()?;
        }
        // The connection may be gone already.
        let Ok(peer) = child.peer_addr() else {
            return Ok(());
        };
        let peer = unmapped(peer);
        let host = host(&peer);
        let machine = KBox::new(
            mpa_io::responder(&self.dev, self.cm_id.is_none()),
            GFP_KERNEL,
        )?;
        let mut inner = Inner::new(
            cm::Endpoint::new(Side::Passive, self.cm_id.is_none()),
            Handshake::Responder(machine),
        );
        inner.listener = Some(self.clone());
        let ep = Endpoint::new(self.dev.clone(), child, inner)?;
        let node = RBTreeNode::new(ep.id, host, GFP_KERNEL)?;
        let mut inner = ep.inner.lock();
        let opened = ep.open(peer.to_gid());
        ep.report(&mut inner, Input::Begun(opened));
        opened?;
        let oldest = self.embryos.lock().enter(node, host);
        drop(inner);
        if let Some(oldest) = oldest.and_then(|id| self.dev.endpoints.get(id)) {
            oldest.evict();
        }
        Ok(())
    }
}

/// The connections without a complete request, and the host of each. The keys are the numbers of
/// the endpoints, so the oldest connection is the first.
struct Embryos {
    tree: RBTree<usize, Host>,
    count: usize,
}

/// The part of an address that a peer cannot vary at will: all of an IPv4 address, the network of
/// an IPv6 address.
type Host = [u8; 8];

fn host(addr: &SockAddr) -> Host {
    match *addr {
        SockAddr::V4 {
            addr: [a, b, c, d], ..
        } => [0, 0, 0, 0, a, b, c, d],
        SockAddr::V6 {
            addr: [a, b, c, d, e, f, g, h, ..],
            ..
        } => [a, b, c, d, e, f, g, h],
    }
}

impl Embryos {
    fn new() -> Self {
        Self {
            tree: RBTree::new(),
            count: 0,
        }
    }

    /// Adds a connection. Returns the one that has to make room for it, if any.
    fn enter(&mut self, node: RBTreeNode<usize, Host>, host: Host) -> Option<usize> {
        let of_host = || self.tree.iter().filter(|(_, other)| **other == host);
        let oldest = if self.count >= MAX_OF_HOST && of_host().count() >= MAX_OF_HOST {
            of_host().next()
        } else if self.count >= MAX_EMBRYOS {
            self.tree.iter().next()
        } else {
            None
        };
        let oldest = oldest.map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.leave(id);
        }
        self.tree.insert(node);
        self.count += 1;
        oldest
    }

    fn leave(&mut self, id: usize) {
        if self.tree.remove(&id).is_some() {
            self.count -= 1;
        }
    }
}

impl Endpoint {
    /// Takes the connection from its listener, because its request is complete or it is gone.
    pub(super) fn leave_listener(&self, inner: &mut Inner) {
        if let Some(listener) = inner.listener.take() {
            listener.embryos.lock().leave(self.id);
        }
    }
}

/// The IPv4 address behind an IPv4-mapped one of an IPv6 socket: for that one the core finds a
/// device.
pub(super) fn unmapped(addr: SockAddr) -> SockAddr {
    match addr {
        SockAddr::V6 {
            addr: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            port,
            ..
        } => SockAddr::V4 {
            addr: [a, b, c, d],
            port,
        },
        other => other,
    }
}
