// SPDX-License-Identifier: GPL-2.0

//! Scatter/gather lists: the payload of work requests.
//!
//! [`Sgl`] is a checked and resolved scatter/gather list with a cursor. A list of one element can
//! be the source of a peer's Read; what the peer writes goes through [`tpt`](crate::tpt)
//! directly. Resolving keeps the pages of a region, but not its validity: each copy passes the
//! region's gate again, so nothing is read or written through an invalidated STag. A message that
//! is moved whole is not resolved first; it is checked and copied in one pass through the gate.

mod gather;
mod scatter;

use crate::tpt::{
    mem_ref::{
        LastEntry,
        MemRef,
        Missing, //
    },
    Tpt, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            Access,
            Accessor,
            Need, //
        },
        stag::Stag, //
    }, //
};
use rdma::Sge;

/// Most elements of a list, as in libsiw.
pub(crate) const MAX_SGE: usize = crate::uapi::abi::MAX_SGE;

/// An unchecked list, and the queue pair that uses it.
pub(crate) struct List<'a> {
    pub(crate) tpt: &'a Tpt,
    /// The queue pair. Its protection domain is that of the shared receive queue, if the list comes
    /// from one.
    pub(crate) by: Accessor,
    pub(crate) sges: &'a [Sge],
}

impl List<'_> {
    fn access(&self, sge: &Sge, need: Need) -> Access {
        Access {
            stag: Stag(sge.lkey),
            to: sge.addr,
            len: u64::from(sge.len),
            need,
            touch: false,
            by: self.by,
        }
    }
}

/// A resolved scatter/gather list and how far it has been used.
pub(crate) struct Sgl {
    pieces: [Option<MemRef>; MAX_SGE],
    len: u32,
    /// The cursor: index of the element, and offset in it in bytes.
    index: usize,
    offset: u32,
    /// The access that was denied last: element, address and bytes.
    denied: Option<(usize, u64, usize)>,
    last: LastEntry,
}

impl Sgl {
    pub(crate) const fn empty() -> Self {
        Self {
            pieces: [const { None }; MAX_SGE],
            len: 0,
            index: 0,
            offset: 0,
            denied: None,
            last: LastEntry::none(),
        }
    }

    /// Replaces the current list: resolves all of `list`, or nothing if an element fails.
    ///
    /// Elements of length 0 are ignored.
    pub(crate) fn load(&mut self, list: &List<'_>, need: Need) -> Result<(), AccessError> {
        self.clear();
        let loaded = self.try_load(list, need);
        if loaded.is_err() {
            self.clear();
        }
        loaded
    }

    fn try_load(&mut self, list: &List<'_>, need: Need) -> Result<(), AccessError> {
        let used = list.sges.iter().filter(|sge| sge.len != 0);
        let mut pieces = self.pieces.iter_mut();
        for sge in used {
            let piece = pieces.next().ok_or(AccessError::Length)?;
            let access = list.access(sge, need);
            let mem = list.tpt.resolve(&access, &mut self.last)?;
            self.len = self.len.checked_add(sge.len).ok_or(AccessError::Length)?;
            *piece = Some(mem);
        }
        Ok(())
    }

    /// Replaces the current list by a checked access of `len` bytes, not 0.
    pub(crate) fn load_one(&mut self, mem: MemRef, len: u32) {
        self.clear();
        let [first, ..] = &mut self.pieces;
        *first = Some(mem);
        self.len = len;
    }

    /// Drops the references to memory.
    pub(crate) fn clear(&mut self) {
        if self.len == 0 {
            // A list without bytes has no pieces.
            return;
        }
        for piece in &mut self.pieces {
            if piece.take().is_none() {
                break;
            }
        }
        self.len = 0;
        self.index = 0;
        self.offset = 0;
    }

    /// What the last access found not there. `ahead` bytes may be needed next, from there on.
    #[cold]
    pub(crate) fn missing(&mut self, write: bool, ahead: u64) -> Option<Missing> {
        let (index, addr, len) = self.denied.take()?;
        let piece = self.pieces.get(index)?.as_ref()?;
        piece.missing(addr, len, write, ahead)
    }

    /// Moves the cursor on by `len` bytes and calls `f(memory, address, offset in the range,
    /// bytes)` for each part on the way. After an error the cursor is where it was, so that an
    /// access can be made again.
    fn walk(
        &mut self,
        len: usize,
        f: impl FnMut(&MemRef, u64, usize, usize) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let start = (self.index, self.offset);
        let walked = self.try_walk(len, f);
        if walked.is_err() {
            (self.index, self.offset) = start;
        }
        walked
    }

    fn try_walk(
        &mut self,
        len: usize,
        mut f: impl FnMut(&MemRef, u64, usize, usize) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let mut done = 0usize;
        while done < len {
            let piece = self
                .pieces
                .get(self.index)
                .and_then(Option::as_ref)
                .ok_or(AccessError::Bounds)?;
            let left = piece.len().saturating_sub(u64::from(self.offset));
            let want = len.saturating_sub(done);
            let n = want.min(left as usize);
            // The sum was checked when the element was resolved.
            let addr = piece.start().wrapping_add(u64::from(self.offset));
            if let Err(error) = f(piece, addr, done, n) {
                self.denied = Some((self.index, addr, n));
                return Err(error);
            }
            done = done.saturating_add(n);
            if n == left as usize {
                self.index = self.index.saturating_add(1);
                self.offset = 0;
            } else {
                self.offset = self.offset.saturating_add(n as u32);
            }
        }
        Ok(())
    }
}
