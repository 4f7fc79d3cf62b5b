// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, and of its queue pairs: `rdma statistic show link`, `rdma statistic qp`.
//!
//! Each queue pair has counters of its own. The port shows the sum of the device's counters and
//! those of the queue pairs. A queue pair that is bound to a counter of the core
//! (`drivers/infiniband/core/counters.c`) counts for that one instead, and the core adds it to the
//! port's.

use base::sync::AccessOnce;
use kernel::{
    str::CStr,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Declares the counters and their names in user space.
macro_rules! counters {
    ($($(#[$doc:meta])* $id:ident = $name:literal,)*) => {
        /// A counter.
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
    /// Accesses to memory refused (bounds, rights, protection domain).
    AccessError = c"access_error",
    /// Accesses of the peer refused because the STag is not valid, or no longer.
    StaleStag = c"stale_stag",
    /// Messages that one-touch regions and windows have admitted.
    OneTouch = c"one_touch",
    /// Accesses refused because a one-touch region or window had admitted its message.
    OneTouchRefused = c"one_touch_refused",
    /// Messages that arrived before their receive was posted, and waited for it.
    RecvLate = c"recv_late",
    /// Messages refused because no receive was posted.
    NoBuffer = c"no_buffer",
    /// Invalidations refused.
    StaleInvalidate = c"stale_invalidate",
    /// Completion queues overrun.
    CqOverflow = c"cq_overflow",
    /// Completions left in a queue when their queue pair went.
    CqePurged = c"cqe_purged",
    /// Connections opened by this side.
    ActiveConnects = c"active_connects",
    /// Connections accepted by this side.
    PassiveConnects = c"passive_connects",
    /// Connections that failed to come up.
    ConnectFailures = c"connect_failures",
    /// Connection requests rejected, by either side.
    Rejects = c"rejects",
    /// Connections refused because they are not from the peer of a queue pair without a connection
    /// manager.
    PairRefused = c"pair_refused",
    /// Connections refused because they are for a queue pair that is gone, or from a device that
    /// has begun anew since.
    PairStale = c"pair_stale",
    /// Handshakes that timed out.
    Timeouts = c"timeouts",
    /// Connections closed before their request was with the consumer, because too many of a
    /// listener were in that state.
    Evictions = c"evictions",
    /// Connections reset after the handshake, by this end, or by the peer before this end closed.
    Aborts = c"aborts",
    /// Connections that ended because the peer was silent for too long.
    PeerTimeout = c"peer_timeout",
    /// Connections that the peer reset.
    PeerReset = c"peer_reset",
    /// Connections that ended because there was no way to the peer any more.
    NoRoute = c"no_route",
    /// Connections reset because their orderly close timed out.
    DrainTimeouts = c"drain_timeouts",
    /// Connections that went on over another path.
    Resumes = c"resumes",
    /// Connections that lost their path and found no other one.
    ResumeFailures = c"resume_failures",
    /// Requests to go on with a connection that were refused, by either side: unknown, stale, or
    /// not from the peer.
    ResumeRefused = c"resume_refused",
    /// Work requests flushed.
    Flushed = c"flushed",
    /// Registrations, invalidations and binds executed in the control pipeline.
    CtrlQueued = c"ctrl_queued",
    /// Times a send queue stopped because a registration, an invalidation or a bind failed.
    SqDrained = c"sq_drained",
    /// Turns of datamovers.
    MoverRuns = c"mover_runs",
    /// Turns on the spot: of a poster, at the start of the stream, or at the arrival of a Read
    /// Request or Read Response.
    TxDirect = c"tx_direct",
    /// Turns of the timer after a coalesced doorbell.
    TxGathered = c"tx_gathered",
    /// Turns outside a datamover that a datamover had to continue or to begin.
    TxDelegated = c"tx_delegated",
    /// Times a queue pair began to wait for send space.
    TxPaused = c"tx_paused",
    /// Turns begun or asked of a datamover because there was send space.
    TxResumed = c"tx_resumed",
    /// Resumptions that could send nothing.
    TxResumedInVain = c"tx_resumed_in_vain",
    /// Times TCP accepted less than it was given.
    TxSplit = c"tx_split",
    /// Times transmission began to wait for memory that was not there yet.
    TxStalls = c"tx_stalls",
    /// Times reception began to wait for memory that was not there yet.
    RxStalls = c"rx_stalls",
    /// Pages brought because an access to memory on demand found them missing, or because a program
    /// asked for them.
    PageFaults = c"page_faults",
    /// Accesses refused because the program has no memory there, or may not write to it.
    PageFaultErrors = c"page_fault_errors",
    /// Pages of memory on demand that the kernel has taken away.
    PageInvalidations = c"page_invalidations",
    /// Times a datamover had to continue reception.
    RxDeferred = c"rx_deferred",
    /// Times a datamover had to continue the completion of work requests.
    WcDeferred = c"wc_deferred",
}

/// One value of each counter.
pub(crate) type Values = [u64; NAMES.len()];

/// The counters of a device, or of a queue pair.
pub(crate) struct Stats([Atomic<u64>; NAMES.len()]);

impl Stats {
    /// Counters of zero.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; NAMES.len()])
    }

    /// Adds `n`. Any context.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if n == 0 {
            return;
        }
        if let Some(value) = self.0.get(counter as usize) {
            value.add(n, Relaxed);
        }
    }

    /// Adds one. Any context.
    pub(crate) fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// The count since the last [`Self::take`].
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(counter as usize)
            .map_or(0, |value| value.read_once())
    }

    /// Adds the counters to `sums`. Any context.
    pub(crate) fn add_to(&self, sums: &mut [u64]) {
        for (sum, value) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(value.read_once());
        }
    }

    /// Adds `counts`, in the order of [`NAMES`]. Any context.
    pub(crate) fn add_all(&self, counts: impl Iterator<Item = u64>) {
        for (sum, n) in self.0.iter().zip(counts) {
            sum.add(n, Relaxed);
        }
    }

    /// Takes the counts, in the order of [`NAMES`]; counting goes on from zero.
    pub(crate) fn take(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|value| value.xchg(0, Relaxed))
    }
}
