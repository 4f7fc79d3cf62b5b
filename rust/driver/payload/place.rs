// SPDX-License-Identifier: GPL-2.0

//! In: the stream to consumer memory.
//!
//! Bytes go straight from the socket buffer to the consumer's pages. The CRC is not taken from there: the consumer may write to them too.

use super::Sgl;
use crate::kapi::net::Skb;
use iwarp::access::AccessError;

impl Sgl {
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
