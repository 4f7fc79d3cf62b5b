// SPDX-License-Identifier: GPL-2.0

//! One entry of the table, and references to a checked part of it.

use super::fast_reg::Shadow;
use crate::kapi::{
    net::Skb,
    rdma::{
        Backing,
        InUse,
        RcuArc, //
    },
};
use iwarp::{
    access::{
        self,
        Access,
        AccessError,
        Kind,
        PdId,
        Region,
        Rights, //
    },
    stag::Stag, //
};
use kernel::prelude::*;

/// What may change while the entry exists.
pub(super) struct State {
    /// The STag in force: a fast-register region's key changes with each registration.
    pub(super) stag: Stag,
    pub(super) rights: Rights,
    /// Address of the first byte, as the consumer counts.
    pub(super) base: u64,
    pub(super) len: u64,
    /// The memory. Gone once the region is deregistered.
    pub(super) backing: Option<Backing>,
}

/// A memory region.
#[pin_data]
pub(crate) struct Entry {
    pub(super) kind: Kind,
    pub(super) pd: PdId,
    /// Open while the STag is valid.
    #[pin]
    pub(super) gate: InUse<State>,
    /// Where `map_mr_sg` collects pages for the next REG_MR.
    #[pin]
    pub(super) shadow: Shadow,
}

impl Entry {
    /// A new entry: `open` if it is valid from the start.
    pub(super) fn new(
        kind: Kind,
        pd: PdId,
        open: bool,
        state: State,
        shadow: Option<crate::kapi::rdma::PageList>,
    ) -> Result<RcuArc<Self>> {
        RcuArc::pin_init(try_pin_init!(Self {
            kind,
            pd,
            gate <- InUse::new(open, state),
            shadow <- Shadow::new(shadow),
        }? Error))
    }

    /// The entry as the checks of the protocol crate want it. Any context.
    pub(crate) fn region(&self) -> Region {
        if let Some(inside) = self.gate.enter() {
            return self.snapshot(&inside, true);
        }
        self.gate.update(|state, open| self.snapshot(state, *open))
    }

    fn snapshot(&self, state: &State, valid: bool) -> Region {
        Region {
            stag: state.stag,
            kind: self.kind,
            valid,
            pd: self.pd,
            rights: state.rights,
            base: state.base,
            len: state.len,
            bound_qp: None,
            windows: 0,
        }
    }

    /// Closes the gate if `check` says so; nobody is inside any more when it returns.
    pub(super) fn invalidate(
        &self,
        check: impl FnOnce(&Region) -> Result<bool, AccessError>,
    ) -> Result<(), AccessError> {
        self.gate.update(|state, open| {
            if check(&self.snapshot(state, *open))? {
                *open = false;
            }
            Ok(())
        })
    }

    /// Registers: `check` sees the entry and returns how it is to be from now on.
    pub(super) fn register(
        &self,
        change: impl FnOnce(&Region, &mut State) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gate.update(|state, open| {
            let region = self.snapshot(state, *open);
            change(&region, state)?;
            *open = true;
            Ok(())
        })
    }

    /// Deregisters: waits for those inside and gives the memory back. Process context.
    pub(super) fn retire(&self) {
        let backing = self.gate.update(|state, open| {
            *open = false;
            state.backing.take()
        });
        drop(backing);
    }
}

/// A checked access to (a part of) an entry.
///
/// Keeps the entry, not its validity: every chunk is checked again, for an STag may be invalidated
/// or registered anew between two chunks.
pub(crate) struct MemRef {
    entry: Option<RcuArc<Entry>>,
    access: Access,
}

impl MemRef {
    /// Of an access of no bytes.
    pub(super) fn empty() -> Self {
        Self {
            entry: None,
            access: Access {
                stag: Stag(0),
                to: 0,
                len: 0,
                need: access::Need::LocalRead,
                pd: PdId(0),
                qp: 0,
            },
        }
    }

    pub(super) fn new(entry: RcuArc<Entry>, access: &Access) -> Self {
        Self {
            entry: Some(entry),
            access: *access,
        }
    }

    /// Runs `copy` with the memory and the offset of `to` in it, inside of the gate.
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
        let inside = entry.gate.enter().ok_or(AccessError::NotValid)?;
        let offset = access::check(
            Some(&entry.snapshot(&inside, true)),
            &Access {
                to,
                len: len as u64,
                ..self.access
            },
        )?;
        let backing = inside.backing.as_ref().ok_or(AccessError::NotValid)?;
        copy(backing, offset).map_err(|_| AccessError::Bounds)
    }

    /// Copies from the region at `to` into `dst`: one chunk, at most 64 KiB. Any context but
    /// hardirq.
    pub(crate) fn read(&self, to: u64, dst: &mut [u8]) -> Result<(), AccessError> {
        self.chunk(to, dst.len(), |backing, offset| backing.read(offset, dst))
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
