// SPDX-License-Identifier: GPL-2.0

//! Watches the path of a carrier.

use iwarp::session::Path;
use soft::tcp::Socket;

/// Time between two looks, in milliseconds.
pub(super) const PERIOD_MS: u64 = 250;

/// What the last look has seen.
pub(super) struct Watch {
    una: u32,
    outstanding: bool,
    /// Since when the peer has acknowledged nothing new.
    since: u64,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            una: 0,
            outstanding: false,
            since: 0,
        }
    }

    /// What is known of the path at the time `now`, in milliseconds.
    pub(super) fn look(&mut self, now: u64, socket: &Socket) -> Path {
        let path = socket.path();
        let una = socket.sent().una;
        if !self.outstanding || !path.outstanding || una != self.una {
            self.since = now;
        }
        (self.una, self.outstanding) = (una, path.outstanding);
        let silent = now.saturating_sub(self.since);
        Path {
            down: path.down,
            outstanding: path.outstanding,
            silent_ms: u32::try_from(silent).unwrap_or(u32::MAX),
            timeouts: path.retransmits,
            probes: path.probes,
        }
    }
}
