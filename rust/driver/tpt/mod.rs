// SPDX-License-Identifier: GPL-2.0

//! The translation and protection table (TPT): maps STags to memory and rights.
//!
//! Invalidation and deregistration take effect at once: each use passes the entry's gate and checks
//! again, chunk by chunk. Nothing is placed or read after the revoking call has returned, nor sent
//! by reference ([`lent`]).

pub(crate) mod entry;
pub(crate) mod fast_reg;
pub(crate) mod lent;
pub(crate) mod mem_ref;
pub(crate) mod region;
pub(crate) mod touch;
pub(crate) mod window;

use super::{
    limits::Counted,
    Shared, //
};
use base::table::{
    RcuArc,
    RcuTable, //
};
use entry::Entry;
use fast_reg::RegWr;
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            self,
            Access,
            Accessor,
            Invalidate,
            PdId, //
        },
        stag::Stag, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use mem_ref::{
    LastEntry,
    MemRef, //
};
use soft::mem::{
    att::Translation,
    backing::Backing, //
};
use touch::Touch;

/// Attempts to draw a free index. With a million regions in one quarter of the 2^24 indexes, a draw
/// hits one with p = 1/4.
const DRAWS: usize = 64;

/// The table of one device.
#[pin_data]
pub(crate) struct Tpt {
    shared: Arc<Shared>,
    #[pin]
    table: RcuTable<Entry>,
}

impl Tpt {
    /// An empty table.
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                shared,
                table <- RcuTable::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Publishes an entry under an index that was not used recently. Process context.
    ///
    /// `make` builds the entry for the STag it gets.
    pub(crate) fn add(
        &self,
        make: impl FnOnce(Stag) -> Result<RcuArc<Entry>>,
        key: Option<u8>,
    ) -> Result<RcuArc<Entry>> {
        let mut free = None;
        for _ in 0..DRAWS {
            let stag = self.shared.draw_stag();
            // Only a hint: `insert()` below decides.
            if self.table.get(stag.index()).is_none() {
                free = Some(stag);
                break;
            }
        }
        let stag = free.ok_or(ENOMEM)?;
        let stag = key.map_or(stag, |key| stag.with_key(key));
        let entry = make(stag)?;
        self.table.insert(stag.index(), entry.clone())?;
        Ok(entry)
    }

    /// Removes the entry at `stag`'s index. Holders of a reference find it closed. Process context.
    pub(crate) fn remove(&self, stag: Stag) {
        drop(self.table.remove(stag.index()));
    }

    /// The entry at the index of `stag`. Any context.
    pub(crate) fn entry(&self, stag: Stag) -> Option<RcuArc<Entry>> {
        self.table.get(stag.index())
    }

    /// Checks an access and returns a reference to the memory.
    ///
    /// Any context. An access of length 0 touches no entry (RFC 5040 7.2, RFC 5041 7.1).
    pub(crate) fn resolve(
        &self,
        access: &Access,
        last: &mut LastEntry,
    ) -> Result<MemRef, AccessError> {
        if access.len == 0 {
            return Ok(MemRef::empty());
        }
        let index = access.stag.index();
        if let Some(Ok(mem)) = last.get(index).map(|entry| MemRef::new(entry, access)) {
            return Ok(mem);
        }
        let entry = self.table.get(index).ok_or(AccessError::UnknownStag)?;
        let mem = MemRef::new(&entry, access)?;
        last.set(index, entry);
        Ok(mem)
    }

    /// Checks an access and performs it in one step: `copy` gets the memory and the offset of the
    /// access in it, and copies at most 64 KiB. Returns the touch of a one-touch entry.
    ///
    /// Any context except hard interrupts. Does nothing for an access of length 0.
    #[inline]
    pub(crate) fn access(
        &self,
        access: &Access,
        last: &mut LastEntry,
        mut copy: impl FnMut(&Backing, u64) -> Result,
    ) -> Result<Option<Touch>, AccessError> {
        if access.len == 0 {
            return Ok(None);
        }
        let index = access.stag.index();
        if let Some(entry) = last.get(index) {
            if let Ok(touch) = Entry::access(entry, access, &mut copy) {
                return Ok(touch);
            }
        }
        let entry = self.table.get(index).ok_or(AccessError::UnknownStag)?;
        let touch = Entry::access(&entry, access, &mut copy)?;
        last.set(index, entry);
        Ok(touch)
    }

    /// Touches the entry to which the earlier parts of a message went that ends without payload.
    /// Any context except hard interrupts.
    pub(crate) fn touch(&self, stag: Stag) -> Result<Option<Touch>, AccessError> {
        match self.table.get(stag.index()) {
            Some(entry) => Entry::touch_at_end(&entry, stag),
            None => Ok(None),
        }
    }

    /// LOCAL_INV, READ_WITH_INV and an incoming Send with Invalidate (RFC 5040 5.5): revokes the
    /// rights and waits for uses in progress. Any context except hard interrupts.
    pub(crate) fn invalidate(
        &self,
        stag: Stag,
        by: &Accessor,
        remote: bool,
    ) -> Result<(), AccessError> {
        let entry = self.table.get(stag.index());
        let Some(entry) = entry else {
            // The lookup only gives the error.
            access::check_invalidate(None, stag, by, remote)?;
            return Err(AccessError::UnknownStag);
        };
        entry.invalidate(|region| {
            let what = access::check_invalidate(Some(region), stag, by, remote)?;
            Ok(matches!(what, Invalidate::Now))
        })
    }

    /// REG_MR: gives a fast-register region its pages, rights and new key. Any context except hard
    /// interrupts.
    pub(crate) fn fast_reg(&self, pd: PdId, wr: &mut RegWr) -> Result<(), AccessError> {
        wr.execute(pd)
    }
}

/// What debugfs shows.
impl Tpt {
    /// Calls `f` for each entry, with its control operations that are pending, for a bound window
    /// with the STag of the region, and with the translation. Process context.
    pub(crate) fn for_each(
        &self,
        mut f: impl FnMut(&access::Region, usize, Option<Stag>, Option<Translation>),
    ) {
        self.table.for_each(|_, entry| {
            f(
                &entry.region(),
                entry.pending().len(),
                entry.bound_to(),
                entry.translation(),
            );
        });
    }
}

/// An entry with its place in the table, of a region or window that a consumer has. The drop takes
/// the rights away first, then the memory, then the index, which must not be reused before.
struct Slot {
    entry: RcuArc<Entry>,
    /// The STag at first. Its index stays.
    stag: Stag,
    counted: Counted,
}

impl Slot {
    /// Enters what `make` makes for the STag it gets, with that `key` if there is one.
    fn new(
        counted: Counted,
        key: Option<u8>,
        make: impl FnOnce(Stag) -> Result<RcuArc<Entry>>,
    ) -> Result<Self> {
        let mut drawn = Stag(0);
        let entry = counted.dev().tpt.add(
            |stag| {
                drawn = stag;
                make(stag)
            },
            key,
        )?;
        Ok(Self {
            entry,
            stag: drawn,
            counted,
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.entry.retire();
        self.counted.dev().tpt.remove(self.stag);
    }
}
