// SPDX-License-Identifier: GPL-2.0

//! Connections that are given up, with an RST or without a word, and what tells that they should
//! be.

use crate::tcp::socket::{
    Handle,
    Socket, //
};
use base::{
    bindings,
    errno, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    },
    task::might_sleep, //
};

/// What TCP knows of the path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The device of the route is down, or has no carrier.
    pub down: bool,
    /// Segments are under way.
    pub outstanding: bool,
    /// Retransmission time-outs in a row.
    pub retransmits: u32,
    /// Probes without an answer.
    pub probes: u32,
}

/// A socket that is frozen, see [`Socket::freeze`].
///
/// # Invariants
///
/// The socket is frozen as long as this exists: its state and its queues do not change, except that
/// what has been received may be read.
pub struct Frozen(Arc<Socket>);

impl Socket {
    /// Resets the connection: queued data is not sent any more.
    ///
    /// The owner, if there still is one, sees the error `cause`. A frozen socket stays as it is
    /// until it is released.
    pub fn abort(&self, cause: Error) {
        self.handle().abort(cause);
    }

    /// Freezes an established connection: from now on nothing of it is sent, not even an RST, and
    /// nothing that comes is taken in or acknowledged. What has been received can be read. Fails
    /// with `ENOTCONN` if the connection is not established any more.
    ///
    /// When it is released, the connection is reset.
    pub fn freeze(self: &Arc<Self>) -> Result<Frozen> {
        let locked = self.lock();
        // SAFETY: Valid by the type invariants, and owned by this process.
        if !unsafe { bindings::soft_sk_freeze(self.handle().sk()) } {
            return Err(errno::enotconn());
        }
        self.handle().frozen.store(true, Release);
        drop(locked);
        // INVARIANT: Frozen just now. Nobody else has frozen it, because it was established.
        Ok(Frozen(self.clone()))
    }

    /// What TCP knows of the path. Any context.
    pub fn path(&self) -> Path {
        let mut path = bindings::soft_sk_path::default();
        // SAFETY: Valid by the type invariants; all that is read may be read at any time.
        unsafe { bindings::soft_sk_path(self.handle().sk(), &mut path) };
        Path {
            down: path.down,
            outstanding: path.packets_out != 0,
            retransmits: path.retransmits,
            probes: path.probes_out,
        }
    }
}

impl Frozen {
    /// The socket.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.0
    }

    /// Lets the connection go on. May sleep.
    pub fn thaw(self) {
        self.0.handle().thaw();
    }
}

impl Handle {
    /// Resets the connection. May sleep.
    pub(super) fn abort(&self, cause: Error) {
        might_sleep();
        // SAFETY: Valid by the type invariants. It fails if the connection is closed already.
        unsafe { bindings::tcp_abort(self.sk(), cause.to_errno().wrapping_neg()) };
    }

    /// Ends [`Socket::freeze`]. May sleep.
    fn thaw(&self) {
        might_sleep();
        if self.frozen.load(Acquire) {
            // SAFETY: Valid by the type invariants. It was frozen, and is still.
            unsafe { bindings::soft_sk_thaw(self.sk()) };
            self.frozen.store(false, Release);
        }
    }

    /// Resets the connection of a frozen socket, which sends nothing else any more. May sleep.
    pub(super) fn reset_frozen(&self) {
        might_sleep();
        if self.frozen.load(Acquire) {
            // SAFETY: Valid by the type invariants. It was frozen, and is still.
            unsafe { bindings::soft_sk_reset_frozen(self.sk()) };
        }
    }
}
