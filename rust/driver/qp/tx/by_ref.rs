// SPDX-License-Identifier: GPL-2.0

//! Zero copy: decides which messages are sent by reference.

use super::{
    message::list,
    Source,
    TxCtx, //
};
use crate::{
    qp::loans::{
        ByRef,
        Loan, //
    },
    stats::Counter,
    QpObj, //
};
use iwarp::{
    error::{
        AccessOp,
        Error as IwarpError, //
    },
    mem::access::Need as Right, //
};
use kernel::page::PAGE_SIZE;

/// Pages of payload in the largest FPDU sent by reference. With header, trailer and one more page,
/// as payload may begin inside a page, they fill an skb (`MAX_SKB_FRAGS`).
const PAGES: usize = 14;

/// TCP's space, in bytes, for the largest FPDU sent by reference. TCP counts a page for each part
/// of one, and header and trailer are such parts; and it needs some space for itself.
pub(super) const LARGE_SPACE: usize = (PAGES + 3 + 3) * PAGE_SIZE;

/// Header bytes of a tagged and of an untagged ULPDU (RFC 5041 5).
pub(super) const TAGGED: u16 = 14;

pub(super) const UNTAGGED: u16 = 18;

/// Smallest message sent by reference, in bytes, if a consumer waits for its completion and nothing
/// is posted behind it. Below, a copy takes less time than an ACK may.
const BY_REF_AWAITED: u32 = 256 * 1024;

/// The largest payload, in bytes, of an FPDU sent by reference that needs no more than `room` bytes
/// of TCP's space: whole pages, one at least.
pub(super) fn by_ref_payload(room: usize) -> u16 {
    let pages = (room / PAGE_SIZE).saturating_sub(3);
    pages.clamp(1, PAGES) as u16 * PAGE_SIZE as u16
}

impl TxCtx {
    /// Whether the work request's message is large enough to be sent by reference. Inline payload
    /// is not: it has no memory of its own.
    #[inline]
    pub(super) fn may_go_by_ref(&self) -> bool {
        self.is_large(self.wr.bytes()) && !self.wr.is_inline()
    }

    /// The same as [`Self::source`], for a message that is large enough to be sent by reference.
    #[inline(never)]
    pub(super) fn source_of_large(&mut self, qp: &QpObj, seq: u32) -> Result<Source, IwarpError> {
        // The whole list is checked before the first byte of the message leaves.
        self.sges
            .load(&list(qp, &self.wr), Right::LocalRead)
            .map_err(|error| error.during(AccessOp::Send))?;
        let len = self.wr.bytes();
        let may_wait = len >= BY_REF_AWAITED || !self.wr.signalled || qp.sq.has_work_at(&self.at);
        let loan = match may_wait {
            true => self.lend(),
            false => None,
        };
        let releases = Some(&qp.stream.releases);
        let Some((by_ref, marker)) = loan.and_then(|loan| ByRef::new(qp, loan, releases)) else {
            return Ok(Source::List { loaded: true });
        };
        qp.stream.completions.until_acked(seq, Some(by_ref));
        qp.stats.inc(Counter::ZcopyWrs);
        qp.stats.add(Counter::ZcopyBytes, len.into());
        let marker = Some(marker);
        Ok(Source::ByRef { marker })
    }

    /// The source of a Read Response of `len` bytes.
    ///
    /// The owner of the memory may write to it meanwhile, so a CRC cannot be computed in place.
    /// Only the end of the region waits for the peer's acknowledgement.
    pub(super) fn source_of_response(&self, qp: &QpObj, len: u32) -> Source {
        if !self.is_large(len) || self.framer.stream.crc() {
            return Source::Response;
        }
        let by_ref = self.lend().and_then(|loan| ByRef::new(qp, loan, None));
        let Some((by_ref, marker)) = by_ref else {
            return Source::Response;
        };
        if qp.stream.responses.add(by_ref).is_err() {
            return Source::Response;
        }
        qp.stats.inc(Counter::ZcopyReads);
        qp.stats.add(Counter::ZcopyBytes, len.into());
        let marker = Some(marker);
        Source::ByRef { marker }
    }

    /// Whether a message of that length is large enough to be sent by reference.
    #[inline]
    fn is_large(&self, len: u32) -> bool {
        self.zcopy_min.is_some_and(|min| len >= min.get())
    }

    /// The loan of the memory in `sges`, if it may be sent by reference, and doing so pays for a
    /// large message.
    ///
    /// The peer must take large FPDUs. They fill skbs, and a peer that takes them is this driver,
    /// which acknowledges a large message at once. Another peer may delay the ACK, and the
    /// completion with it.
    fn lend(&self) -> Option<Loan> {
        match self.large && !self.framer.stream.markers() && self.sock.can_share() {
            true => self.sges.lend(),
            false => None,
        }
    }
}
