// SPDX-License-Identifier: GPL-2.0

//! FPDUs: their headers, payload, pad, markers and CRC.
//!
//! Payload is copied once, into private pages that TCP sends from, and the CRC covers the copy. So
//! a consumer that changes its buffer meanwhile cannot invalidate a CRC. It may legally change the
//! source of a peer's Read.
//!
//! Large messages of the SQ may be sent from where they are instead, because the consumer must not
//! touch them before the work request completes. So may the source of a peer's Read if the
//! connection has no CRC.

use crate::qp::sgl::{
    Sgl,
    MAX_SGE, //
};
use base::crc32c::Crc32c;
use iwarp::{
    error::AccessError,
    tx::{
        Fpdu,
        MarkerPlan,
        TxMessage,
        TxStream, //
    }, //
};
use kernel::page::PAGE_SIZE;
use soft::tcp::TxBuf;

/// The outcome of encoding an FPDU.
pub(super) enum Encoded {
    /// The FPDU is in the buffer and takes this many bytes of the stream.
    Done(usize),
    /// No room or no memory at present.
    NoRoom,
    /// Access to the payload is denied.
    Denied(AccessError),
}

/// Appends `fpdu` of `msg` to `buf`. `copy` puts its payload into the slice it is given.
#[inline]
pub(super) fn encode(
    buf: &mut TxBuf,
    stream: &TxStream,
    msg: &TxMessage<'_>,
    fpdu: &Fpdu,
    copy: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
) -> Encoded {
    let plain = fpdu.stream_len() as usize;
    let shift = match stream.markers() {
        true => 4usize.saturating_mul(stream.marker_plan(fpdu).count()),
        false => 0,
    };
    let total = plain.saturating_add(shift);
    let Some(out) = buf.reserve(total) else {
        return Encoded::NoRoom;
    };
    match fill(out, shift, stream, msg, fpdu, copy) {
        Some(Ok(())) => {
            buf.commit(total);
            Encoded::Done(total)
        }
        Some(Err(denied)) => Encoded::Denied(denied),
        // Unreachable: the lengths come from `fpdu` itself.
        None => Encoded::NoRoom,
    }
}

#[inline]
fn fill(
    out: &mut [u8],
    shift: usize,
    stream: &TxStream,
    msg: &TxMessage<'_>,
    fpdu: &Fpdu,
    copy: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
) -> Option<Result<(), AccessError>> {
    // With markers, the FPDU is built at the end of the space and its parts are then moved down
    // between them.
    let body = out.get_mut(shift..)?;
    let (head, rest) = body.split_at_mut_checked(usize::from(fpdu.header_len()))?;
    msg.emit(fpdu, head)?;
    let (payload, trailer) = rest.split_at_mut_checked(usize::from(fpdu.payload().1))?;
    if !payload.is_empty() {
        if let Err(denied) = copy(payload) {
            return Some(Err(denied));
        }
    }
    match trailer {
        [a, b, c, d] => (*a, *b, *c, *d) = (0, 0, 0, 0),
        padded => padded.fill(0),
    }
    if shift != 0 {
        spread(out, shift, stream.marker_plan(fpdu))?;
    }
    if stream.crc() {
        let (covered, field) = out.split_last_chunk_mut()?;
        let mut crc = Crc32c::new();
        crc.update(covered);
        *field = crc.finish();
    }
    Some(Ok(()))
}

/// Inserts the markers (RFC 5044 4.3); `out[shift..]` is the FPDU without them.
#[cold]
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

/// Appends `fpdu`, which has payload and no markers, to `buf`. The payload is next in `sges`, and
/// stays where it is.
pub(super) fn encode_by_ref(
    buf: &mut TxBuf,
    stream: &TxStream,
    msg: &TxMessage<'_>,
    fpdu: &Fpdu,
    sges: &mut Sgl,
) -> Encoded {
    let header = usize::from(fpdu.header_len());
    let payload = usize::from(fpdu.payload().1);
    let total = fpdu.stream_len() as usize;
    let trailer = total.saturating_sub(header).saturating_sub(payload);
    // Header, trailer and pages; the first and the last page of each element may be used in part.
    let runs = payload.div_ceil(PAGE_SIZE).saturating_add(2 * MAX_SGE + 2);
    if !buf.can_share(runs) {
        return Encoded::NoRoom;
    }
    let Some(head) = buf
        .reserve(header.saturating_add(trailer))
        .and_then(|out| out.get_mut(..header))
    else {
        return Encoded::NoRoom;
    };
    if msg.emit(fpdu, head).is_none() {
        return Encoded::NoRoom;
    }
    let mut crc = stream.crc().then(Crc32c::new);
    if let Some(crc) = &mut crc {
        crc.update(head);
    }
    let mark = buf.mark();
    buf.commit_shared(header);
    if let Err(denied) = sges.send_by_ref(payload, buf, crc.as_mut()) {
        buf.unshare(mark);
        return Encoded::Denied(denied);
    }
    // The room was reserved together with the header.
    let Some(tail) = buf.reserve(trailer) else {
        buf.unshare(mark);
        return Encoded::Denied(AccessError::Bounds);
    };
    tail.fill(0);
    if let (Some(mut crc), Some(at)) = (crc, trailer.checked_sub(4)) {
        if let Some((pad, field)) = tail.split_at_mut_checked(at) {
            crc.update(pad);
            field.copy_from_slice(&crc.finish());
        }
    }
    buf.commit_shared(trailer);
    Encoded::Done(total)
}
