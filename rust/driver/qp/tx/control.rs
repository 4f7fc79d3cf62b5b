// SPDX-License-Identifier: GPL-2.0

//! Control operations of the SQ: registrations, invalidations and binds, on the spot or in the
//! control pipeline.

use super::{
    message::{
        End,
        Flow, //
    },
    TxCtx, //
};
use crate::{
    qp::{
        control::{
            Op,
            What, //
        },
        send_wr::SendOp, //
    },
    QpObj, //
};
use core::ops::ControlFlow;
use iwarp::{
    error::Error as IwarpError,
    mem::stag::Stag, //
};

impl TxCtx {
    /// Whether the work request that was taken last has to wait for the control pipeline, which is
    /// busy: it uses memory of an operation there, or the failure of one would flush it.
    #[cold]
    pub(super) fn awaits_control(&self, qp: &QpObj) -> bool {
        let wr = &self.wr;
        if wr.op.is_control() {
            return false;
        }
        // What is flushed if one of them fails must not have been sent.
        if self.drains {
            return true;
        }
        if wr.is_inline() {
            return false;
        }
        let mut used = wr.sges().iter().filter(|sge| sge.len != 0);
        used.any(|sge| qp.waits_outbound(Stag(sge.lkey)))
    }

    /// Begins a registration, an invalidation or a bind. It is executed here, before any later work
    /// request begins, unless that takes long or something older has to be done first.
    #[inline(never)]
    pub(super) fn do_local(
        &mut self,
        qp: &QpObj,
        seq: u32,
        busy: bool,
    ) -> Result<Flow, IwarpError> {
        let (stag, pages) = match (&self.wr.reg, self.wr.op) {
            (Some(reg), _) => (reg.stag(), reg.pages()),
            (None, SendOp::BindMw) => (self.wr.remote_stag, 0),
            (None, _) => (self.wr.inval, 0),
        };
        // An older Read still places its response there.
        if qp.stream.orq.lock().uses(stag) {
            self.waiting = Some(seq);
            return Ok(ControlFlow::Break(End::Blocked));
        }
        let entry = match &self.wr.reg {
            Some(reg) => Some(reg.entry().clone()),
            None => qp.dev.tpt.entry(stag),
        };
        // One that is bound to fail does not take a place among those of the region's users.
        let entry = entry.filter(|entry| entry.region().pd == qp.pd);
        let slow = self.control.delay != 0 || pages > u64::from(self.control.inline_pages);
        match entry {
            Some(entry) if slow || busy || !entry.pending().is_empty() => {
                let validates = !matches!(self.wr.op, SendOp::LocalInv);
                let control = &qp.stream.control;
                if !control.has_room() || entry.notify(qp.qp_num(), validates).is_err() {
                    self.waiting = Some(seq);
                    return Ok(ControlFlow::Break(End::Blocked));
                }
                qp.stream.completions.handed_over(seq, self.framer.encoded);
                let what = self.control_op(qp);
                qp.hand_over(Op {
                    seq,
                    entry,
                    what,
                    drains: self.drains,
                    delay: self.control.delay,
                });
            }
            // It fails, but not before older ones are done.
            None if busy => {
                self.waiting = Some(seq);
                return Ok(ControlFlow::Break(End::Blocked));
            }
            _ => {
                let done = self.control_op(qp).execute(qp);
                if let Err(error) = done {
                    if self.drains && qp.drains(seq, error) {
                        return Ok(ControlFlow::Continue(()));
                    }
                    return Err(error);
                }
                qp.stream.completions.encoded(seq, 0, self.framer.encoded);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The operation of the work request that was taken last, with the snapshot of its pages.
    fn control_op(&mut self, qp: &QpObj) -> What {
        match (self.wr.reg.take(), self.wr.op) {
            (Some(reg), _) => What::Register(reg),
            (None, SendOp::BindMw) => What::Bind(self.wr.bind(qp.accessor())),
            (None, _) => What::Invalidate(self.wr.inval),
        }
    }
}
