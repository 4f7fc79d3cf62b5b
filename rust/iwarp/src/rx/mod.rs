// SPDX-License-Identifier: GPL-2.0

//! From a stream to messages: cuts FPDUs out of the bytes, checks every segment against the stream
//! so far, says what is to be placed.
//!
//! The caller owns the bytes. In a loop it asks [`RxMachine::need`] and serves it: header and
//! trailer bytes are copied in, payload bytes it places itself and only reports. Splits may fall
//! anywhere. The machine checks what can be checked without knowing buffers; the caller adds, for
//! every segment with payload and before its first byte is placed:
//! - first segment of a Send: a receive buffer, for which the stream may stall there
//!   ([`crate::qp::intake`]), or [`Error::NoBuffer`]; every segment: room in it, or
//!   [`Error::TooLong`];
//! - Write and Read Response: [`crate::mem::access::check`] over the whole segment;
//! - Immediate Data: a receive buffer in the same way;
//! - Read Request and Atomic Request, at their events: a free slot and
//!   [`crate::mem::access::check`];
//! - Send with Invalidate, at [`Event::Send`]: [`crate::mem::access::check_invalidate`].
//!
//! After the first error the stream is dead: later bytes are dropped silently (RFC 5041 7.1).

mod judge;
mod message;
mod report;
mod segment;
#[cfg(test)]
mod tests;

use self::{
    judge::judge_preamble,
    message::Progress, //
};
use crate::{
    error::{
        Error,
        Result, //
    },
    mem::stag::Stag,
    tx::crc_to_wire,
    wire::{
        bytes::{
            put_at,
            Reader, //
        },
        mpa::{
            self,
            RtrSet,
            CRC_LEN, //
        },
        rdmap::{
            Opcode,
            Preamble,
            MAX_HEADER,
            SEND_HEADER,
            SEND_HEADER_LEN,
            TAGGED_HEADER, //
        }, //
    }, //
};

pub use self::segment::{
    Event,
    Expect,
    Kind,
    ReadExpect,
    Segment, //
};

/// What was agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxConfig {
    /// CRCs are checked.
    pub crc: bool,
    /// RTR messages the first FPDU may be; empty if none is expected.
    pub rtr: RtrSet,
    /// The consumer takes Immediate Data.
    pub immediate: bool,
    /// Both sides know Sends with Immediate Data, and the consumer takes them.
    pub send_imm: bool,
}

/// What the machine wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Up to this many header bytes, to [`RxMachine::fill`]; or any number from here on, to
    /// [`RxMachine::fill_from`].
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Payload,
    Trailer,
    Finish,
    Stopped,
}

/// The receiver of one stream.
#[derive(Clone, Debug)]
pub struct RxMachine {
    config: RxConfig,
    /// The CRC of this FPDU is to be checked when it is complete.
    checks: bool,
    phase: Phase,
    first_fpdu: bool,
    header: [u8; 72],
    have: u16,
    want: u16,
    payload_left: u16,
    trailer: [u8; 7],
    trailer_have: u8,
    trailer_want: u8,
    /// The current one, from the end of its header to the end of its FPDU.
    segment: Segment,
    /// A response has begun that is not matched with its request yet.
    must_match: bool,
    /// The Read whose response is coming in.
    expect: Option<ReadExpect>,
    tagged: Option<Progress>,
    send: Option<Progress>,
    send_msn: u32,
    read_msn: u32,
    atomic_response_msn: u32,
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
            checks: config.crc,
            phase: Phase::Header,
            first_fpdu: true,
            header: [0; 72],
            have: 0,
            want: FIRST_STEP,
            payload_left: 0,
            trailer: [0; 7],
            trailer_have: 0,
            trailer_want: 0,
            segment: Segment {
                kind: Kind::Terminate,
                opcode: Opcode::Terminate,
                len: 0,
                offset: 0,
                first: false,
                last: false,
                rtr: false,
            },
            must_match: false,
            expect: None,
            tagged: None,
            send: None,
            send_msn: 1,
            read_msn: 1,
            atomic_response_msn: 1,
        }
    }

    /// What to do next.
    #[inline]
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

    /// Says that the CRC over the whole of the FPDU that begins with the next byte is good.
    pub fn vouch(&mut self) {
        self.checks = false;
    }

    /// Whether the CRC of the current FPDU is still to be checked, by [`Self::finish`].
    pub const fn checks_crc(&self) -> bool {
        self.checks
    }

    /// Whether no FPDU has been finished yet; a held responder may send once this is `false` (RFC
    /// 5044 7.1.2).
    pub const fn awaits_first(&self) -> bool {
        self.first_fpdu
    }

    /// Whether the next byte begins an FPDU: a close here cuts nothing off.
    #[inline]
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
    /// [`Self::header_bytes`]. After a segment that begins a Read Response or is an Atomic
    /// Response, [`Self::match_response`] must come next.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<Option<Segment>> {
        let result = self.try_fill(bytes);
        Ok(self.guard(result)?.then_some(self.segment))
    }

    /// As [`Self::fill`], out of bytes that may be more than the header: says how many of them it
    /// took, and whether there is now a [`Self::segment`]. It takes all there are, or all it needs.
    #[inline]
    pub fn fill_from(&mut self, bytes: &[u8]) -> Result<(usize, bool)> {
        let result = self.try_fill_from(bytes);
        self.guard(result)
    }

    #[inline]
    fn try_fill_from(&mut self, bytes: &[u8]) -> Result<(usize, bool)> {
        let mut taken = 0usize;
        // No FPDU is shorter than this, and most headers are not longer: they are judged in one go.
        if let (true, Some(start)) = (self.at_boundary(), bytes.first_chunk()) {
            if let Some(header) = self.header.first_chunk_mut::<SEND_HEADER_LEN>() {
                *header = *start;
            }
            self.want = self.ddp_header()?;
            self.have = self.want;
            taken = usize::from(self.have);
            if self.judge()? {
                return Ok((taken, true));
            }
        }
        while self.phase == Phase::Header {
            let rest = bytes.get(taken..).unwrap_or(&[]);
            let want = usize::from(self.want.saturating_sub(self.have));
            let part = rest.get(..want).unwrap_or(rest);
            if part.is_empty() {
                return Ok((taken, false));
            }
            self.try_fill(part)?;
            taken = taken.saturating_add(part.len());
        }
        Ok((taken, self.segment().is_some()))
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
        self.judge()
    }

    /// All that was wanted is there, at least the DDP header: begins the segment, or wants more.
    #[inline]
    fn judge(&mut self) -> Result<bool> {
        let mut rest = Reader(&self.header);
        let preamble = Preamble::read(&mut rest)?;
        if self.have <= SEND_HEADER {
            self.want = judge_preamble(&preamble, &self.config)?;
            if self.want > self.have {
                return Ok(false);
            }
        }
        self.segment = self.judge_header(&preamble, rest)?;
        let crc_len = u8::try_from(CRC_LEN).map_err(|_| Error::State)?;
        self.trailer_want = mpa::pad(preamble.ulpdu).saturating_add(crc_len);
        // A response is held against the request it answers.
        self.must_match = self.segment.first
            && matches!(
                self.segment.kind,
                Kind::ReadResponse(_) | Kind::AtomicResponse
            );
        self.payload_left = self.segment.len;
        self.start_payload();
        Ok(true)
    }

    /// Says what the response that has just begun must answer: the oldest outstanding request,
    /// `None` if there is none.
    pub fn match_response(&mut self, head: Option<Expect>) -> Result<()> {
        let result = self.try_match(head);
        self.guard(result)
    }

    fn try_match(&mut self, head: Option<Expect>) -> Result<()> {
        if !self.must_match || self.phase == Phase::Stopped {
            return Err(Error::State);
        }
        match (self.segment.kind, head) {
            (Kind::ReadResponse(_), Some(Expect::Read(expect))) => {
                self.expect = Some(expect);
                self.check_response(&self.segment)?;
            }
            (Kind::AtomicResponse, Some(Expect::Atomic(id))) => {
                if self.atomic_response()?.id != id {
                    return Err(Error::ResponseId);
                }
            }
            // A response that nobody asked for (RFC 5040 7.2), or not yet.
            _ => return Err(Error::Opcode),
        }
        self.must_match = false;
        Ok(())
    }

    /// Header bytes of the current FPDU, from the MPA length field on: the CRC begins with them.
    pub fn header_bytes(&self) -> &[u8] {
        self.header.get(..usize::from(self.have)).unwrap_or(&[])
    }

    /// The STag to which the earlier segments of the current segment's Write went; `None` if they
    /// had no payload, or if it is no Write.
    pub fn written(&self) -> Option<Stag> {
        match self.segment.kind {
            Kind::Write(_) => self.tagged.and_then(|progress| progress.stag),
            _ => None,
        }
    }

    /// The segment whose payload or trailer is being received.
    pub const fn segment(&self) -> Option<&Segment> {
        match self.phase {
            Phase::Payload | Phase::Trailer | Phase::Finish => Some(&self.segment),
            Phase::Header | Phase::Stopped => None,
        }
    }

    /// Payload bytes of the current segment that have not been placed.
    pub const fn payload_left(&self) -> u16 {
        self.payload_left
    }

    /// Notes that `n` more payload bytes have been placed.
    #[inline]
    pub fn advance(&mut self, n: u32) -> Result<()> {
        let result = self.try_advance(n);
        self.guard(result)
    }

    #[inline]
    fn try_advance(&mut self, n: u32) -> Result<()> {
        if self.phase != Phase::Payload || self.must_match {
            return Err(Error::State);
        }
        self.payload_left = u16::try_from(n)
            .ok()
            .and_then(|n| self.payload_left.checked_sub(n))
            .ok_or(Error::State)?;
        self.start_payload();
        Ok(())
    }

    /// Goes on with the payload, or behind it.
    #[inline]
    fn start_payload(&mut self) {
        self.phase = match self.payload_left {
            0 => Phase::Trailer,
            _ => Phase::Payload,
        };
        self.trailer_have = 0;
    }

    /// Takes note of bytes of pad and CRC that need not be looked at, because the CRC is not
    /// checked here: at most as many as [`Need::Trailer`] asks for.
    #[inline]
    pub fn skip_trailer(&mut self, n: usize) -> Result<()> {
        let result = match self.checks {
            true => Err(Error::State),
            false => self.trailer_end(n),
        };
        self.guard(result)
    }

    /// Takes bytes of pad and CRC, at most as many as [`Need::Trailer`] asks for.
    pub fn trailer(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.try_trailer(bytes);
        self.guard(result)
    }

    fn try_trailer(&mut self, bytes: &[u8]) -> Result<()> {
        let have = usize::from(self.trailer_have);
        self.trailer_end(bytes.len())?;
        put_at(&mut self.trailer, have, bytes).ok_or(Error::State)?;
        Ok(())
    }

    /// Counts `n` more bytes of pad and CRC.
    #[inline]
    fn trailer_end(&mut self, n: usize) -> Result<()> {
        if self.phase != Phase::Trailer || self.must_match {
            return Err(Error::State);
        }
        self.trailer_have = u8::try_from(n)
            .ok()
            .and_then(|n| self.trailer_have.checked_add(n))
            .filter(|have| *have <= self.trailer_want)
            .ok_or(Error::State)?;
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

    /// Ends the FPDU. `crc` is the CRC32c over header, payload and pad; it does not count when the
    /// CRC need not be checked.
    #[inline]
    pub fn finish(&mut self, crc: u32) -> Result<Event> {
        let result = self.try_finish(crc);
        self.guard(result)
    }

    #[inline]
    fn try_finish(&mut self, crc: u32) -> Result<Event> {
        if self.phase != Phase::Finish {
            return Err(Error::State);
        }
        if self.checks {
            let pad = self.pad_len();
            let end = pad.saturating_add(usize::from(CRC_LEN));
            if self.trailer.get(pad..end) != Some(crc_to_wire(crc).as_slice()) {
                // Terminate names no segment for this: it cannot be trusted.
                return Err(Error::Crc);
            }
        }
        self.checks = self.config.crc;
        self.first_fpdu = false;
        self.phase = Phase::Header;
        let event = self.complete()?;
        self.have = 0;
        self.want = FIRST_STEP;
        Ok(event)
    }

    #[inline]
    fn guard<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.phase = Phase::Stopped;
        }
        result
    }
}

const _: () = assert!(SEND_HEADER > FIRST_STEP);
