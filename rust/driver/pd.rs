// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    IbDevice, //
};
use iwarp::mem::access::PdId;
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// The driver's part of a protection domain.
pub(crate) struct Pd {
    /// The number that regions and queue pairs compare.
    pub(crate) id: PdId,
    counted: Counted,
}

impl Pd {
    /// The device.
    pub(crate) fn dev(&self) -> &super::DeviceRef {
        self.counted.dev()
    }
}

/// `alloc_pd`.
pub(crate) fn alloc(dev: &IbDevice) -> Result<Pd> {
    Ok(Pd {
        id: PdId(dev.pds.fetch_add(1, Relaxed)),
        counted: Count::take(dev, |dev| &dev.counts.pd, limits::PD)?,
    })
}
