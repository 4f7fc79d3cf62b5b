// SPDX-License-Identifier: GPL-2.0

//! Out: consumer memory to FPDUs.
//!
//! Payload is copied once, into the private pages that TCP will send from, and the CRC is taken over that copy. A consumer that changes
//! its buffer meanwhile thus cannot make a CRC wrong; for the source of a peer's Read it may legally do so.
//!
//! Sending by reference instead would start here: [`encode`] is the only place that knows how payload gets into the stream.

use super::Sgl;
use crate::kapi::crc32c::Crc32c;
use crate::kapi::net::TxBuf;
use iwarp::access::AccessError;
use iwarp::stream_tx::{Fpdu, MarkerPlan, TxStream};

/// What became of an FPDU.
pub(crate) enum Encoded {
    /// It is in the buffer and takes this many bytes of stream.
    Done(usize),
    /// No room or no memory now.
    NoRoom,
    /// The payload may no longer be read.
    Denied(AccessError),
}

/// Appends `fpdu` to `buf`. `copy` puts its payload into the slice it is given.
pub(crate) fn encode(
    buf: &mut TxBuf,
    stream: &TxStream,
    fpdu: &Fpdu,
    copy: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
) -> Encoded {
    let plain = fpdu.stream_len() as usize;
    let plan = stream.marker_plan(fpdu);
    let shift = 4usize.saturating_mul(plan.clone().count());
    let total = plain.saturating_add(shift);
    let Some(out) = buf.reserve(total) else {
        return Encoded::NoRoom;
    };
    match fill(out, shift, plan, stream.crc(), fpdu, copy) {
        Some(Ok(())) => {
            buf.commit(total);
            Encoded::Done(total)
        }
        Some(Err(denied)) => Encoded::Denied(denied),
        // The lengths come from `fpdu` itself, so this does not happen.
        None => Encoded::NoRoom,
    }
}

fn fill(
    out: &mut [u8],
    shift: usize,
    plan: MarkerPlan,
    crc: bool,
    fpdu: &Fpdu,
    copy: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
) -> Option<Result<(), AccessError>> {
    // With markers the FPDU is built at the end of the space, and its parts are then moved down between them.
    let body = out.get_mut(shift..)?;
    let header = fpdu.header();
    let (head, rest) = body.split_at_mut_checked(header.len())?;
    head.copy_from_slice(header);
    let (payload, trailer) = rest.split_at_mut_checked(usize::from(fpdu.payload().1))?;
    if !payload.is_empty() {
        if let Err(denied) = copy(payload) {
            return Some(Err(denied));
        }
    }
    trailer.fill(0);
    if shift != 0 {
        spread(out, shift, plan)?;
    }
    if crc {
        let (covered, field) = out.split_at_mut_checked(out.len().checked_sub(4)?)?;
        let mut crc = Crc32c::new();
        crc.update(covered);
        field.copy_from_slice(&crc.finish());
    }
    Some(Ok(()))
}

/// Puts the markers in (RFC 5044 4.3): `out[shift..]` is the FPDU without them.
#[inline(never)]
fn spread(out: &mut [u8], shift: usize, plan: MarkerPlan) -> Option<()> {
    let (mut from, mut to) = (shift, 0usize);
    for marker in plan {
        let end = shift.checked_add(marker.at as usize)?;
        let n = end.checked_sub(from)?;
        if end > out.len() || to > from {
            return None;
        }
        out.copy_within(from..end, to);
        from = end;
        to = to.checked_add(n)?;
        let after = to.checked_add(4)?;
        out.get_mut(to..after)?.copy_from_slice(&marker.bytes());
        to = after;
    }
    Some(())
}

impl Sgl {
    /// Copies the next `dst.len()` bytes out.
    pub(crate) fn gather(&mut self, dst: &mut [u8]) -> Result<(), AccessError> {
        self.walk(dst.len(), |mem, addr, at, n| {
            let part = at
                .checked_add(n)
                .and_then(|end| dst.get_mut(at..end))
                .ok_or(AccessError::Bounds)?;
            mem.read(addr, part)
        })
    }
}
