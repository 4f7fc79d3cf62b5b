// SPDX-License-Identifier: GPL-2.0

//! When a path counts as lost, and positions in the streams of a session.

use crate::wire::session::Positions;

/// What is known of the path of a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Path {
    /// The network device of the route is down or has no carrier.
    pub down: bool,
    /// TCP has segments in flight. Not if there is data, but the peer's window is shut.
    pub outstanding: bool,
    /// Milliseconds since the peer has acknowledged something new, or since the oldest of what is
    /// in flight was sent, if that is later.
    pub silent_ms: u32,
    /// Retransmission timeouts in a row.
    pub timeouts: u32,
    /// Probes, of an idle connection or of a shut window, that are not answered.
    pub probes: u32,
}

/// How long a peer may leave data unacknowledged.
const SILENT_MS: u32 = 1_000;
const TIMEOUTS: u32 = 3;
const PROBES: u32 = 2;

impl Path {
    /// Whether the connection should go on by another path.
    ///
    /// This is long before TCP itself gives up. By then it has thrown away what it had to send.
    pub const fn is_suspect(&self) -> bool {
        let unheard = self.silent_ms >= SILENT_MS || self.timeouts >= TIMEOUTS;
        self.down || (self.outstanding && unheard) || self.probes >= PROBES
    }
}

impl Positions {
    /// Bytes to leave out of what this end can send again, if its peer has consumed `rx`; `None` if
    /// that cannot be.
    pub const fn skip(&self, rx: u64) -> Option<u64> {
        if rx > self.sent {
            return None;
        }
        rx.checked_sub(self.una)
    }
}
