// SPDX-License-Identifier: GPL-2.0

//! Counters of a device: `rdma statistic show link`.

use kernel::{
    str::CStr,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Declares the counters, their names for user space, and how many there are.
macro_rules! counters {
    ($($(#[$doc:meta])* $id:ident = $name:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy)]
        pub(crate) enum Counter {
            $($(#[$doc])* $id,)*
        }

        /// The names, in the order of [`Counter`].
        pub(crate) const NAMES: &[&CStr] = &[$($name),*];
    };
}

counters! {
    /// FPDUs given to TCP.
    TxFpdus = c"tx_fpdus",
    /// Bytes given to TCP.
    TxBytes = c"tx_bytes",
    /// Whole FPDUs received.
    RxFpdus = c"rx_fpdus",
    /// Bytes taken from TCP.
    RxBytes = c"rx_bytes",
    /// Terminate messages sent.
    TxTerminate = c"tx_terminate",
    /// Terminate messages received.
    RxTerminate = c"rx_terminate",
    /// FPDUs with a bad CRC.
    CrcError = c"crc_error",
    /// Accesses to memory refused (bad STag, bounds, rights).
    AccessError = c"access_error",
    /// Sends that found no receive buffer.
    NoBuffer = c"no_buffer",
    /// Invalidations refused.
    StaleInvalidate = c"stale_invalidate",
    /// Completion queues overrun.
    CqOverflow = c"cq_overflow",
    /// Completions nobody took before their queue pair went.
    CqePurged = c"cqe_purged",
    /// Connections we opened.
    ActiveConnects = c"active_connects",
    /// Connections we accepted.
    PassiveConnects = c"passive_connects",
    /// Connections that failed to come up.
    ConnectFailures = c"connect_failures",
    /// Connection requests rejected, by either side.
    Rejects = c"rejects",
    /// Strangers who came for, or answered for, the peer of a queue pair without a connection manager.
    PairRefused = c"pair_refused",
    /// Handshakes given up for time.
    Timeouts = c"timeouts",
    /// Connections reset.
    Aborts = c"aborts",
    /// Orderly closes given up for time.
    DrainTimeouts = c"drain_timeouts",
    /// Work requests flushed.
    Flushed = c"flushed",
    /// Transmissions continued by a datamover.
    MoverRuns = c"mover_runs",
}

/// The counters of one device.
pub(crate) struct Stats([Atomic<u64>; NAMES.len()]);

impl Stats {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; NAMES.len()])
    }

    /// Adds `n`. Any context.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(value) = self.0.get(counter as usize) {
            value.fetch_add(n, Relaxed);
        }
    }

    /// Adds one. Any context.
    pub(crate) fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The value of the counter that `NAMES[index]` names.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |value| value.load(Relaxed))
    }
}
