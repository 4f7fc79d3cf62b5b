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
        self,
        Udata, //
    },
    uapi::abi, //
};
use kernel::prelude::*;

/// The driver's part of a user context. The core keeps the list of mapped rings.
pub(crate) struct Ucontext {
    counted: Counted,
}

/// `alloc_ucontext`, first half.
pub(crate) fn alloc(dev: &super::IbDevice) -> Result<Ucontext> {
    Ok(Ucontext {
        counted: Count::take(dev, |dev| &dev.counts.ucontext, limits::UCONTEXT)?,
    })
}

/// `alloc_ucontext`, second half: reports the number of the device to the program.
pub(crate) fn created(ctx: &rdma::Ucontext<Siw>, udata: &mut Udata<'_>) -> Result {
    udata.respond_full(&abi::RespAllocCtx {
        dev_id: ctx.counted.dev().part_id,
        pad: 0,
    })
}
