// SPDX-License-Identifier: GPL-2.0

//! A process's use of a device.

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

/// The driver's part of a user context. The mapped rings hang on the core's own list.
pub(crate) struct Ucontext {
    counted: Counted,
}

/// `alloc_ucontext`, first half.
pub(crate) fn alloc(dev: &super::IbDevice) -> Result<Ucontext> {
    Ok(Ucontext {
        counted: Count::take(dev, |dev| &dev.counts.ucontext, limits::UCONTEXT)?,
    })
}

/// `alloc_ucontext`, second half: tells user space which device it got.
pub(crate) fn created(ctx: &rdma::Ucontext<Siw>, udata: &mut Udata<'_>) -> Result {
    udata.respond_full(&abi::RespAllocCtx {
        dev_id: ctx.counted.dev().part_id,
        pad: 0,
    })
}
