// SPDX-License-Identifier: GPL-2.0

//! RESET: a queue pair that no connection manager has taken begins anew.
//!
//! The positions in the queues go on, because the library has its own: all that is posted is taken,
//! so both sides are at the same element. The numbers of messages belong to the stream.

use crate::{
    qp::{
        state::Phase,
        Qp, //
    },
    QpObj, //
};
use base::sync::AccessOnce;
use iwarp::qp::fsm::Event;
use kernel::{
    prelude::*,
    sync::{
        atomic::Full,
        Arc,
        Completion, //
    }, //
};
use rdma::qp;

impl Qp {
    /// Ends the connection, or the wait for one, drops what is posted and in progress without
    /// completions, and goes back to how the queue pair was made. [`Self::overrun`] and other
    /// changes of state are excluded. Sleeps, for 1.5 s at most.
    ///
    /// `EINVAL` for the queue pair of a connection manager: iw_cm knows its connection, and would
    /// end the next one in its place.
    pub(in crate::qp) fn renew(self: &QpObj) -> Result {
        let given_up = Arc::pin_init(Completion::new(), GFP_KERNEL_ACCOUNT)?;
        let idle = Arc::pin_init(Completion::new(), GFP_KERNEL_ACCOUNT)?;
        {
            // A connection manager takes a queue pair with this lock held, and in the phase Idle.
            let _pair = self.pair.lock();
            if self.managed.read_once() {
                return Err(EINVAL);
            }
            self.advance(Phase::Terminating);
        }
        self.resets.write_once(true);
        self.end_stream();
        self.hold_flush();
        self.stream.renew(given_up, idle);
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
