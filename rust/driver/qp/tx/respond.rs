// SPDX-License-Identifier: GPL-2.0

//! Responses to the peer's Reads and atomic operations.

use super::{
    message::{
        End,
        Flow, //
    },
    Current,
    Origin,
    Source,
    TxCtx, //
};
use crate::{
    qp::{
        end::Cause,
        irrq::Asked, //
    },
    QpObj, //
};
use core::ops::ControlFlow;
use iwarp::{
    error::{
        AccessError,
        AccessOp, //
    },
    mem::atomic::AtomicOp,
    tx::Message,
    wire::{
        rdmap::AtomicResponse,
        terminate::Terminate, //
    }, //
};

impl TxCtx {
    /// Begins the answer to the oldest request of the peer, if there is one.
    #[inline]
    pub(super) fn respond(&mut self, qp: &QpObj) -> Option<Flow> {
        match self.deferred.is_some() || qp.stream.has_requests() {
            true => self.answer_next(qp),
            false => None,
        }
    }

    #[inline(never)]
    fn answer_next(&mut self, qp: &QpObj) -> Option<Flow> {
        let mut request = match self.deferred.take() {
            Some(request) => request,
            None => qp.stream.take_request()?,
        };
        self.respond_next = false;
        let (message, len, source) = match &mut request.asked {
            Asked::Read(read, mem) => {
                let message = Message::ReadResponse {
                    stag: read.sink_stag,
                    to: read.sink_to,
                };
                let source = match mem.take() {
                    Some(mem) => {
                        self.sges.load_one(mem, read.len);
                        self.source_of_response(qp, read.len)
                    }
                    None => Source::None,
                };
                (message, read.len, source)
            }
            Asked::Atomic(atomic, target) => {
                let executed = match target.execute(atomic.to, atomic.op) {
                    Err(AccessError::Pending) => {
                        let len = AtomicOp::LEN as usize;
                        let stalled = match target.missing(atomic.to, len, true, 0) {
                            // The memory has been taken away since.
                            None => Err(AccessError::NotValid),
                            missing => self.stall(qp, missing),
                        };
                        Err(stalled.err().unwrap_or(AccessError::Pending))
                    }
                    executed => executed,
                };
                let original = match executed {
                    Ok(original) => original,
                    // It is not executed, and comes first when the memory is there.
                    Err(AccessError::Pending) => {
                        self.deferred = Some(request);
                        return Some(ControlFlow::Break(End::Blocked));
                    }
                    Err(error) => {
                        let error = error.during(AccessOp::AtomicRequest);
                        let code = error.terminate();
                        let term = code.map(|code| Terminate::for_atomic(code, request.msn));
                        self.broken = Some(Cause::Stream { error, term });
                        return Some(ControlFlow::Break(End::Broken));
                    }
                };
                let id = atomic.id;
                let message = Message::AtomicResponse(AtomicResponse { id, original });
                (message, 0, Source::None)
            }
        };
        self.current = Some(Current {
            msg: self.framer.stream.begin(message, len),
            source,
            origin: Origin::Response,
        });
        self.answering = Some(request);
        Some(ControlFlow::Continue(()))
    }
}
