// SPDX-License-Identifier: GPL-2.0

//! Sending a Terminate: the last message of a stream (RFC 5040 7.1).

use super::stream::trace_terminate;
use crate::driver::stats::Counter;
use crate::driver::QpObj;
use crate::kapi::{context, net::Socket};

/// How long the peer has to take what was under way before the Terminate, and how often to look.
const WAIT_MS: u32 = 500;
const PAUSE_MS: u32 = 5;

impl QpObj {
    /// Sends the Terminate that is due, behind what has been encoded, so that it begins at an FPDU boundary. Sleeps, at most half a second.
    ///
    /// After [`Self::stop_tx`], so the transmit state is at rest. `false` if none is due or TCP would not take it.
    pub(crate) fn send_terminate(&self, sock: &Socket) -> bool {
        let owed = self.stream.owed.lock().take();
        let Some(term) = owed else { return false };
        let Some(mut tx) = self.stream.tx.take() else {
            return false;
        };
        tx.add_terminate(term);
        let mut sent = false;
        context::poll(WAIT_MS, PAUSE_MS, || {
            let mut locked = sock.lock();
            if !locked.state().is_open() {
                return true;
            }
            match tx.drain(self, &mut locked) {
                Ok(all) => {
                    sent = all;
                    all
                }
                Err(_) => true,
            }
        });
        self.stream.tx.put(tx);
        if sent {
            self.stats.inc(Counter::TxTerminate);
            trace_terminate(self.qp_num(), false, term.code);
        }
        sent
    }
}
