// SPDX-License-Identifier: GPL-2.0

//! Transmit: from work requests to the stream.
//!
//! One direction: the scheduler ([`sched`]) finds a CPU and a locked socket for the owner of the token; the owner asks the
//! source ([`source`]) for messages, cuts them into FPDUs ([`message`], [`frame`]), hands those to TCP, and passes on what
//! TCP has accepted to [`completions`](super::completions).
//!
//! The owner of the token works in batches: it encodes FPDUs, each exactly one TCP segment long so that segmentation offload
//! cuts between them, from as many messages as fit, and hands them to TCP in one call. Read Responses and the SQ alternate at
//! message boundaries. A work request is finished with the SQ when TCP has accepted its last byte.

mod by_ref;
mod encode;
mod frame;
mod message;
pub(crate) mod sched;
mod source;
mod wire;

use self::frame::Framer;
use self::message::Filled;
use self::wire::{send_space, Wire};
use super::completions::Wr;
use super::end::terminate::Progress;
use super::end::Cause;
use super::irrq::Request;
use super::orq::Read;
use super::sgl::Sgl;
use super::sq::SendWr;
use super::state::Phase;
use crate::driver::tpt::entry::LastEntry;
use crate::driver::{Params, QpObj};
use crate::kapi::net::{LockedSock, Marker, SockView, Socket, TxBuf};
use core::num::NonZero;
use iwarp::error::WcStatus;
use iwarp::mpa::{rtr_message, Negotiated, RtrKind};
use iwarp::qp::coalesce::Gather;
use iwarp::qp::fairness::Share;
use iwarp::qp::owner::Leave;
use iwarp::rx::ReadExpect;
use iwarp::tx::{Message, TxMessage, TxStream};
use iwarp::wire::mpa::mulpdu;
use kernel::sync::Arc;

/// Bytes handed to TCP at once: what one TSO burst can be.
const BATCH: usize = 64 * 1024;

/// Least that a look at the queues is charged, in bytes: doorbells on an empty queue cannot prolong a turn.
const LOOK: usize = 512;

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
    ByRef {
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
    Unqueued,
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
struct Unqueued {
    wr: Wr,
    /// As in the FIFO.
    end: u64,
}

/// The transmitter of a stream.
pub(super) struct TxCtx {
    sock: Arc<Socket>,
    framer: Framer,
    /// The peer takes FPDUs of many segments.
    large: bool,
    /// The smallest message that is sent by reference, if any is.
    zcopy_min: Option<NonZero<u32>>,
    current: Option<Current>,
    unqueued: Option<Unqueued>,
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
    /// Work requests taken from the SQ.
    taken: u32,
    /// When doorbells are answered.
    gather: Gather,
    /// What it may send while others wait.
    share: Share,
    /// The last run ended because TCP had no space, or too little for another turn.
    paused: bool,
    /// Runs so far.
    turns: u64,
}

impl TxCtx {
    /// A transmitter that begins with the RTR message, if any.
    pub(super) fn new(
        sock: Arc<Socket>,
        net: &Negotiated,
        rtr: Option<RtrKind>,
        params: &Params,
    ) -> Self {
        let mut framer = Framer::new(TxStream::new(net.crc, net.tx_markers));
        let current = rtr.map(|kind| Current {
            msg: framer.stream.begin(rtr_message(kind), 0),
            source: Source::None,
            origin: Origin::Own,
        });
        Self {
            sock,
            framer,
            large: net.large_fpdus,
            zcopy_min: NonZero::new(params.zcopy_min),
            current,
            unqueued: None,
            answering: None,
            sges: Sgl::empty(),
            sink: LastEntry::none(),
            waiting: None,
            wr: SendWr::empty(),
            broken: None,
            respond_next: false,
            taken: 0,
            gather: Gather::new(),
            share: Share::new(),
            paused: false,
            turns: 0,
        }
    }

    /// Bytes TCP has accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.framer.accepted
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
    fn run(&mut self, qp: &QpObj, sock: &mut impl Wire, budget: &mut usize) -> Leave {
        let why = self.send(qp, sock, budget);
        if self.unqueued.is_some() {
            self.enlist(qp);
        }
        // Who knows when there is more to send.
        if let Leave::Idle = why {
            self.framer.buf.rest();
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
            self.framer.mulpdu = self.fpdu_size(sock);
            let filled = self.fill(qp, batch);
            let had = self.framer.pending();
            // TCP may hold back a short last segment only if it is sure that more follows at once.
            let more = batch == BATCH && matches!(filled, Filled::Full) && self.current.is_some();
            let sent = match self.framer.push(qp, sock, more) {
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
                _ if self.framer.pending() != 0 => {
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
                Filled::Crowded if qp.stream.completions.is_full() => return Leave::Blocked,
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
            return mulpdu(TxBuf::MAX_FPDU as u32, self.framer.stream.markers());
        }
        let mss = sock.mss();
        let size = match mss.div_ceil(TxBuf::MAX_FPDU as u32) {
            0 | 1 => mss,
            parts => mss.checked_div(parts).unwrap_or(mss),
        };
        mulpdu(size, self.framer.stream.markers())
    }

    /// Completes what TCP has accepted.
    #[inline(always)]
    fn retire(&mut self, qp: &QpObj, sock: &SockView) {
        match self.unqueued.take() {
            Some(Unqueued { wr, end }) if end <= self.framer.accepted => {
                if wr.signalled {
                    qp.complete_send(&wr, WcStatus::Success);
                }
            }
            unqueued => {
                self.unqueued = unqueued;
                self.enlist(qp);
                if !qp.stream.completions.is_quiet() {
                    qp.retire_upto(self.framer.accepted, sock);
                    qp.await_acks(sock);
                }
            }
        }
    }

    /// Hands TCP more of what is encoded.
    pub(super) fn drain(&mut self, qp: &QpObj, sock: &mut LockedSock<'_>) -> Progress {
        if self.framer.push(qp, sock, false).is_err() {
            return Progress::Lost;
        }
        qp.retire_upto(self.framer.accepted, sock);
        if self.framer.pending() == 0 {
            Progress::Sent
        } else if send_space(sock) == 0 {
            Progress::NoSpace
        } else {
            Progress::NoMemory
        }
    }
}
