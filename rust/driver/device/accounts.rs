// SPDX-License-Identifier: GPL-2.0

//! The counters of the core (`drivers/infiniband/core/counters.c`), and which queue pairs count for
//! them.

use crate::driver::{
    stats::{
        Stats,
        Values,
        NAMES, //
    },
    Device,
    QpObj, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// A counter of the core: what queue pairs counted that are not bound to it any more.
struct Account {
    id: u32,
    values: Values,
}

/// The counters of the core. The lock around it is taken by whoever changes where a queue pair
/// counts, and by whoever adds up.
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
            None => dev.add_all(counts),
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

    /// From now on the queue pair counts for the counter `id`, or for a new one. Returns its
    /// number. May sleep.
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

    /// Takes a queue pair out of the table; what it has counted so far stays with the port. May
    /// sleep.
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
