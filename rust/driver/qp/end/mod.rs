// SPDX-License-Identifier: GPL-2.0

//! The end of a queue pair: failure, stop, Terminate, flush, and the reaper of late work requests.

mod flush;
mod reaper;
mod renew;
mod stop;
pub(crate) mod terminate;

pub(in crate::qp) use self::reaper::Reaper;

pub(crate) use self::stop::Cause;
