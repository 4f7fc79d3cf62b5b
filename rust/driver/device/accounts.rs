// SPDX-License-Identifier: GPL-2.0

//! The counters of the core (`drivers/infiniband/core/counters.c`), and the queue pairs bound to
//! them.

use crate::{
    stats::{
        Counter,
        Stats,
        Values,
        NAMES, //
    },
    Device,
    QpObj, //
};
use base::sync::AccessOnce;
use kernel::{
    prelude::*,
    sync::atomic::Relaxed,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use rdma::Traffic;

/// Milliseconds for which the sums of the traffic counters are shown again, as the core does for
/// its own counters.
const FRESH_MS: i64 = 10;

/// A counter of the core: the counts of queue pairs that are no longer bound to it.
struct Account {
    id: u32,
    values: Values,
}

/// The counters of the core. Their lock is held while a binding changes and while counts are added
/// up.
pub(crate) struct Accounts {
    last: u32,
    open: KVec<Account>,
    /// The counts of all counters that the core has closed.
    closed: Values,
    /// The last sums of the traffic counters, and the time of their computation.
    traffic: Option<(Instant<Monotonic>, Traffic)>,
}

impl Accounts {
    /// No counters.
    pub(crate) const fn new() -> Self {
        Self {
            last: 0,
            open: KVec::new(),
            closed: [0; NAMES.len()],
            traffic: None,
        }
    }

    fn get(&mut self, id: u32) -> Option<&mut Account> {
        self.open.iter_mut().find(|account| account.id == id)
    }

    /// Moves the counts of the queue pair to its counter, or to the device.
    fn settle(&mut self, dev: &Stats, qp: &QpObj) {
        let counts = qp.stats.take();
        match self.get(qp.account.read_once()) {
            Some(account) => {
                add(&mut account.values, counts);
            }
            None => dev.add_all(counts),
        }
    }
}

/// Adds `counts` to `sums`. The numbers wrap.
fn add(sums: &mut Values, counts: impl Iterator<Item = u64>) {
    for (sum, n) in sums.iter_mut().zip(counts) {
        *sum = sum.wrapping_add(n);
    }
}

impl Device {
    /// Adds up the counters of the port, or of the counter `of` of the core. May sleep.
    pub(crate) fn counter_values(&self, of: Option<u32>, sums: &mut [u64]) {
        let mut accounts = self.accounts.lock();
        sums.fill(0);
        match of {
            None => {
                let taken = self.pages_taken.xchg(0, Relaxed);
                self.stats.add(Counter::PageInvalidations, taken);
                self.stats.add_to(sums);
            }
            Some(id) => {
                if let Some(account) = accounts.get(id) {
                    sums.copy_from_slice(&account.values);
                }
            }
        }
        let of = of.unwrap_or(0);
        self.qps.for_each(|_, qp| {
            if qp.account.read_once() == of {
                qp.stats.add_to(sums);
            }
        });
    }

    /// Binds the queue pair to the counter `id`, or to a new one, and returns its number. May
    /// sleep.
    pub(crate) fn bind_counter(&self, qp: &QpObj, id: Option<u32>) -> Result<u32> {
        let mut accounts = self.accounts.lock();
        let id = match id {
            Some(id) => accounts.get(id).ok_or(EINVAL)?.id,
            None => {
                // 0 means no counter. A number is not reused soon, because that would confuse
                // readers.
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
        qp.account.write_once(id);
        Ok(id)
    }

    /// Unbinds the queue pair from its counter. May sleep.
    pub(crate) fn unbind_counter(&self, qp: &QpObj) {
        let mut accounts = self.accounts.lock();
        accounts.settle(&self.stats, qp);
        qp.account.write_once(0);
    }

    /// Removes a counter, whose counts the core has added to the port's. May sleep.
    pub(crate) fn close_counter(&self, id: u32) {
        let mut accounts = self.accounts.lock();
        let Accounts { open, closed, .. } = &mut *accounts;
        if let Some(account) = open.iter().find(|account| account.id == id) {
            add(closed, account.values.iter().copied());
        }
        open.retain(|account| account.id != id);
    }

    /// Returns what has passed the port, by whichever counter it was counted. Readers of several
    /// files within [`FRESH_MS`] share one walk over the queue pairs. May sleep.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut accounts = self.accounts.lock();
        if let Some((at, traffic)) = accounts.traffic {
            if at.elapsed().as_millis() < FRESH_MS {
                return traffic;
            }
        }
        let mut sums = accounts.closed;
        for account in &accounts.open {
            add(&mut sums, account.values.iter().copied());
        }
        self.stats.add_to(&mut sums);
        self.qps.for_each(|_, qp| qp.stats.add_to(&mut sums));
        let sum = |counter: Counter| sums.get(counter as usize).copied().unwrap_or(0);
        let traffic = Traffic {
            tx_bytes: sum(Counter::TxBytes),
            tx_packets: sum(Counter::TxFpdus),
            rx_bytes: sum(Counter::RxBytes),
            rx_packets: sum(Counter::RxFpdus),
        };
        accounts.traffic = Some((Instant::now(), traffic));
        traffic
    }

    /// Removes a queue pair from the table, and moves its counts. May sleep.
    pub(crate) fn forget_qp(&self, qp: &QpObj) {
        let mut accounts = self.accounts.lock();
        accounts.settle(&self.stats, qp);
        drop(self.qps.remove(qp.qp_num()));
    }

    /// Moves what a queue pair has counted since it was removed. May sleep.
    pub(crate) fn settle_qp(&self, qp: &QpObj) {
        self.accounts.lock().settle(&self.stats, qp);
    }
}
