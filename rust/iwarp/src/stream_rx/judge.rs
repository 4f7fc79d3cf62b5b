// SPDX-License-Identifier: GPL-2.0

//! The checks a segment must pass before any of it is placed (RFC 5041 7.1, RFC 5040 7.2).

use super::super::error::{Error, Result};
use super::super::stag::Stag;
use super::super::wire::ddp::{Tagged, Untagged, TAGGED_LEN, UNTAGGED_LEN, VERSION as DDP_VERSION};
use super::super::wire::mpa::{RtrKind, LENGTH_LEN};
use super::super::wire::rdmap::{Header, Opcode, Preamble, MAX_HEADER, VERSION as RDMAP_VERSION};
use super::{Progress, RxMachine, Segment};

impl RxMachine {
    /// Checks that the segment can hold a DDP header; returns the length up to its end. What is
    /// wrong with the rest is only said when all of that header can be said with it.
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

    /// Checks versions and opcode; returns the length of the header.
    pub(super) fn judge_preamble(&self) -> Result<u16> {
        let Preamble { ulpdu, control } = Preamble::parse(&self.header)?;
        if control.version != DDP_VERSION {
            return Err(Error::DdpVersion {
                tagged: control.tagged,
            });
        }
        if control.rdmap_version != RDMAP_VERSION {
            return Err(Error::RdmapVersion);
        }
        let opcode = Opcode::from_wire(control.opcode);
        if opcode.is_tagged() != Some(control.tagged) {
            return Err(Error::Opcode);
        }
        let least = opcode.header_len().ok_or(Error::Opcode)?;
        let whole = ulpdu.saturating_add(LENGTH_LEN);
        if whole < least {
            return Err(Error::Short);
        }
        match opcode {
            // A Terminate is all header; what is longer than any is skipped as payload.
            Opcode::Terminate => Ok(whole.min(MAX_HEADER)),
            _ => Ok(least),
        }
    }

    pub(super) fn judge_header(&mut self) -> Result<Segment> {
        let (preamble, header) = Header::parse(self.header_bytes())?;
        let len = preamble
            .ulpdu
            .saturating_add(LENGTH_LEN)
            .saturating_sub(self.want);
        let last = preamble.control.last;
        let mut segment = Segment {
            header,
            len,
            offset: 0,
            first: true,
            last,
            rtr: false,
        };
        self.must_match = false;
        match header {
            Header::Write(tagged) => self.judge_write(tagged, &mut segment)?,
            Header::ReadResponse(tagged) => self.judge_response(tagged, &mut segment)?,
            Header::Send { inv, ddp, .. } => self.judge_send(inv, ddp, &mut segment)?,
            Header::ReadRequest(ddp, _) => {
                check_queue(Opcode::ReadRequest, ddp, self.read_msn, 0)?;
                // The buffers of this queue hold one request each (RFC 5040 5.2).
                if len != 0 || !last {
                    return Err(Error::TooLong);
                }
            }
            Header::Terminate(ddp, _) => {
                check_queue(Opcode::Terminate, ddp, self.terminate_msn, 0)?;
            }
        }
        Ok(segment)
    }

    fn judge_send(
        &mut self,
        inv: Option<Stag>,
        ddp: Untagged,
        segment: &mut Segment,
    ) -> Result<()> {
        let opcode = segment.header.opcode();
        segment.first = self.send.is_none();
        let progress = self.send.get_or_insert(Progress {
            inv,
            ..Progress::new(opcode)
        });
        check_queue(opcode, ddp, self.send_msn, progress.done)?;
        if progress.opcode != opcode {
            return Err(Error::Opcode);
        }
        // Offsets have 32 bits, and so has a message (RFC 5041 4.3).
        progress
            .done
            .checked_add(u32::from(segment.len))
            .ok_or(Error::TooLong)?;
        segment.offset = progress.done;
        segment.rtr = self.first_fpdu
            && self.config.rtr.contains(RtrKind::Send)
            && segment.first
            && segment.last
            && segment.len == 0;
        Ok(())
    }

    fn judge_write(&mut self, tagged: Tagged, segment: &mut Segment) -> Result<()> {
        let progress = self.tagged_progress(Opcode::Write, segment)?;
        if segment.len == 0 {
            // STag and offset of a segment without payload mean nothing (RFC 5041 7.1).
            return Ok(());
        }
        // Only the STag must stay: each segment is checked against it by itself, and where in the
        // buffer the next one goes is the sender's affair (RFC 5041 4.2 and 5.3).
        if progress.tagged.get_or_insert(tagged).stag != tagged.stag {
            return Err(Error::WriteStag);
        }
        Ok(())
    }

    fn judge_response(&mut self, tagged: Tagged, segment: &mut Segment) -> Result<()> {
        let first = {
            let progress = self.tagged_progress(Opcode::ReadResponse, segment)?;
            progress.tagged = Some(tagged);
            segment.first
        };
        if first {
            self.must_match = true;
            return Ok(());
        }
        self.check_response(segment)
    }

    fn tagged_progress(&mut self, opcode: Opcode, segment: &mut Segment) -> Result<&mut Progress> {
        segment.first = self.tagged.is_none();
        let progress = self.tagged.get_or_insert(Progress::new(opcode));
        if progress.opcode != opcode {
            // Two tagged messages may not be mixed: their segments could not be told apart.
            return Err(Error::Opcode);
        }
        progress
            .done
            .checked_add(u32::from(segment.len))
            .ok_or(match opcode {
                Opcode::ReadResponse => Error::ResponseBounds,
                _ => Error::WriteBounds,
            })?;
        segment.offset = progress.done;
        Ok(progress)
    }

    pub(super) fn check_response(&self, segment: &Segment) -> Result<()> {
        let progress = self.tagged.as_ref().ok_or(Error::State)?;
        let expect = progress.expect.ok_or(Error::State)?;
        let tagged = progress.tagged.ok_or(Error::State)?;
        if segment.len != 0 {
            if tagged.stag != expect.stag {
                return Err(Error::ResponseStag);
            }
            if tagged.to != expect.to.wrapping_add(u64::from(progress.done)) {
                return Err(Error::ResponseBounds);
            }
        }
        let after = progress.done.saturating_add(u32::from(segment.len));
        if after > expect.len || (segment.last && after != expect.len) {
            return Err(Error::ResponseBounds);
        }
        Ok(())
    }
}

/// Queue, MSN and offset of an untagged segment, in the order of RFC 5041 7.1.
fn check_queue(opcode: Opcode, ddp: Untagged, msn: u32, offset: u32) -> Result<()> {
    if opcode.queue() != Some(ddp.qn) {
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
