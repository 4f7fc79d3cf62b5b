// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    tpt::window::Windows,
    Siw, //
};
use iwarp::mem::access::PdId;
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};
use rdma::{
    pd,
    Udata, //
};

/// The driver's part of a protection domain.
#[pin_data]
pub(crate) struct Pd {
    /// The number that regions and queue pairs compare.
    pub(crate) id: PdId,
    /// Its windows, by what they are bound to.
    #[pin]
    pub(crate) windows: Windows,
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
        let id = PdId(dev.pds.fetch_add(1, Relaxed));
        let counted = Count::take(dev, |dev| &dev.counts.pd, limits::PD)?;
        new.init(pin_init!(Self {
            id,
            windows <- Windows::new(),
            counted,
        }))
    }
}
