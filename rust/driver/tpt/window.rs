// SPDX-License-Identifier: GPL-2.0

//! Memory windows: parts of a region for peers, bound by work request.
//!
//! A bound window shares the memory of its region and has a gate of its own, so an access passes
//! one gate only. The deregistration of the region unbinds it.

use super::{
    entry::{
        Entry,
        State, //
    },
    Slot,
    Tpt, //
};
use crate::{
    driver::{
        limits::{
            self,
            Count, //
        },
        QpObj,
        Siw, //
    },
    kapi::{
        rdma::{
            self,
            mw,
            Backing,
            RcuArc,
            Udata, //
        },
        sync::AccessOnce, //
    }, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            check,
            check_bind,
            Bind,
            Binding,
            Kind,
            Region,
            Rights, //
        },
        stag::Stag, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// The driver's part of a memory window.
pub(crate) struct Mw(Slot);

#[vtable]
impl mw::Operations<Siw> for Mw {
    fn alloc<'a>(
        new: mw::New<'a, Siw>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<mw::Live<'a, Siw>> {
        let pd = new.pd();
        let kind = match new.kind() {
            mw::Type::One => Kind::Mw1,
            mw::Type::Two => Kind::Mw2,
        };
        let counted = Count::take(pd.dev(), |dev| &dev.counts.mw, limits::MW)?;
        let slot = Slot::new(counted, None, |stag| {
            Entry::new(kind, false, State::unbound(stag, pd.id), None)
        })?;
        new.set_rkey(slot.stag.0);
        let mw = new.init(Self(slot))?;
        pd.windows.insert(mw.0.stag.index(), mw.0.entry.clone())?;
        Ok(mw)
    }

    fn dealloc(mw: &rdma::Mw<Siw>) {
        // The drop of the slot unbinds the window.
        drop(mw.pd().windows.remove(mw.0.stag.index()));
    }
}

/// What a bound window has to do with.
pub(super) struct Bound {
    region: RcuArc<Entry>,
    /// The region's STag.
    pub(super) stag: Stag,
    /// The only queue pair that may use the window, if it is of type 2.
    pub(super) qp: Option<u32>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.region.windows.fetch_sub(1, Relaxed);
    }
}

/// The memory of a region that a bind may use; otherwise only what is to be said of the region. And
/// how often the region had been changed.
fn usable(region: &Entry, bind: &Bind) -> (Region, Option<Backing>, u32) {
    let Some(inside) = region.gate.enter() else {
        // It may be valid again by now, but this bind has not seen its memory.
        let seen = Region {
            valid: false,
            ..region.region()
        };
        return (seen, None, region.changes());
    };
    let changes = region.changes();
    let seen = region.snapshot(&inside, true);
    // A bind that is going to fail must not hold the memory, which may be of another program.
    let allowed = matches!(seen.kind, Kind::Mr) && check(Some(&seen), &bind.access()).is_ok();
    let memory = inside.backing.as_ref().filter(|_| allowed);
    let memory = memory.and_then(Backing::share_user);
    (seen, memory, changes)
}

impl Entry {
    /// Executes a bind. The window stays as it is if that fails.
    fn bind(&self, region: Option<&RcuArc<Self>>, bind: &Bind) -> Result<(), AccessError> {
        let (seen, mut memory, changes) = match region {
            Some(region) => {
                let (seen, memory, changes) = usable(region, bind);
                (Some(seen), memory, changes)
            }
            None => (None, None, 0),
        };
        let left = self.gate.update(|state, open| {
            let window = self.snapshot(state, *open);
            let binding = check_bind(Some(&window), seen.as_ref(), bind)?;
            // Whoever gives one of the two up, or changes the region, locks this gate afterwards.
            if self.is_dead()
                || region.is_some_and(|region| region.is_dead())
                || region.is_some_and(|region| region.changes() != changes)
            {
                return Err(AccessError::NotValid);
            }
            let left = state.close(open);
            state.stag = bind.stag;
            state.epoch = state.epoch.wrapping_add(1);
            self.touched.write_once(false);
            if let (Binding::At(start), Some(memory), Some(region)) =
                (binding, memory.take(), region)
            {
                region.windows.fetch_add(1, Relaxed);
                state.rights = bind.rights;
                state.base = match bind.rights.contains(Rights::ZERO_BASED) {
                    true => 0,
                    false => bind.to,
                };
                state.len = bind.len;
                state.start = start;
                state.backing = Some(memory);
                state.bound = Some(Bound {
                    region: region.clone(),
                    stag: bind.region,
                    qp: matches!(self.kind, Kind::Mw2).then_some(bind.by.qp),
                });
                *open = true;
            }
            Ok(left)
        })?;
        drop(left);
        Ok(())
    }

    /// Unbinds a window if what it is bound to has ended. Process context.
    pub(super) fn leave(&self, has_ended: impl FnOnce(&Bound) -> bool) {
        let left = self.gate.update(|state, open| {
            let leaves = state.bound.as_ref().is_some_and(has_ended);
            leaves.then(|| state.close(open))
        });
        drop(left);
    }
}

impl Tpt {
    /// Binds a window, or unbinds one of type 1. Any context except hard interrupts.
    pub(crate) fn bind(&self, bind: &Bind) -> Result<(), AccessError> {
        let window = self.table.get(bind.stag.index());
        let region = match bind.len {
            0 => None,
            _ => self.table.get(bind.region.index()),
        };
        match window {
            Some(window) => window.bind(region.as_ref(), bind),
            None => Err(AccessError::UnknownStag),
        }
    }
}

impl QpObj {
    /// Unbinds the windows of type 2 that the queue pair has bound. It binds no more. Process
    /// context.
    pub(crate) fn unbind_windows(&self) {
        if self.binds.read_once() {
            let qp = self.qp_num();
            self.pd()
                .windows
                .for_each(|_, window| window.leave(|bound| bound.qp == Some(qp)));
        }
    }
}
