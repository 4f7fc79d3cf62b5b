// SPDX-License-Identifier: GPL-2.0

//! The Terminate: the last message of a stream (RFC 5040 7.1).

use super::stop::trace_terminate;
use crate::{
    qp::Qp,
    stats::Counter,
    QpObj, //
};
use soft::tcp::Socket;

/// The progress of a Terminate.
pub(crate) enum Progress {
    /// TCP has all of it.
    Sent,
    /// TCP has no space; `write_space` announces it.
    NoSpace,
    /// TCP has no memory, which no callback announces.
    NoMemory,
    /// The connection is gone.
    Lost,
}

impl Qp {
    /// Appends the Terminate that is due behind the encoded FPDUs, at an FPDU boundary. `false` if
    /// none is due, or there is no memory. Sleeps.
    ///
    /// Called after [`Self::stop_tx`], with the transmit state at rest.
    pub(crate) fn begin_terminate(self: &QpObj) -> bool {
        let owed = *self.stream.owed.lock();
        let (Some(term), Some(mut tx)) = (owed, self.stream.tx.take()) else {
            return false;
        };
        let added = tx.add_terminate(term);
        self.stream.tx.put(tx);
        added
    }

    /// Hands TCP more of the stream, up to the end of the Terminate. Sleeps, but not for the
    /// network.
    ///
    /// Called after [`Self::begin_terminate`], until the Terminate is sent or given up.
    pub(crate) fn push_terminate(self: &QpObj, sock: &Socket) -> Progress {
        let Some(mut tx) = self.stream.tx.take() else {
            return Progress::Lost;
        };
        let locked = sock.lock();
        let progress = match locked.state().is_open() {
            true => tx.drain(self, &locked),
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
