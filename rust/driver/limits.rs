// SPDX-License-Identifier: GPL-2.0

//! Limits of a device, and the counts that enforce them. The values are those of the C driver,
//! which programs know.

use super::Device;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Queue pairs of a device.
pub(crate) const QP: u32 = 102_400;
/// Work requests of a send or receive queue.
pub(crate) const QP_WR: u32 = 32_768;
/// Reads that a queue pair may have outstanding.
pub(crate) const ORD: u32 = 128;
/// Reads that the peer of a queue pair may have outstanding.
pub(crate) const IRD: u32 = 128;
/// Elements of a work request.
pub(crate) const SGE: u32 = crate::uapi::abi::MAX_SGE as u32;
/// Elements of a Read's sink: one STag fits into a Read Request (RFC 5040 4.4).
pub(crate) const SGE_RD: u32 = 1;
/// Bytes of inline data.
pub(crate) const INLINE: u32 = crate::uapi::abi::MAX_INLINE as u32;
/// Completion queues.
pub(crate) const CQ: u32 = 102_400;
/// Entries of a completion queue.
pub(crate) const CQE: u32 = QP_WR * 100;
/// Memory regions.
pub(crate) const MR: u32 = QP * 10;
/// Memory windows.
pub(crate) const MW: u32 = MR;
/// Protection domains.
pub(crate) const PD: u32 = QP;
/// Shared receive queues.
pub(crate) const SRQ: u32 = QP;
/// Work requests of a shared receive queue.
pub(crate) const SRQ_WR: u32 = QP_WR * 10;
/// User contexts.
pub(crate) const UCONTEXT: u32 = PD;
/// Pages of a fast-register region. Consumers ask for as many as they use, for hundreds of regions;
/// of those in the kernel SMB Direct uses the most. Each takes 16 bytes, and 32 with gaps.
pub(crate) const FAST_REG_PAGES: u32 = 2048;
/// The first queue pair number. Numbers have 24 bits; 0 and 1 are special in InfiniBand, and tools
/// expect them unused.
pub(crate) const QPN_FIRST: u32 = 2;
/// The last queue pair number.
pub(crate) const QPN_LAST: u32 = 0x00ff_ffff;
/// Entries of the GID table: addresses of the network device, and the GID of the device itself.
pub(crate) const GIDS: u32 = 16;

/// The number of objects of one kind.
pub(crate) struct Count(Atomic<u32>);

impl Count {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts one more object, until the returned value is dropped. `ENOMEM` at `limit`.
    pub(crate) fn take(
        dev: &Arc<Device>,
        which: fn(&Device) -> &Self,
        limit: u32,
    ) -> Result<Counted> {
        let counted = Counted {
            dev: dev.clone(),
            which,
        };
        if which(dev).0.fetch_add(1, Relaxed) >= limit {
            return Err(ENOMEM);
        }
        Ok(counted)
    }
}

/// One object counted against a limit of its device.
pub(crate) struct Counted {
    dev: Arc<Device>,
    which: fn(&Device) -> &Count,
}

impl Counted {
    /// The device the object belongs to.
    pub(crate) fn dev(&self) -> &Arc<Device> {
        &self.dev
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.dev).0.fetch_sub(1, Relaxed);
    }
}

/// The objects of a device that are limited in number.
pub(crate) struct Counts {
    pub(crate) ucontext: Count,
    pub(crate) pd: Count,
    pub(crate) cq: Count,
    pub(crate) qp: Count,
    pub(crate) srq: Count,
    pub(crate) mr: Count,
    pub(crate) mw: Count,
}

impl Counts {
    /// Counts of zero.
    pub(crate) const fn new() -> Self {
        Self {
            ucontext: Count::new(),
            pd: Count::new(),
            cq: Count::new(),
            qp: Count::new(),
            srq: Count::new(),
            mr: Count::new(),
            mw: Count::new(),
        }
    }
}
