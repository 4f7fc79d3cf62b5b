// SPDX-License-Identifier: GPL-2.0

//! From a stream to messages: cuts FPDUs out of the bytes, checks every segment against the stream
//! so far, says what is to be placed.
//!
//! The caller owns the bytes. In a loop it asks [`RxMachine::need`] and serves it: header and
//! trailer bytes are copied in, payload bytes it places itself and only reports. Splits may fall
//! anywhere. The machine checks what can be checked without knowing buffers; the caller adds, for
//! every segment with payload and before its first byte is placed:
//! - first segment of a Send: a receive buffer, or [`Error::NoBuffer`]; every segment: room in it,
//!   or [`Error::TooLong`];
//! - Write and Read Response: [`super::access::check`] over the whole segment;
//! - Read Request, at [`Event::ReadRequest`]: a free slot and [`super::access::check`];
//! - Send with Invalidate, at [`Event::Send`]: [`super::access::check_invalidate`].
//!
//! After the first error the stream is dead: later bytes are dropped silently (RFC 5041 7.1).

mod judge;
mod report;
#[cfg(test)]
mod tests;

use super::error::{Error, Result};
use super::stag::Stag;
use super::stream_tx::crc_to_wire;
use super::wire::bytes::put_at;
use super::wire::ddp::Tagged;
use super::wire::mpa::{self, RtrSet, CRC_LEN};
use super::wire::rdmap::{
    Header, Opcode, Preamble, ReadRequest, MAX_HEADER, SEND_HEADER, TAGGED_HEADER,
};
use super::wire::terminate::Terminate;

/// What was agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxConfig {
    /// CRCs are checked.
    pub crc: bool,
    /// RTR messages the first FPDU may be; empty if none is expected.
    pub rtr: RtrSet,
}

/// What the machine wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Up to this many header bytes, to [`RxMachine::fill`].
    Header(usize),
    /// This many payload bytes are to be placed and reported to [`RxMachine::advance`].
    Payload(u32),
    /// Up to this many bytes of pad and CRC, to [`RxMachine::trailer`].
    Trailer(usize),
    /// The FPDU is complete: call [`RxMachine::finish`].
    Finish,
    /// Nothing: the stream is dead, drop what comes.
    Stopped,
}

/// A segment whose header has come in and has passed the checks of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its header.
    pub header: Header,
    /// Payload bytes.
    pub len: u16,
    /// Payload bytes of the message before this segment.
    pub offset: u32,
    /// It begins a message.
    pub first: bool,
    /// It ends a message.
    pub last: bool,
    /// It is a zero-length Send that stands for "ready to receive": it takes no receive buffer and
    /// is not shown to the ULP.
    pub rtr: bool,
}

/// The oldest outstanding Read, which a Read Response must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadExpect {
    /// STag of the sink.
    pub stag: Stag,
    /// Offset of the sink.
    pub to: u64,
    /// Bytes that were asked for.
    pub len: u32,
}

/// What a complete FPDU, its CRC found good, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// More segments of the message follow.
    Partial,
    /// A Write is complete.
    Write {
        /// Bytes of the whole message.
        len: u32,
    },
    /// A Send is complete.
    Send {
        /// Bytes of the whole message.
        len: u32,
        /// With solicited event.
        se: bool,
        /// STag to invalidate before the completion is shown.
        inv: Option<Stag>,
        /// Its MSN.
        msn: u32,
    },
    /// The peer wants to read.
    ReadRequest {
        /// Its MSN, to be named if the request fails later.
        msn: u32,
        /// What it wants.
        request: ReadRequest,
    },
    /// The oldest outstanding Read is done.
    ReadResponse {
        /// Bytes of the whole message.
        len: u32,
    },
    /// The peer has given up; nothing else will come.
    Terminate(Terminate),
    /// The zero-length Send that lets a responder start.
    Rtr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Payload,
    Trailer,
    Finish,
    Stopped,
}

/// A message some segments of which have come in. Tagged and untagged messages have one each:
/// segments of the one may stand between those of the other, as C siw sends and takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    opcode: Opcode,
    done: u32,
    tagged: Option<Tagged>,
    expect: Option<ReadExpect>,
    inv: Option<Stag>,
}

impl Progress {
    const fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            done: 0,
            tagged: None,
            expect: None,
            inv: None,
        }
    }
}

/// The receiver of one stream.
#[derive(Clone, Debug)]
pub struct RxMachine {
    config: RxConfig,
    phase: Phase,
    first_fpdu: bool,
    header: [u8; 72],
    have: u16,
    want: u16,
    payload_left: u16,
    trailer: [u8; 7],
    trailer_have: u8,
    trailer_want: u8,
    segment: Option<Segment>,
    must_match: bool,
    tagged: Option<Progress>,
    send: Option<Progress>,
    send_msn: u32,
    read_msn: u32,
    terminate_msn: u32,
}

const _: () = assert!(MAX_HEADER == 72);

/// Bytes the machine asks for first: the shortest FPDU is longer, and Writes and Read Responses
/// need no more.
const FIRST_STEP: u16 = TAGGED_HEADER;

impl RxMachine {
    /// A receiver at the first FPDU of a stream.
    pub const fn new(config: RxConfig) -> Self {
        Self {
            config,
            phase: Phase::Header,
            first_fpdu: true,
            header: [0; 72],
            have: 0,
            want: FIRST_STEP,
            payload_left: 0,
            trailer: [0; 7],
            trailer_have: 0,
            trailer_want: 0,
            segment: None,
            must_match: false,
            tagged: None,
            send: None,
            send_msn: 1,
            read_msn: 1,
            terminate_msn: 1,
        }
    }

    /// What to do next.
    pub fn need(&self) -> Need {
        match self.phase {
            Phase::Header => Need::Header(usize::from(self.want.saturating_sub(self.have))),
            Phase::Payload => Need::Payload(u32::from(self.payload_left)),
            Phase::Trailer => Need::Trailer(usize::from(
                self.trailer_want.saturating_sub(self.trailer_have),
            )),
            Phase::Finish => Need::Finish,
            Phase::Stopped => Need::Stopped,
        }
    }

    /// Whether CRCs are checked on this stream.
    pub const fn crc(&self) -> bool {
        self.config.crc
    }

    /// Whether no FPDU has been finished yet; a held responder may send once this is `false` (RFC
    /// 5044 7.1.2).
    pub const fn awaits_first(&self) -> bool {
        self.first_fpdu
    }

    /// Whether the next byte begins an FPDU: a close here cuts nothing off.
    pub fn at_boundary(&self) -> bool {
        self.phase == Phase::Header && self.have == 0
    }

    /// Declares the stream dead, for an error the caller found.
    pub fn stop(&mut self) {
        self.phase = Phase::Stopped;
    }

    /// Takes header bytes, at most as many as [`Need::Header`] asks for.
    ///
    /// Yields the segment once its header is whole and good. The CRC then starts with
    /// [`Self::header_bytes`]. After a segment that begins a Read Response,
    /// [`Self::match_response`] must come next.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<Option<Segment>> {
        let result = self.try_fill(bytes);
        Ok(self.guard(result)?.then_some(self.segment).flatten())
    }

    /// As [`Self::fill`], out of bytes that may be more than the header: says how many of them it
    /// took, and whether there is now a [`Self::segment`]. It takes all there are, or all it needs.
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(usize, bool)> {
        let mut taken = 0usize;
        while self.phase == Phase::Header {
            let rest = bytes.get(taken..).unwrap_or(&[]);
            let want = usize::from(self.want.saturating_sub(self.have));
            let part = rest.get(..want).unwrap_or(rest);
            if part.is_empty() {
                return Ok((taken, false));
            }
            let result = self.try_fill(part);
            self.guard(result)?;
            taken = taken.saturating_add(part.len());
        }
        Ok((taken, self.segment.is_some()))
    }

    fn try_fill(&mut self, bytes: &[u8]) -> Result<bool> {
        if self.phase != Phase::Header {
            return Err(Error::State);
        }
        let have = usize::from(self.have);
        let end = have.checked_add(bytes.len()).ok_or(Error::State)?;
        if end > usize::from(self.want) {
            return Err(Error::State);
        }
        put_at(&mut self.header, have, bytes).ok_or(Error::State)?;
        self.have = u16::try_from(end).map_err(|_| Error::State)?;
        if self.have < self.want {
            return Ok(false);
        }
        if self.have == FIRST_STEP {
            self.want = self.ddp_header()?;
            if self.want > self.have {
                return Ok(false);
            }
        }
        if self.have <= SEND_HEADER {
            self.want = self.judge_preamble()?;
            if self.want > self.have {
                return Ok(false);
            }
        }
        let segment = self.judge_header()?;
        self.segment = Some(segment);
        self.payload_left = segment.len;
        self.phase = Phase::Payload;
        if segment.len == 0 {
            self.start_trailer()?;
        }
        Ok(true)
    }

    /// Says which Read the response that has just begun must answer: the oldest outstanding one,
    /// `None` if there is none.
    pub fn match_response(&mut self, head: Option<ReadExpect>) -> Result<()> {
        let result = self.try_match(head);
        self.guard(result)
    }

    fn try_match(&mut self, head: Option<ReadExpect>) -> Result<()> {
        if !self.must_match || self.phase == Phase::Stopped {
            return Err(Error::State);
        }
        let segment = self.segment.ok_or(Error::State)?;
        let progress = self.tagged.as_mut().ok_or(Error::State)?;
        // A response nobody asked for (RFC 5040 7.2).
        progress.expect = Some(head.ok_or(Error::Opcode)?);
        self.check_response(&segment)?;
        self.must_match = false;
        Ok(())
    }

    /// Header bytes of the current FPDU, from the MPA length field on: the CRC begins with them.
    pub fn header_bytes(&self) -> &[u8] {
        self.header.get(..usize::from(self.have)).unwrap_or(&[])
    }

    /// The segment whose payload or trailer is being received.
    pub const fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }

    /// Notes that `n` more payload bytes have been placed.
    pub fn advance(&mut self, n: u32) -> Result<()> {
        let result = self.try_advance(n);
        self.guard(result)
    }

    fn try_advance(&mut self, n: u32) -> Result<()> {
        if self.phase != Phase::Payload || self.must_match {
            return Err(Error::State);
        }
        self.payload_left = u16::try_from(n)
            .ok()
            .and_then(|n| self.payload_left.checked_sub(n))
            .ok_or(Error::State)?;
        if self.payload_left == 0 {
            self.start_trailer()?;
        }
        Ok(())
    }

    fn start_trailer(&mut self) -> Result<()> {
        let Preamble { ulpdu, .. } = Preamble::parse(&self.header)?;
        let crc_len = u8::try_from(CRC_LEN).map_err(|_| Error::State)?;
        self.trailer_want = mpa::pad(ulpdu).saturating_add(crc_len);
        self.trailer_have = 0;
        self.phase = Phase::Trailer;
        Ok(())
    }

    /// Takes bytes of pad and CRC, at most as many as [`Need::Trailer`] asks for.
    pub fn trailer(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.try_trailer(bytes);
        self.guard(result)
    }

    fn try_trailer(&mut self, bytes: &[u8]) -> Result<()> {
        if self.phase != Phase::Trailer || self.must_match {
            return Err(Error::State);
        }
        let have = usize::from(self.trailer_have);
        let end = have.checked_add(bytes.len()).ok_or(Error::State)?;
        if end > usize::from(self.trailer_want) {
            return Err(Error::State);
        }
        put_at(&mut self.trailer, have, bytes).ok_or(Error::State)?;
        self.trailer_have = u8::try_from(end).map_err(|_| Error::State)?;
        if self.trailer_have == self.trailer_want {
            self.phase = Phase::Finish;
        }
        Ok(())
    }

    /// Pad bytes of the current FPDU, which the CRC ends with. Complete at [`Need::Finish`].
    pub fn pad_bytes(&self) -> &[u8] {
        self.trailer.get(..self.pad_len()).unwrap_or(&[])
    }

    fn pad_len(&self) -> usize {
        usize::from(self.trailer_want).saturating_sub(usize::from(CRC_LEN))
    }

    /// Ends the FPDU. `crc` is the CRC32c over header, payload and pad; it does not count when CRCs
    /// are off.
    pub fn finish(&mut self, crc: u32) -> Result<Event> {
        let result = self.try_finish(crc);
        self.guard(result)
    }

    fn try_finish(&mut self, crc: u32) -> Result<Event> {
        if self.phase != Phase::Finish {
            return Err(Error::State);
        }
        let segment = self.segment.take().ok_or(Error::State)?;
        let pad = self.pad_len();
        let end = pad.saturating_add(usize::from(CRC_LEN));
        if self.config.crc && self.trailer.get(pad..end) != Some(crc_to_wire(crc).as_slice()) {
            // Terminate names no segment for this: it cannot be trusted.
            return Err(Error::Crc);
        }
        self.first_fpdu = false;
        self.have = 0;
        self.want = FIRST_STEP;
        self.phase = Phase::Header;
        Ok(self.complete(&segment))
    }

    fn complete(&mut self, segment: &Segment) -> Event {
        let len = segment.offset.saturating_add(u32::from(segment.len));
        match segment.header {
            Header::Write(_) | Header::ReadResponse(_) => {
                if !segment.last {
                    move_on(&mut self.tagged, segment.len);
                    return Event::Partial;
                }
                self.tagged = None;
                if matches!(segment.header, Header::Write(_)) {
                    Event::Write { len }
                } else {
                    Event::ReadResponse { len }
                }
            }
            Header::Send { se, ddp, .. } => {
                if !segment.last {
                    move_on(&mut self.send, segment.len);
                    return Event::Partial;
                }
                let inv = self.send.take().and_then(|progress| progress.inv);
                self.send_msn = self.send_msn.wrapping_add(1);
                if segment.rtr {
                    return Event::Rtr;
                }
                Event::Send {
                    len,
                    se,
                    inv,
                    msn: ddp.msn,
                }
            }
            Header::ReadRequest(ddp, request) => {
                self.read_msn = self.read_msn.wrapping_add(1);
                Event::ReadRequest {
                    msn: ddp.msn,
                    request,
                }
            }
            Header::Terminate(_, term) => {
                self.terminate_msn = self.terminate_msn.wrapping_add(1);
                self.phase = Phase::Stopped;
                Event::Terminate(term)
            }
        }
    }

    fn guard<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.phase = Phase::Stopped;
        }
        result
    }
}

/// Counts a segment into the message it belongs to.
fn move_on(progress: &mut Option<Progress>, len: u16) {
    if let Some(progress) = progress {
        progress.done = progress.done.saturating_add(u32::from(len));
    }
}

const _: () = assert!(SEND_HEADER > FIRST_STEP);
