// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, and of its queue pairs: `rdma statistic show link`, `rdma statistic qp`.
//!
//! A queue pair counts for itself. What the port shows are the device's own counts and those of the queue pairs; the ones that are bound to
//! a counter of the core (`drivers/infiniband/core/counters.c`) count for that one instead, and the core adds it to what the port shows.

use super::{
    device::Device,
    QpObj, //
};
use crate::kapi::sync::Atomic;
use kernel::{prelude::*, str::CStr, sync::atomic::Relaxed};

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
type Values = [u64; NAMES.len()];

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

    fn add_to(&self, sums: &mut [u64]) {
        for (sum, value) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(value.load(Relaxed));
        }
    }

    /// What was counted so far; it counts on from zero.
    fn take(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|value| value.xchg(0, Relaxed))
    }
}

/// A counter of the core: what queue pairs counted that are not bound to it any more.
struct Account {
    id: u32,
    values: Values,
}

/// The counters of the core. The lock around it is taken by whoever changes where a queue pair counts, and by whoever adds up.
pub(crate) struct Accounts {
    last: u32,
    open: KVec<Account>,
}

impl Accounts {
    /// There are none.
    pub(crate) const fn new() -> Self {
        Self {
            last: 0,
            open: KVec::new(),
        }
    }

    fn get(&mut self, id: u32) -> Option<&mut Account> {
        self.open.iter_mut().find(|account| account.id == id)
    }

    /// Books what the queue pair has counted so far where it belongs.
    fn settle(&mut self, dev: &Stats, qp: &QpObj) {
        let counts = qp.stats.take();
        match self.get(qp.account.load(Relaxed)) {
            Some(account) => {
                for (sum, n) in account.values.iter_mut().zip(counts) {
                    *sum = sum.wrapping_add(n);
                }
            }
            None => {
                for (sum, n) in dev.0.iter().zip(counts) {
                    sum.fetch_add(n, Relaxed);
                }
            }
        }
    }
}

impl Device {
    /// Adds up the counters of the port, or of the counter `of` of the core. May sleep.
    pub(crate) fn counter_values(&self, of: Option<u32>, sums: &mut [u64]) {
        let mut accounts = self.accounts.lock();
        sums.fill(0);
        match of {
            None => self.stats.add_to(sums),
            Some(id) => {
                if let Some(account) = accounts.get(id) {
                    sums.copy_from_slice(&account.values);
                }
            }
        }
        let of = of.unwrap_or(0);
        self.qps.for_each(|_, qp| {
            if qp.account.load(Relaxed) == of {
                qp.stats.add_to(sums);
            }
        });
    }

    /// From now on the queue pair counts for the counter `id`, or for a new one. Returns its number. May sleep.
    pub(crate) fn bind_counter(&self, qp: &QpObj, id: Option<u32>) -> Result<u32> {
        let mut accounts = self.accounts.lock();
        let id = match id {
            Some(id) => accounts.get(id).ok_or(EINVAL)?.id,
            None => {
                // 0 is no number. They do not come back soon, which would confuse whoever looks.
                let id = accounts.last.checked_add(1).ok_or(ENOSPC)?;
                let account = Account {
                    id,
                    values: [0; NAMES.len()],
                };
                accounts.open.push(account, GFP_KERNEL)?;
                accounts.last = id;
                id
            }
        };
        accounts.settle(&self.stats, qp);
        qp.account.store(id, Relaxed);
        Ok(id)
    }

    /// The queue pair counts for the port again. May sleep.
    pub(crate) fn unbind_counter(&self, qp: &QpObj) {
        let mut accounts = self.accounts.lock();
        accounts.settle(&self.stats, qp);
        qp.account.store(0, Relaxed);
    }

    /// The core has added what the counter had to the port's. May sleep.
    pub(crate) fn close_counter(&self, id: u32) {
        self.accounts.lock().open.retain(|account| account.id != id);
    }

    /// Takes a queue pair out of the table; what it has counted so far stays with the port. May sleep.
    pub(crate) fn forget_qp(&self, qp: &QpObj) {
        let mut accounts = self.accounts.lock();
        accounts.settle(&self.stats, qp);
        drop(self.qps.remove(qp.qp_num()));
    }

    /// Adds what it has counted since. May sleep.
    pub(crate) fn settle_qp(&self, qp: &QpObj) {
        self.accounts.lock().settle(&self.stats, qp);
    }
}
