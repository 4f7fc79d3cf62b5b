// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    Siw, //
};
use crate::kapi::rdma::{
    pd,
    Udata, //
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

#[vtable]
impl pd::Operations<Siw> for Pd {
    fn alloc<'a>(
        new: pd::New<'a, Siw>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<pd::Live<'a, Siw>> {
        let dev = new.device();
        let pd = Self {
            id: PdId(dev.pds.fetch_add(1, Relaxed)),
            counted: Count::take(dev, |dev| &dev.counts.pd, limits::PD)?,
        };
        new.init(pd)
    }
}
