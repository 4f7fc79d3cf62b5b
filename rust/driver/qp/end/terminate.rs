// SPDX-License-Identifier: GPL-2.0

//! Sending a Terminate: the last message of a stream (RFC 5040 7.1).

use super::stop::trace_terminate;
use crate::driver::stats::Counter;
use crate::driver::QpObj;
use crate::kapi::net::Socket;

/// How far a Terminate has got.
pub(crate) enum Progress {
    /// TCP has all of it.
    Sent,
    /// TCP has no space; `write_space` tells when there is some.
    NoSpace,
    /// TCP has no memory, and nobody tells when there is some.
    NoMemory,
    /// It will not be sent: the connection is gone.
    Lost,
}

impl QpObj {
    /// Puts the Terminate that is due behind what has been encoded, so that it begins at an FPDU boundary; `false` if none is due, or
    /// there is no memory for it. Sleeps.
    ///
    /// After [`Self::stop_tx`], so the transmit state is at rest.
    pub(crate) fn begin_terminate(&self) -> bool {
        let owed = *self.stream.owed.lock();
        let (Some(term), Some(mut tx)) = (owed, self.stream.tx.take()) else {
            return false;
        };
        let added = tx.add_terminate(term);
        self.stream.tx.put(tx);
        added
    }

    /// Hands TCP more of what there is to send, up to the end of the Terminate. Sleeps, but not for the network.
    ///
    /// After [`Self::begin_terminate`], until that is sent or given up.
    pub(crate) fn push_terminate(&self, sock: &Socket) -> Progress {
        let Some(mut tx) = self.stream.tx.take() else {
            return Progress::Lost;
        };
        let mut locked = sock.lock();
        let progress = match locked.state().is_open() {
            true => tx.drain(self, &mut locked),
            false => Progress::Lost,
        };
        drop(locked);
        self.stream.tx.put(tx);
        if let Progress::Sent = progress {
            let owed = self.stream.owed.lock().take();
            if let Some(term) = owed {
                self.stats.inc(Counter::TxTerminate);
                trace_terminate(self.qp_num(), false, term.code);
            }
        }
        progress
    }
}
