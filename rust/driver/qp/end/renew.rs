// SPDX-License-Identifier: GPL-2.0

//! RESET: a queue pair that was connected without a connection manager begins anew.
//!
//! The positions in the queues go on, because the library has its own: all that is posted is taken,
//! so both sides are at the same element. The numbers of messages belong to the stream.

use crate::{
    driver::{
        qp::state::Phase,
        QpObj, //
    },
    kapi::{
        rdma::qp,
        sync::AccessOnce, //
    }, //
};
use iwarp::qp::fsm::Event;
use kernel::{
    prelude::*,
    sync::{
        atomic::Full,
        Arc,
        Completion, //
    }, //
};

impl QpObj {
    /// Whether the queue pair has, or had, a connection without a connection manager. iw_cm knows
    /// those of others, and what it does at their end would hit the next one.
    pub(in crate::driver::qp) fn has_had_peer(&self) -> bool {
        let connected = self.link.lock().is_some() || self.phase() > Phase::Connecting;
        connected && self.strict.read_once()
    }

    /// Ends the connection, drops what is posted and in progress without completions, and goes back
    /// to how the queue pair was made. [`Self::overrun`] and other changes of state are excluded.
    /// Sleeps, for 1.5 s at most.
    pub(in crate::driver::qp) fn renew(&self) -> Result {
        let given_up = Arc::pin_init(Completion::new(), GFP_KERNEL_ACCOUNT)?;
        let idle = Arc::pin_init(Completion::new(), GFP_KERNEL_ACCOUNT)?;
        self.resets.write_once(true);
        self.end_stream();
        self.hold_flush();
        self.stream.renew(given_up, idle);
        self.strict.write_once(false);
        self.access.write_once(0);
        self.depths.write_once(0);
        *self.path.lock() = qp::Path::default();
        let _ = self.step(Event::Renewed);
        self.phase.xchg(Phase::Idle.word(), Full);
        self.resets.write_once(false);
        self.release_flush();
        Ok(())
    }
}
