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
    Endpoints,
    Host, //
};
use base::{
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

/// The connections of a host that asks for many are not looked at again for so long.
const SEARCH_MS: Msecs = 1_000;

/// Until when the last look at the connections of a host is enough.
pub(super) type Searched = Option<Jiffies>;

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
            if self.dev.endpoints.probe(&host.to_gid(), self.id) {
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
    /// Probes the connections of `host` that are older than endpoint `id`. Returns whether that has
    /// to be undone. May sleep.
    fn probe(&self, host: &Host, id: usize) -> bool {
        if !self.begin_search(host) {
            return false;
        }
        let (mut any, mut from) = (false, 0);
        // The lock is released for each, because others wait for it, and not only this host.
        while let Some(ep) = self.of_host(host, from).filter(|ep| ep.id < id) {
            any |= ep.hurry_probes();
            from = ep.id.saturating_add(1);
        }
        any
    }

    /// Whether the connections of `host` have not been looked at for a while.
    fn begin_search(&self, host: &Host) -> bool {
        let mut map = self.map.lock();
        let Some(connections) = map.hosts.get_mut(host) else {
            return false;
        };
        let (now, pause) = (context::jiffies(), msecs_to_jiffies(SEARCH_MS));
        let recent = |until: Jiffies| until.wrapping_sub(now) <= pause;
        if connections.searched.is_some_and(recent) {
            return false;
        }
        connections.searched = Some(now.wrapping_add(pause));
        true
    }

    /// The oldest connection of `host` from number `from` on.
    fn of_host(&self, host: &Host, from: usize) -> Option<Arc<Endpoint>> {
        let map = self.map.lock();
        let cursor = map.hosts.get(host)?.ids.cursor_lower_bound(&from)?;
        let (ep, _) = map.tree.get(cursor.current().0)?;
        Some(ep.clone())
    }

    /// Probes no connection earlier than its settings say. May sleep.
    pub(crate) fn slow_probes(&self) {
        self.for_each(|ep| ep.slow_probes());
    }
}
