// SPDX-License-Identifier: GPL-2.0

//! Transmit: from work requests to the stream.
//!
//! The owner of the token works in batches: it encodes FPDUs, each exactly one TCP segment long so that segmentation offload cuts between
//! them, from as many messages as fit, and hands them to TCP in one call. Read Responses and the SQ alternate at message boundaries.
//! A work request is finished with the SQ when TCP has accepted its last byte.

use super::irrq::Request;
use super::orq::Read;
use super::retire::Wr;
use super::sq::{BadSqe, SendOp, SendWr};
use super::state::Phase;
use super::stream::Cause;
use crate::driver::payload::{encode, Encoded, Sgl};
use crate::driver::stats::Counter;
use crate::driver::tpt::entry::{LastEntry, MemRef};
use crate::driver::QpObj;
use crate::kapi::net::{LockedSock, RxSock, SockView, Socket, TxBuf};
use crate::kapi::trace;
use core::ops::Deref;
use iwarp::access::{Access, AccessError, AccessOp, Need as Right};
use iwarp::error::Error as IwarpError;
use iwarp::mpa::{rtr_message, Negotiated, RtrKind};
use iwarp::read_credits::Gate;
use iwarp::stag::Stag;
use iwarp::stream_rx::ReadExpect;
use iwarp::stream_tx::{Message, TxMessage, TxStream};
use iwarp::tx_owner::Leave;
use iwarp::wire::mpa::mulpdu;
use iwarp::wire::rdmap::ReadRequest;
use iwarp::wire::terminate::Terminate;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Bytes handed to TCP at once: what one TSO burst can be.
const BATCH: usize = 64 * 1024;

/// A locked socket that can send.
pub(super) trait Wire: Deref<Target = SockView> {
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize>;
}

impl Wire for LockedSock<'_> {
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }
}

impl Wire for RxSock<'_> {
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }
}

/// Where the payload of the current message comes from.
enum Source {
    None,
    Inline { used: usize },
    Sges,
    Response { mem: MemRef, addr: u64 },
}

/// Whose message it is.
enum Origin {
    /// The work request with this retire entry.
    Sq(u32),
    /// The answer to a Read Request of the peer.
    Response { msn: u32, read: ReadRequest },
    /// "Ready to receive", or the Terminate.
    Own,
}

struct Current {
    msg: TxMessage,
    source: Source,
    origin: Origin,
}

/// What came of looking for a message.
enum Next {
    /// There is one.
    Message,
    /// A work request was done on the spot: look again.
    Local,
    /// Nothing to do.
    Idle,
    /// The head of the SQ has to wait for a response.
    Blocked,
    /// The head of the SQ has to wait until something completes.
    Crowded,
    /// The stream cannot go on.
    Broken(Cause),
}

/// How filling a batch ended.
enum Filled {
    /// It is full, and there may be more.
    Full,
    /// There was no memory for more.
    NoMemory,
    Idle,
    Blocked,
    /// As many work requests are in progress as there can be.
    Crowded,
    Broken(Cause),
}

/// What a look at the queues costs of a turn, if it sends less than that: he who rings the bell of an empty queue gets no endless turn.
const LOOK: usize = 512;

/// The transmitter of a stream.
pub(super) struct TxCtx {
    sock: Arc<Socket>,
    stream: TxStream,
    buf: TxBuf,
    current: Option<Current>,
    sges: Sgl,
    /// The region the last Read went to.
    sink: LastEntry,
    /// A work request that was taken from the SQ and waits for a fence or for a place in the ORQ.
    waiting: Option<u32>,
    /// The work request taken last. It stays here while its message is made.
    wr: SendWr,
    /// The last message came from the SQ, so the next Read Response goes first.
    respond_next: bool,
    /// Bytes encoded, and bytes TCP has accepted.
    encoded: u64,
    accepted: u64,
    fpdus: u32,
}

impl TxCtx {
    /// A transmitter that begins with the RTR message, if any.
    pub(super) fn new(sock: Arc<Socket>, net: &Negotiated, rtr: Option<RtrKind>) -> Self {
        let mut stream = TxStream::new(net.crc, net.tx_markers);
        let current = rtr.map(|kind| Current {
            msg: stream.begin(rtr_message(kind), 0),
            source: Source::None,
            origin: Origin::Own,
        });
        Self {
            sock,
            stream,
            buf: TxBuf::new(),
            current,
            sges: Sgl::empty(),
            sink: LastEntry::none(),
            waiting: None,
            wr: SendWr::empty(),
            respond_next: false,
            encoded: 0,
            accepted: 0,
            fpdus: 0,
        }
    }

    pub(super) fn socket(&self) -> Arc<Socket> {
        self.sock.clone()
    }

    /// MSN of the RTR message, if it is a Read.
    pub(super) fn rtr_read(&self) -> Option<Read> {
        let msg = &self.current.as_ref()?.msg;
        let Message::ReadRequest(read) = msg.message() else {
            return None;
        };
        Some(Read {
            seq: None,
            msn: msg.msn()?,
            expect: ReadExpect {
                stag: read.sink_stag,
                to: read.sink_to,
                len: 0,
            },
            sink: None,
            inval: None,
        })
    }

    /// Sends until there is nothing more to send, no space, or `budget` bytes are gone.
    pub(super) fn run(&mut self, qp: &QpObj, sock: &mut impl Wire, budget: &mut usize) -> Leave {
        loop {
            if qp.phase() != Phase::Rts || qp.stream.tx_stopping() {
                return Leave::Hold;
            }
            if !has_space(sock) {
                return Leave::Space;
            }
            let filled = self.fill(qp, fpdu_size(sock, self.stream.markers()));
            let had = self.pending();
            // TCP may hold back a short last segment only if it is sure that more follows.
            let more = matches!(filled, Filled::Full) && self.current.is_some();
            let sent = match self.push(qp, sock, more) {
                Ok(sent) => sent,
                Err(error) => {
                    qp.fail(Cause::Lost(error));
                    return Leave::Hold;
                }
            };
            qp.retire_upto(self.accepted);
            *budget = budget.saturating_sub(sent.max(LOOK));
            match filled {
                Filled::Broken(cause) => {
                    qp.fail(cause);
                    return Leave::Hold;
                }
                _ if self.pending() != 0 => {
                    if !has_space(sock) {
                        return Leave::Space;
                    }
                    if sent == 0 && had != 0 {
                        // TCP has space but no memory. No callback will tell when there is some, so try again later.
                        return qp.starve();
                    }
                }
                Filled::Idle => return Leave::Idle,
                Filled::Blocked => return Leave::Blocked,
                Filled::NoMemory if sent == 0 => return qp.starve(),
                // Behind a Read; its response lets us go on.
                Filled::Crowded if qp.stream.retire.is_full() => return Leave::Blocked,
                Filled::Full | Filled::NoMemory | Filled::Crowded => {}
            }
            if *budget == 0 {
                return Leave::Budget;
            }
        }
    }

    /// Bytes encoded that TCP has not accepted.
    fn pending(&self) -> usize {
        self.encoded.wrapping_sub(self.accepted) as usize
    }

    /// Hands TCP what is encoded.
    fn push(&mut self, qp: &QpObj, sock: &mut impl Wire, more: bool) -> Result<usize> {
        let bytes = self.pending();
        if bytes == 0 {
            return Ok(0);
        }
        let sent = sock.push(&mut self.buf, more)?;
        let fpdus = core::mem::take(&mut self.fpdus);
        trace::send(qp.qp_num(), fpdus, bytes as u32, sent as u32);
        qp.dev.stats.add(Counter::TxFpdus, u64::from(fpdus));
        qp.dev.stats.add(Counter::TxBytes, sent as u64);
        self.accepted = self.accepted.wrapping_add(sent as u64);
        Ok(sent)
    }

    /// Encodes FPDUs until the batch is full.
    fn fill(&mut self, qp: &QpObj, mulpdu: u16) -> Filled {
        while self.pending() < BATCH {
            if self.current.is_none() {
                match self.next(qp) {
                    Next::Message => {}
                    Next::Local => continue,
                    Next::Idle => return Filled::Idle,
                    Next::Blocked => return Filled::Blocked,
                    Next::Crowded => return Filled::Crowded,
                    Next::Broken(cause) => return Filled::Broken(cause),
                }
            }
            match self.encode_next(qp, mulpdu) {
                Ok(true) => {}
                Ok(false) => return Filled::NoMemory,
                Err(cause) => return Filled::Broken(cause),
            }
        }
        Filled::Full
    }

    /// Encodes the next FPDU of the current message; `false` if there was no room.
    fn encode_next(&mut self, qp: &QpObj, mulpdu: u16) -> Result<bool, Cause> {
        let Some(current) = &mut self.current else {
            return Ok(true);
        };
        let Some(fpdu) = current.msg.fpdu(mulpdu) else {
            self.finish_message(qp);
            return Ok(true);
        };
        let sges = &mut self.sges;
        let inline = self.wr.inline();
        let source = &mut current.source;
        let encoded = encode(&mut self.buf, &self.stream, &fpdu, |dst| match source {
            Source::None => Err(AccessError::Bounds),
            Source::Inline { used } => {
                let end = used.saturating_add(dst.len());
                let bytes = inline.and_then(|data| data.get(*used..end));
                dst.copy_from_slice(bytes.ok_or(AccessError::Bounds)?);
                *used = end;
                Ok(())
            }
            Source::Sges => sges.gather(dst),
            Source::Response { mem, addr } => {
                mem.read(*addr, dst)?;
                *addr = addr.wrapping_add(dst.len() as u64);
                Ok(())
            }
        });
        match encoded {
            Encoded::NoRoom => Ok(false),
            Encoded::Done(bytes) => {
                current.msg.commit(&fpdu);
                self.stream.sent(&fpdu);
                self.encoded = self.encoded.wrapping_add(bytes as u64);
                self.fpdus = self.fpdus.wrapping_add(1);
                if fpdu.is_last() {
                    self.finish_message(qp);
                }
                Ok(true)
            }
            Encoded::Denied(error) => Err(match current.origin {
                Origin::Response { msn, read } => {
                    let error = IwarpError::Access {
                        error,
                        op: AccessOp::ReadRequest,
                    };
                    let done = current.msg.offset();
                    let term = error
                        .terminate()
                        .map(|code| Terminate::for_read(code, msn, &read, done));
                    Cause::Stream { error, term }
                }
                Origin::Sq(seq) => {
                    let error = IwarpError::Access {
                        error,
                        op: AccessOp::Send,
                    };
                    failed(qp, seq, error)
                }
                Origin::Own => Cause::Local(IwarpError::LocalCatastrophic),
            }),
        }
    }

    /// The current message is encoded.
    fn finish_message(&mut self, qp: &QpObj) {
        let Some(current) = &self.current else { return };
        match current.origin {
            Origin::Sq(seq) => {
                self.sges.clear();
                let bytes = current.msg.len();
                qp.stream.retire.encoded(seq, bytes, self.encoded);
            }
            Origin::Response { .. } => qp.stream.responded(),
            Origin::Own => {}
        }
        self.current = None;
    }

    /// Finds the next message.
    fn next(&mut self, qp: &QpObj) -> Next {
        if self.respond_next && self.respond(qp) {
            return Next::Message;
        }
        match self.next_from_sq(qp) {
            // The SQ rests or waits; responses do not.
            Next::Idle if self.respond(qp) => Next::Message,
            Next::Blocked | Next::Crowded if self.respond(qp) => Next::Message,
            next => next,
        }
    }

    /// Begins the answer to the oldest Read Request of the peer.
    fn respond(&mut self, qp: &QpObj) -> bool {
        let Some(request) = qp.stream.take_request() else {
            return false;
        };
        self.answer(request);
        true
    }

    fn answer(&mut self, request: Request) {
        self.respond_next = false;
        let read = request.read;
        let message = Message::ReadResponse {
            stag: read.sink_stag,
            to: read.sink_to,
        };
        self.current = Some(Current {
            msg: self.stream.begin(message, read.len),
            source: match request.source {
                Some(mem) => Source::Response {
                    mem,
                    addr: read.source_to,
                },
                None => Source::None,
            },
            origin: Origin::Response {
                msn: request.msn,
                read,
            },
        });
    }

    fn next_from_sq(&mut self, qp: &QpObj) -> Next {
        let seq = match self.waiting.take() {
            Some(seq) => seq,
            None => {
                if qp.stream.retire.is_full() {
                    return match qp.sq.has_work() {
                        true => Next::Crowded,
                        false => Next::Idle,
                    };
                }
                match qp.sq.take(&mut self.wr) {
                    Ok(false) => return Next::Idle,
                    Ok(true) => {
                        let wr = &self.wr;
                        let pushed = qp.stream.retire.push(Wr {
                            id: wr.id(),
                            op: wr.op.wc(),
                            bytes: 0,
                            signalled: wr.signalled,
                        });
                        // There was room, and only the owner fills it.
                        let Some(seq) = pushed else {
                            return Next::Crowded;
                        };
                        seq
                    }
                    Err(bad) => return Next::Broken(refused(qp, bad)),
                }
            }
        };
        let (op, fence) = (self.wr.op, self.wr.fence);
        let is_read = matches!(op, SendOp::Read | SendOp::ReadInv);
        if is_read || fence {
            match qp.stream.orq.lock().gate(is_read, fence) {
                Gate::Go => {}
                Gate::WaitSlot | Gate::WaitFence => {
                    self.waiting = Some(seq);
                    return Next::Blocked;
                }
                Gate::Never => return Next::Broken(failed(qp, seq, IwarpError::LocalOp)),
            }
        }
        let begun = match op {
            SendOp::Send | SendOp::SendInv | SendOp::Write => self.begin_send(qp, seq),
            SendOp::Read | SendOp::ReadInv => self.begin_read(qp, seq),
            SendOp::RegMr | SendOp::LocalInv => self.do_local(qp, seq),
        };
        match begun {
            Ok(next) => next,
            Err(error) => Next::Broken(failed(qp, seq, error)),
        }
    }

    fn begin_send(&mut self, qp: &QpObj, seq: u32) -> Result<Next, IwarpError> {
        let wr = &self.wr;
        let message = match wr.op {
            SendOp::Write => Message::Write {
                stag: wr.remote_stag,
                to: wr.remote_addr(),
            },
            _ => Message::Send {
                se: wr.solicited,
                inv: matches!(wr.op, SendOp::SendInv).then_some(wr.inval),
            },
        };
        // The whole list is checked before the first byte of the message leaves.
        let (source, len) = match wr.inline() {
            Some(data) => {
                let len = data.len() as u32;
                (Source::Inline { used: 0 }, len)
            }
            None => {
                let len = self
                    .sges
                    .load(&qp.dev, qp.pd, qp.qp_num(), wr.sges(), Right::LocalRead)
                    .map_err(|error| IwarpError::Access {
                        error,
                        op: AccessOp::Send,
                    })?;
                (Source::Sges, len)
            }
        };
        self.current = Some(Current {
            msg: self.stream.begin(message, len),
            source,
            origin: Origin::Sq(seq),
        });
        self.respond_next = true;
        Ok(Next::Message)
    }

    fn begin_read(&mut self, qp: &QpObj, seq: u32) -> Result<Next, IwarpError> {
        let wr = &self.wr;
        let sge = wr.sges().first().copied().unwrap_or_default();
        let stag = Stag(sge.lkey);
        let access = Access {
            stag,
            to: sge.addr,
            len: u64::from(sge.len),
            need: Right::LocalWrite,
            pd: qp.pd,
            qp: qp.qp_num(),
        };
        let sink = match sge.len {
            0 => None,
            _ => Some(
                qp.dev
                    .tpt
                    .resolve(&access, &mut self.sink)
                    .map_err(|error| IwarpError::Access {
                        error,
                        op: AccessOp::Send,
                    })?,
            ),
        };
        let msg = self.stream.begin(
            Message::ReadRequest(ReadRequest {
                sink_stag: stag,
                sink_to: sge.addr,
                len: sge.len,
                source_stag: wr.remote_stag,
                source_to: wr.remote_addr(),
            }),
            0,
        );
        qp.stream.retire.reading(seq, sge.len);
        let read = Read {
            seq: Some(seq),
            msn: msg.msn().unwrap_or(0),
            expect: ReadExpect {
                stag,
                to: sge.addr,
                len: sge.len,
            },
            sink,
            inval: matches!(wr.op, SendOp::ReadInv).then_some(wr.inval),
        };
        // In place before the request can be answered. The gate has seen to it that there is room.
        let pushed = qp.stream.orq.lock().push(read);
        pushed.map_err(|_| IwarpError::LocalCatastrophic)?;
        self.current = Some(Current {
            msg,
            source: Source::None,
            origin: Origin::Sq(seq),
        });
        self.respond_next = true;
        Ok(Next::Message)
    }

    /// Registration and invalidation: done when their turn comes, before anything behind them is looked at.
    fn do_local(&mut self, qp: &QpObj, seq: u32) -> Result<Next, IwarpError> {
        // The snapshot of the pages is not kept any longer than it takes.
        let (done, op) = match self.wr.reg.take() {
            Some(reg) => (qp.dev.tpt.fast_reg(qp.pd, &reg), AccessOp::Register),
            None => (
                qp.dev
                    .tpt
                    .invalidate(self.wr.inval, qp.pd, qp.qp_num(), false),
                AccessOp::LocalInvalidate,
            ),
        };
        done.map_err(|error| IwarpError::Access { error, op })?;
        qp.stream.retire.encoded(seq, 0, self.encoded);
        Ok(Next::Local)
    }

    /// Puts a Terminate behind what is encoded, cutting a message off between two FPDUs.
    ///
    /// A peer allows one more message after an error, and this is it (RFC 5041 7.1); nothing can follow.
    pub(super) fn add_terminate(&mut self, term: Terminate) {
        let msg = self.stream.begin(Message::Terminate(term), 0);
        if let Some(fpdu) = msg.fpdu(mulpdu(0, false)) {
            let done = encode(&mut self.buf, &self.stream, &fpdu, |_| Ok(()));
            if let Encoded::Done(bytes) = done {
                self.encoded = self.encoded.wrapping_add(bytes as u64);
                self.fpdus = self.fpdus.wrapping_add(1);
            }
        }
    }

    /// Hands TCP more of what is encoded; `true` once it has all of it.
    pub(super) fn drain(&mut self, qp: &QpObj, sock: &mut LockedSock<'_>) -> Result<bool> {
        self.push(qp, sock, false)?;
        qp.retire_upto(self.accepted);
        Ok(self.pending() == 0)
    }
}

/// A work request that cannot be done. It completes with an error behind those before it, and ends the stream.
fn failed(qp: &QpObj, seq: u32, error: IwarpError) -> Cause {
    qp.stream.retire.failed(seq, error.wc_status());
    Cause::Local(error)
}

/// An SQE that makes no sense.
fn refused(qp: &QpObj, bad: BadSqe) -> Cause {
    let seq = qp.stream.retire.push(Wr {
        id: bad.id,
        op: bad.op,
        bytes: 0,
        signalled: true,
    });
    if let Some(seq) = seq {
        qp.stream.retire.failed(seq, bad.status);
    }
    Cause::Local(IwarpError::LocalOp)
}

/// Whether TCP takes more. If not, it will tell when it does.
fn has_space(sock: &SockView) -> bool {
    if sock.memory_free() {
        return true;
    }
    sock.set_nospace();
    sock.memory_free()
}

/// The largest ULPDU of an FPDU that is one TCP segment, or where segments are larger than a buffer can be, a whole part of one.
fn fpdu_size(sock: &SockView, markers: bool) -> u16 {
    let mss = sock.mss().max(1);
    let parts = mss.div_ceil(TxBuf::MAX_FPDU as u32).max(1);
    mulpdu(mss.checked_div(parts).unwrap_or(mss), markers)
}
