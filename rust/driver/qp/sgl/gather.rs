// SPDX-License-Identifier: GPL-2.0

//! Out: consumer memory to FPDUs.

use super::{
    List,
    Sgl, //
};
use crate::qp::loans::Loan;
use base::crc32c::Crc32c;
use iwarp::{
    error::AccessError,
    mem::access::Need, //
};
use soft::tcp::TxBuf;

impl Sgl {
    /// The loan for a message that sends all of it by reference. `None` if that is not possible.
    pub(in crate::qp) fn lend(&self) -> Option<Loan> {
        let mut loan = Loan::new();
        for piece in self.pieces.iter().flatten() {
            loan.add(piece.lend()?);
        }
        Some(loan)
    }

    /// Appends the next `len` bytes to `buf` by reference, and adds them to `crc`.
    pub(in crate::qp) fn send_by_ref(
        &mut self,
        len: usize,
        buf: &mut TxBuf,
        mut crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError> {
        self.walk(len, |mem, addr, _, n| {
            mem.share(addr, n, buf, crc.as_deref_mut())
        })
    }

    /// Fills `dst` with a whole message from `list`.
    pub(in crate::qp) fn gather_all(
        &mut self,
        list: &List<'_>,
        dst: &mut [u8],
    ) -> Result<(), AccessError> {
        if let [sge] = list.sges {
            if dst.len() > sge.len as usize {
                return Err(AccessError::Bounds);
            }
            let access = list.access(sge, Need::LocalRead);
            // The use of its owner is no touch.
            let used = list.tpt.access(&access, &mut self.last, |memory, offset| {
                memory.read(offset, dst)
            });
            return used.map(|_| ());
        }
        self.load(list, Need::LocalRead)?;
        let gathered = self.gather(dst);
        self.clear();
        gathered
    }

    /// Fills `dst` with the next bytes.
    pub(in crate::qp) fn gather(&mut self, dst: &mut [u8]) -> Result<(), AccessError> {
        self.walk(dst.len(), |mem, addr, at, n| {
            let part = at
                .checked_add(n)
                .and_then(|end| dst.get_mut(at..end))
                .ok_or(AccessError::Bounds)?;
            mem.read(addr, part)
        })
    }
}
