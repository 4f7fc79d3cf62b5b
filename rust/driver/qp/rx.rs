// SPDX-License-Identifier: GPL-2.0

//! Receive: from the socket to consumer memory and completions.
//!
//! Everything here runs from `sk_data_ready` with the socket locked, mostly in softirq: no allocation, no sleeping. The socket lock is also
//! what makes the receiver exclusive, so its state is simply taken out of its slot for the time of a run. What is queued is consumed
//! in one go, but for amounts that would keep a CPU too long, such as all that waited for one lost segment: a datamover does the rest, turn
//! by turn, and until it has caught up nobody else reads, so that the window of TCP closes. A stream that has failed goes on consuming, and drops what it gets (RFC 5041 7.1).

use super::irrq::Request;
use super::rq::RecvWr;
use super::state::Phase;
use super::stream::Cause;
use crate::driver::cm::Endpoint;
use crate::driver::cq::{Completion, WcOp};
use crate::driver::payload::{List, Sgl};
use crate::driver::stats::Counter;
use crate::driver::tpt::entry::{LastEntry, MemRef};
use crate::driver::QpObj;
use crate::kapi::crc32c::Crc32c;
use crate::kapi::net::{RxSock, Skb};
use crate::kapi::{context, trace};
use iwarp::error::{Error, Result, WcStatus};
use iwarp::mem::access::{AccessError, AccessOp, Need as Right};
use iwarp::mem::stag::Stag;
use iwarp::qp::owner::Wake;
use iwarp::rx::{Event, Kind, Need, RxConfig, RxMachine, Segment};
use iwarp::wire::ddp::Tagged;
use iwarp::wire::mpa;
use iwarp::wire::rdmap::{ReadRequest, MAX_HEADER};
use kernel::sync::atomic::{Full, Relaxed, Release};
use kernel::sync::Arc;

/// Bytes that are consumed in one go.
const TURN: usize = 256 * 1024;

/// A message that may be sent by reference: the peer may wait for the acknowledgement of its end to complete it.
const LARGE: u32 = 64 * 1024;

/// Where the payload of the current segment goes.
enum Target {
    /// Nowhere: there is none, or nobody wants it.
    Nowhere,
    /// To the receive buffer, at its cursor.
    Recv,
    /// To the sink of the Read that is being answered.
    Sink { to: u64 },
    /// To memory the peer named.
    Memory { mem: MemRef, to: u64 },
}

/// The receiver of a stream.
pub(super) struct RxCtx {
    machine: RxMachine,
    /// CRC of the FPDU as far as it has been taken.
    crc: Crc32c,
    /// The receive work request taken last, whether it is being filled, and its memory.
    recv: RecvWr,
    receiving: bool,
    /// Bytes it can take.
    room: u32,
    buffers: Sgl,
    /// Sink of the Read being answered.
    sink: Option<MemRef>,
    target: Target,
    /// The regions the peer wrote to and read from last.
    written: LastEntry,
    read: LastEntry,
    /// What the transmit side is to be told after the run.
    wake: Option<Wake>,
    /// A large message came to its end during the run.
    large: bool,
    /// An FPDU may be left in the queue until all of it is there.
    patient: bool,
    /// One was.
    waits: bool,
    /// Told of the peer's first FPDU, which also lets us send (RFC 5044 7.1.2).
    held: Option<Arc<Endpoint>>,
    fpdus: u64,
    bytes: u64,
}

impl RxCtx {
    pub(super) fn new(config: RxConfig, held: Option<Arc<Endpoint>>) -> Self {
        Self {
            machine: RxMachine::new(config),
            crc: Crc32c::new(),
            recv: RecvWr::empty(),
            receiving: false,
            room: 0,
            buffers: Sgl::empty(),
            sink: None,
            target: Target::Nowhere,
            written: LastEntry::none(),
            read: LastEntry::none(),
            wake: None,
            large: false,
            patient: true,
            waits: false,
            held,
            fpdus: 0,
            bytes: 0,
        }
    }

    /// Number of the receive work request a message was being placed in.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.receiving.then(|| self.recv.id())
    }

    /// Consumes a range of the stream, and returns how much of it: all, whatever happens, but for an
    /// FPDU that is waited for.
    fn consume(&mut self, qp: &QpObj, skb: &mut Skb<'_>) -> usize {
        let taken = self.try_consume(qp, skb).unwrap_or_else(|error| {
            self.broken(qp, error);
            skb.len()
        });
        self.bytes = self.bytes.wrapping_add(taken as u64);
        taken
    }

    fn try_consume(&mut self, qp: &QpObj, skb: &mut Skb<'_>) -> Result<usize> {
        let mut pos = 0usize;
        while pos < skb.len() && self.machine.need() != Need::Stopped {
            if self.machine.at_boundary() && self.machine.crc() && !self.vouch(skb, pos)? {
                self.waits = true;
                return Ok(pos);
            }
            pos = self.take(qp, skb, pos)?;
        }
        Ok(skb.len())
    }

    /// Takes the rest of the current FPDU, or the next one, from `pos` on, or as much as there is of it; returns where that ends.
    #[inline(never)]
    fn take(&mut self, qp: &QpObj, skb: &mut Skb<'_>, from: usize) -> Result<usize> {
        let mut pos = from;
        if let Need::Header(_) = self.machine.need() {
            let bytes = peek(skb, pos, usize::from(MAX_HEADER))?;
            let (n, begun) = self.machine.fill_from(bytes)?;
            pos = pos.wrapping_add(n);
            if begun {
                pos = pos.wrapping_add(self.begin(qp, skb, pos)?);
            }
        }
        if let Need::Payload(want) = self.machine.need() {
            let n = skb.len().saturating_sub(pos).min(want as usize);
            self.place(skb, pos, n)?;
            self.machine.advance(n as u32)?;
            pos = pos.wrapping_add(n);
        }
        if self.machine.checks_crc() {
            // The CRC is taken over as long runs of the socket buffer as possible; the pad is the machine's to add.
            self.take_crc(skb, from, pos)?;
        }
        if let Need::Trailer(want) = self.machine.need() {
            let n = skb.len().saturating_sub(pos).min(want);
            if self.machine.checks_crc() {
                self.machine.trailer(peek(skb, pos, n)?)?;
            } else {
                self.machine.skip_trailer(n)?;
            }
            pos = pos.wrapping_add(n);
        }
        if let Need::Finish = self.machine.need() {
            self.finish(qp)?;
        }
        Ok(pos)
    }

    /// Checks the CRC of the FPDU at `pos` before anything else in it is believed (RFC 5044 4.4): a damaged header would have the
    /// payload go to the wrong place. `false` if it has to be waited for.
    ///
    /// Of one that finds no room in the socket, and comes in pieces therefore, the pieces are placed, but not delivered.
    fn vouch(&mut self, skb: &mut Skb<'_>, pos: usize) -> Result<bool> {
        self.crc = Crc32c::new();
        let mut length = [0; 2];
        if let Ok(here) = peek(skb, pos, length.len())?.try_into() {
            length = here;
        } else if skb.has_come(pos, length.len()) {
            skb.copy_through(pos, &mut length)
                .map_err(|_| Error::LocalCatastrophic)?;
        } else {
            return Ok(!self.patient);
        }
        let len = mpa::fpdu_len(u16::from_be_bytes(length)) as usize;
        if !skb.has_come(pos, len) {
            return Ok(!self.patient);
        }
        let mut whole = Crc32c::new();
        skb.crc32c_through(pos, len, &mut whole)
            .map_err(|_| Error::LocalCatastrophic)?;
        if !whole.is_good() {
            return Err(Error::Crc);
        }
        self.machine.vouch();
        Ok(true)
    }

    /// Adds the bytes from `from` to `to` to the CRC.
    fn take_crc(&mut self, skb: &Skb<'_>, from: usize, to: usize) -> Result<()> {
        skb.crc32c(from, to.saturating_sub(from), &mut self.crc)
            .map_err(|_| Error::LocalCatastrophic)
    }

    /// A segment begins: everything that can be wrong with it is found before its first byte is placed. If its payload is all there it
    /// is placed at once; returns how many bytes were.
    #[inline]
    fn begin(&mut self, qp: &QpObj, skb: &Skb<'_>, pos: usize) -> Result<usize> {
        let segment = *self.machine.segment().ok_or(Error::State)?;
        let len = usize::from(segment.len);
        let whole = skb.len().saturating_sub(pos) >= len;
        let placed = match segment.kind {
            Kind::Send(_) if !segment.rtr => {
                if segment.first {
                    self.take_recv(qp)?;
                }
                let end = segment.offset.checked_add(u32::from(segment.len));
                if end.is_none_or(|end| end > self.room) {
                    return Err(Error::TooLong);
                }
                self.begin_send(qp, &segment, whole.then_some((skb, pos)))
                    .map_err(|error| error.during(AccessOp::Recv))?
            }
            Kind::Write(tagged) if len != 0 => {
                trace::place(
                    qp.qp_num(),
                    tagged.stag.0,
                    tagged.to,
                    u32::from(segment.len),
                );
                self.begin_write(qp, tagged, len, whole.then_some((skb, pos)))
                    .map_err(|error| error.during(AccessOp::Write))?
            }
            Kind::ReadResponse(tagged) => {
                if segment.first {
                    let mut orq = qp.stream.orq.lock();
                    self.machine.match_response(orq.expect())?;
                    self.sink = orq.take_sink();
                }
                self.target = Target::Sink { to: tagged.to };
                false
            }
            Kind::Send(_) | Kind::Write(_) | Kind::ReadRequest | Kind::Terminate => {
                self.target = Target::Nowhere;
                false
            }
        };
        if !placed {
            return Ok(0);
        }
        self.target = Target::Nowhere;
        self.machine.advance(u32::from(segment.len))?;
        Ok(len)
    }

    #[inline]
    fn take_recv(&mut self, qp: &QpObj) -> Result<()> {
        if !qp.rq.take(&mut self.recv) {
            qp.stats.inc(Counter::NoBuffer);
            return Err(Error::NoBuffer);
        }
        self.receiving = true;
        self.room = self.recv.bytes().ok_or(Error::LocalOp)?;
        Ok(())
    }

    /// Whether the payload is in place: a whole message is placed at once.
    #[inline]
    fn begin_send(
        &mut self,
        qp: &QpObj,
        segment: &Segment,
        payload: Option<(&Skb<'_>, usize)>,
    ) -> Result<bool, AccessError> {
        // An SRQ has its own protection domain, so it comes with the element.
        let list = List {
            qp,
            pd: self.recv.pd,
            sges: self.recv.sges(),
        };
        if let (true, true, Some((skb, pos))) = (segment.first, segment.last, payload) {
            self.buffers
                .scatter_all(&list, skb, pos, usize::from(segment.len))?;
            return Ok(segment.len != 0);
        }
        if segment.first {
            self.buffers.load(&list, Right::LocalWrite)?;
        }
        self.target = Target::Recv;
        Ok(false)
    }

    /// Whether the payload is in place.
    #[inline]
    fn begin_write(
        &mut self,
        qp: &QpObj,
        tagged: Tagged,
        len: usize,
        payload: Option<(&Skb<'_>, usize)>,
    ) -> Result<bool, AccessError> {
        let Tagged { stag, to } = tagged;
        let access = qp.access_to(stag, to, len as u64, Right::RemoteWrite);
        let tpt = &qp.dev.tpt;
        if let Some((skb, pos)) = payload {
            tpt.access(&access, &mut self.written, |memory, offset| {
                memory.write_from_skb(offset, len, skb, pos)
            })?;
            return Ok(true);
        }
        let mem = tpt.resolve(&access, &mut self.written)?;
        self.target = Target::Memory { mem, to };
        Ok(false)
    }

    fn place(&mut self, skb: &Skb<'_>, off: usize, len: usize) -> Result<()> {
        let (placed, op) = match &mut self.target {
            Target::Nowhere => (Ok(()), AccessOp::Recv),
            Target::Recv => (self.buffers.scatter(skb, off, len), AccessOp::Recv),
            Target::Sink { to } => {
                let placed = match &self.sink {
                    Some(sink) => sink.write_skb(*to, len, skb, off),
                    None => Err(AccessError::Bounds),
                };
                *to = to.wrapping_add(len as u64);
                (placed, AccessOp::ReadResponse)
            }
            Target::Memory { mem, to } => {
                let placed = mem.write_skb(*to, len, skb, off);
                *to = to.wrapping_add(len as u64);
                (placed, AccessOp::Write)
            }
        };
        placed.map_err(|error| Error::Access { error, op })
    }

    /// An FPDU is complete.
    #[inline]
    fn finish(&mut self, qp: &QpObj) -> Result<()> {
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
                .invalidate(stag, qp.pd, qp.qp_num(), true)
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
        // Checked on arrival, when all that came before it has been delivered, and again while the response is made.
        let source = match read.len {
            0 => None,
            len => Some(
                qp.dev
                    .tpt
                    .resolve(
                        &qp.access_to(
                            read.source_stag,
                            read.source_to,
                            u64::from(len),
                            Right::RemoteRead,
                        ),
                        &mut self.read,
                    )
                    .map_err(|error| Error::Access {
                        error,
                        op: AccessOp::ReadRequest,
                    })?,
            ),
        };
        qp.stream.add_request(Request { msn, read, source })?;
        // Also starts what an answered Read would, so it takes the place of that; `Open` starts everything.
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
            let done = qp.dev.tpt.invalidate(stag, qp.pd, qp.qp_num(), false);
            if let Err(error) = done {
                let error = Error::Access {
                    error,
                    op: AccessOp::LocalInvalidate,
                };
                qp.stream.retire.failed(seq, error.wc_status());
                qp.retire();
                return Err(error);
            }
        }
        qp.stream.retire.read_done(seq);
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

    /// The stream is over. The work request that suffered gets its status; what else is open will be flushed.
    #[cold]
    fn broken(&mut self, qp: &QpObj, error: Error) {
        let term = self.machine.terminate(error);
        self.machine.stop();
        self.target = Target::Nowhere;
        self.buffers.clear();
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
                    qp.stream.retire.failed(seq, error.wc_status());
                }
            }
            _ => {}
        }
        qp.fail(Cause::Stream { error, term });
    }
}

fn peek<'a>(skb: &'a mut Skb<'_>, off: usize, len: usize) -> Result<&'a [u8]> {
    skb.peek(off, len).map_err(|_| Error::LocalCatastrophic)
}

impl QpObj {
    /// Posts the CQE of a receive work request.
    pub(super) fn complete_recv(
        &self,
        wr_id: u64,
        status: WcStatus,
        bytes: u32,
        solicited: bool,
        inval: Option<Stag>,
    ) {
        trace::complete(self.qp_num(), wr_id, WcOp::Recv as u8, status as u32);
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

    /// The stream has data: `data_ready` of the endpoint. The socket is locked.
    pub(crate) fn rx_ready(&self, sk: &mut RxSock<'_>) {
        if self.stream.rx_stopped() || self.stream.rx_due.load(Relaxed) {
            return;
        }
        // Empty before the start and after the end. The socket lock keeps other runs out.
        let Some(mut rx) = self.stream.rx.take() else {
            return;
        };
        // An answer may not overtake the completion of what it answers.
        self.await_acks(sk);
        let (mut left, mut more) = (TURN, false);
        rx.patient = true;
        loop {
            rx.waits = false;
            let read = sk.read(|skb| {
                if left == 0 {
                    more = true;
                    return 0;
                }
                left = left.saturating_sub(skb.len());
                rx.consume(self, skb)
            });
            // No error of the socket, which would show in its state: data that cannot be read.
            if let Err(e) = read {
                self.fail(Cause::Lost(e));
            }
            // Once the window has been opened for what was read.
            if !rx.waits || !rx.patient || !sk.is_stuck() {
                break;
            }
            rx.patient = false;
        }
        let stats = &self.stats;
        stats.add(Counter::RxFpdus, core::mem::take(&mut rx.fpdus));
        stats.add(Counter::RxBytes, core::mem::take(&mut rx.bytes));
        let wake = rx.wake.take();
        let large = core::mem::take(&mut rx.large);
        let waits = rx.waits;
        self.stream.rx.put(rx);
        if more {
            stats.inc(Counter::RxDeferred);
            // Before the mover can look; the socket lock keeps the order for everybody else.
            self.stream.rx_due.store(true, Release);
            self.enqueue_mover(context::cpu());
        }
        if let Some(wake) = wake {
            if self.phase() == Phase::Rts {
                self.kick_from_rx(wake, sk);
            }
        }
        if large {
            sk.ack_now();
        } else if waits {
            // The peer may need that to send the rest.
            sk.ack_unread();
        }
    }

    /// The caller goes on receiving, also if a datamover was to do it.
    pub(crate) fn receive_here(&self) {
        self.stream.rx_due.store(false, Relaxed);
    }

    /// A datamover's turn to receive, if it is one.
    pub(super) fn receive_on(&self) {
        if !self.stream.rx_due.load(Relaxed) || !self.stream.rx_due.xchg(false, Full) {
            return;
        }
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            ep.socket().run_data_ready();
            if !self.stream.rx_due.load(Relaxed) {
                ep.received();
            }
        }
    }
}
