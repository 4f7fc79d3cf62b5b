// SPDX-License-Identifier: GPL-2.0

//! Delivery: complete FPDUs become completions or Read Requests to answer; errors end the stream.

use super::{
    place::Target,
    RxCtx,
    LARGE, //
};
use crate::driver::{
    cq::{
        Completion,
        WcOp, //
    },
    qp::{
        end::Cause,
        irrq::Request, //
    },
    stats::Counter,
    QpObj, //
};
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error,
        Result, //
    },
    mem::{
        access::{
            Access,
            Need as Right, //
        },
        stag::Stag, //
    },
    qp::owner::Wake,
    rx::Event,
    verdict::WcStatus,
    wire::rdmap::ReadRequest, //
};

impl RxCtx {
    /// Ends an FPDU, and delivers its message if that is complete.
    #[inline]
    pub(super) fn finish(&mut self, qp: &QpObj) -> Result<()> {
        let mut crc = 0;
        if self.machine.checks_crc() {
            self.crc.update(self.machine.pad_bytes());
            crc = u32::from_le_bytes(self.crc.finish());
        }
        let event = self.machine.finish(crc)?;
        self.fpdus = self.fpdus.wrapping_add(1);
        if self.held.is_some() {
            self.first_fpdu();
        }
        self.target = Target::Nowhere;
        if self.touch.take().is_some() {
            qp.stats.inc(Counter::OneTouch);
        }
        match event {
            Event::Partial | Event::Rtr => Ok(()),
            Event::Write { len } => {
                self.large |= len >= LARGE;
                Ok(())
            }
            Event::Send { len, se, inv, .. } => {
                self.large |= len >= LARGE;
                self.deliver_send(qp, len, se, inv)
            }
            Event::ReadRequest { msn, request } => self.deliver_request(qp, msn, request),
            Event::ReadResponse { .. } => self.deliver_response(qp),
            Event::Terminate(term) => {
                qp.fail(Cause::PeerTerminate(term));
                Ok(())
            }
        }
    }

    #[cold]
    fn first_fpdu(&mut self) {
        if let Some(ep) = self.held.take() {
            ep.first_fpdu();
            self.wake = Some(Wake::Open);
        }
    }

    #[inline]
    fn deliver_send(&mut self, qp: &QpObj, len: u32, se: bool, inv: Option<Stag>) -> Result<()> {
        self.buffers.clear();
        // The STag is dead before the consumer can see that it is (RFC 5040 5.3).
        let invalidated = match inv {
            Some(stag) => qp
                .dev
                .tpt
                .invalidate(stag, &qp.peer_accessor(), true)
                .map_err(|error| Error::Access {
                    error,
                    op: AccessOp::Invalidate,
                }),
            None => Ok(()),
        };
        match invalidated {
            Ok(()) => self.complete(qp, WcStatus::Success, len, se, inv),
            Err(error) => self.complete(qp, error.wc_status(), len, se, None),
        }
        invalidated
    }

    #[inline(never)]
    fn deliver_request(&mut self, qp: &QpObj, msn: u32, read: ReadRequest) -> Result<()> {
        // Checked on arrival, when all earlier messages are delivered, and again while the response
        // is encoded.
        let denied = |error: AccessError| error.during(AccessOp::ReadRequest);
        let source = match read.len {
            0 => None,
            len => Some(
                qp.dev
                    .tpt
                    .resolve(
                        &Access {
                            stag: read.source_stag,
                            to: read.source_to,
                            len: u64::from(len),
                            need: Right::RemoteRead,
                            touch: true,
                            by: qp.peer_accessor(),
                        },
                        &mut self.read,
                    )
                    .map_err(denied)?,
            ),
        };
        let touch = match &source {
            Some(mem) => mem.touch().map_err(denied)?,
            None => None,
        };
        if touch.is_some() {
            qp.stats.inc(Counter::OneTouch);
        }
        qp.stream.add_request(Request {
            msn,
            read,
            source,
            touch,
        })?;
        // This wake-up includes that of an answered Read; `Open` includes both.
        if !matches!(self.wake, Some(Wake::Open)) {
            self.wake = Some(Wake::ReadRequest);
        }
        Ok(())
    }

    #[inline(never)]
    fn deliver_response(&mut self, qp: &QpObj) -> Result<()> {
        let sink = self.sink.take();
        let read = qp.stream.orq.lock().pop();
        drop(sink);
        let read = read.ok_or(Error::State)?;
        self.wake.get_or_insert(Wake::Unblock);
        let Some(seq) = read.seq else { return Ok(()) };
        if let Some(stag) = read.inval {
            let done = qp.dev.tpt.invalidate(stag, &qp.accessor(), false);
            if let Err(error) = done {
                let error = Error::Access {
                    error,
                    op: AccessOp::LocalInvalidate,
                };
                qp.stream.completions.failed(seq, error.wc_status());
                qp.retire();
                return Err(error);
            }
        }
        qp.stream.completions.read_done(seq);
        qp.retire();
        Ok(())
    }

    /// Completes the receive work request.
    fn complete(
        &mut self,
        qp: &QpObj,
        status: WcStatus,
        bytes: u32,
        solicited: bool,
        inval: Option<Stag>,
    ) {
        if core::mem::take(&mut self.receiving) {
            qp.complete_recv(self.recv.id(), status, bytes, solicited, inval);
        }
    }

    /// Ends the stream. The affected work request gets its status; the others will be flushed.
    #[cold]
    pub(super) fn broken(&mut self, qp: &QpObj, error: Error) {
        let term = self.machine.terminate(error);
        self.machine.stop();
        self.target = Target::Nowhere;
        self.touch = None;
        self.buffers.clear();
        if let Error::Access {
            error: AccessError::Spent,
            ..
        } = error
        {
            qp.stats.inc(Counter::OneTouchRefused);
        }
        match error {
            Error::Crc => qp.stats.inc(Counter::CrcError),
            Error::Access {
                op: AccessOp::Invalidate | AccessOp::LocalInvalidate,
                ..
            } => qp.stats.inc(Counter::StaleInvalidate),
            Error::Access { .. } => qp.stats.inc(Counter::AccessError),
            _ => {}
        }
        match error {
            Error::TooLong
            | Error::LocalOp
            | Error::Access {
                op: AccessOp::Recv, ..
            } => self.complete(qp, error.wc_status(), 0, false, None),
            Error::Access {
                op: AccessOp::ReadResponse,
                ..
            } => {
                let head = qp.stream.orq.lock().head_seq();
                if let Some(seq) = head {
                    qp.stream.completions.failed(seq, error.wc_status());
                }
            }
            _ => {}
        }
        qp.fail(Cause::Stream { error, term });
    }
}

impl QpObj {
    /// Posts the CQE of a receive work request.
    pub(in crate::driver::qp) fn complete_recv(
        &self,
        wr_id: u64,
        status: WcStatus,
        bytes: u32,
        solicited: bool,
        inval: Option<Stag>,
    ) {
        self.rcq.post(
            self,
            &Completion {
                wr_id,
                op: WcOp::Recv,
                status,
                bytes,
                solicited,
                inval: inval.map(|stag| stag.0),
            },
        );
    }
}
