// SPDX-License-Identifier: GPL-2.0

//! Placement: payload goes to receive buffers, to the sinks of Reads, or to memory that the peer
//! names.

use super::RxCtx;
use crate::{
    qp::{
        late::Wait,
        sgl::List, //
    },
    stats::Counter,
    tpt::mem_ref::MemRef,
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
            Accessor,
            Need as Right, //
        },
        stag::Stag, //
    },
    qp::intake::Stall,
    rx::{
        Kind,
        Segment, //
    },
    wire::ddp::Tagged, //
};
use soft::tcp::Skb;

/// The destination of the current segment's payload.
pub(super) enum Target {
    /// None: there is no payload, or it is dropped.
    Nowhere,
    /// The receive buffer, at its cursor.
    Recv,
    /// The sink of the Read that is being answered.
    Sink { to: u64 },
    /// Memory that the peer has named.
    Memory { mem: MemRef, to: u64 },
}

impl RxCtx {
    /// Begins a segment. All errors are found before its first byte is placed. A payload that is
    /// all there is placed at once; returns the bytes placed. After [`AccessError::Pending`] it can
    /// be called again.
    #[inline]
    pub(super) fn begin(&mut self, qp: &QpObj, skb: &Skb<'_>, pos: usize) -> Result<usize> {
        let segment = *self.machine.segment().ok_or(Error::State)?;
        let len = usize::from(segment.len);
        let whole = skb.len().saturating_sub(pos) >= len;
        let placed = match segment.kind {
            Kind::Send(_) if !segment.rtr => {
                if segment.first && !self.receiving {
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
                trace::place(|| {
                    let len = u32::from(segment.len);
                    (qp.qp_num(), tagged.stag.0, tagged.to, len)
                });
                self.begin_write(qp, tagged, &segment, whole.then_some((skb, pos)))
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
            Kind::Immediate => {
                self.take_recv(qp)?;
                self.target = Target::Nowhere;
                false
            }
            Kind::AtomicResponse => {
                let mut orq = qp.stream.orq.lock();
                self.machine.match_response(orq.expect())?;
                self.sink = orq.take_sink();
                self.target = Target::Nowhere;
                false
            }
            Kind::Send(_)
            | Kind::Write(_)
            | Kind::ReadRequest
            | Kind::AtomicRequest
            | Kind::Terminate => {
                if segment.last {
                    self.end_write(qp)?;
                }
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
            return Err(self.no_recv(qp));
        }
        self.late = None;
        self.receiving = true;
        self.room = self.recv.bytes().ok_or(Error::LocalOp)?;
        Ok(())
    }

    /// No receive is posted for the message that begins. Returns [`AccessError::Pending`] as long
    /// as the message may wait for one.
    #[cold]
    fn no_recv(&mut self, qp: &QpObj) -> Error {
        let wait = self.late.unwrap_or_else(|| Wait::begin(self.recv_wait));
        if wait.is_over() {
            qp.stats.inc(Counter::NoBuffer);
            return Error::NoBuffer;
        }
        if self.late.replace(wait).is_none() {
            qp.stats.inc(Counter::RecvLate);
        }
        self.stalled = Some(Stall::Receive);
        AccessError::Pending.during(AccessOp::Recv)
    }

    /// Begins a segment of a Send; `true` if its payload is placed. A whole message is placed at
    /// once.
    #[inline]
    fn begin_send(
        &mut self,
        qp: &QpObj,
        segment: &Segment,
        payload: Option<(&Skb<'_>, usize)>,
    ) -> Result<bool, AccessError> {
        // The element brings the protection domain, because an SRQ has its own.
        let list = List {
            tpt: &qp.dev.tpt,
            by: Accessor {
                pd: self.recv.pd,
                ..qp.accessor()
            },
            sges: self.recv.sges(),
        };
        if segment.first && qp.stream.control.busy() != 0 {
            for sge in self.recv.sges() {
                qp.check_inbound(Stag(sge.lkey))?;
            }
        }
        if let (true, true, Some((skb, pos))) = (segment.first, segment.last, payload) {
            let placed = self
                .buffers
                .scatter_all(&list, skb, pos, usize::from(segment.len));
            match placed {
                // The resolved list below can be used again.
                Err(AccessError::Pending) => {}
                placed => return placed.map(|()| segment.len != 0),
            }
        }
        if segment.first {
            self.buffers.load(&list, Right::LocalWrite)?;
        }
        self.target = Target::Recv;
        Ok(false)
    }

    /// Begins a segment of a Write; `true` if its payload is placed.
    #[inline]
    fn begin_write(
        &mut self,
        qp: &QpObj,
        tagged: Tagged,
        segment: &Segment,
        payload: Option<(&Skb<'_>, usize)>,
    ) -> Result<bool, AccessError> {
        let Tagged { stag, to } = tagged;
        qp.check_inbound(stag)?;
        let access = Access {
            stag,
            to,
            len: u64::from(segment.len),
            need: Right::RemoteWrite,
            touch: segment.last,
            by: qp.peer_accessor(),
        };
        let tpt = &qp.dev.tpt;
        if let Some((skb, pos)) = payload {
            let len = usize::from(segment.len);
            let touch = tpt.access(&access, &mut self.written, |memory, offset| {
                memory.write_from_skb(offset, len, skb, pos)
            });
            match touch {
                // The touch of the last message has ended with it.
                Ok(None) => return Ok(true),
                // The resolved memory below can be used again.
                Err(AccessError::Pending) => {}
                touch => {
                    self.touch = touch?;
                    return Ok(true);
                }
            }
        }
        let mem = tpt.resolve(&access, &mut self.written)?;
        if segment.last {
            self.touch = mem.touch()?;
        }
        self.target = Target::Memory { mem, to };
        Ok(false)
    }

    /// Begins the last segment of a message, which has no payload. If it ends a Write that had
    /// some, it touches like one with payload; a peer could otherwise avoid the touch.
    fn end_write(&mut self, qp: &QpObj) -> Result<()> {
        if let Some(stag) = self.machine.written() {
            let touched = qp.dev.tpt.touch(stag);
            self.touch = touched.map_err(|error| error.during(AccessOp::Write))?;
        }
        Ok(())
    }

    /// Places the next bytes of the payload. After [`AccessError::Pending`] nothing has moved on,
    /// so that they can be placed again.
    #[inline]
    pub(super) fn place(
        &mut self,
        qp: &QpObj,
        skb: &Skb<'_>,
        off: usize,
        len: usize,
    ) -> Result<()> {
        match self.try_place(skb, off, len) {
            Err(error) if error.is_pending() => Err(self.await_pages(qp, len, error)),
            placed => {
                self.end_fault(qp);
                placed
            }
        }
    }

    /// The access that may have waited for its pages has gone through.
    #[inline]
    pub(super) fn end_fault(&mut self, qp: &QpObj) {
        if self.faulted {
            self.faulted = false;
            qp.stream.rx_pager.passed();
        }
    }

    /// Has the pages of the payload brought that could not be placed. Returns the error, which is
    /// another one if they cannot be brought.
    #[cold]
    fn await_pages(&mut self, qp: &QpObj, len: usize, pending: Error) -> Error {
        let left = u64::from(self.machine.payload_left());
        let (missing, op) = match &self.target {
            Target::Nowhere => (None, AccessOp::Recv),
            Target::Recv => (self.buffers.missing(true, left), AccessOp::Recv),
            Target::Sink { to } => {
                let sink = self.sink.as_ref();
                let all = u64::MAX;
                let missing = sink.and_then(|sink| sink.missing(*to, len, true, all));
                (missing, AccessOp::ReadResponse)
            }
            Target::Memory { mem, to } => (mem.missing(*to, len, true, left), AccessOp::Write),
        };
        let asked = match missing {
            Some(missing) => qp.stream.rx_pager.ask(qp, missing),
            // The memory has been taken away since.
            None => Err(AccessError::NotValid),
        };
        self.faulted = true;
        match asked {
            Ok(()) => pending,
            Err(denied) => denied.during(op),
        }
    }

    fn try_place(&mut self, skb: &Skb<'_>, off: usize, len: usize) -> Result<()> {
        let (placed, op) = match &mut self.target {
            Target::Nowhere => (Ok(()), AccessOp::Recv),
            Target::Recv => (self.buffers.scatter(skb, off, len), AccessOp::Recv),
            Target::Sink { to } => {
                let placed = match &self.sink {
                    Some(sink) => sink.write_skb(*to, len, skb, off),
                    None => Err(AccessError::Bounds),
                };
                if placed.is_ok() {
                    *to = to.wrapping_add(len as u64);
                }
                (placed, AccessOp::ReadResponse)
            }
            Target::Memory { mem, to } => {
                let placed = mem.write_skb(*to, len, skb, off);
                if placed.is_ok() {
                    *to = to.wrapping_add(len as u64);
                }
                (placed, AccessOp::Write)
            }
        };
        placed.map_err(|error| Error::Access { error, op })
    }
}
