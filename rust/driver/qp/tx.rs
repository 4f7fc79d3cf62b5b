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
use super::terminate::Progress;
use crate::driver::payload::{encode, encode_shared, Encoded, List, Sgl};
use crate::driver::stats::Counter;
use crate::driver::tpt::entry::LastEntry;
use crate::driver::{Params, QpObj};
use crate::kapi::net::{LockedSock, Mark, Marker, RxSock, SockView, Socket, TxBuf, TxSock};
use crate::kapi::trace;
use core::num::NonZero;
use core::ops::Deref;
use iwarp::error::{Error as IwarpError, WcStatus};
use iwarp::mem::access::{AccessError, AccessOp, Need as Right};
use iwarp::mem::stag::Stag;
use iwarp::mpa::{rtr_message, Negotiated, RtrKind};
use iwarp::qp::coalesce::Gather;
use iwarp::qp::credits::Gate;
use iwarp::qp::fairness::Share;
use iwarp::qp::owner::Leave;
use iwarp::rx::ReadExpect;
use iwarp::tx::{Fpdu, Message, TxMessage, TxStream};
use iwarp::wire::mpa::mulpdu;
use iwarp::wire::rdmap::ReadRequest;
use iwarp::wire::terminate::Terminate;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Bytes handed to TCP at once: what one TSO burst can be.
const BATCH: usize = 64 * 1024;

/// Payload of an FPDU that is sent by reference to a peer that takes large ones: with header, trailer and one page more, because it may
/// begin inside of one, it fills an skb (`MAX_SKB_FRAGS`).
const SHARED_PAYLOAD: u16 = 14 * PAGE_SIZE as u16;

/// What else is in a ULPDU (RFC 5041 5).
const TAGGED: u16 = 14;
const UNTAGGED: u16 = 18;

/// A message whose completion somebody waits for, with none behind it, is sent by reference only if it is as large as that: until then
/// copying takes less time than an ACK may.
const SHARED_ALONE: u32 = 256 * 1024;

/// A locked socket that can send.
pub(super) trait Wire: Deref<Target = SockView> {
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize>;

    /// Has TCP take what has come in meanwhile, if that would have to wait for the end of the turn.
    fn flush_backlog(&mut self) {}
}

impl Wire for LockedSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }

    #[inline]
    fn flush_backlog(&mut self) {
        LockedSock::flush_backlog(self);
    }
}

impl Wire for TxSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }
}

impl Wire for RxSock<'_> {
    #[inline]
    fn push(&mut self, buf: &mut TxBuf, more: bool) -> Result<usize> {
        self.send(buf, more)
    }
}

/// Where the payload of the current message comes from.
enum Source {
    None,
    Inline {
        used: usize,
    },
    /// The list of the work request, and whether it has been resolved.
    List {
        loaded: bool,
    },
    /// Elements that are sent from where they are. Their mark is here as long as nothing of them is encoded.
    Shared {
        marker: Option<Marker>,
    },
    /// What the peer wants to read.
    Response,
}

/// Whose message it is.
enum Origin {
    /// The work request with this retire entry.
    Sq(u32),
    /// The work request that is alone.
    Alone,
    /// The answer to a Read Request of the peer.
    Response,
    /// "Ready to receive", or the Terminate.
    Own,
}

struct Current {
    msg: TxMessage<'static>,
    source: Source,
    origin: Origin,
}

/// A work request that was taken when all before it had completed. If TCP accepts all of it in the next call it completes then and there,
/// without ever having been in the retire FIFO; else it is put there.
struct Alone {
    wr: Wr,
    /// As in the FIFO.
    end: u64,
}

/// What came of looking for a message.
enum Next {
    /// There is one.
    Message,
    /// A work request was encoded, or done, on the spot: look again.
    Done,
    /// Nothing to do.
    Idle,
    /// The head of the SQ has to wait for a response.
    Blocked,
    /// The head of the SQ has to wait until something completes.
    Crowded,
    /// The stream cannot go on; [`TxCtx::broken`] says why.
    Broken,
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
    Broken,
}

/// What came of encoding an FPDU.
enum Step {
    Done,
    NoRoom,
    Broken,
}

/// What a look at the queues costs of a turn, if it sends less than that: he who rings the bell of an empty queue gets no endless turn.
const LOOK: usize = 512;

/// The transmitter of a stream.
pub(super) struct TxCtx {
    sock: Arc<Socket>,
    stream: TxStream,
    /// The peer takes FPDUs of many segments.
    large: bool,
    /// The smallest message that is sent by reference, if any is.
    zcopy_min: Option<NonZero<u32>>,
    /// The largest ULPDU now.
    mulpdu: u16,
    buf: TxBuf,
    current: Option<Current>,
    alone: Option<Alone>,
    /// The Read Request of the peer that is being answered.
    answering: Option<Request>,
    sges: Sgl,
    /// The region the last Read went to.
    sink: LastEntry,
    /// A work request that was taken from the SQ and waits for a fence or for a place in the ORQ.
    waiting: Option<u32>,
    /// The work request taken last. It stays here while its message is made.
    wr: SendWr,
    /// Why the stream cannot go on.
    broken: Option<Cause>,
    /// The last message came from the SQ, so the next Read Response goes first.
    respond_next: bool,
    /// Bytes encoded, and bytes TCP has accepted.
    encoded: u64,
    accepted: u64,
    fpdus: u32,
    /// Work requests taken from the SQ.
    pub(super) taken: u32,
    /// When doorbells are answered.
    pub(super) gather: Gather,
    /// What it may send while others wait.
    pub(super) share: Share,
    /// The last run ended because TCP had no space, or too little for another turn.
    pub(super) paused: bool,
    /// Runs so far.
    pub(super) turns: u64,
}

impl TxCtx {
    /// A transmitter that begins with the RTR message, if any.
    pub(super) fn new(
        sock: Arc<Socket>,
        net: &Negotiated,
        rtr: Option<RtrKind>,
        params: &Params,
    ) -> Self {
        let mut stream = TxStream::new(net.crc, net.tx_markers);
        let current = rtr.map(|kind| Current {
            msg: stream.begin(rtr_message(kind), 0),
            source: Source::None,
            origin: Origin::Own,
        });
        Self {
            sock,
            stream,
            large: net.large_fpdus,
            zcopy_min: NonZero::new(params.zcopy_min),
            mulpdu: mulpdu(0, net.tx_markers),
            buf: TxBuf::new(),
            current,
            alone: None,
            answering: None,
            sges: Sgl::empty(),
            sink: LastEntry::none(),
            waiting: None,
            wr: SendWr::empty(),
            broken: None,
            respond_next: false,
            encoded: 0,
            accepted: 0,
            fpdus: 0,
            taken: 0,
            gather: Gather::new(),
            share: Share::new(),
            paused: false,
            turns: 0,
        }
    }

    /// Bytes TCP has accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
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
        let why = self.send(qp, sock, budget);
        if self.alone.is_some() {
            self.enlist(qp);
        }
        // Who knows when there is more to send.
        if let Leave::Idle = why {
            self.buf.rest();
        }
        why
    }

    fn send(&mut self, qp: &QpObj, sock: &mut impl Wire, budget: &mut usize) -> Leave {
        loop {
            if qp.phase() != Phase::Rts || qp.stream.tx_stopping() {
                return Leave::Hold;
            }
            let space = send_space(sock);
            if space == 0 {
                return Leave::Space;
            }
            // What TCP has no space for would be encoded too early, and the turn is over behind the FPDU that uses it up.
            // Of the space TCP takes something for itself.
            let batch = BATCH.min(*budget).min(space.saturating_sub(space / 8));
            self.mulpdu = self.fpdu_size(sock);
            let filled = self.fill(qp, batch);
            let had = self.pending();
            // TCP may hold back a short last segment only if it is sure that more follows at once.
            let more = batch == BATCH && matches!(filled, Filled::Full) && self.current.is_some();
            let sent = match self.push(qp, sock, more) {
                Ok(sent) => sent,
                Err(error) => {
                    qp.fail(Cause::Lost(error));
                    return Leave::Hold;
                }
            };
            self.retire(qp, sock);
            *budget = budget.saturating_sub(sent.max(LOOK));
            match filled {
                Filled::Broken => {
                    if let Some(cause) = self.broken.take() {
                        qp.fail(cause);
                    }
                    return Leave::Hold;
                }
                _ if self.pending() != 0 => {
                    if send_space(sock) == 0 {
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
            // ACKs and data wait no longer than for a batch, and the backlog does not run over. What lets us go on leaves a note.
            sock.flush_backlog();
        }
    }

    /// The largest ULPDU of an FPDU: one that is as large as can be if the peer agreed, else one that is one TCP segment, or where segments
    /// are larger than a buffer can be, a whole part of one.
    fn fpdu_size(&self, sock: &SockView) -> u16 {
        if self.large {
            return mulpdu(TxBuf::MAX_FPDU as u32, self.stream.markers());
        }
        let mss = sock.mss();
        let size = match mss.div_ceil(TxBuf::MAX_FPDU as u32) {
            0 | 1 => mss,
            parts => mss.checked_div(parts).unwrap_or(mss),
        };
        mulpdu(size, self.stream.markers())
    }

    /// Completes what TCP has accepted.
    #[inline(always)]
    fn retire(&mut self, qp: &QpObj, sock: &SockView) {
        match self.alone.take() {
            Some(Alone { wr, end }) if end <= self.accepted => {
                if wr.signalled {
                    qp.complete_send(&wr, WcStatus::Success);
                }
            }
            alone => {
                self.alone = alone;
                self.enlist(qp);
                if !qp.stream.retire.is_quiet() {
                    qp.retire_upto(self.accepted, sock);
                    qp.await_acks(sock);
                }
            }
        }
    }

    /// Gives the work request that is alone its place in the retire FIFO, before another one gets one.
    fn enlist(&mut self, qp: &QpObj) -> Option<u32> {
        let Alone { wr, end } = self.alone.take()?;
        let bytes = wr.bytes;
        // There is room: the FIFO was empty.
        let seq = qp.stream.retire.push(wr)?;
        match &mut self.current {
            Some(current) if matches!(current.origin, Origin::Alone) => {
                current.origin = Origin::Sq(seq);
            }
            _ => qp.stream.retire.encoded(seq, bytes, end),
        }
        Some(seq)
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
        qp.stats.add(Counter::TxFpdus, u64::from(fpdus));
        qp.stats.add(Counter::TxBytes, sent as u64);
        self.accepted = self.accepted.wrapping_add(sent as u64);
        if sent < bytes {
            qp.stats.inc(Counter::TxSplit);
        }
        Ok(sent)
    }

    /// Whether the current message can be encoded now. One that is sent by reference goes to TCP behind what was copied, and behind others,
    /// whose mark is theirs alone.
    fn can_encode(&mut self) -> bool {
        let Some(current) = &mut self.current else {
            return true;
        };
        let Source::Shared { marker } = &mut current.source else {
            return true;
        };
        match marker.take_if(|_| self.buf.can_begin_shared()) {
            Some(begun) => self.buf.begin_shared(begun),
            None => return marker.is_none(),
        }
        true
    }

    /// Encodes FPDUs until `batch` bytes wait for TCP.
    fn fill(&mut self, qp: &QpObj, batch: usize) -> Filled {
        while self.pending() < batch {
            if self.current.is_none() {
                match self.next(qp) {
                    Next::Message => {}
                    // Mostly there is one and no more.
                    Next::Done if !self.has_more(qp) => return Filled::Idle,
                    Next::Done => continue,
                    Next::Idle => return Filled::Idle,
                    Next::Blocked => return Filled::Blocked,
                    Next::Crowded => return Filled::Crowded,
                    Next::Broken => return Filled::Broken,
                }
            }
            if !self.can_encode() {
                return Filled::Full;
            }
            match self.encode_next(qp) {
                Step::Done if !self.has_more(qp) => return Filled::Idle,
                Step::Done => {}
                Step::NoRoom => return Filled::NoMemory,
                Step::Broken => return Filled::Broken,
            }
        }
        Filled::Full
    }

    /// Whether there is anything left to look at.
    #[inline]
    fn has_more(&self, qp: &QpObj) -> bool {
        self.current.is_some()
            || self.waiting.is_some()
            || qp.stream.has_requests()
            || qp.sq.has_work()
    }

    /// Encodes the next FPDU of the current message.
    #[inline(never)]
    fn encode_next(&mut self, qp: &QpObj) -> Step {
        let Some(current) = &mut self.current else {
            return Step::Done;
        };
        let by_reference = matches!(current.source, Source::Shared { .. });
        let most = match (by_reference, current.msg.msn()) {
            (false, _) => self.mulpdu,
            (true, None) => SHARED_PAYLOAD.saturating_add(TAGGED),
            (true, Some(_)) => SHARED_PAYLOAD.saturating_add(UNTAGGED),
        };
        let Some(fpdu) = current.msg.fpdu(most) else {
            self.finish_message(qp);
            return Step::Done;
        };
        let whole = fpdu.is_last() && fpdu.payload().0 == 0;
        let (sges, wr) = (&mut self.sges, &self.wr);
        let source = &mut current.source;
        let encoded = if by_reference {
            encode_shared(&mut self.buf, &self.stream, &current.msg, &fpdu, sges)
        } else {
            encode(&mut self.buf, &self.stream, &current.msg, &fpdu, |dst| {
                match source {
                    Source::None | Source::Shared { .. } => Err(AccessError::Bounds),
                    Source::Inline { used } => {
                        copy_inline(wr, *used, dst)?;
                        *used = used.saturating_add(dst.len());
                        Ok(())
                    }
                    Source::List { loaded } => {
                        let list = list(qp, wr);
                        if whole {
                            return sges.gather_all(&list, dst);
                        }
                        if !*loaded {
                            // All of it is checked before the first byte of the message leaves.
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
            Encoded::NoRoom => Step::NoRoom,
            Encoded::Done(bytes) => {
                current.msg.commit(&fpdu);
                self.encoded(&fpdu, bytes);
                if fpdu.is_last() {
                    self.finish_message(qp);
                }
                Step::Done
            }
            Encoded::Denied(error) => {
                self.broken = Some(self.denied(qp, error));
                Step::Broken
            }
        }
    }

    /// `fpdu` takes `bytes` bytes of the stream.
    fn encoded(&mut self, fpdu: &Fpdu, bytes: usize) {
        self.stream.sent(fpdu);
        self.encoded = self.encoded.wrapping_add(bytes as u64);
        self.fpdus = self.fpdus.wrapping_add(1);
    }

    /// The payload of the current message may not be read.
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
                Some(Request { msn, read, .. }),
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

    /// The current message is encoded.
    fn finish_message(&mut self, qp: &QpObj) {
        let Some(current) = &self.current else { return };
        if let Source::Shared { .. } = current.source {
            self.buf.end_shared();
        }
        match current.origin {
            Origin::Sq(seq) => {
                self.sges.clear();
                let bytes = current.msg.len();
                qp.stream.retire.encoded(seq, bytes, self.encoded);
            }
            Origin::Alone => {
                self.sges.clear();
                if let Some(alone) = &mut self.alone {
                    alone.wr.bytes = current.msg.len();
                    alone.end = self.encoded;
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
    #[inline]
    fn respond(&mut self, qp: &QpObj) -> bool {
        qp.stream.has_requests() && self.answer_next(qp)
    }

    #[inline(never)]
    fn answer_next(&mut self, qp: &QpObj) -> bool {
        let Some(mut request) = qp.stream.take_request() else {
            return false;
        };
        self.respond_next = false;
        let read = request.read;
        let source = match request.source.take() {
            Some(mem) => {
                self.sges.load_one(mem, read.source_to, read.len);
                self.source_of_response(qp, read.len)
            }
            None => Source::None,
        };
        let message = Message::ReadResponse {
            stag: read.sink_stag,
            to: read.sink_to,
        };
        self.current = Some(Current {
            msg: self.stream.begin(message, read.len),
            source,
            origin: Origin::Response,
        });
        self.answering = Some(request);
        true
    }

    #[inline(never)]
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
                        self.taken = self.taken.wrapping_add(1);
                        let wr = &self.wr;
                        let new = Wr {
                            id: wr.id(),
                            op: wr.op.wc(),
                            bytes: 0,
                            signalled: wr.signalled,
                        };
                        // It may have been posted after the QP was told to end: then it is for the flush, which finds it in the FIFO.
                        let ends = qp.phase() != Phase::Rts;
                        let plain = matches!(wr.op, SendOp::Send | SendOp::SendInv | SendOp::Write)
                            && !wr.fence
                            && !ends
                            && !self.may_share();
                        if plain && self.alone.is_none() && qp.stream.retire.is_quiet() {
                            return self.begin_alone(qp, new);
                        }
                        self.enlist(qp);
                        // There was room, and only the owner fills it.
                        let Some(seq) = qp.stream.retire.push(new) else {
                            return Next::Crowded;
                        };
                        if ends {
                            // Let go of before it completes.
                            self.wr.reg = None;
                            return Next::Broken;
                        }
                        seq
                    }
                    Err(bad) => {
                        self.enlist(qp);
                        self.broken = Some(refused(qp, bad));
                        return Next::Broken;
                    }
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
                Gate::Never => {
                    self.broken = Some(failed(qp, seq, IwarpError::LocalOp));
                    return Next::Broken;
                }
            }
        }
        let begun = match op {
            SendOp::Send | SendOp::SendInv | SendOp::Write => {
                let source = match self.may_share() {
                    true => self.source_of_large(qp, seq),
                    false => Ok(self.source()),
                };
                source.map(|source| {
                    self.begin_send(source, Origin::Sq(seq));
                    Next::Message
                })
            }
            SendOp::Read | SendOp::ReadInv => self.begin_read(qp, seq),
            SendOp::RegMr | SendOp::LocalInv => self.do_local(qp, seq),
        };
        match begun {
            Ok(next) => next,
            Err(error) => {
                self.broken = Some(failed(qp, seq, error));
                Next::Broken
            }
        }
    }

    /// Begins the work request that is alone. If it is one FPDU, as most that are alone, it is encoded then and there.
    #[inline]
    fn begin_alone(&mut self, qp: &QpObj, mut wr: Wr) -> Next {
        let msg = self.begin_message();
        if let Some(fpdu) = msg.fpdu(self.mulpdu).filter(Fpdu::is_last) {
            let (sges, sqe) = (&mut self.sges, &self.wr);
            let encoded = encode(&mut self.buf, &self.stream, &msg, &fpdu, |dst| {
                match sqe.is_inline() {
                    true => copy_inline(sqe, 0, dst),
                    false => sges.gather_all(&list(qp, sqe), dst),
                }
            });
            if let Encoded::Done(bytes) = encoded {
                self.encoded(&fpdu, bytes);
                wr.bytes = msg.len();
                let end = self.encoded;
                self.alone = Some(Alone { wr, end });
                return Next::Done;
            }
        }
        // What stood in the way is met again, and handled, with the FPDUs of longer ones.
        self.current = Some(Current {
            msg,
            source: self.source(),
            origin: Origin::Alone,
        });
        let end = u64::MAX;
        self.alone = Some(Alone { wr, end });
        Next::Message
    }

    fn begin_send(&mut self, source: Source, origin: Origin) {
        self.current = Some(Current {
            msg: self.begin_message(),
            source,
            origin,
        });
    }

    /// Begins the message of the Send or Write that was taken last.
    fn begin_message(&mut self) -> TxMessage<'static> {
        self.respond_next = true;
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
        self.stream.begin(message, wr.bytes())
    }

    /// Where the payload of the work request comes from.
    fn source(&self) -> Source {
        match self.wr.is_inline() {
            true => Source::Inline { used: 0 },
            false => Source::List { loaded: false },
        }
    }

    /// Whether the work request's message is large enough to be sent by reference. Inline payload is not: it has no memory of its own.
    #[inline]
    fn may_share(&self) -> bool {
        self.is_large(self.wr.bytes()) && !self.wr.is_inline()
    }

    /// As [`Self::source`], for a message that is large enough to be sent by reference.
    #[inline(never)]
    fn source_of_large(&mut self, qp: &QpObj, seq: u32) -> Result<Source, IwarpError> {
        // The whole list is checked before the first byte of the message leaves.
        self.sges
            .load(&list(qp, &self.wr), Right::LocalRead)
            .map_err(|error| error.during(AccessOp::Send))?;
        let len = self.wr.bytes();
        let may_wait = len >= SHARED_ALONE || !self.wr.signalled || qp.sq.has_work();
        if !may_wait || !self.can_share() {
            return Ok(Source::List { loaded: true });
        }
        let Ok((mark, marker)) = Mark::new(Some(qp.stream.releases.clone())) else {
            return Ok(Source::List { loaded: true });
        };
        qp.stream.retire.share(seq, mark);
        qp.stats.inc(Counter::ZcopyWrs);
        qp.stats.add(Counter::ZcopyBytes, len.into());
        let marker = Some(marker);
        Ok(Source::Shared { marker })
    }

    /// Where the `len` bytes come from that the peer reads.
    ///
    /// Their owner may write to them while they are read, so no CRC can be taken over them where they are. Nobody waits for the peer's
    /// acknowledgement: until it comes the pages are TCP's, too, whatever becomes of the region.
    fn source_of_response(&self, qp: &QpObj, len: u32) -> Source {
        if !self.is_large(len) || self.stream.crc() || !self.can_share() {
            return Source::Response;
        }
        let Ok((_, marker)) = Mark::new(None) else {
            return Source::Response;
        };
        qp.stats.inc(Counter::ZcopyReads);
        qp.stats.add(Counter::ZcopyBytes, len.into());
        let marker = Some(marker);
        Source::Shared { marker }
    }

    /// Whether a message of that length is large enough to be sent by reference.
    #[inline]
    fn is_large(&self, len: u32) -> bool {
        self.zcopy_min.is_some_and(|min| len >= min.get())
    }

    /// Whether what `sges` has may be sent by reference, and that pays if it is large.
    ///
    /// The peer has to take large FPDUs, and not only for the skbs that they fill: one that does is this driver, which acknowledges a large
    /// message at once. Others may put that off, and the completion with it.
    fn can_share(&self) -> bool {
        self.large && !self.stream.markers() && self.sges.can_share() && self.sock.can_share()
    }

    #[inline(never)]
    fn begin_read(&mut self, qp: &QpObj, seq: u32) -> Result<Next, IwarpError> {
        let wr = &self.wr;
        let sge = wr.sges().first().copied().unwrap_or_default();
        let stag = Stag(sge.lkey);
        let access = qp.access_to(stag, sge.addr, u64::from(sge.len), Right::LocalWrite);
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
    #[inline(never)]
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
        Ok(Next::Done)
    }

    /// Puts a Terminate behind what is encoded, cutting a message off between two FPDUs.
    ///
    /// A peer allows one more message after an error, and this is it (RFC 5041 7.1); nothing can follow. `false` if there is no memory.
    pub(super) fn add_terminate(&mut self, term: Terminate) -> bool {
        let msg = self.stream.begin(Message::Terminate(&term), 0);
        let Some(fpdu) = msg.fpdu(mulpdu(0, false)) else {
            return false;
        };
        let done = encode(&mut self.buf, &self.stream, &msg, &fpdu, |_| Ok(()));
        let Encoded::Done(bytes) = done else {
            return false;
        };
        self.encoded(&fpdu, bytes);
        true
    }

    /// Hands TCP more of what is encoded.
    pub(super) fn drain(&mut self, qp: &QpObj, sock: &mut LockedSock<'_>) -> Progress {
        if self.push(qp, sock, false).is_err() {
            return Progress::Lost;
        }
        qp.retire_upto(self.accepted, sock);
        if self.pending() == 0 {
            Progress::Sent
        } else if send_space(sock) == 0 {
            Progress::NoSpace
        } else {
            Progress::NoMemory
        }
    }
}

/// The scatter/gather list of a work request.
fn list<'a>(qp: &'a QpObj, wr: &'a SendWr) -> List<'a> {
    List {
        qp,
        pd: qp.pd,
        sges: wr.sges(),
    }
}

/// Copies the part of the request's inline payload that begins at `from`, and fills `dst`.
fn copy_inline(wr: &SendWr, from: usize, dst: &mut [u8]) -> Result<(), AccessError> {
    let end = from.saturating_add(dst.len());
    let bytes = wr.inline().and_then(|data| data.get(from..end));
    dst.copy_from_slice(bytes.ok_or(AccessError::Bounds)?);
    Ok(())
}

/// A work request that cannot be done. It completes with an error behind those before it, and ends the stream.
#[cold]
fn failed(qp: &QpObj, seq: u32, error: IwarpError) -> Cause {
    qp.stream.retire.failed(seq, error.wc_status());
    Cause::Local(error)
}

/// An SQE that makes no sense.
#[cold]
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

/// How much more TCP takes. If that is nothing, it will tell when it does.
fn send_space(sock: &SockView) -> usize {
    match sock.space() {
        0 => {
            sock.set_nospace();
            sock.space()
        }
        space => space,
    }
}
