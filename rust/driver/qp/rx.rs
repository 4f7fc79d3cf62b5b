// SPDX-License-Identifier: GPL-2.0

//! Receive: from the socket to consumer memory and completions.
//!
//! Everything here runs from `sk_data_ready` with the socket locked, mostly in softirq: no allocation, no sleeping. The socket lock is also
//! what makes the receiver exclusive, so its state is simply taken out of its slot for the time of a run. All that is queued is consumed
//! in one go; a stream that has failed goes on consuming, and drops what it gets (RFC 5041 7.1).

use super::irrq::Request;
use super::rq::RecvWr;
use super::state::Phase;
use super::stream::Cause;
use crate::driver::cm::Endpoint;
use crate::driver::cq::{Completion, WcOp};
use crate::driver::payload::Sgl;
use crate::driver::stats::Counter;
use crate::driver::tpt::entry::{LastEntry, MemRef};
use crate::driver::QpObj;
use crate::kapi::crc32c::Crc32c;
use crate::kapi::net::{RxSock, Skb};
use crate::kapi::trace;
use iwarp::access::{Access, AccessError, AccessOp, Need as Right};
use iwarp::error::{Error, Result, WcStatus};
use iwarp::stag::Stag;
use iwarp::stream_rx::{Event, Need, RxConfig, RxMachine};
use iwarp::tx_owner::Wake;
use iwarp::wire::ddp::Tagged;
use iwarp::wire::mpa;
use iwarp::wire::rdmap::{Header, ReadRequest, MAX_HEADER};
use kernel::sync::Arc;

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
    /// A new FPDU begins with the next byte.
    fresh: bool,
    /// The FPDU was there as a whole when it began: `crc` is all of it, and good.
    vouched: bool,
    /// The receive work request taken last, whether it is being filled, and its memory.
    recv: RecvWr,
    receiving: bool,
    buffers: Sgl,
    /// Sink of the Read being answered.
    sink: Option<MemRef>,
    target: Target,
    /// The regions the peer wrote to and read from last.
    written: LastEntry,
    read: LastEntry,
    /// What the transmit side is to be told after the run.
    wake: Option<Wake>,
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
            fresh: true,
            vouched: false,
            recv: RecvWr::empty(),
            receiving: false,
            buffers: Sgl::empty(),
            sink: None,
            target: Target::Nowhere,
            written: LastEntry::none(),
            read: LastEntry::none(),
            wake: None,
            held,
            fpdus: 0,
            bytes: 0,
        }
    }

    /// Number of the receive work request a message was being placed in.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.receiving.then(|| self.recv.id())
    }

    /// Consumes a range of the stream. All of it is taken, whatever happens.
    fn consume(&mut self, qp: &QpObj, skb: &mut Skb<'_>) -> usize {
        let mut pos = 0;
        if let Err(error) = self.try_consume(qp, skb, &mut pos) {
            self.broken(qp, error);
        }
        self.bytes = self.bytes.wrapping_add(skb.len() as u64);
        skb.len()
    }

    fn try_consume(&mut self, qp: &QpObj, skb: &mut Skb<'_>, pos: &mut usize) -> Result<()> {
        // The CRC is taken over as long runs of the socket buffer as possible; this is where the current one begins.
        let mut run = 0usize;
        loop {
            let left = skb.len().saturating_sub(*pos);
            match self.machine.need() {
                Need::Header(_) if left > 0 => {
                    if self.fresh {
                        self.fresh = false;
                        self.crc = Crc32c::new();
                        run = *pos;
                        self.vouched = self.machine.crc() && self.vouch(skb, *pos)?;
                    }
                    let bytes = peek(skb, *pos, usize::from(MAX_HEADER))?;
                    let (n, begun) = self.machine.fill_from(bytes)?;
                    *pos = pos.saturating_add(n);
                    if begun {
                        self.begin(qp)?;
                    }
                }
                Need::Payload(want) if left > 0 => {
                    let n = left.min(want as usize);
                    self.place(skb, *pos, n)?;
                    self.machine.advance(n as u32)?;
                    *pos = pos.saturating_add(n);
                }
                Need::Trailer(want) if left > 0 => {
                    // The pad is the machine's to add; header and payload end here.
                    self.take_crc(skb, run, *pos)?;
                    let bytes = peek(skb, *pos, want)?;
                    self.machine.trailer(bytes)?;
                    *pos = pos.saturating_add(bytes.len());
                    run = *pos;
                }
                Need::Finish => {
                    if self.machine.crc() && !self.vouched {
                        self.crc.update(self.machine.pad_bytes());
                    }
                    let crc = u32::from_le_bytes(self.crc.finish());
                    let event = self.machine.finish(crc)?;
                    self.fresh = true;
                    self.fpdus = self.fpdus.wrapping_add(1);
                    self.deliver(qp, event)?;
                }
                Need::Stopped => return Ok(()),
                Need::Header(_) | Need::Payload(_) => {
                    if !self.fresh {
                        self.take_crc(skb, run, *pos)?;
                    }
                    return Ok(());
                }
                Need::Trailer(_) => {
                    self.take_crc(skb, run, *pos)?;
                    return Ok(());
                }
            }
        }
    }

    /// Whether the FPDU at `pos` is there as a whole. Then its CRC is checked before anything else in it is believed (RFC 5044 4.4): a
    /// damaged header would have the payload go to the wrong place. Of one that comes in pieces that can only be undelivered.
    fn vouch(&mut self, skb: &mut Skb<'_>, pos: usize) -> Result<bool> {
        let Ok(length) = <[u8; 2]>::try_from(peek(skb, pos, 2)?) else {
            return Ok(false);
        };
        let len = mpa::fpdu_len(u16::from_be_bytes(length)) as usize;
        if skb.len().saturating_sub(pos) < len {
            return Ok(false);
        }
        let field = len.saturating_sub(usize::from(mpa::CRC_LEN));
        let mut whole = Crc32c::new();
        skb.crc32c(pos, field, &mut whole)
            .map_err(|_| Error::LocalCatastrophic)?;
        self.crc = whole;
        skb.crc32c(
            pos.saturating_add(field),
            usize::from(mpa::CRC_LEN),
            &mut whole,
        )
        .map_err(|_| Error::LocalCatastrophic)?;
        if whole.is_good() {
            Ok(true)
        } else {
            Err(Error::Crc)
        }
    }

    /// Adds the bytes from `from` to `to` to the CRC.
    fn take_crc(&mut self, skb: &Skb<'_>, from: usize, to: usize) -> Result<()> {
        let len = to.saturating_sub(from);
        if len == 0 || self.vouched || !self.machine.crc() {
            return Ok(());
        }
        skb.crc32c(from, len, &mut self.crc)
            .map_err(|_| Error::LocalCatastrophic)
    }

    /// A segment begins: everything that can be wrong with it is found before its first byte is placed.
    fn begin(&mut self, qp: &QpObj) -> Result<()> {
        let segment = *self.machine.segment().ok_or(Error::State)?;
        self.target = Target::Nowhere;
        match segment.header {
            Header::Send { .. } if segment.rtr => Ok(()),
            Header::Send { .. } => {
                if segment.first {
                    self.take_recv(qp)?;
                }
                let end = segment.offset.checked_add(u32::from(segment.len));
                if end.is_none_or(|end| end > self.buffers.len()) {
                    return Err(Error::TooLong);
                }
                self.target = Target::Recv;
                Ok(())
            }
            Header::Write(tagged) if segment.len != 0 => {
                self.begin_write(qp, tagged, u32::from(segment.len))
            }
            Header::ReadResponse(tagged) => {
                if segment.first {
                    let mut orq = qp.stream.orq.lock();
                    self.machine.match_response(orq.expect())?;
                    self.sink = orq.take_sink();
                }
                self.target = Target::Sink { to: tagged.to };
                Ok(())
            }
            Header::Write(_) | Header::ReadRequest(..) | Header::Terminate(..) => Ok(()),
        }
    }

    fn take_recv(&mut self, qp: &QpObj) -> Result<()> {
        if !qp.rq.take(&mut self.recv) {
            qp.dev.stats.inc(Counter::NoBuffer);
            return Err(Error::NoBuffer);
        }
        self.receiving = true;
        let sges = self.recv.sges().ok_or(Error::LocalOp)?;
        // An SRQ has its own protection domain, so it comes with the element.
        self.buffers
            .load(&qp.dev, self.recv.pd, qp.qp_num(), sges, Right::LocalWrite)
            .map_err(|error| Error::Access {
                error,
                op: AccessOp::Recv,
            })?;
        Ok(())
    }

    fn begin_write(&mut self, qp: &QpObj, tagged: Tagged, len: u32) -> Result<()> {
        let Tagged { stag, to } = tagged;
        trace::place(qp.qp_num(), stag.0, to, len);
        let mem = qp
            .dev
            .tpt
            .resolve(
                &Access {
                    stag,
                    to,
                    len: u64::from(len),
                    need: Right::RemoteWrite,
                    pd: qp.pd,
                    qp: qp.qp_num(),
                },
                &mut self.written,
            )
            .map_err(|error| Error::Access {
                error,
                op: AccessOp::Write,
            })?;
        self.target = Target::Memory { mem, to };
        Ok(())
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

    /// An FPDU is complete and its CRC good.
    fn deliver(&mut self, qp: &QpObj, event: Event) -> Result<()> {
        if let Some(ep) = self.held.take() {
            ep.first_fpdu();
            self.wake = Some(Wake::Open);
        }
        match event {
            Event::Partial => Ok(()),
            Event::Write { .. } | Event::Rtr => {
                self.target = Target::Nowhere;
                Ok(())
            }
            Event::Send { len, se, inv, .. } => self.deliver_send(qp, len, se, inv),
            Event::ReadRequest { msn, request } => self.deliver_request(qp, msn, request),
            Event::ReadResponse { .. } => self.deliver_response(qp),
            Event::Terminate(term) => {
                qp.fail(Cause::PeerTerminate(term));
                Ok(())
            }
        }
    }

    fn deliver_send(&mut self, qp: &QpObj, len: u32, se: bool, inv: Option<Stag>) -> Result<()> {
        self.target = Target::Nowhere;
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

    fn deliver_request(&mut self, qp: &QpObj, msn: u32, read: ReadRequest) -> Result<()> {
        // Checked on arrival, when all that came before it has been delivered, and again while the response is made.
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
                            pd: qp.pd,
                            qp: qp.qp_num(),
                        },
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

    fn deliver_response(&mut self, qp: &QpObj) -> Result<()> {
        self.target = Target::Nowhere;
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
    fn broken(&mut self, qp: &QpObj, error: Error) {
        let term = self.machine.terminate(error);
        self.machine.stop();
        self.target = Target::Nowhere;
        self.buffers.clear();
        match error {
            Error::Crc => qp.dev.stats.inc(Counter::CrcError),
            Error::Access {
                op: AccessOp::Invalidate | AccessOp::LocalInvalidate,
                ..
            } => qp.dev.stats.inc(Counter::StaleInvalidate),
            Error::Access { .. } => qp.dev.stats.inc(Counter::AccessError),
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
        if self.stream.rx_stopped() {
            return;
        }
        // Empty before the start and after the end. The socket lock keeps other runs out.
        let Some(mut rx) = self.stream.rx.take() else {
            return;
        };
        // No error of the socket, which would show in its state: data that cannot be read.
        if let Err(e) = sk.read(|skb| rx.consume(self, skb)) {
            self.fail(Cause::Lost(e));
        }
        let stats = &self.dev.stats;
        stats.add(Counter::RxFpdus, core::mem::take(&mut rx.fpdus));
        stats.add(Counter::RxBytes, core::mem::take(&mut rx.bytes));
        let wake = rx.wake.take();
        self.stream.rx.put(rx);
        if let Some(wake) = wake {
            if self.phase() == Phase::Rts {
                self.kick_from_rx(wake, sk);
            }
        }
    }
}
