// SPDX-License-Identifier: GPL-2.0

//! User contexts: the use of a device by a program.

use super::{
    limits::{
        self,
        Count,
        Counted, //
    },
    Siw, //
};
use crate::{
    kapi::rdma::{
        ucontext,
        Udata, //
    },
    uapi::abi, //
};
use kernel::prelude::*;

/// The driver's part of a user context. The core keeps the list of mapped rings.
pub(crate) struct Ucontext {
    counted: Counted,
}

#[vtable]
impl ucontext::Operations<Siw> for Ucontext {
    /// Reports the number of the device to the program.
    fn alloc<'a>(
        new: ucontext::New<'a, Siw>,
        udata: &mut Udata<'_>,
    ) -> Result<ucontext::Live<'a, Siw>> {
        let dev = new.device();
        let ctx = new.init(Self {
            counted: Count::take(dev, |dev| &dev.counts.ucontext, limits::UCONTEXT)?,
        })?;
        udata.respond_full(&abi::RespAllocCtx {
            dev_id: ctx.counted.dev().part_id,
            pad: 0,
        })?;
        Ok(ctx)
    }
}
