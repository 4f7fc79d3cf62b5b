// SPDX-License-Identifier: GPL-2.0

//! One-touch entries: the end of the first message of a peer that names the entry invalidates it.
//!
//! A message is a Write that ends in the entry, a Read of it, or an atomic operation on it.
//! Accesses by work requests of the owner do not count.

use super::entry::Entry;
use base::table::RcuArc;

/// The message that a one-touch entry has admitted.
///
/// The drop invalidates the entry: when the message is complete, and also if the connection ends in
/// the middle of it. Any context except hard interrupts, and not inside of a gate.
pub(crate) struct Touch {
    entry: RcuArc<Entry>,
    epoch: u64,
}

impl Touch {
    /// The touch of an entry in this epoch.
    pub(super) fn new(entry: RcuArc<Entry>, epoch: u64) -> Self {
        Self { entry, epoch }
    }
}

impl Drop for Touch {
    fn drop(&mut self) {
        self.entry.spend(self.epoch);
    }
}
