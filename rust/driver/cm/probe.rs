// SPDX-License-Identifier: GPL-2.0

//! Probes of hosts that have come back.
//!
//! A host that asks for a connection may have been rebooted since its last ones. TCP would find
//! that out at the next regular probe, so the peer's new queue pairs would work beside old ones
//! that are dead, and whose memory is still registered for the peer. So the host's other
//! connections are probed at once if they are silent. One that it does not know any more gets an
//! RST, and ends.

use super::{
    Endpoint,
    Endpoints, //
};
use crate::kapi::{
    context,
    sync::AccessOnce, //
};
use kernel::{
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        msecs_to_jiffies,
        Jiffies,
        Msecs, //
    }, //
};

/// The seconds of silence that make a connection of such a host suspicious: no host is back sooner.
/// Most of what a host has that makes many connections at a time is heard of more often.
const SILENCE: u16 = 5;

/// How long such connections are probed, from the last request on.
const PROBES_MS: Msecs = 3_000;

/// A host that asks for many connections is not searched for again for so long.
const SEARCH_MS: Msecs = 1_000;

/// The last host whose connections were probed, and until when that is enough.
pub(super) type Searched = Option<([u8; 16], Jiffies)>;

/// When TCP probes the peer of an endpoint.
pub(super) struct Probing {
    /// After how many seconds of silence; 0: never, or there is no stream yet.
    idle: Atomic<u32>,
    /// For the moment, after [`SILENCE`].
    hurried: Atomic<bool>,
}

impl Probing {
    pub(super) fn new() -> Self {
        Self {
            idle: Atomic::new(0),
            hurried: Atomic::new(false),
        }
    }

    /// TCP probes the peer after `idle` seconds.
    pub(super) fn begin(&self, idle: u16) {
        self.idle.write_once(idle.into());
    }
}

impl Endpoint {
    /// The peer asks for a connection: probes the other connections of its host. May sleep.
    pub(super) fn probe_others(&self) {
        if let Ok(host) = self.socket().peer_addr() {
            if self.dev.endpoints.probe(host.to_gid()) {
                self.dev.slow_probes_in(msecs_to_jiffies(PROBES_MS));
            }
        }
    }

    /// Probes the peer at once if it is silent. Returns whether that has to be undone.
    fn hurry_probes(&self) -> bool {
        if self.probing.idle.read_once() <= SILENCE.into() {
            return false;
        }
        if !self.probing.hurried.xchg(true, Relaxed) && self.socket().set_keepidle(SILENCE).is_err()
        {
            self.probing.hurried.write_once(false);
        }
        true
    }

    fn slow_probes(&self) {
        if self.probing.hurried.xchg(false, Relaxed) {
            let idle = self.probing.idle.read_once();
            let _ = self
                .socket()
                .set_keepidle(u16::try_from(idle).unwrap_or(u16::MAX));
        }
    }
}

impl Endpoints {
    /// Probes the connections of `host`. Returns whether that has to be undone.
    fn probe(&self, host: [u8; 16]) -> bool {
        let mut map = self.map.lock();
        let now = context::jiffies();
        let recent = map.searched.is_some_and(|(last, until)| {
            last == host && until.wrapping_sub(now) <= msecs_to_jiffies(SEARCH_MS)
        });
        if recent {
            return false;
        }
        let until = now.wrapping_add(msecs_to_jiffies(SEARCH_MS));
        map.searched = Some((host, until));
        let is_of = |ep: &Arc<Endpoint>| {
            let peer = ep.socket().peer_addr();
            peer.is_ok_and(|peer| peer.to_gid() == host)
        };
        let theirs = map.tree.values().filter(|ep| is_of(ep));
        theirs.fold(false, |any, ep| ep.hurry_probes() || any)
    }

    /// Probes no connection earlier than its settings say. May sleep.
    pub(crate) fn slow_probes(&self) {
        for ep in self.map.lock().tree.values() {
            ep.slow_probes();
        }
    }
}
