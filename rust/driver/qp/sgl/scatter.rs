// SPDX-License-Identifier: GPL-2.0

//! In: the stream to consumer memory.
//!
//! Bytes go straight from the socket buffer to the consumer's pages. The CRC is computed over the
//! socket buffer, because the consumer may write to its pages.

use super::{
    List,
    Sgl, //
};
use iwarp::{
    error::AccessError,
    mem::access::Need, //
};
use soft::tcp::Skb;

impl Sgl {
    /// Places a whole message in `list`: `len` bytes of `skb` from `off` on.
    pub(crate) fn scatter_all(
        &mut self,
        list: &List<'_>,
        skb: &Skb<'_>,
        off: usize,
        len: usize,
    ) -> Result<(), AccessError> {
        if let [sge] = list.sges {
            if len > sge.len as usize {
                return Err(AccessError::Bounds);
            }
            let access = list.access(sge, Need::LocalWrite);
            // The use of its owner is no touch.
            let used = list.tpt.access(&access, &mut self.last, |memory, offset| {
                memory.write_from_skb(offset, len, skb, off)
            });
            return used.map(|_| ());
        }
        self.load(list, Need::LocalWrite)?;
        let placed = self.scatter(skb, off, len);
        self.clear();
        placed
    }

    /// Places `len` bytes of `skb` from `off` on at the cursor.
    pub(crate) fn scatter(
        &mut self,
        skb: &Skb<'_>,
        off: usize,
        len: usize,
    ) -> Result<(), AccessError> {
        self.walk(len, |mem, addr, at, n| {
            mem.write_skb(addr, n, skb, off.saturating_add(at))
        })
    }
}
