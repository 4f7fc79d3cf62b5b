// SPDX-License-Identifier: GPL-2.0

//! Delivery: complete FPDUs become completions or Read Requests to answer; errors end the stream.

use super::{
    place::Target,
    RxCtx,
    LARGE, //
};
use crate::{
    qp::{
        end::Cause,
        irrq::{
            Asked,
            Request, //
        },
        Qp, //
    },
    stats::Counter,
    tpt::mem_ref::MemRef,
    wc::{
        Completion,
        WcOp, //
    },
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
        atomic::AtomicOp, //
    },
    qp::owner::Wake,
    rx::Event,
    verdict::WcStatus,
    wire::rdmap::{
        AtomicRequest,
        ReadRequest,
        With, //
    }, //
};

/// How a receive work request has ended.
pub(in crate::qp) struct Receipt {
    op: WcOp,
    status: WcStatus,
    bytes: u32,
    solicited: bool,
    with: With,
}

impl Receipt {
    /// Without a message.
    pub(in crate::qp) fn failed(status: WcStatus) -> Self {
        Self {
            op: WcOp::Recv,
            status,
            bytes: 0,
            solicited: false,
            with: With::Nothing,
        }
    }
}

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
        if self.touch.is_some() {
            self.end_touch(qp);
        }
        self.deliver(qp, event)
    }

    #[cold]
    fn end_touch(&mut self, qp: &QpObj) {
        self.touch = None;
        qp.stats.inc(Counter::OneTouch);
    }

    /// Delivers what a complete FPDU is. What waits for memory is kept, for [`Self::resume`].
    #[inline(always)]
    fn deliver(&mut self, qp: &QpObj, event: Event) -> Result<()> {
        let delivered = self.try_deliver(qp, event);
        if let Err(error) = &delivered {
            if error.is_pending() {
                self.undelivered = Some(event);
            }
        }
        delivered
    }

    /// Delivers what has waited for memory. Its FPDU is no longer in the socket.
    #[cold]
    pub(super) fn resume(&mut self, qp: &QpObj) {
        let Some(event) = self.undelivered.take() else {
            return;
        };
        let delivered = self.deliver(qp, event);
        if let Err(error) = delivered.or_else(|error| self.stall(error)) {
            self.broken(qp, error);
        }
    }

    /// After [`AccessError::Pending`] nothing has changed, so that the event can be delivered
    /// again.
    #[inline(always)]
    fn try_deliver(&mut self, qp: &QpObj, event: Event) -> Result<()> {
        match event {
            Event::Partial | Event::Rtr => Ok(()),
            Event::Write { len } => {
                self.large |= len >= LARGE;
                self.wrote = len;
                Ok(())
            }
            Event::Send { len, se, with, .. } => {
                self.large |= len >= LARGE;
                self.wrote = 0;
                self.deliver_send(qp, len, se, with)
            }
            Event::Immediate { data, se, .. } => {
                // Kernel consumers take the length for that of the receive buffer's contents, and
                // the peer chooses it.
                let wrote = core::mem::take(&mut self.wrote);
                let bytes = if qp.is_user() { wrote } else { 0 };
                self.complete(
                    qp,
                    &Receipt {
                        op: WcOp::RecvRdmaImm,
                        bytes,
                        solicited: se,
                        status: WcStatus::Success,
                        with: With::Immediate(data),
                    },
                );
                Ok(())
            }
            Event::AtomicRequest { msn, request } => self.deliver_atomic(qp, msn, request),
            Event::AtomicResponse { original } => self.deliver_original(qp, original),
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
    fn deliver_send(&mut self, qp: &QpObj, len: u32, se: bool, with: With) -> Result<()> {
        self.buffers.clear();
        // The STag is dead before the consumer can see that it is (RFC 5040 5.3).
        let invalidated = match with {
            With::Invalidate(stag) => qp
                .check_inbound(stag)
                .and_then(|()| qp.dev.tpt.invalidate(stag, &qp.peer_accessor(), true))
                .map_err(|error| Error::Access {
                    error,
                    op: AccessOp::Invalidate,
                }),
            With::Nothing | With::Immediate(_) => Ok(()),
        };
        let receipt = Receipt {
            op: WcOp::Recv,
            bytes: len,
            solicited: se,
            status: WcStatus::Success,
            with,
        };
        match invalidated {
            Ok(()) => self.complete(qp, &receipt),
            Err(error) if error.is_pending() => {}
            Err(error) => self.complete(
                qp,
                &Receipt {
                    status: error.wc_status(),
                    with: With::Nothing,
                    ..receipt
                },
            ),
        }
        invalidated
    }

    #[inline(never)]
    fn deliver_request(&mut self, qp: &QpObj, msn: u32, read: ReadRequest) -> Result<()> {
        // Checked on arrival, when all earlier messages are delivered, and again while the response
        // is encoded.
        let denied = |error: AccessError| error.during(AccessOp::ReadRequest);
        if read.len != 0 {
            qp.check_inbound(read.source_stag).map_err(denied)?;
        }
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
        self.queue_request(
            qp,
            Request {
                msn,
                asked: Asked::Read(read, source),
                touch,
            },
        )
    }

    #[inline(never)]
    fn deliver_atomic(&mut self, qp: &QpObj, msn: u32, atomic: AtomicRequest) -> Result<()> {
        // Checked on arrival, as a Read Request, and again when it is executed.
        let denied = |error: AccessError| error.during(AccessOp::AtomicRequest);
        let access = Access {
            stag: atomic.stag,
            to: atomic.to,
            len: AtomicOp::LEN.into(),
            need: Right::RemoteAtomic,
            touch: true,
            by: qp.peer_accessor(),
        };
        qp.check_inbound(atomic.stag).map_err(denied)?;
        let target = qp.dev.tpt.resolve(&access, &mut self.read);
        let target = target.map_err(denied)?;
        if !target.is_aligned(atomic.to).map_err(denied)? {
            return Err(Error::Unaligned);
        }
        let touch = target.touch().map_err(denied)?;
        self.queue_request(
            qp,
            Request {
                msn,
                asked: Asked::Atomic(atomic, target),
                touch,
            },
        )
    }

    /// Leaves a request to the transmitter.
    fn queue_request(&mut self, qp: &QpObj, request: Request) -> Result<()> {
        if request.touch.is_some() {
            qp.stats.inc(Counter::OneTouch);
        }
        qp.stream.add_request(request)?;
        // This wake-up includes that of an answered Read; `Open` includes both.
        if !matches!(self.wake, Some(Wake::Open)) {
            self.wake = Some(Wake::ReadRequest);
        }
        Ok(())
    }

    /// Puts the answer to an atomic operation into its sink.
    #[inline(never)]
    fn deliver_original(&mut self, qp: &QpObj, original: u64) -> Result<()> {
        let placed = match &self.sink {
            Some(sink) => sink.write_all(&original.to_ne_bytes()),
            None => Err(AccessError::Bounds),
        };
        let placed = match (&self.sink, placed) {
            (Some(sink), Err(AccessError::Pending)) => self.await_sink(qp, sink),
            (_, placed) => placed,
        };
        let placed = placed.map_err(|error| error.during(AccessOp::Send));
        if placed.is_err_and(Error::is_pending) {
            self.faulted = true;
            return placed;
        }
        self.end_fault(qp);
        let sink = self.sink.take();
        let atomic = qp.stream.orq.lock().pop().ok_or(Error::State)?;
        drop(sink);
        self.wake.get_or_insert(Wake::Unblock);
        let seq = atomic.seq.ok_or(Error::State)?;
        match placed {
            Ok(()) => qp.stream.completions.read_done(seq),
            Err(error) => qp.stream.completions.failed(seq, error.wc_status()),
        }
        qp.retire();
        placed
    }

    /// Has the page brought where the answer to an atomic operation goes.
    #[cold]
    fn await_sink(&self, qp: &QpObj, sink: &MemRef) -> Result<(), AccessError> {
        // Without an answer the memory has been taken away since.
        let missing = sink.all_missing(AtomicOp::LEN as usize);
        qp.stream
            .rx_pager
            .ask(qp, missing.ok_or(AccessError::NotValid)?)?;
        Err(AccessError::Pending)
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
    #[inline]
    fn complete(&mut self, qp: &QpObj, receipt: &Receipt) {
        if core::mem::take(&mut self.receiving) {
            qp.complete_recv(self.recv.id(), receipt);
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
        self.begins = false;
        self.wrote = 0;
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
            Error::Access {
                error: AccessError::UnknownStag | AccessError::NotValid | AccessError::WrongKey,
                op: AccessOp::Write | AccessOp::ReadRequest | AccessOp::AtomicRequest,
            } => qp.stats.inc(Counter::StaleStag),
            Error::Access { .. } => qp.stats.inc(Counter::AccessError),
            _ => {}
        }
        match error {
            Error::TooLong
            | Error::LocalOp
            | Error::Access {
                op: AccessOp::Recv, ..
            } => self.complete(qp, &Receipt::failed(error.wc_status())),
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

impl Qp {
    /// Posts the CQE of a receive work request.
    #[inline]
    pub(in crate::qp) fn complete_recv(self: &QpObj, wr_id: u64, receipt: &Receipt) {
        self.rcq.post(
            self,
            &Completion {
                wr_id,
                op: receipt.op,
                status: receipt.status,
                bytes: receipt.bytes,
                solicited: receipt.solicited,
                with: receipt.with,
            },
        );
    }
}
