// SPDX-License-Identifier: GPL-2.0

//! The responder's part: a new TCP connection asks for a session.

use super::super::super::stats::Counter;
use super::super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    listener::unmapped,
    mpa_io, //
};
use super::Resumption;
use base::{
    addr::SockAddr,
    random, //
};
use iwarp::{
    cm::Input,
    mpa::{
        Responder,
        MAX_FRAME, //
    },
    wire::session::{
        Address,
        Key,
        Offer,
        Refusal,
        Refused,
        Resume,
        Resumed,
        MAX_ADDRESSES, //
    }, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};
use soft::tcp::Socket;

/// The connections that can be resumed by their peers, by the numbers of their sessions.
#[pin_data]
pub(crate) struct Sessions {
    #[pin]
    tree: Mutex<RBTree<u64, Arc<Endpoint>>>,
}

impl Sessions {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- ranked_mutex!(Rank::Sessions, RBTree::new()),
        })
    }

    pub(super) fn insert(&self, id: u64, ep: &Arc<Endpoint>) -> Result {
        let node = RBTreeNode::new(id, ep.clone(), GFP_KERNEL)?;
        let replaced = self.tree.lock().insert(node);
        drop(replaced);
        Ok(())
    }

    pub(super) fn remove(&self, id: u64) {
        let node = self.tree.lock().remove_node(&id);
        drop(node);
    }

    fn get(&self, id: u64) -> Option<Arc<Endpoint>> {
        self.tree.lock().get(&id).cloned()
    }
}

/// A TCP connection whose request has come.
pub(in super::super) struct Arrival {
    pub(super) resume: Resume,
    pub(super) socket: Arc<Socket>,
    machine: KBox<Responder>,
}

impl Arrival {
    /// The frame that accepts.
    #[inline(never)] // A frame is made on the stack.
    pub(super) fn accept(&self, resumed: &Resumed) -> Result<KVec<u8>> {
        let mut frame = [0; MAX_FRAME];
        let accepted = self.machine.accept(0, 0, &resumed.emit(), &mut frame);
        let (len, _) = accepted.map_err(|_| EINVAL)?;
        let mut bytes = KVec::new();
        bytes.extend_from_slice(frame.get(..len).unwrap_or(&[]), GFP_KERNEL)?;
        Ok(bytes)
    }

    /// Rejects, and closes.
    #[inline(never)] // A frame is made on the stack.
    fn refuse(&self, refused: &Refused) {
        let mut frame = [0; MAX_FRAME];
        if let Ok(len) = self.machine.reject(&refused.emit(), &mut frame) {
            let frame = frame.get(..len).unwrap_or(&[]);
            let _ = mpa_io::send(&self.socket.lock(), frame);
        }
        let _ = self.socket.send_fin();
    }
}

/// The place for the latest request.
pub(in super::super) struct Inbox {
    closed: bool,
    arrival: Option<KBox<Arrival>>,
}

impl Inbox {
    pub(in super::super) fn new() -> Self {
        Self {
            closed: false,
            arrival: None,
        }
    }

    pub(super) fn take(&mut self) -> Option<KBox<Arrival>> {
        self.arrival.take()
    }

    /// Takes no more.
    pub(super) fn close(&mut self) -> Option<KBox<Arrival>> {
        self.closed = true;
        self.arrival.take()
    }
}

impl Resumption {
    /// The latest request of the attempt `gen`.
    pub(super) fn take_arrival(&mut self, gen: u32) -> Option<KBox<Arrival>> {
        let at = self
            .arrivals
            .iter()
            .rposition(|arrival| arrival.resume.gen == gen)?;
        self.arrivals.remove(at).ok()
    }

    /// Refuses a request.
    pub(super) fn refuse(&mut self, refused: &Refused) {
        if let Some(arrival) = self.take_arrival(refused.gen) {
            arrival.refuse(refused);
        }
    }
}

impl Endpoint {
    /// The offer of this end: a session, and the addresses of its VRF, the one in use first.
    pub(in super::super) fn new_offer(&self) -> Result<Offer> {
        let (mut session, mut key) = ([0; 8], [0; 16]);
        random::fill(&mut session);
        random::fill(&mut key);
        let life = self.dev.life();
        let ns = self.dev.netdev.net().ok_or(ENODEV)?;
        let mut all = ns.addrs(self.dev.netdev.vrf())?;
        let mut next = unmapped(self.socket().local_addr()?).with_port(0);
        let mut addresses = [None; MAX_ADDRESSES];
        for to in &mut addresses {
            *to = Some(match next {
                SockAddr::V4 { addr, .. } => Address::V4(addr),
                SockAddr::V6 { addr, .. } => Address::V6(addr),
            });
            let at = all.iter().position(|(addr, _)| *addr == next);
            let device = at.and_then(|at| all.remove(at).ok()).map(|(_, dev)| dev);
            // The peer tries them in turn. A path that is lost often takes a whole adapter.
            let another = all.iter().find(|(_, dev)| Some(*dev) != device);
            let Some((addr, _)) = another.or(all.first()) else {
                break;
            };
            next = *addr;
        }
        Ok(Offer {
            session: u64::from_ne_bytes(session),
            key: Key(u128::from_ne_bytes(key)),
            boot_id: life.boot_id,
            dev_epoch: life.epoch,
            addresses,
        })
    }

    /// The session that the peer asks for, if that is what it wants.
    pub(in super::super) fn asks_to_resume(&self, inner: &Inner) -> Option<Resume> {
        match &inner.hs {
            Handshake::Responder(machine) => Resume::parse(machine.private_data()),
            _ => None,
        }
    }

    /// Passes the TCP connection on to the connection that has the session.
    pub(in super::super) fn pass_on(&self, inner: &mut Inner, resume: Resume) -> Input<Error> {
        let netdev = &self.dev.netdev;
        let is_reachable = |target: &Arc<Endpoint>| {
            let other = &target.dev.netdev;
            let ns = netdev.net();
            ns.is_some() && other.net() == ns && other.vrf() == netdev.vrf()
        };
        // The sessions are those of all namespaces and VRFs.
        let target = self.dev.shared.sessions.get(resume.session);
        let Some(target) = target.filter(is_reachable) else {
            self.dev.stats.inc(Counter::ResumeRefused);
            inner.refusal = Some(Refused {
                session: resume.session,
                gen: resume.gen,
                why: Refusal::Unknown,
            });
            return Input::Met(None);
        };
        let Handshake::Responder(machine) = core::mem::replace(&mut inner.hs, Handshake::None)
        else {
            return Input::Met(None);
        };
        let arrival = Arrival {
            resume,
            socket: self.socket(),
            machine,
        };
        // Without memory this connection is reset, and the peer tries again.
        let Ok(arrival) = KBox::new(arrival, GFP_KERNEL) else {
            return Input::Met(None);
        };
        self.socket().detach();
        let mut inbox = target.inbox.lock();
        let dropped = match inbox.closed {
            true => Some(arrival),
            false => inbox.arrival.replace(arrival),
        };
        drop(inbox);
        drop(dropped);
        target.wake();
        Input::Passed
    }
}
