// SPDX-License-Identifier: GPL-2.0

//! From a message to FPDUs: headers, sizes, pad, trailer, markers.
//!
//! Planning an FPDU changes nothing: [`TxMessage::fpdu`] says what comes next, the caller encodes
//! it into its buffer, and then tells with [`TxMessage::commit`] and [`TxStream::sent`] that it is
//! a part of the stream. So a stop for lack of room needs no undoing. When TCP takes the buffer is
//! the caller's affair.

mod marker;

use crate::{
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    },
    wire::{
        bytes::put_at,
        ddp::{
            Tagged,
            Untagged,
            QN_ATOMIC_RESPONSE,
            QN_READ,
            QN_SEND,
            QN_TERMINATE, //
        },
        mpa::{
            self,
            LENGTH_LEN,
            MARKER_INTERVAL,
            MARKER_LEN,
            MAX_ULPDU, //
        },
        rdmap::{
            write_immediate,
            AtomicRequest,
            AtomicResponse,
            Immediate,
            Opcode,
            ReadRequest,
            Start,
            With,
            ATOMIC_REQUEST_HEADER,
            ATOMIC_RESPONSE_HEADER,
            IMMEDIATE_HEADER,
            READ_REQUEST_HEADER,
            SEND_HEADER,
            TAGGED_HEADER, //
        },
        terminate::Terminate, //
    }, //
};

pub use self::marker::{
    Marker,
    MarkerPlan, //
};

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Send, with its variants.
    Send {
        /// With solicited event.
        se: bool,
        /// What comes with it.
        with: With,
    },
    /// RDMA Write.
    Write {
        /// STag of the peer's buffer.
        stag: Stag,
        /// Offset in the peer's buffer.
        to: u64,
    },
    /// RDMA Read Request.
    ReadRequest(ReadRequest),
    /// Read Response: the answer to a Read Request of the peer.
    ReadResponse {
        /// STag of the peer's sink.
        stag: Stag,
        /// Offset in the peer's sink.
        to: u64,
    },
    /// Terminate: the last message of a stream.
    Terminate(&'a Terminate),
    /// Immediate Data.
    Immediate {
        /// With solicited event.
        se: bool,
        /// The data.
        data: Immediate,
    },
    /// Atomic Request.
    AtomicRequest {
        /// STag of the peer's buffer.
        stag: Stag,
        /// Offset in the peer's buffer.
        to: u64,
        /// The operation.
        op: AtomicOp,
    },
    /// Atomic Response: the answer to an Atomic Request of the peer.
    AtomicResponse(AtomicResponse),
}

/// State of a sender's stream: the MSNs and, with markers, the position.
#[derive(Clone, Debug)]
pub struct TxStream {
    crc: bool,
    markers: bool,
    /// Position in the marker interval of the next byte to be sent.
    position: u16,
    send_msn: u32,
    read_msn: u32,
    terminate_msn: u32,
    atomic_response_msn: u32,
}

impl TxStream {
    /// A new stream, as negotiated.
    pub const fn new(crc: bool, markers: bool) -> Self {
        Self {
            crc,
            markers,
            position: 0,
            // The first message of every queue has MSN 1 (RFC 5041 4.3).
            send_msn: 1,
            read_msn: 1,
            terminate_msn: 1,
            atomic_response_msn: 1,
        }
    }

    /// A stream that has sent nearly 2^32 messages.
    #[cfg(test)]
    pub(crate) const fn near_the_last_message(crc: bool) -> Self {
        Self {
            send_msn: u32::MAX - 1,
            read_msn: u32::MAX - 1,
            atomic_response_msn: u32::MAX - 1,
            ..Self::new(crc, false)
        }
    }

    /// Whether FPDUs carry a CRC. If not, the field is there and zero.
    pub const fn crc(&self) -> bool {
        self.crc
    }

    /// Whether markers are to be put in.
    pub const fn markers(&self) -> bool {
        self.markers
    }

    /// Starts a message of `len` payload bytes and gives it its MSN, so messages must be begun in
    /// the order they are sent.
    ///
    /// Only Sends, Writes and Read Responses have payload; `len` does not count for the others.
    #[inline]
    pub fn begin<'a>(&mut self, message: Message<'a>, len: u32) -> TxMessage<'a> {
        let take = |next: &mut u32| {
            let msn = *next;
            *next = msn.wrapping_add(1);
            msn
        };
        let (msn, len) = match message {
            Message::Send { .. } => (take(&mut self.send_msn), len),
            Message::Immediate { .. } => (take(&mut self.send_msn), 0),
            Message::ReadRequest(_) | Message::AtomicRequest { .. } => {
                (take(&mut self.read_msn), 0)
            }
            Message::Terminate(_) => (take(&mut self.terminate_msn), 0),
            Message::AtomicResponse(_) => (take(&mut self.atomic_response_msn), 0),
            Message::Write { .. } | Message::ReadResponse { .. } => (0, len),
        };
        TxMessage {
            message,
            msn,
            len,
            sent: 0,
            done: false,
        }
    }

    /// Where markers go in the next FPDU; nowhere if none are wanted.
    pub fn marker_plan(&self, fpdu: &Fpdu) -> MarkerPlan {
        if self.markers {
            MarkerPlan::new(self.position, fpdu.stream_len())
        } else {
            MarkerPlan::none()
        }
    }

    /// Notes that `fpdu`, with the markers [`Self::marker_plan`] gave, is encoded as a whole: the
    /// stream goes on behind it.
    pub fn sent(&mut self, fpdu: &Fpdu) {
        if !self.markers {
            return;
        }
        let markers = self
            .marker_plan(fpdu)
            .remaining()
            .saturating_mul(u32::from(MARKER_LEN));
        let end = u32::from(self.position)
            .wrapping_add(fpdu.stream_len())
            .wrapping_add(markers);
        // The interval is a power of two, so the wrap above does no harm.
        self.position =
            u16::try_from(end & u32::from(MARKER_INTERVAL.wrapping_sub(1))).unwrap_or(0);
    }
}

/// A message on its way: can be stopped and taken up again after any FPDU.
#[derive(Clone, Debug)]
pub struct TxMessage<'a> {
    message: Message<'a>,
    msn: u32,
    len: u32,
    sent: u32,
    done: bool,
}

impl<'a> TxMessage<'a> {
    /// The next FPDU with a ULPDU of at most `mulpdu` bytes; `None` when all have been committed.
    ///
    /// `mulpdu` may differ from call to call. A header that does not fit still goes out whole: no
    /// header is longer than the least MULPDU.
    #[inline]
    pub fn fpdu(&self, mulpdu: u16) -> Option<Fpdu> {
        if self.done {
            return None;
        }
        let header_len = self.header_len();
        let room = max_payload(header_len, mulpdu);
        let left = self.len.saturating_sub(self.sent);
        let len = u16::try_from(left).unwrap_or(u16::MAX).min(room);
        Some(Fpdu {
            header_len,
            offset: self.sent,
            len,
            last: u32::from(len) == left,
        })
    }

    /// Writes the header of `fpdu`, which [`Self::fpdu`] gave, and returns its length; `None` if
    /// `out` is too short for it.
    #[inline]
    pub fn emit(&self, fpdu: &Fpdu, out: &mut [u8]) -> Option<usize> {
        let start = |opcode| Start {
            opcode,
            header_len: fpdu.header_len,
            payload: fpdu.len,
            last: fpdu.last,
        };
        let untagged = |qn| Untagged {
            qn,
            msn: self.msn,
            mo: fpdu.offset,
        };
        let tagged = |stag, to: u64| Tagged {
            stag,
            to: to.wrapping_add(u64::from(fpdu.offset)),
        };
        let emitted = match self.message {
            Message::Send { se, with } => {
                start(with.opcode(se)).untagged(with, &untagged(QN_SEND), out, |_| Ok(()))
            }
            Message::Write { stag, to } => start(Opcode::Write).tagged(&tagged(stag, to), out),
            Message::ReadResponse { stag, to } => {
                start(Opcode::ReadResponse).tagged(&tagged(stag, to), out)
            }
            Message::ReadRequest(read) => {
                start(Opcode::ReadRequest)
                    .untagged(With::Nothing, &untagged(QN_READ), out, |w| read.write(w))
            }
            Message::Terminate(term) => start(Opcode::Terminate).untagged(
                With::Nothing,
                &untagged(QN_TERMINATE),
                out,
                |w| term.write(w),
            ),
            Message::Immediate { se, data } => {
                let opcode = match se {
                    false => Opcode::Immediate,
                    true => Opcode::ImmediateSe,
                };
                start(opcode).untagged(With::Nothing, &untagged(QN_SEND), out, |w| {
                    write_immediate(data, w)
                })
            }
            Message::AtomicRequest { stag, to, op } => {
                let request = AtomicRequest {
                    id: self.msn,
                    stag,
                    to,
                    op,
                };
                start(Opcode::AtomicRequest)
                    .untagged(With::Nothing, &untagged(QN_READ), out, |w| request.write(w))
            }
            Message::AtomicResponse(response) => {
                let ddp = untagged(QN_ATOMIC_RESPONSE);
                start(Opcode::AtomicResponse)
                    .untagged(With::Nothing, &ddp, out, |w| response.write(w))
            }
        };
        emitted.ok()
    }

    #[inline]
    fn header_len(&self) -> u16 {
        match self.message {
            Message::Send { .. } => SEND_HEADER,
            Message::Write { .. } | Message::ReadResponse { .. } => TAGGED_HEADER,
            Message::ReadRequest(_) => READ_REQUEST_HEADER,
            Message::Terminate(term) => SEND_HEADER.saturating_add(term.len()),
            Message::Immediate { .. } => IMMEDIATE_HEADER,
            Message::AtomicRequest { .. } => ATOMIC_REQUEST_HEADER,
            Message::AtomicResponse(_) => ATOMIC_RESPONSE_HEADER,
        }
    }

    /// Notes that `fpdu`, the last one [`Self::fpdu`] gave, is encoded.
    pub fn commit(&mut self, fpdu: &Fpdu) {
        self.sent = self.sent.saturating_add(u32::from(fpdu.len));
        self.done = fpdu.last;
    }

    /// Whether all of it has been committed.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Payload bytes committed so far.
    pub const fn offset(&self) -> u32 {
        self.sent
    }

    /// Payload bytes in all.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no payload.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is being sent.
    pub const fn message(&self) -> &Message<'a> {
        &self.message
    }

    /// MSN of an untagged message, `None` for a tagged one. It is the identifier of an Atomic
    /// Request, too.
    pub const fn msn(&self) -> Option<u32> {
        match self.message {
            Message::Write { .. } | Message::ReadResponse { .. } => None,
            _ => Some(self.msn),
        }
    }

    /// Stream bytes the rest of the message takes, headers, pads and CRCs included, markers not.
    pub fn cost(&self, mulpdu: u16) -> u64 {
        if self.done {
            return 0;
        }
        message_cost(
            self.header_len(),
            self.len.saturating_sub(self.sent),
            mulpdu,
        )
    }
}

/// One FPDU to be sent: header, a range of the message's payload, pad and CRC.
#[derive(Clone, Copy, Debug)]
pub struct Fpdu {
    header_len: u16,
    offset: u32,
    len: u16,
    last: bool,
}

impl Fpdu {
    /// Bytes of its header, from the MPA length field on.
    pub const fn header_len(&self) -> u16 {
        self.header_len
    }

    /// Offset of the payload in its message, and its length.
    pub const fn payload(&self) -> (u32, u16) {
        (self.offset, self.len)
    }

    /// Whether it ends its message.
    pub const fn is_last(&self) -> bool {
        self.last
    }

    fn ulpdu(&self) -> u16 {
        self.header_len
            .saturating_sub(LENGTH_LEN)
            .saturating_add(self.len)
    }

    /// Pad bytes between payload and CRC, all zero.
    pub fn pad(&self) -> u8 {
        mpa::pad(self.ulpdu())
    }

    /// Bytes it takes in the stream, without markers.
    pub fn stream_len(&self) -> u32 {
        mpa::fpdu_len(self.ulpdu())
    }

    /// Pad and CRC field.
    ///
    /// `crc` is the CRC32c over header, payload, pad and the markers among them (RFC 5044 4.4), or
    /// `None` for a stream without CRCs.
    pub fn trailer(&self, crc: Option<u32>) -> Trailer {
        let pad = usize::from(self.pad());
        let mut bytes = [0; 7];
        let field = crc_to_wire(crc.unwrap_or(0));
        let len = put_at(&mut bytes, pad, &field).unwrap_or(0);
        Trailer { bytes, len }
    }
}

/// The CRC field for a CRC32c: least significant octet first, as the digests of iSCSI (RFC 5044
/// 4.4).
pub const fn crc_to_wire(crc: u32) -> [u8; 4] {
    crc.to_le_bytes()
}

/// The end of an FPDU.
#[derive(Clone, Copy, Debug)]
pub struct Trailer {
    bytes: [u8; 7],
    len: usize,
}

impl Trailer {
    /// Its bytes: 4 to 7.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Payload bytes that fit behind a header of `header_len` bytes (MPA length included) in a ULPDU of
/// `mulpdu` bytes.
///
/// `mulpdu` is taken as within the limits of RFC 5044, so the result is never 0 and never makes a
/// ULPDU above 64768 bytes.
pub fn max_payload(header_len: u16, mulpdu: u16) -> u16 {
    mulpdu
        .clamp(mpa::MIN_MULPDU, MAX_ULPDU)
        .saturating_sub(header_len.saturating_sub(LENGTH_LEN))
}

/// Stream bytes a message of `len` payload bytes takes in FPDUs of at most `mulpdu`, markers not
/// included.
pub fn message_cost(header_len: u16, len: u32, mulpdu: u16) -> u64 {
    let room = max_payload(header_len, mulpdu);
    let full_len = header_len.saturating_sub(LENGTH_LEN).saturating_add(room);
    // `room` is never 0; and a message without payload still has one FPDU.
    let full = len
        .checked_sub(1)
        .and_then(|last| last.checked_div(u32::from(room)))
        .unwrap_or(0);
    let tail = len.saturating_sub(full.saturating_mul(u32::from(room)));
    let tail_ulpdu = header_len
        .saturating_sub(LENGTH_LEN)
        .saturating_add(u16::try_from(tail).unwrap_or(u16::MAX));
    u64::from(full)
        .saturating_mul(u64::from(mpa::fpdu_len(full_len)))
        .saturating_add(u64::from(mpa::fpdu_len(tail_ulpdu)))
}
