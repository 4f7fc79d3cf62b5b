// SPDX-License-Identifier: GPL-2.0

//! The source of messages: the SQ and the peer's requests, in turn.

use super::{
    encode::Encoded,
    message::{
        copy_inline,
        list,
        End,
        Flow, //
    },
    Current,
    Origin,
    Source,
    TxCtx,
    Unqueued, //
};
use crate::{
    qp::{
        completions::Wr,
        end::Cause,
        orq::Read,
        send_wr::{
            BadSqe,
            SendOp, //
        },
        state::Phase, //
    },
    stats::Counter,
    tpt::mem_ref::MemRef,
    QpObj, //
};
use core::ops::ControlFlow;
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error as IwarpError, //
    },
    mem::{
        access::{
            Access,
            Need as Right, //
        },
        stag::Stag, //
    },
    qp::credits::Gate,
    rx::{
        Expect,
        ReadExpect, //
    },
    tx::{
        Fpdu,
        Message,
        TxMessage, //
    },
    verdict::WcStatus,
    wire::rdmap::{
        ReadRequest,
        With, //
    }, //
};
use rdma::Sge;

impl TxCtx {
    /// Begins the next message, or does a work request without one.
    pub(super) fn next(&mut self, qp: &QpObj) -> Flow {
        let first = self.respond_next;
        let mut stalled = false;
        if first {
            match self.respond(qp) {
                Some(ControlFlow::Break(End::Blocked)) => stalled = true,
                Some(flow) => return flow,
                None => {}
            }
        }
        let flow = self.next_from_sq(qp);
        match flow {
            // A queue pair that is idle is not woken when the memory is there.
            ControlFlow::Break(End::Idle) if stalled => ControlFlow::Break(End::Blocked),
            // The SQ is empty or waits; responses need not. A request that has come since the look
            // above leaves a note in the token.
            ControlFlow::Break(End::Idle | End::Blocked | End::Crowded) if !first => {
                self.respond(qp).unwrap_or(flow)
            }
            flow => flow,
        }
    }

    #[inline(never)]
    fn next_from_sq(&mut self, qp: &QpObj) -> Flow {
        let seq = match self.waiting.take() {
            Some(seq) if qp.stream.completions.glance().is_drained() => return self.flush(qp, seq),
            Some(seq) => seq,
            None => {
                let completions = &qp.stream.completions;
                let glance = completions.glance();
                if completions.was_full(glance) {
                    return match qp.sq.has_work_at(&self.at) {
                        true => ControlFlow::Break(End::Crowded),
                        false => ControlFlow::Break(End::Idle),
                    };
                }
                match qp.sq.take(&mut self.at, &mut self.wr) {
                    Ok(false) => return ControlFlow::Break(End::Idle),
                    Ok(true) => {
                        self.taken = self.taken.wrapping_add(1);
                        let wr = &self.wr;
                        let new = Wr {
                            id: wr.id(),
                            op: wr.op.wc(),
                            bytes: 0,
                            signalled: wr.signalled,
                        };
                        // If teardown has begun, the work request stays in the FIFO; the flush
                        // completes it.
                        let ends = qp.phase() != Phase::Rts;
                        let simple = match wr.op {
                            SendOp::Send | SendOp::SendInv | SendOp::Write => true,
                            SendOp::SendImm => self.send_imm,
                            _ => false,
                        };
                        let plain = simple && !wr.fence && !ends && !self.may_go_by_ref();
                        if plain && !self.acks && self.unqueued.is_none() && glance.is_quiet() {
                            return self.begin_unqueued(qp, new);
                        }
                        self.enlist(qp);
                        // There was room, and only the owner of the token fills the FIFO.
                        let Some(pushed) = qp.stream.completions.push(new) else {
                            return ControlFlow::Break(End::Crowded);
                        };
                        if ends {
                            // Dropped before the completion is visible.
                            self.wr.reg = None;
                            return ControlFlow::Break(End::Broken);
                        }
                        if pushed.drained {
                            return self.flush(qp, pushed.seq);
                        }
                        pushed.seq
                    }
                    Err(bad) => {
                        self.enlist(qp);
                        if fail_bad(qp, &bad) {
                            return ControlFlow::Continue(());
                        }
                        self.broken = Some(Cause::Local(IwarpError::LocalOp));
                        return ControlFlow::Break(End::Broken);
                    }
                }
            }
        };
        let (op, fence) = (self.wr.op, self.wr.fence);
        let answered = op.is_answered();
        if answered || fence {
            match qp.stream.orq.lock().gate(answered, fence) {
                Gate::Go => {}
                Gate::WaitSlot | Gate::WaitFence => {
                    self.waiting = Some(seq);
                    return ControlFlow::Break(End::Blocked);
                }
                Gate::Never => {
                    self.broken = Some(failed(qp, seq, IwarpError::LocalOp));
                    return ControlFlow::Break(End::Broken);
                }
            }
        }
        // One that has failed stopped the SQ before it was done.
        let busy = qp.stream.control.busy() != 0;
        if self.drains && !busy && qp.stream.completions.glance().is_drained() {
            return self.flush(qp, seq);
        }
        let begun = match op {
            _ if busy && self.awaits_control(qp) => {
                Err(AccessError::Pending.during(AccessOp::Send))
            }
            // The peer would take the opcode for an error.
            SendOp::SendImm if !self.send_imm => Err(IwarpError::LocalOp),
            SendOp::Send | SendOp::SendInv | SendOp::SendImm | SendOp::Write | SendOp::WriteImm => {
                let source = match self.may_go_by_ref() {
                    true => self.source_of_large(qp, seq),
                    false => Ok(self.source()),
                };
                source.map(|source| {
                    if self.acks && !matches!(source, Source::ByRef { .. }) {
                        qp.stream.completions.until_acked(seq, None);
                    }
                    self.begin_send(source, Origin::Sq(seq));
                    ControlFlow::Continue(())
                })
            }
            SendOp::Read | SendOp::ReadInv => self.begin_read(qp, seq),
            SendOp::FetchAdd | SendOp::CmpSwap => self.begin_atomic(qp, seq),
            SendOp::RegMr | SendOp::LocalInv | SendOp::BindMw => self.do_local(qp, seq, busy),
        };
        match begun {
            Ok(flow) => flow,
            // Nothing of it is sent; it begins anew.
            Err(error) if error.is_pending() && self.stall(qp, None).is_ok() => {
                self.waiting = Some(seq);
                ControlFlow::Break(End::Blocked)
            }
            Err(error) => {
                self.broken = Some(failed(qp, seq, error));
                ControlFlow::Break(End::Broken)
            }
        }
    }

    /// Begins a work request outside the FIFO. If it is one FPDU, as most are, it is encoded at
    /// once.
    #[inline]
    fn begin_unqueued(&mut self, qp: &QpObj, mut wr: Wr) -> Flow {
        let msg = self.begin_message();
        if let Some(fpdu) = msg.fpdu(self.framer.mulpdu).filter(Fpdu::is_last) {
            let (sges, sqe) = (&mut self.sges, &self.wr);
            let encoded = self
                .framer
                .encode(&msg, &fpdu, |dst| match sqe.is_inline() {
                    true => copy_inline(sqe, 0, dst),
                    false => sges.gather_all(&list(qp, sqe), dst),
                });
            if let Encoded::Done(_) = encoded {
                wr.bytes = msg.len();
                let end = self.framer.encoded;
                self.unqueued = Some(Unqueued { wr, end });
                return ControlFlow::Continue(());
            }
        }
        // Any obstacle is met again, and handled, by the path of longer messages.
        self.current = Some(Current {
            msg,
            source: self.source(),
            origin: Origin::Unqueued,
        });
        let end = u64::MAX;
        self.unqueued = Some(Unqueued { wr, end });
        ControlFlow::Continue(())
    }

    /// Enters the work request that is outside the FIFO, before another one enters.
    pub(super) fn enlist(&mut self, qp: &QpObj) -> Option<u32> {
        let Unqueued { wr, end } = self.unqueued.take()?;
        let bytes = wr.bytes;
        // There is room: the FIFO was empty.
        let seq = qp.stream.completions.push(wr)?.seq;
        match &mut self.current {
            Some(current) if matches!(current.origin, Origin::Unqueued) => {
                current.origin = Origin::Sq(seq);
            }
            _ => qp.stream.completions.encoded(seq, bytes, end),
        }
        Some(seq)
    }

    fn begin_send(&mut self, source: Source, origin: Origin) {
        self.current = Some(Current {
            msg: self.begin_message(),
            source,
            origin,
        });
    }

    /// Begins the Immediate Data behind a Write.
    pub(super) fn begin_immediate(&mut self, seq: u32) {
        let message = Message::Immediate {
            se: self.wr.solicited,
            data: self.wr.imm,
        };
        self.current = Some(Current {
            msg: self.framer.stream.begin(message, 0),
            source: Source::None,
            origin: Origin::Sq(seq),
        });
    }

    /// Begins the message of the Send or Write that was taken last.
    fn begin_message(&mut self) -> TxMessage<'static> {
        self.respond_next = true;
        let wr = &self.wr;
        let message = match wr.op {
            SendOp::Write | SendOp::WriteImm => Message::Write {
                stag: wr.remote_stag,
                to: wr.remote_addr(),
            },
            _ => Message::Send {
                se: wr.solicited,
                with: match wr.op {
                    SendOp::SendInv => With::Invalidate(wr.inval),
                    SendOp::SendImm => With::Immediate(wr.imm),
                    _ => With::Nothing,
                },
            },
        };
        self.framer.stream.begin(message, wr.bytes())
    }

    /// The source of the work request's payload.
    fn source(&self) -> Source {
        match self.wr.is_inline() {
            true => Source::Inline { used: 0 },
            false => Source::List { loaded: false },
        }
    }

    #[inline(never)]
    fn begin_read(&mut self, qp: &QpObj, seq: u32) -> Result<Flow, IwarpError> {
        let (sge, sink) = self.sink(qp)?;
        let (wr, stag) = (&self.wr, Stag(sge.lkey));
        let msg = self.framer.stream.begin(
            Message::ReadRequest(ReadRequest {
                sink_stag: stag,
                sink_to: sge.addr,
                len: sge.len,
                source_stag: wr.remote_stag,
                source_to: wr.remote_addr(),
            }),
            0,
        );
        qp.stream.completions.reading(seq, sge.len);
        let read = Read {
            seq: Some(seq),
            msn: msg.msn().unwrap_or(0),
            expect: Expect::Read(ReadExpect {
                stag,
                to: sge.addr,
                len: sge.len,
            }),
            stag: sink.as_ref().map(|_| stag),
            sink,
            inval: matches!(wr.op, SendOp::ReadInv).then_some(wr.inval),
        };
        self.ask(qp, seq, msg, read)
    }

    #[inline(never)]
    fn begin_atomic(&mut self, qp: &QpObj, seq: u32) -> Result<Flow, IwarpError> {
        let (sge, sink) = self.sink(qp)?;
        let wr = &self.wr;
        let msg = self.framer.stream.begin(
            Message::AtomicRequest {
                stag: wr.remote_stag,
                to: wr.remote_addr(),
                op: wr.atomic(),
            },
            0,
        );
        qp.stream.completions.reading(seq, sge.len);
        let id = msg.msn().unwrap_or(0);
        let read = Read {
            seq: Some(seq),
            msn: id,
            expect: Expect::Atomic(id),
            stag: Some(Stag(sge.lkey)),
            sink,
            inval: None,
        };
        self.ask(qp, seq, msg, read)
    }

    /// The sink of the Read or atomic operation that was taken last; without memory if its length
    /// is 0.
    fn sink(&mut self, qp: &QpObj) -> Result<(Sge, Option<MemRef>), IwarpError> {
        let sge = self.wr.sges().first().copied().unwrap_or_default();
        let access = Access {
            stag: Stag(sge.lkey),
            to: sge.addr,
            len: u64::from(sge.len),
            need: Right::LocalWrite,
            touch: false,
            by: qp.accessor(),
        };
        if sge.len == 0 {
            return Ok((sge, None));
        }
        let sink = qp.dev.tpt.resolve(&access, &mut self.sink);
        let sink = sink.map_err(|error| error.during(AccessOp::Send))?;
        Ok((sge, Some(sink)))
    }

    /// Sends a request whose response `read` awaits.
    fn ask(
        &mut self,
        qp: &QpObj,
        seq: u32,
        msg: TxMessage<'static>,
        read: Read,
    ) -> Result<Flow, IwarpError> {
        // Entered before the request can be answered. The gate has checked that there is room.
        let pushed = qp.stream.orq.lock().push(read);
        pushed.map_err(|_| IwarpError::LocalCatastrophic)?;
        self.current = Some(Current {
            msg,
            source: Source::None,
            origin: Origin::Sq(seq),
        });
        self.respond_next = true;
        Ok(ControlFlow::Continue(()))
    }

    /// Flushes a work request of a drained SQ. It completes behind those before it.
    #[cold]
    fn flush(&mut self, qp: &QpObj, seq: u32) -> Flow {
        // Dropped before the completion is visible.
        self.wr.reg = None;
        qp.stats.inc(Counter::Flushed);
        qp.stream.completions.failed(seq, WcStatus::WrFlushErr);
        ControlFlow::Continue(())
    }
}

/// Fails a work request. It completes in order, with an error, and ends the stream.
#[cold]
pub(super) fn failed(qp: &QpObj, seq: u32, error: IwarpError) -> Cause {
    qp.stream.completions.failed(seq, error.wc_status());
    Cause::Local(error)
}

/// Enters a malformed SQE, which fails. Returns whether it is flushed only, because the SQ is
/// drained.
#[cold]
fn fail_bad(qp: &QpObj, bad: &BadSqe) -> bool {
    let pushed = qp.stream.completions.push(Wr {
        id: bad.id,
        op: bad.op,
        bytes: 0,
        signalled: true,
    });
    let Some(pushed) = pushed else {
        return false;
    };
    let status = match pushed.drained {
        true => WcStatus::WrFlushErr,
        false => bad.status,
    };
    qp.stream.completions.failed(pushed.seq, status);
    pushed.drained
}
