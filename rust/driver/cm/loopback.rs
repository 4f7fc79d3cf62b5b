// SPDX-License-Identifier: GPL-2.0

//! Servers at the loopback interface.
//!
//! For a server that is bound to no address, or to a loopback address, rdma_cm makes a listener on
//! each device. Only one socket can listen at the loopback interface for all of them: the listeners
//! of a server share it, and it closes with the last one. It gives each connection to the listener
//! of a device that the core accepts for it, see [`Loopback::choose`].
//!
//! The client's device is the first active one of the host, see [`socket`]. Its connection is an
//! ordinary one over TCP from and to a loopback address.

use super::super::{
    DeviceRef,
    Shared,
    Siw, //
};
use super::{
    listener::{
        accept_from,
        unmapped,
        Listener, //
    },
    new_socket, //
};
use base::{
    addr::SockAddr,
    errno,
    netdev::{
        NetNs,
        LOOPBACK_IFINDEX, //
    },
    wq, //
};
use iwarp::cm::Deadline;
use kernel::{
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
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
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

/// The servers of the host that listen at a loopback interface, by [`CmId::server`].
///
/// [`CmId::server`]: rdma::iwcm::CmId::server
#[pin_data]
pub(crate) struct Loopbacks {
    #[pin]
    servers: Mutex<RBTree<usize, Arc<Loopback>>>,
}

/// The socket of a server at the loopback interface.
#[pin_data]
struct Loopback {
    /// The listeners of the server, one for each device. Locked while one of them gets a
    /// connection, so that none does after it has left.
    #[pin]
    members: Mutex<KVec<Arc<Listener>>>,
    /// Set right after creation; the socket's callback needs `self` first.
    sock: SetOnce<tcp::Listener>,
    open: Atomic<bool>,
    /// Not a device, because the socket may outlive any of them.
    shared: Arc<Shared>,
    #[pin]
    work: DelayedWork<Loopback>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Loopback { self.work }
}

impl WorkItem for Loopback {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.accept_all();
    }
}

struct Hook(Arc<Loopback>);

impl Acceptor for Hook {
    fn connection_ready(&self) {
        self.0.wake_in(0);
    }
}

impl Loopbacks {
    /// No servers.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            servers <- ranked_mutex!(Rank::Loopbacks, RBTree::new()),
        })
    }

    /// Lets `listener` have a share in the socket of `server`. The first one opens it, at `addr` of
    /// the namespace `ns`. May sleep.
    pub(super) fn join(
        &self,
        server: usize,
        listener: &Arc<Listener>,
        ns: &NetNs,
        addr: &SockAddr,
        opts: &ListenOpts,
    ) -> Result {
        let mut servers = self.servers.lock();
        if let Some(loopback) = servers.get(&server) {
            return Ok(loopback
                .members
                .lock()
                .push(listener.clone(), GFP_KERNEL_ACCOUNT)?);
        }
        let mut members = KVec::new();
        members.push(listener.clone(), GFP_KERNEL_ACCOUNT)?;
        let loopback = Loopback::new(listener.dev().shared.clone(), members)?;
        let node = RBTreeNode::new(server, loopback.clone(), GFP_KERNEL_ACCOUNT)?;
        let opts = ListenOpts {
            ifindex: LOOPBACK_IFINDEX,
            ..*opts
        };
        loopback.open(ns, addr, &opts)?;
        servers.insert(node);
        Ok(())
    }

    /// Takes the share of `listener`, if it has one. No connection gets to it afterwards. May
    /// sleep.
    pub(super) fn leave(&self, server: usize, listener: &Arc<Listener>) {
        let mut servers = self.servers.lock();
        let Some(loopback) = servers.get(&server).cloned() else {
            return;
        };
        let mut members = loopback.members.lock();
        members.retain(|member| !Arc::ptr_eq(member, listener));
        let is_last = members.is_empty();
        drop(members);
        if is_last {
            let node = servers.remove_node(&server);
            // Closed under the lock, because the next socket may need the address.
            loopback.close();
            drop(servers);
            drop(node);
            wq::cancel_delayed_sync::<_, 0>(&loopback);
        }
    }
}

impl Loopback {
    fn new(shared: Arc<Shared>, members: KVec<Arc<Listener>>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                members <- ranked_mutex!(Rank::Members, members),
                sock: SetOnce::new(),
                open: Atomic::new(true),
                shared,
                work <- new_delayed_work!("siw_loopback"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn open(self: &Arc<Self>, ns: &NetNs, addr: &SockAddr, opts: &ListenOpts) -> Result {
        let hook = Arc::new(Hook(self.clone()), GFP_KERNEL_ACCOUNT)?;
        let user = self.shared.sockets.clone();
        self.sock
            .populate(tcp::Listener::new(user, ns, addr, opts, hook)?);
        // Connections may have come in before `sock` was set.
        self.wake_in(0);
        Ok(())
    }

    /// Gives the address up. The work item may run once more.
    fn close(&self) {
        self.open.store(false, Release);
        if let Some(sock) = self.sock.as_ref() {
            sock.close();
        }
    }

    fn wake_in(self: &Arc<Self>, delay: Jiffies) {
        self.shared.cm.mod_delayed::<_, 0>(self.clone(), delay);
    }

    fn accept_all(self: &Arc<Self>) {
        let Some(sock) = self.sock.as_ref() else {
            return;
        };
        let accepted = accept_from(sock, || self.open.load(Acquire), |child| self.admit(child));
        if accepted.is_err() {
            self.wake_in(msecs_to_jiffies(Deadline::Retry.ms()));
        }
    }

    fn admit(&self, child: Socket) -> Result {
        let local = unmapped(child.local_addr()?);
        let members = self.members.lock();
        match Self::choose(&members, &local)? {
            Some(listener) => listener.admit(child),
            None => {
                child.abort(errno::econnrefused());
                Ok(())
            }
        }
    }

    /// The listener for a connection to `local`. The core finds the device of a connection by its
    /// local address (`cma_iw_acquire_dev`). So that is a device with this address, if there is
    /// one on `lo`, or one with any address, which the core gets instead.
    fn choose<'a>(
        members: &'a [Arc<Listener>],
        local: &SockAddr,
    ) -> Result<Option<&'a Arc<Listener>>> {
        let mut other = None;
        for member in members {
            let addrs = member.dev().netdev.addrs()?;
            if addrs.iter().any(|addr| addr.is_same_host(local)) {
                return Ok(Some(member));
            }
            if other.is_none() && !addrs.is_empty() {
                other = Some(member);
            }
        }
        Ok(other)
    }
}

/// A socket for a connection from the local address `local`: where the device is, because the core
/// has found the address there.
///
/// For a loopback address the core takes the first active device, whatever its namespace
/// (`cma_bind_loopback`). The address then means the host that the consumer sees, which connects
/// there as it could without the device. May sleep.
pub(super) fn socket(dev: &DeviceRef, id: &CmId<Siw>, local: &SockAddr) -> Result<Socket> {
    if !local.is_loopback() {
        return new_socket(dev, local.family());
    }
    let ns = id.net();
    match id.sees_device(&ns) {
        true => Socket::new(dev.shared.sockets.clone(), &ns, local.family()),
        false => Err(errno::eaddrnotavail()),
    }
}

/// The local address of a connection to the loopback address `local`, as the core gets it: an
/// address of the device, of the same family if there is one. May sleep.
pub(super) fn own_addr(dev: &DeviceRef, local: SockAddr) -> Result<SockAddr> {
    if !local.is_loopback() {
        return Ok(local);
    }
    let addrs = dev.netdev.addrs()?;
    if addrs.iter().any(|addr| addr.is_same_host(&local)) {
        return Ok(local);
    }
    let own = addrs
        .iter()
        .find(|addr| addr.family() == local.family())
        .or(addrs.first());
    own.map(|addr| addr.with_port(local.port()))
        .ok_or_else(errno::eaddrnotavail)
}
