// SPDX-License-Identifier: GPL-2.0

//! The checks a segment must pass before any of it is placed (RFC 5041 7.1, RFC 5040 7.2).

use super::{
    Kind,
    Progress,
    RxConfig,
    RxMachine,
    Segment, //
};
use crate::{
    error::{
        Error,
        Result, //
    },
    wire::{
        bytes::Reader,
        ddp::{
            Tagged,
            Untagged,
            QN_ATOMIC_RESPONSE,
            QN_READ,
            QN_SEND,
            QN_TERMINATE,
            TAGGED_LEN,
            UNTAGGED_LEN,
            VERSION as DDP_VERSION, //
        },
        mpa::{
            RtrKind,
            LENGTH_LEN, //
        },
        rdmap::{
            Opcode,
            Preamble,
            With,
            MAX_HEADER,
            VERSION as RDMAP_VERSION, //
        }, //
    }, //
};

impl RxMachine {
    /// Checks that the segment can hold a DDP header; returns the length up to its end. Errors in
    /// what follows wait until the whole DDP header is there to be reported with them.
    #[inline]
    pub(super) fn ddp_header(&self) -> Result<u16> {
        let Preamble { ulpdu, control } = Preamble::parse(&self.header)?;
        let ddp_len = if control.tagged {
            TAGGED_LEN
        } else {
            UNTAGGED_LEN
        };
        if ulpdu < ddp_len {
            return Err(Error::FpduLength);
        }
        Ok(ddp_len.saturating_add(LENGTH_LEN))
    }

    /// Checks the rest of a header that is all there, what is behind the preamble.
    #[inline]
    pub(super) fn judge_header(&self, preamble: &Preamble, mut r: Reader<'_>) -> Result<Segment> {
        let Preamble { ulpdu, control } = *preamble;
        let opcode = Opcode::from_wire(control.opcode);
        let len = ulpdu.saturating_add(LENGTH_LEN).saturating_sub(self.want);
        let segment = Segment {
            kind: Kind::Terminate,
            opcode,
            len,
            offset: 0,
            first: true,
            last: control.last,
            rtr: false,
        };
        match opcode {
            Opcode::Write => self.judge_write(Tagged::read(&mut r)?, segment),
            Opcode::ReadResponse => self.judge_response(Tagged::read(&mut r)?, segment),
            _ => {
                let with = With::of(opcode, r.u32()?);
                self.judge_untagged(with, Untagged::read(&mut r)?, segment)
            }
        }
    }

    #[inline]
    fn judge_untagged(&self, with: With, ddp: Untagged, segment: Segment) -> Result<Segment> {
        match segment.opcode {
            Opcode::ReadRequest => {
                check_queue(ddp, QN_READ, self.read_msn, 0)?;
                // The buffers of this queue hold one request each (RFC 5040 5.2).
                all_header(Kind::ReadRequest, segment)
            }
            Opcode::AtomicRequest => {
                check_queue(ddp, QN_READ, self.read_msn, 0)?;
                all_header(Kind::AtomicRequest, segment)
            }
            Opcode::AtomicResponse => {
                check_queue(ddp, QN_ATOMIC_RESPONSE, self.atomic_response_msn, 0)?;
                all_header(Kind::AtomicResponse, segment)
            }
            Opcode::Immediate | Opcode::ImmediateSe => {
                let done = self.send.map_or(0, |progress| progress.done);
                check_queue(ddp, QN_SEND, self.send_msn, done)?;
                // In the middle of a Send there is no place for another message of its queue.
                if self.send.is_some() {
                    return Err(Error::Opcode);
                }
                all_header(Kind::Immediate, segment)
            }
            Opcode::Terminate => {
                // A stream has one Terminate.
                check_queue(ddp, QN_TERMINATE, 1, 0)?;
                Ok(segment)
            }
            _ => self.judge_send(with, ddp, segment),
        }
    }

    #[inline]
    fn judge_send(&self, with: With, ddp: Untagged, segment: Segment) -> Result<Segment> {
        let Some(progress) = &self.send else {
            check_queue(ddp, QN_SEND, self.send_msn, 0)?;
            let rtr = self.first_fpdu
                && self.config.rtr.contains(RtrKind::Send)
                && with == With::Nothing
                && segment.last
                && segment.len == 0;
            return Ok(Segment {
                kind: Kind::Send(with),
                rtr,
                ..segment
            });
        };
        check_queue(ddp, QN_SEND, self.send_msn, progress.done)?;
        if progress.opcode != segment.opcode {
            return Err(Error::Opcode);
        }
        // Offsets have 32 bits, and so has a message (RFC 5041 4.3).
        check_len(progress, &segment, Error::TooLong)?;
        Ok(Segment {
            kind: Kind::Send(progress.with),
            offset: progress.done,
            first: false,
            ..segment
        })
    }

    #[inline]
    fn judge_write(&self, tagged: Tagged, mut segment: Segment) -> Result<Segment> {
        segment.kind = Kind::Write(tagged);
        if let Some(progress) = &self.tagged {
            // Two tagged messages may not be mixed: their segments could not be told apart.
            if progress.opcode != Opcode::Write {
                return Err(Error::Opcode);
            }
            check_len(progress, &segment, Error::WriteBounds)?;
            // Only the STag must stay: each segment is checked against it by itself, and where in
            // the buffer the next one goes is the sender's affair (RFC 5041 4.2 and 5.3). STag and
            // offset of a segment without payload mean nothing (RFC 5041 7.1).
            if segment.len != 0 && progress.stag.is_some_and(|stag| stag != tagged.stag) {
                return Err(Error::WriteStag);
            }
            segment.first = false;
            segment.offset = progress.done;
        }
        Ok(segment)
    }

    #[inline]
    fn judge_response(&self, tagged: Tagged, mut segment: Segment) -> Result<Segment> {
        segment.kind = Kind::ReadResponse(tagged);
        if let Some(progress) = &self.tagged {
            if progress.opcode != Opcode::ReadResponse {
                return Err(Error::Opcode);
            }
            check_len(progress, &segment, Error::ResponseBounds)?;
            segment.first = false;
            segment.offset = progress.done;
            self.check_response(&segment)?;
        }
        Ok(segment)
    }

    /// Checks a segment of a response against the Read it answers.
    pub(super) fn check_response(&self, segment: &Segment) -> Result<()> {
        let expect = self.expect.ok_or(Error::State)?;
        let Kind::ReadResponse(tagged) = segment.kind else {
            return Err(Error::State);
        };
        if segment.len != 0 {
            if tagged.stag != expect.stag {
                return Err(Error::ResponseStag);
            }
            if tagged.to != expect.to.wrapping_add(u64::from(segment.offset)) {
                return Err(Error::ResponseBounds);
            }
        }
        let after = segment.offset.saturating_add(u32::from(segment.len));
        if after > expect.len || (segment.last && after != expect.len) {
            return Err(Error::ResponseBounds);
        }
        Ok(())
    }
}

/// A message without payload, in one segment.
fn all_header(kind: Kind, segment: Segment) -> Result<Segment> {
    if segment.len != 0 || !segment.last {
        return Err(Error::TooLong);
    }
    Ok(Segment { kind, ..segment })
}

/// Checks versions and opcode; returns the length of the header.
#[inline]
pub(super) fn judge_preamble(preamble: &Preamble, config: &RxConfig) -> Result<u16> {
    let Preamble { ulpdu, control } = *preamble;
    if control.version != DDP_VERSION {
        return Err(Error::DdpVersion {
            tagged: control.tagged,
        });
    }
    if control.rdmap_version != RDMAP_VERSION {
        return Err(Error::RdmapVersion);
    }
    let opcode = Opcode::from_wire(control.opcode);
    let taken = match opcode {
        Opcode::Immediate | Opcode::ImmediateSe => config.immediate,
        Opcode::SendImm | Opcode::SendSeImm => config.send_imm,
        _ => true,
    };
    if !taken || opcode.is_tagged() != Some(control.tagged) {
        return Err(Error::Opcode);
    }
    let least = opcode.header_len().ok_or(Error::Opcode)?;
    let whole = ulpdu.saturating_add(LENGTH_LEN);
    if whole < least {
        return Err(Error::Short);
    }
    Ok(match opcode {
        // A Terminate is all header; what is longer than any is skipped as payload.
        Opcode::Terminate => whole.min(MAX_HEADER),
        _ => least,
    })
}

/// Whether the message, with this segment, is not longer than a message can be.
#[inline]
fn check_len(progress: &Progress, segment: &Segment, error: Error) -> Result<()> {
    match progress.done.checked_add(u32::from(segment.len)) {
        Some(_) => Ok(()),
        None => Err(error),
    }
}

/// Queue, MSN and offset of an untagged segment, in the order of RFC 5041 7.1.
#[inline]
fn check_queue(ddp: Untagged, qn: u32, msn: u32, offset: u32) -> Result<()> {
    if ddp.qn != qn {
        return Err(Error::InvalidQn);
    }
    if ddp.msn != msn {
        return Err(Error::MsnRange);
    }
    if ddp.mo != offset {
        return Err(Error::InvalidMo);
    }
    Ok(())
}
