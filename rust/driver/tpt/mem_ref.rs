// SPDX-License-Identifier: GPL-2.0

//! References to a checked part of an entry.

use super::{
    entry::{
        refusal,
        Entry, //
    },
    lent::Lent,
    touch::Touch, //
};
use base::{
    crc32c::Crc32c,
    table::RcuArc, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::Access,
        atomic::AtomicOp, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use soft::{
    mem::{
        backing::Backing,
        odp::OdpUmem, //
    },
    tcp::{
        Skb,
        TxBuf, //
    }, //
};

/// A cache of the entry used last, to avoid lookups in the table.
///
/// A stale entry is closed; so a refusal by the cached entry must be confirmed by the table.
pub(crate) struct LastEntry(Option<(u32, RcuArc<Entry>)>);

impl LastEntry {
    /// An empty cache.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// The entry, if it is the one at `index`.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&RcuArc<Entry>> {
        match &self.0 {
            Some((last, entry)) if *last == index => Some(entry),
            _ => None,
        }
    }

    /// Remembers an entry.
    pub(super) fn set(&mut self, index: u32, entry: RcuArc<Entry>) {
        self.0 = Some((index, entry));
    }
}

/// Bytes that are brought with one fault, if all of them are about to be used.
const AHEAD: u64 = 256 * 1024;

/// Bytes of a prefetch between two looks for a signal.
const PREFETCH: u64 = 2 * 1024 * 1024;

/// A part of a region on demand that is not there, and for which an access waits.
pub(crate) struct Missing {
    umem: Arc<OdpUmem>,
    offset: u64,
    len: u64,
    write: bool,
    ahead: u64,
}

impl Missing {
    /// The memory.
    pub(crate) fn memory(&self) -> Arc<OdpUmem> {
        self.umem.clone()
    }

    /// Brings the pages. Returns how many were not there. An access that still finds something
    /// missing asks again. May sleep for any time.
    pub(crate) fn bring(&self) -> Result<u64> {
        let new = match self.umem.map(self.offset, self.len, self.write, true) {
            Err(EBUSY) => return Ok(0),
            needed => needed?,
        };
        // The program need not have mapped what is behind.
        let ahead = self.umem.map(self.offset, self.ahead, self.write, true);
        Ok(new.saturating_add(ahead.unwrap_or(0)))
    }

    /// Brings the pages that a program says it will use, or with `fault` unset looks which are
    /// there. Returns how many were not there. May sleep for any time, until a signal.
    pub(crate) fn prefetch(&self, fault: bool) -> Result<u64> {
        let (mut done, mut new) = (0u64, 0u64);
        while done < self.len {
            if current!().signal_pending() {
                return Err(EINTR);
            }
            let offset = self.offset.saturating_add(done);
            let len = self.len.saturating_sub(done).min(PREFETCH);
            new = new.saturating_add(self.umem.map(offset, len, self.write, fault)?);
            done = done.saturating_add(len);
        }
        Ok(new)
    }

    /// Whether both are for the same access.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.umem, &other.umem)
            && (self.offset, self.write) == (other.offset, other.write)
    }
}

/// A checked access to (a part of) an entry.
///
/// It keeps the entry, but not its validity. Each chunk checks again, because the STag may be
/// invalidated between two chunks, and even be registered anew.
pub(crate) struct MemRef {
    /// `None` for an access of length 0.
    entry: Option<RcuArc<Entry>>,
    /// The checked access.
    to: u64,
    len: u64,
    /// The offset of the access in the memory, in this epoch of the entry.
    offset: u64,
    epoch: u64,
}

impl MemRef {
    /// The reference of an access of length 0.
    pub(super) fn empty() -> Self {
        Self {
            entry: None,
            to: 0,
            len: 0,
            offset: 0,
            epoch: 0,
        }
    }

    /// Checks an access to `entry`.
    pub(super) fn new(entry: &RcuArc<Entry>, access: &Access) -> Result<Self, AccessError> {
        let (offset, epoch) = entry.check(access)?;
        Ok(Self {
            entry: Some(entry.clone()),
            to: access.to,
            len: access.len,
            offset,
            epoch,
        })
    }

    /// The address of its first byte.
    pub(crate) fn start(&self) -> u64 {
        self.to
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Makes the checked access the one that a one-touch entry admits. `None` for other entries.
    pub(crate) fn touch(&self) -> Result<Option<Touch>, AccessError> {
        match &self.entry {
            Some(entry) => Entry::touch_in(entry, self.epoch),
            None => Ok(None),
        }
    }

    /// Runs `copy` inside the gate, with the memory and the offset of `to` in it.
    fn chunk(
        &self,
        to: u64,
        len: usize,
        copy: impl FnOnce(&Backing, u64) -> Result,
    ) -> Result<(), AccessError> {
        if len == 0 {
            return Ok(());
        }
        let entry = self.entry.as_ref().ok_or(AccessError::Bounds)?;
        let offset = self.offset_of(to, len as u64).ok_or(AccessError::Bounds)?;
        let inside = entry.gate.enter().ok_or(AccessError::NotValid)?;
        if inside.epoch != self.epoch {
            return Err(AccessError::NotValid);
        }
        let backing = inside.backing.as_ref().ok_or(AccessError::NotValid)?;
        copy(backing, offset).map_err(refusal)
    }

    /// The offset in the memory of a part of the checked access.
    fn offset_of(&self, to: u64, len: u64) -> Option<u64> {
        let ahead = to.checked_sub(self.to)?;
        if ahead.checked_add(len)? > self.len {
            return None;
        }
        self.offset.checked_add(ahead)
    }

    /// Copies from the region at `to` into `dst`: one chunk, at most 64 KiB. Any context except
    /// hard interrupts.
    pub(crate) fn read(&self, to: u64, dst: &mut [u8]) -> Result<(), AccessError> {
        self.chunk(to, dst.len(), |backing, offset| backing.read(offset, dst))
    }

    /// Copies `src` to the beginning of the checked access: one chunk. Any context except hard
    /// interrupts.
    pub(crate) fn write_all(&self, src: &[u8]) -> Result<(), AccessError> {
        self.chunk(self.to, src.len(), |backing, offset| {
            backing.write(offset, src)
        })
    }

    /// Whether the target of an atomic operation, at `to`, is aligned. Any context except hard
    /// interrupts.
    pub(crate) fn is_aligned(&self, to: u64) -> Result<bool, AccessError> {
        let mut aligned = false;
        self.chunk(to, AtomicOp::LEN as usize, |backing, offset| {
            aligned = backing.is_word(offset)?;
            Ok(())
        })?;
        Ok(aligned)
    }

    /// Executes an atomic operation on the target at `to`, and returns what that was before. Any
    /// context except hard interrupts.
    pub(crate) fn execute(&self, to: u64, op: AtomicOp) -> Result<u64, AccessError> {
        let mut original = 0;
        self.chunk(to, AtomicOp::LEN as usize, |backing, offset| {
            original = backing.fetch_update(offset, |old| op.apply(old))?;
            Ok(())
        })?;
        Ok(original)
    }

    /// Lends the memory to a message that refers to it with [`Self::share`]. `None` if that is not
    /// possible. Any context except hard interrupts.
    pub(crate) fn lend(&self) -> Option<Arc<Lent>> {
        let inside = self.entry.as_ref()?.gate.enter()?;
        let can_share = inside.backing.as_ref().is_some_and(Backing::can_share);
        if inside.epoch != self.epoch || !can_share {
            return None;
        }
        inside.lent.as_ref().map(Lent::lend)
    }

    /// What an access of `len` bytes at `to` waits for, if it finds the memory not there:
    /// `write` says whether it writes. `ahead` bytes may be needed next, behind `to`. Any context
    /// except hard interrupts.
    #[cold]
    pub(crate) fn missing(&self, to: u64, len: usize, write: bool, ahead: u64) -> Option<Missing> {
        let offset = self.offset_of(to, len as u64)?;
        let inside = self.entry.as_ref()?.gate.enter()?;
        if inside.epoch != self.epoch {
            return None;
        }
        let Some(Backing::Odp(umem)) = &inside.backing else {
            return None;
        };
        let end = self.offset.saturating_add(self.len);
        Some(Missing {
            umem: umem.clone(),
            offset,
            len: len as u64,
            write,
            ahead: ahead.min(AHEAD).min(end.saturating_sub(offset)),
        })
    }

    /// As [`Self::missing`], for [`Self::write_all`] of `len` bytes.
    pub(crate) fn all_missing(&self, len: usize) -> Option<Missing> {
        self.missing(self.to, len, true, 0)
    }

    /// Appends the region at `to` to `buf` by reference, and adds it to `crc`: one chunk, at most
    /// 64 KiB. Any context except hard interrupts.
    pub(crate) fn share(
        &self,
        to: u64,
        len: usize,
        buf: &mut TxBuf,
        crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError> {
        self.chunk(to, len, |backing, offset| {
            backing.share(offset, len, buf, crc)
        })
    }

    /// Copies `len` bytes of `skb` from `skb_off` into the region at `to`: one chunk. Softirq or
    /// process context.
    pub(crate) fn write_skb(
        &self,
        to: u64,
        len: usize,
        skb: &Skb<'_>,
        skb_off: usize,
    ) -> Result<(), AccessError> {
        self.chunk(to, len, |backing, offset| {
            backing.write_from_skb(offset, len, skb, skb_off)
        })
    }
}
