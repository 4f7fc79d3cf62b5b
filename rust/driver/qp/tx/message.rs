// SPDX-License-Identifier: GPL-2.0

//! Messages: cuts the message in progress into FPDUs, and finds their payload.

use super::{
    by_ref::{
        TAGGED,
        UNTAGGED, //
    },
    encode::Encoded,
    source::failed,
    Current,
    Origin,
    Source,
    TxCtx,
    LOOK, //
};
use crate::{
    qp::{
        end::Cause,
        irrq::{
            Asked,
            Request, //
        },
        send_wr::{
            SendOp,
            SendWr, //
        },
        sgl::List, //
    },
    stats::Counter,
    tpt::mem_ref::Missing,
    QpObj, //
};
use core::ops::ControlFlow;
use iwarp::{
    error::{
        AccessError,
        AccessOp,
        Error as IwarpError, //
    },
    mem::access::Need as Right,
    tx::Message,
    wire::{
        mpa::mulpdu,
        terminate::Terminate, //
    }, //
};

/// Why a batch takes no more.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// It is full, and there may be more to send.
    Full,
    /// There is no memory for more.
    NoMemory,
    /// Nothing is posted or requested.
    Idle,
    /// The head of the SQ waits for a Read Response, or a message waits for its pages.
    Blocked,
    /// The head of the SQ waits for a completion.
    Crowded,
    /// The stream cannot go on; [`TxCtx::broken`] says why.
    Broken,
}

/// Whether the batch goes on after a step.
pub(super) type Flow = ControlFlow<End>;

impl TxCtx {
    /// Encodes FPDUs until `batch` bytes wait for TCP, or the next FPDU would exceed them. One that
    /// exceeds them by itself is encoded alone. A work request done without a message counts
    /// [`LOOK`] bytes.
    pub(super) fn fill(&mut self, qp: &QpObj, batch: usize) -> End {
        self.looks = 0;
        loop {
            if let ControlFlow::Break(end) = self.step(qp, batch) {
                return end;
            }
        }
    }

    /// Begins a message, unless one is in progress, and encodes its next FPDU.
    #[inline(always)]
    fn step(&mut self, qp: &QpObj, batch: usize) -> Flow {
        let pending = self.framer.pending();
        if pending.saturating_add(self.looks) >= batch {
            return ControlFlow::Break(End::Full);
        }
        if self.current.is_none() {
            self.next(qp)?;
        }
        let begun = self.current.is_some();
        if begun {
            if !self.can_encode() {
                return ControlFlow::Break(End::Full);
            }
            self.encode_next(qp, batch)?;
        }
        // Most of the time there is exactly one work request.
        if !self.has_more(qp) {
            return ControlFlow::Break(End::Idle);
        }
        if !begun && self.framer.pending() == pending {
            self.looks = self.looks.saturating_add(LOOK);
        }
        ControlFlow::Continue(())
    }

    /// Whether anything is left to send.
    #[inline]
    fn has_more(&self, qp: &QpObj) -> bool {
        self.current.is_some()
            || self.waiting.is_some()
            || self.deferred.is_some()
            || qp.stream.has_requests()
            || qp.sq.has_work_at(&self.at)
    }

    /// Encodes the next FPDU of the current message, unless the batch is full.
    #[inline(never)]
    fn encode_next(&mut self, qp: &QpObj, batch: usize) -> Flow {
        let Some(current) = &mut self.current else {
            return ControlFlow::Continue(());
        };
        let by_reference = matches!(current.source, Source::ByRef { .. });
        let most = match (by_reference, current.msg.msn()) {
            (false, _) => self.framer.mulpdu,
            (true, None) => self.framer.by_ref.saturating_add(TAGGED),
            (true, Some(_)) => self.framer.by_ref.saturating_add(UNTAGGED),
        };
        let Some(fpdu) = current.msg.fpdu(most) else {
            self.finish_message(qp);
            return ControlFlow::Continue(());
        };
        let pending = self.framer.pending();
        if pending != 0 && pending.saturating_add(fpdu.stream_len() as usize) > batch {
            return ControlFlow::Break(End::Full);
        }
        let whole = fpdu.is_last() && fpdu.payload().0 == 0;
        let (sges, wr) = (&mut self.sges, &self.wr);
        let source = &mut current.source;
        let encoded = if by_reference {
            self.framer.encode_by_ref(&current.msg, &fpdu, sges)
        } else {
            self.framer.encode(&current.msg, &fpdu, |dst| {
                match source {
                    Source::None | Source::ByRef { .. } => Err(AccessError::Bounds),
                    Source::Inline { used } => {
                        copy_inline(wr, *used, dst)?;
                        *used = used.saturating_add(dst.len());
                        Ok(())
                    }
                    Source::List { loaded } => {
                        let list = list(qp, wr);
                        if whole && !*loaded {
                            match sges.gather_all(&list, dst) {
                                // The resolved list below can be used again.
                                Err(AccessError::Pending) => {}
                                done => return done,
                            }
                        }
                        if !*loaded {
                            // The whole list is checked before the first byte of the message
                            // leaves.
                            sges.load(&list, Right::LocalRead)?;
                            *loaded = true;
                        }
                        sges.gather(dst)
                    }
                    Source::Response => sges.gather(dst),
                }
            })
        };
        match encoded {
            Encoded::NoRoom => ControlFlow::Break(End::NoMemory),
            Encoded::Done(_) => {
                if core::mem::take(&mut self.stalled) {
                    qp.stream.tx_pager.passed();
                }
                current.msg.commit(&fpdu);
                if fpdu.is_last() {
                    self.finish_message(qp);
                }
                ControlFlow::Continue(())
            }
            // Nothing of the FPDU is encoded, and the cursor of its payload is where it was.
            Encoded::Denied(AccessError::Pending) => {
                let left = current.msg.len().saturating_sub(current.msg.offset());
                let stalled = match self.sges.missing(false, left.into()) {
                    // The memory has been taken away since.
                    None => Err(AccessError::NotValid),
                    missing => self.stall(qp, missing),
                };
                match stalled {
                    Ok(()) => ControlFlow::Break(End::Blocked),
                    Err(error) => self.deny(qp, error),
                }
            }
            Encoded::Denied(error) => self.deny(qp, error),
        }
    }

    /// Whether the current message can be encoded now. A message sent by reference goes to TCP
    /// behind copied bytes, and behind another one sent by reference: a mark belongs to one
    /// message.
    fn can_encode(&mut self) -> bool {
        let Some(current) = &mut self.current else {
            return true;
        };
        let Source::ByRef { marker } = &mut current.source else {
            return true;
        };
        match marker.take_if(|_| self.framer.buf.can_begin_shared()) {
            Some(begun) => self.framer.buf.begin_shared(begun),
            None => return marker.is_none(),
        }
        true
    }

    /// Notes that memory is not there yet. The run ends with [`End::Blocked`]: what it waits for
    /// stays in this context, and other queue pairs go on.
    ///
    /// The look that found nothing was the owner's. Who makes the memory appear does so first, and
    /// then calls [`unstall`](crate::Qp::unstall), whose exchange of the token either leaves a note
    /// for this owner, which looks again before it leaves, or finds that it has left and starts
    /// another turn. So no wake-up is lost (`iwarp::qp::owner`).
    ///
    /// Has `missing` brought. An error if that was tried, and failed.
    #[cold]
    pub(super) fn stall(
        &mut self,
        qp: &QpObj,
        missing: Option<Missing>,
    ) -> Result<(), AccessError> {
        if !core::mem::replace(&mut self.stalled, true) {
            qp.stats.inc(Counter::TxStalls);
        }
        match missing {
            Some(missing) => qp.stream.tx_pager.ask(qp, missing),
            None => Ok(()),
        }
    }

    /// Ends the stream, because access to the payload of the current message is denied.
    #[cold]
    fn deny(&mut self, qp: &QpObj, error: AccessError) -> Flow {
        self.broken = Some(self.denied(qp, error));
        ControlFlow::Break(End::Broken)
    }

    /// Access to the payload of the current message is denied: says how the stream ends.
    #[cold]
    fn denied(&mut self, qp: &QpObj, error: AccessError) -> Cause {
        self.enlist(qp);
        match (&self.current, &self.answering) {
            (
                Some(Current {
                    origin: Origin::Response,
                    msg,
                    ..
                }),
                Some(Request {
                    msn,
                    asked: Asked::Read(read, _),
                    ..
                }),
            ) => {
                let error = error.during(AccessOp::ReadRequest);
                let done = msg.offset();
                let term = error
                    .terminate()
                    .map(|code| Terminate::for_read(code, *msn, read, done));
                Cause::Stream { error, term }
            }
            (
                Some(Current {
                    origin: Origin::Sq(seq),
                    ..
                }),
                _,
            ) => failed(qp, *seq, error.during(AccessOp::Send)),
            _ => Cause::Local(IwarpError::LocalCatastrophic),
        }
    }

    /// Ends the current message, which is encoded.
    fn finish_message(&mut self, qp: &QpObj) {
        let Some(current) = &self.current else { return };
        if let Source::ByRef { .. } = current.source {
            self.framer.buf.end_shared();
        }
        match current.origin {
            Origin::Sq(seq) => {
                self.sges.clear();
                if let (SendOp::WriteImm, Message::Write { .. }) =
                    (self.wr.op, current.msg.message())
                {
                    self.begin_immediate(seq);
                    return;
                }
                // Of Immediate Data none are payload, but the Write before it has some.
                let bytes = match current.msg.message() {
                    Message::Immediate { .. } => self.wr.bytes(),
                    _ => current.msg.len(),
                };
                qp.stream
                    .completions
                    .encoded(seq, bytes, self.framer.encoded);
            }
            Origin::Unqueued => {
                self.sges.clear();
                if let Some(unqueued) = &mut self.unqueued {
                    unqueued.wr.bytes = current.msg.len();
                    unqueued.end = self.framer.encoded;
                }
            }
            Origin::Response => {
                self.sges.clear();
                self.answering = None;
                qp.stream.responded();
            }
            Origin::Own => {}
        }
        self.current = None;
    }

    /// Appends a Terminate behind the encoded FPDUs; a message in progress is cut off between two
    /// FPDUs.
    ///
    /// The Terminate is the one message that may follow an error (RFC 5041 7.1). `false` if there
    /// is no memory.
    pub(in crate::qp) fn add_terminate(&mut self, term: Terminate) -> bool {
        let msg = self.framer.stream.begin(Message::Terminate(&term), 0);
        let Some(fpdu) = msg.fpdu(mulpdu(0, false)) else {
            return false;
        };
        let done = self.framer.encode(&msg, &fpdu, |_| Ok(()));
        matches!(done, Encoded::Done(_))
    }
}

/// The scatter/gather list of a work request.
pub(super) fn list<'a>(qp: &'a QpObj, wr: &'a SendWr) -> List<'a> {
    List {
        tpt: &qp.dev.tpt,
        by: qp.accessor(),
        sges: wr.sges(),
    }
}

/// Fills `dst` from the request's inline payload, from offset `from` on.
pub(super) fn copy_inline(wr: &SendWr, from: usize, dst: &mut [u8]) -> Result<(), AccessError> {
    let end = from.saturating_add(dst.len());
    let bytes = wr.inline().and_then(|data| data.get(from..end));
    dst.copy_from_slice(bytes.ok_or(AccessError::Bounds)?);
    Ok(())
}
