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
use crate::uapi::abi;
use kernel::prelude::*;
use rdma::{
    ucontext,
    Udata, //
};

/// The driver's part of a user context. The core keeps the list of mapped rings.
pub(crate) struct Ucontext {
    /// The additions to the interface that the library knows, of [`abi::feature`].
    pub(crate) features: u32,
    counted: Counted,
}

impl Ucontext {
    /// What the library is told.
    fn describe(&self) -> abi::RespAllocCtx {
        abi::RespAllocCtx {
            dev_id: self.counted.dev().part_id,
            features: self.features,
        }
    }
}

#[vtable]
impl ucontext::Operations<Siw> for Ucontext {
    /// Reports the number of the device to the program, and agrees on additions to the interface.
    /// libsiw asks for none.
    fn alloc<'a>(
        new: ucontext::New<'a, Siw>,
        udata: &mut Udata<'_>,
    ) -> Result<ucontext::Live<'a, Siw>> {
        let dev = new.device();
        let wanted = match udata.inlen() {
            0 => abi::ReqAllocCtx::default(),
            _ => udata.read::<abi::ReqAllocCtx>(size_of::<abi::ReqAllocCtx>())?,
        };
        if wanted.reserved != 0 {
            return Err(EINVAL);
        }
        let ctx = new.init(Self {
            features: wanted.want & abi::feature::ALL,
            counted: Count::take(dev, |dev| &dev.counts.ucontext, limits::UCONTEXT)?,
        })?;
        udata.respond_full(&ctx.describe())?;
        Ok(ctx)
    }

    fn query(ctx: &ucontext::Ucontext<Siw>, answer: &mut ucontext::Answer<'_>) -> Result {
        answer.respond(&ctx.describe())
    }
}
