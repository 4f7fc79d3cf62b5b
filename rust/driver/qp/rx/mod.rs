// SPDX-License-Identifier: GPL-2.0

//! Receive: from the socket to consumer memory and completions.
//!
//! All of it runs from `sk_data_ready` with the socket locked, mostly in softirq: it neither
//! allocates nor sleeps. The socket lock makes the receiver exclusive, so a run takes the state out
//! of its slot. A run consumes what is queued, up to a limit: more would occupy a CPU too long, for
//! example all that waited for one lost segment. A datamover continues turn by turn. Until it has
//! caught up nobody else reads, so the window of TCP closes. A run stalls when it comes to memory
//! that is not there yet, or to a message without a posted receive: it leaves the rest in the
//! socket, and nobody reads until the memory is there, or a receive, or the message may wait no
//! longer. A failed stream goes on consuming and drops everything (RFC 5041 7.1).

mod deliver;
mod place;

pub(super) use self::deliver::Receipt;
use self::place::Target;
use super::{
    end::Cause,
    late::Wait,
    rq::RecvWr,
    sgl::Sgl,
    state::Phase,
    Qp, //
};
use crate::{
    cm::Endpoint,
    stats::Counter,
    tpt::{
        mem_ref::{
            LastEntry,
            MemRef, //
        },
        touch::Touch, //
    },
    QpObj, //
};
use base::{
    context,
    crc32c::Crc32c, //
};
use iwarp::{
    error::{
        Error,
        Result, //
    },
    qp::{
        intake::Stall,
        owner::Wake, //
    },
    rx::{
        Event,
        Need,
        RxConfig,
        RxMachine, //
    },
    wire::{
        mpa,
        rdmap::MAX_HEADER, //
    }, //
};
use kernel::{
    sync::Arc,
    time::Msecs, //
};
use soft::tcp::{
    RxSock,
    Skb, //
};

/// Bytes consumed in one run.
const TURN: usize = 256 * 1024;

/// Length in bytes from which a message may have been sent by reference. The peer then waits for
/// the ACK of its end to complete it.
const LARGE: u32 = 64 * 1024;

/// The receiver of a stream.
pub(super) struct RxCtx {
    machine: RxMachine,
    /// CRC over the part of the FPDU that has come in.
    crc: Crc32c,
    /// The receive work request taken last, whether a message is being placed in it, and its
    /// memory.
    recv: RecvWr,
    receiving: bool,
    /// Bytes that it can take.
    room: u32,
    buffers: Sgl,
    /// Sink of the Read or atomic operation being answered.
    sink: Option<MemRef>,
    target: Target,
    /// Bytes of the Write that was the last message, to be reported with the Immediate Data behind
    /// it.
    wrote: u32,
    /// The one-touch entry in which the Write of the current FPDU ends.
    touch: Option<Touch>,
    /// The regions that the peer wrote to and read from last.
    written: LastEntry,
    read: LastEntry,
    /// The wake-up for the transmitter after the run.
    wake: Option<Wake>,
    /// A large message has ended during the run.
    large: bool,
    /// The header of a segment is judged, and the place of its payload is not found yet.
    begins: bool,
    /// A complete FPDU that waits for memory to be delivered.
    undelivered: Option<Event>,
    /// The reason for which the run has stalled.
    stalled: Option<Stall>,
    /// The access that comes next has waited for its pages.
    faulted: bool,
    /// How long a message may wait for a receive; 0: not at all.
    recv_wait: Msecs,
    /// The wait of the message that has begun and has no receive.
    late: Option<Wait>,
    /// An FPDU may stay in the socket until all of it has come.
    patient: bool,
    /// An FPDU has been left there.
    waits: bool,
    /// The endpoint to notify of the peer's first FPDU, which ends the silence of a responder (RFC
    /// 5044 7.1.2).
    held: Option<Arc<Endpoint>>,
    fpdus: u64,
    bytes: u64,
    /// Bytes consumed since the start, without `bytes`.
    position: u64,
}

impl RxCtx {
    pub(super) fn new(config: RxConfig, held: Option<Arc<Endpoint>>, recv_wait: Msecs) -> Self {
        Self {
            machine: RxMachine::new(config),
            crc: Crc32c::new(),
            recv: RecvWr::empty(),
            receiving: false,
            room: 0,
            buffers: Sgl::empty(),
            sink: None,
            target: Target::Nowhere,
            wrote: 0,
            touch: None,
            written: LastEntry::none(),
            read: LastEntry::none(),
            wake: None,
            large: false,
            begins: false,
            undelivered: None,
            stalled: None,
            faulted: false,
            recv_wait,
            late: None,
            patient: true,
            waits: false,
            held,
            fpdus: 0,
            bytes: 0,
            position: 0,
        }
    }

    /// Bytes consumed since the start.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// ID of the receive work request that a message is being placed in.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.receiving.then(|| self.recv.id())
    }

    /// Consumes a range of the stream and returns its length in bytes: all, even after an error,
    /// unless an FPDU has to be waited for, or memory.
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
            if self.stalled.is_some() {
                return Ok(pos);
            }
        }
        Ok(skb.len())
    }

    /// Takes note of an error that only says that memory, or a receive, is not there yet.
    #[cold]
    fn stall(&mut self, error: Error) -> Result<()> {
        if !error.is_pending() {
            return Err(error);
        }
        self.stalled.get_or_insert(Stall::Memory);
        Ok(())
    }

    /// Takes the rest of the current FPDU, or the next one, from offset `from` on, as far as it has
    /// come. Returns the offset of its end.
    ///
    /// When it stalls, the payload stays in the socket. What is in front of it is consumed, and
    /// part of the CRC.
    #[inline(never)]
    fn take(&mut self, qp: &QpObj, skb: &mut Skb<'_>, from: usize) -> Result<usize> {
        let mut pos = from;
        if let Need::Header(_) = self.machine.need() {
            let bytes = peek(skb, pos, usize::from(MAX_HEADER))?;
            let (n, begun) = self.machine.fill_from(bytes)?;
            pos = pos.wrapping_add(n);
            self.begins = begun;
        }
        if self.begins {
            match self.begin(qp, skb, pos) {
                Ok(placed) => {
                    self.begins = false;
                    pos = pos.wrapping_add(placed);
                }
                Err(error) => self.stall(error)?,
            }
        }
        if let (false, Need::Payload(want)) = (self.begins, self.machine.need()) {
            let n = skb.len().saturating_sub(pos).min(want as usize);
            match self.place(qp, skb, pos, n) {
                Ok(()) => {
                    self.machine.advance(n as u32)?;
                    pos = pos.wrapping_add(n);
                }
                Err(error) => self.stall(error)?,
            }
        }
        if self.machine.checks_crc() {
            // One run from header to payload, as long as possible; `finish` adds the pad.
            self.take_crc(skb, from, pos)?;
        }
        if self.stalled.is_some() {
            return Ok(pos);
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
            self.finish(qp).or_else(|error| self.stall(error))?;
        }
        Ok(pos)
    }

    /// Checks the CRC of the FPDU at `pos` before its header is trusted (RFC 5044 4.4), because a
    /// damaged header would misplace the payload. `false` if part of the FPDU has not come yet.
    ///
    /// An FPDU that does not fit in the socket comes in pieces. They are placed, but not delivered,
    /// before the CRC is checked.
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
}

fn peek<'a>(skb: &'a mut Skb<'_>, off: usize, len: usize) -> Result<&'a [u8]> {
    skb.peek(off, len).map_err(|_| Error::LocalCatastrophic)
}

impl Qp {
    /// The stream has data: `data_ready` of the endpoint. The socket is locked.
    pub(crate) fn rx_ready(self: &QpObj, sk: &mut RxSock<'_>) {
        if !self.stream.rx_is_open() {
            return;
        }
        // Empty before the start and after the end. The socket lock excludes other runs.
        let Some(mut rx) = self.stream.rx.take() else {
            return;
        };
        // An answer may not overtake the completion of what it answers.
        self.await_acks(sk);
        let (mut left, mut more) = (TURN, false);
        let (mut noted, mut listed) = (None, false);
        rx.patient = true;
        loop {
            rx.waits = false;
            rx.stalled = None;
            if rx.undelivered.is_some() {
                rx.resume(self);
            }
            let read = sk.read(|skb| {
                if rx.stalled.is_some() {
                    return 0;
                }
                if left == 0 {
                    more = true;
                    return 0;
                }
                left = left.saturating_sub(skb.len());
                rx.consume(self, skb)
            });
            // The data cannot be read; an error of the socket would show in its state instead.
            if let Err(e) = read {
                self.fail(Cause::Lost(e));
            }
            if let Some(reason) = rx.stalled {
                let was_noted = noted == rx.stalled;
                // Noted before it looks again. So either that look finds what was missing, or the
                // context that provides it finds the note, and has reception continue.
                if !was_noted {
                    self.stream.stall_rx(reason);
                    noted = rx.stalled;
                }
                if let (Stall::Receive, Some(wait)) = (reason, &rx.late) {
                    // Also after the second look: it may have delivered the noted message, and the
                    // next one takes a later place.
                    listed = self.rq.enlist(self, wait.since);
                }
                if was_noted {
                    break;
                }
                continue;
            }
            if !rx.waits {
                break;
            }
            // Asked after the window has been opened for what was read.
            if sk.is_over() {
                // The rest of the FPDU will not come, so nothing of it may be placed.
                rx.machine.stop();
            } else if rx.patient && sk.is_stuck() {
                rx.patient = false;
            } else {
                break;
            }
        }
        let stats = &self.stats;
        stats.add(Counter::RxFpdus, core::mem::take(&mut rx.fpdus));
        let bytes = core::mem::take(&mut rx.bytes);
        stats.add(Counter::RxBytes, bytes);
        rx.position = rx.position.wrapping_add(bytes);
        let wake = rx.wake.take();
        let large = core::mem::take(&mut rx.large);
        let (waits, stalled, late) = (rx.waits, rx.stalled, rx.late);
        self.stream.rx.put(rx);
        match (stalled, late) {
            (Some(Stall::Memory), _) => stats.inc(Counter::RxStalls),
            (Some(Stall::Receive), Some(wait)) => self.await_recv(wait, !listed),
            _ if noted.is_some() => self.stream.end_rx_stall(),
            _ => {}
        }
        if listed && stalled != Some(Stall::Receive) {
            self.rq.strike(self);
        }
        if more {
            stats.inc(Counter::RxDeferred);
            // Before the datamover can look.
            self.stream.defer_rx();
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

    /// Whether a complete FPDU waits for memory, and is no longer in the socket. The caller holds
    /// the socket.
    pub(crate) fn has_undelivered(self: &QpObj) -> bool {
        let Some(rx) = self.stream.rx.take() else {
            return false;
        };
        let waits = rx.undelivered.is_some();
        self.stream.rx.put(rx);
        waits
    }

    /// Takes reception over from a datamover.
    pub(crate) fn receive_here(self: &QpObj) {
        self.stream.take_rx();
    }

    /// Continues reception in a datamover, if that is due.
    pub(super) fn receive_on(self: &QpObj) {
        if !self.stream.take_rx() {
            return;
        }
        let link = self.link.lock().clone();
        if let Some(ep) = link {
            ep.socket().run_data_ready();
            if !self.stream.rx_goes_on() {
                ep.received();
            }
        }
    }

    /// Continues what waits for memory, after more of it has appeared. What still has to wait
    /// waits on. Any context.
    pub(crate) fn unstall(self: &QpObj) {
        self.wake_mover(Wake::Unblock);
        if self.stream.unstall_rx(Stall::Memory) {
            self.enqueue_mover(context::cpu());
        }
    }
}
