// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, and of its queue pairs: `rdma statistic show link`, `rdma statistic qp`.
//!
//! A queue pair counts for itself. What the port shows are the device's own counts and those of the
//! queue pairs; the ones that are bound to a counter of the core
//! (`drivers/infiniband/core/counters.c`) count for that one instead, and the core adds it to what
//! the port shows.

use crate::kapi::sync::Atomic;
use kernel::{
    str::CStr,
    sync::atomic::Relaxed, //
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
    /// Work requests whose payload was sent by reference.
    ZcopyWrs = c"zcopy_wrs",
    /// Reads of the peer answered by reference.
    ZcopyReads = c"zcopy_reads",
    /// Bytes of payload sent by reference.
    ZcopyBytes = c"zcopy_bytes",
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
    /// Strangers who came for, or answered for, the peer of a queue pair without a connection
    /// manager.
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
    /// Transmissions on the spot: by a poster, or by who received a Read Request.
    TxDirect = c"tx_direct",
    /// Transmissions a moment after the doorbell, with all that was posted by then.
    TxGathered = c"tx_gathered",
    /// Turns on the spot, also upon an ACK, that a datamover had to go on with, or to begin.
    TxDelegated = c"tx_delegated",
    /// Times a queue pair began to wait for send space.
    TxPaused = c"tx_paused",
    /// Times one was taken up again because there was some.
    TxResumed = c"tx_resumed",
    /// Of these, the ones that could send nothing.
    TxResumedInVain = c"tx_resumed_in_vain",
    /// Times TCP took less than it was given.
    TxSplit = c"tx_split",
    /// Times a datamover had to go on receiving.
    RxDeferred = c"rx_deferred",
}

/// One value of each counter.
pub(crate) type Values = [u64; NAMES.len()];

/// The counters of a device, or of a queue pair.
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

    /// What was counted so far, or since somebody took it.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(counter as usize)
            .map_or(0, |value| value.load(Relaxed))
    }

    /// Adds the counters to `sums`. Any context.
    pub(crate) fn add_to(&self, sums: &mut [u64]) {
        for (sum, value) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(value.load(Relaxed));
        }
    }

    /// Adds `counts`, in the order of [`NAMES`]. Any context.
    pub(crate) fn add_all(&self, counts: impl Iterator<Item = u64>) {
        for (sum, n) in self.0.iter().zip(counts) {
            sum.fetch_add(n, Relaxed);
        }
    }

    /// Takes the counts, in the order of [`NAMES`]; counting goes on from zero.
    pub(crate) fn take(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|value| value.xchg(0, Relaxed))
    }
}
