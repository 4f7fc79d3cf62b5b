// SPDX-License-Identifier: GPL-2.0

//! Transmit: from work requests to the stream.
//!
//! A work request goes one way. The scheduler ([`sched`]) finds a CPU and a locked socket for the
//! owner of the token. The owner asks the source ([`source`], [`respond`]) for messages, cuts them
//! into FPDUs ([`message`]), encodes those ([`frame`], [`encode`]), hands them to TCP
//! ([`SendSock`]), and reports to [`completions`](super::completions) what TCP has accepted.
//! [`by_ref`] decides which payload is not copied.
//!
//! The owner works in batches. It encodes FPDUs from as many messages as fit, and hands them to TCP
//! in one call. A batch fills TCP's buffers, and no FPDU exceeds it. A full FPDU is as long as a
//! TCP segment, or a whole number of them is, so that segmentation offload cuts between FPDUs. Only
//! a peer that takes large FPDUs gets longer ones.
//! Read Responses and the SQ alternate at message boundaries. A message whose memory is not there
//! yet stalls: it and what comes behind it waits, with nothing of its next FPDU encoded.

mod by_ref;
mod control;
mod encode;
mod frame;
mod message;
mod replay;
mod respond;
pub(crate) mod sched;
mod source;
mod space;

use self::{
    by_ref::{
        by_ref_payload,
        LARGE_SPACE, //
    },
    frame::Framer,
    message::End,
    sched::Pace,
    space::send_space, //
};
use super::{
    completions::Wr,
    end::{
        terminate::Progress,
        Cause, //
    },
    irrq::Request,
    orq::Read,
    send_wr::SendWr,
    sgl::Sgl,
    sq::Cursor,
    state::Phase, //
};
use crate::{
    params::Control,
    tpt::mem_ref::LastEntry,
    Params,
    QpObj, //
};
use core::num::NonZero;
use iwarp::{
    mpa::{
        rtr_message,
        Negotiated,
        RtrKind, //
    },
    qp::owner::Leave,
    rx::{
        Expect,
        ReadExpect, //
    },
    tx::{
        Message,
        TxMessage,
        TxStream, //
    },
    verdict::WcStatus,
    wire::mpa::mulpdu, //
};
use kernel::sync::Arc;
use soft::tcp::{
    Marker,
    Replay,
    SendSock,
    SockView,
    Socket,
    TxBuf, //
};

/// The most bytes that TCP puts into a buffer (`tcp_xmit_size_goal()`), and that are handed to TCP
/// in one call: `sk_gso_max_size`, which is 64 KiB less `MAX_TCP_HEADER` and one
/// (`sk_dst_gso_max_size()`).
const BURST: u32 = 65_536 - 321;

/// Bytes of a burst on this socket: [`BURST`], or a segment where that is longer, as over loopback.
fn burst(sock: &SockView) -> usize {
    BURST.max(sock.mss()) as usize
}

/// Minimum charge in bytes of a pass, and of a work request that sends no message, so that neither
/// doorbells on an empty queue nor binds in a row can prolong a turn.
const LOOK: usize = 512;

/// The origin of the current message's payload.
enum Source {
    None,
    Inline {
        used: usize,
    },
    /// The list of the work request; `loaded` once it is resolved.
    List {
        loaded: bool,
    },
    /// Elements sent from where they are. The mark is here until the first of them is encoded.
    ByRef {
        marker: Option<Marker>,
    },
    /// The memory that the peer reads.
    Response,
}

/// The owner of a message.
enum Origin {
    /// The work request with this number in the FIFO of completions.
    Sq(u32),
    /// The work request that is not in the FIFO.
    Unqueued,
    /// The response to a request of the peer.
    Response,
    /// The driver itself: the RTR message or the Terminate.
    Own,
}

struct Current {
    msg: TxMessage<'static>,
    source: Source,
    origin: Origin,
}

/// A work request taken when all earlier ones had completed. If TCP accepts all of it in the next
/// call, it completes at once and never enters the FIFO of completions.
struct Unqueued {
    wr: Wr,
    /// Stream position behind its last byte, as in the FIFO.
    end: u64,
}

/// The transmitter of a stream.
pub(super) struct TxCtx {
    sock: Arc<Socket>,
    /// What was sent on connections that were given up, and goes before all else.
    replay: Replay,
    framer: Framer,
    /// The peer takes FPDUs longer than a segment.
    large: bool,
    /// The peer takes Sends with Immediate Data.
    send_imm: bool,
    /// A control operation that fails stops the SQ, and not the stream.
    drains: bool,
    /// Copied messages, too, complete when the peer has acknowledged them.
    acks: bool,
    /// How control operations are executed.
    control: Control,
    /// Smallest message sent by reference, in bytes; `None`: none is.
    zcopy_min: Option<NonZero<u32>>,
    current: Option<Current>,
    unqueued: Option<Unqueued>,
    /// The peer's request whose response is being encoded.
    answering: Option<Request>,
    /// The peer's request that is taken and waits for its memory. The responses to those behind it
    /// wait, too.
    deferred: Option<Request>,
    sges: Sgl,
    /// The region of the last sink of a Read or an atomic operation.
    sink: LastEntry,
    /// The number of a work request that is taken from the SQ and waits for a fence, for room in
    /// the ORQ, or for its memory.
    waiting: Option<u32>,
    /// Where the next work request is taken, valid during a run.
    at: Cursor,
    /// The work request taken last, valid while its message is in progress.
    wr: SendWr,
    /// Something waits for its memory, and nothing has been encoded since that was counted.
    stalled: bool,
    /// The reason why the stream cannot go on.
    broken: Option<Cause>,
    /// The last message came from the SQ, so a Read Response is next.
    respond_next: bool,
    /// Work requests taken from the SQ.
    taken: u32,
    /// Charge in bytes of this pass for work requests done without a message.
    looks: usize,
    pace: Pace,
}

impl TxCtx {
    /// A transmitter that begins with the RTR message, if any.
    pub(super) fn new(
        sock: Arc<Socket>,
        net: &Negotiated,
        rtr: Option<RtrKind>,
        params: &Params,
        at: Cursor,
    ) -> Self {
        let mut framer = Framer::new(TxStream::new(net.crc, net.tx_markers));
        let current = rtr.map(|kind| Current {
            msg: framer.stream.begin(rtr_message(kind), 0),
            source: Source::None,
            origin: Origin::Own,
        });
        Self {
            sock,
            replay: Replay::new(),
            framer,
            large: net.large_fpdus,
            send_imm: net.send_imm,
            drains: params.drains,
            acks: params.acks,
            control: params.control,
            zcopy_min: NonZero::new(params.zcopy_min),
            current,
            unqueued: None,
            answering: None,
            deferred: None,
            sges: Sgl::empty(),
            sink: LastEntry::none(),
            waiting: None,
            at,
            wr: SendWr::empty(),
            stalled: false,
            broken: None,
            respond_next: false,
            taken: 0,
            looks: 0,
            pace: Pace::new(),
        }
    }

    /// Bytes TCP has accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.framer.accepted
    }

    pub(super) fn socket(&self) -> Arc<Socket> {
        self.sock.clone()
    }

    /// The entry of the ORQ for the RTR message, if that is a Read.
    pub(super) fn rtr_read(&self) -> Option<Read> {
        let msg = &self.current.as_ref()?.msg;
        let Message::ReadRequest(read) = msg.message() else {
            return None;
        };
        Some(Read {
            seq: None,
            msn: msg.msn()?,
            expect: Expect::Read(ReadExpect {
                stag: read.sink_stag,
                to: read.sink_to,
                len: 0,
            }),
            stag: None,
            sink: None,
            inval: None,
        })
    }

    /// Sends until there is nothing more to send, no space, or `budget` bytes are gone.
    fn run(&mut self, qp: &QpObj, sock: &SendSock, budget: &mut usize) -> Leave {
        self.at = qp.sq.cursor();
        let why = self.send(qp, sock, budget);
        if self.unqueued.is_some() {
            self.enlist(qp);
        }
        // It may be long until there is more to send.
        if let Leave::Idle = why {
            self.framer.buf.rest();
        }
        why
    }

    fn send(&mut self, qp: &QpObj, sock: &SendSock, budget: &mut usize) -> Leave {
        loop {
            if qp.phase() != Phase::Rts || qp.stream.tx_stopping() {
                return Leave::Hold;
            }
            if !self.replay.is_empty() {
                if let Some(why) = self.send_again(qp, sock, budget) {
                    return why;
                }
            }
            // A small rest of the space is left alone: it would be filled with small FPDUs.
            let least = match self.large {
                true => LARGE_SPACE,
                false => 1,
            };
            let space = send_space(sock, least);
            if space == 0 {
                return Leave::Space;
            }
            // TCP needs a part of its space for itself.
            let room = space.saturating_sub(space / 8);
            // A batch ends with a segment: a part of one would leave by itself at the next ACK.
            let burst = burst(sock);
            let most = match self.large {
                true => 2 * burst,
                false => burst,
            };
            let batch = most.min(*budget).min(room);
            self.set_sizes(sock, room);
            let end = self.fill(qp, batch);
            let had = self.framer.pending();
            // TCP may hold back a short last segment only if more follows at once for certain.
            let more = batch >= burst && matches!(end, End::Full) && self.current.is_some();
            let sent = match self.framer.push(qp, sock, more) {
                Ok(sent) => sent,
                Err(error) => {
                    qp.fail(Cause::Lost(error));
                    return Leave::Hold;
                }
            };
            self.retire(qp, sock);
            *budget = budget.saturating_sub(sent.saturating_add(self.looks).max(LOOK));
            // A rest is not worth a call of its own.
            if *budget < LOOK {
                *budget = 0;
            }
            match end {
                End::Broken => {
                    if let Some(cause) = self.broken.take() {
                        qp.fail(cause);
                    }
                    return Leave::Hold;
                }
                _ if self.framer.pending() != 0 => {
                    if send_space(sock, 1) == 0 {
                        return Leave::Space;
                    }
                    if sent == 0 && had != 0 {
                        // TCP has space but no memory. No callback announces memory, so a datamover
                        // tries again later.
                        return qp.starve();
                    }
                }
                End::Idle => return Leave::Idle,
                End::Blocked => return Leave::Blocked,
                End::NoMemory if sent == 0 => return qp.starve(),
                // The oldest waits for its Read Response or its ACK, which unblocks the QP.
                End::Crowded if qp.stream.completions.is_full() => return Leave::Blocked,
                End::Full | End::NoMemory | End::Crowded => {}
            }
            if *budget == 0 {
                return Leave::Budget;
            }
            // Takes in ACKs and data after each batch, so that the backlog does not overflow.
            // Whatever unblocks the QP leaves a note in the token.
            sock.flush_backlog();
        }
    }

    /// Sets the sizes of the next FPDUs, for `room` bytes of TCP's space.
    ///
    /// A copied FPDU is one TCP segment, or if the peer agreed to large ones one burst of segments.
    /// Of what is longer than a buffer of ours it is an integral part. So few buffers of TCP end
    /// within an FPDU. No FPDU exceeds the space, unless a segment does.
    fn set_sizes(&mut self, sock: &SockView, room: usize) {
        let mss = sock.mss();
        let most = BURST.min(u32::try_from(room).unwrap_or(u32::MAX));
        let whole = match most.checked_div(mss) {
            Some(segments @ 2..) if self.large => mss.saturating_mul(segments),
            _ => mss,
        };
        let size = match whole.div_ceil(TxBuf::MAX_FPDU as u32) {
            0 | 1 => whole,
            parts => whole.checked_div(parts).unwrap_or(whole),
        };
        self.framer.mulpdu = mulpdu(size, self.framer.stream.markers());
        self.framer.by_ref = by_ref_payload(room);
    }

    /// Reports what TCP has accepted to the completions.
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
                if !qp.stream.completions.glance().is_quiet() {
                    qp.retire_upto(self.with_tcp(), sock);
                    qp.await_acks(sock);
                }
            }
        }
    }

    /// Hands TCP more of the encoded FPDUs, up to the Terminate. Sleeps.
    pub(super) fn drain(&mut self, qp: &QpObj, sock: &SendSock) -> Progress {
        let pushed = match self.push_again(sock) {
            Ok(_) if self.replay.is_empty() => self.framer.push(qp, sock, false),
            result => result,
        };
        if pushed.is_err() {
            return Progress::Lost;
        }
        qp.retire_upto(self.with_tcp(), sock);
        if self.framer.pending() == 0 && self.replay.is_empty() {
            Progress::Sent
        } else if send_space(sock, 1) == 0 {
            Progress::NoSpace
        } else {
            Progress::NoMemory
        }
    }
}
