// SPDX-License-Identifier: GPL-2.0

//! Entries of the table.

use super::{
    fast_reg::Shadow,
    lent::Lent,
    touch::Touch,
    window::{
        Bound,
        Place, //
    }, //
};
use base::{
    sync::{
        AccessOnce,
        SpinLockIrq, //
    },
    table::RcuArc, //
};
use iwarp::{
    error::AccessError,
    mem::{
        access::{
            self,
            Access,
            Kind,
            PdId,
            Region,
            Rights, //
        },
        pending::{
            Full,
            Pending,
            Removed, //
        },
        stag::Stag, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Completion, //
    }, //
};
use soft::mem::{
    att::Translation,
    backing::Backing,
    gate::InUse, //
};

/// The part of an entry that changes.
pub(super) struct State {
    /// The STag in force. The key of a fast-register region changes with each registration.
    pub(super) stag: Stag,
    pub(super) pd: PdId,
    pub(super) rights: Rights,
    /// Address of the first byte, in the consumer's terms.
    pub(super) base: u64,
    pub(super) len: u64,
    /// Offset of the first byte in the memory: not 0 only for a window.
    pub(super) start: u64,
    /// Number of registrations or binds. An open entry with the same number is unchanged.
    pub(super) epoch: u64,
    /// The memory; `None` once the region is deregistered, and while a window is not bound.
    pub(super) backing: Option<Backing>,
    /// The memory, if messages may be sent from it by reference.
    pub(super) lent: Option<Arc<Lent>>,
    /// What a window is bound to.
    pub(super) bound: Option<Bound>,
    /// The place of a window in the list of its protection domain. It changes with that locked.
    pub(super) place: Option<Place>,
}

impl State {
    /// The state of a region with this memory.
    pub(super) fn new(
        stag: Stag,
        pd: PdId,
        rights: Rights,
        base: u64,
        len: u64,
        backing: Backing,
    ) -> Self {
        Self {
            rights,
            base,
            len,
            backing: Some(backing),
            ..Self::unbound(stag, pd)
        }
    }

    /// The state of a window that is not bound.
    pub(super) fn unbound(stag: Stag, pd: PdId) -> Self {
        Self {
            stag,
            pd,
            rights: Rights::NONE,
            base: 0,
            len: 0,
            start: 0,
            epoch: 0,
            backing: None,
            lent: None,
            bound: None,
            place: None,
        }
    }

    /// Closes the gate `open`. Returns what a window lets go of, in the order of its release, which
    /// is outside of the gate.
    #[must_use]
    pub(super) fn close(&mut self, open: &mut bool) -> Option<(Option<Backing>, Bound)> {
        *open = false;
        let bound = self.bound.take()?;
        Some((self.backing.take(), bound))
    }
}

/// What the refusal of the memory behind an entry means.
pub(super) fn refusal(error: Error) -> AccessError {
    match error {
        EAGAIN => AccessError::Pending,
        _ => AccessError::Bounds,
    }
}

/// A memory region or window.
#[pin_data]
pub(crate) struct Entry {
    pub(super) kind: Kind,
    /// Open while the STag is valid.
    #[pin]
    pub(super) gate: InUse<State>,
    /// The message that a one-touch entry admits has been admitted. Set inside of the gate, reset
    /// by a registration.
    pub(super) touched: Atomic<bool>,
    /// Windows bound to this region. Only shown.
    pub(super) windows: Atomic<u32>,
    /// Number of changes of the region by its owner, each of which ends what is bound to it.
    changes: Atomic<u32>,
    /// The owner has given the entry up: nothing is bound to it any more.
    dead: Atomic<bool>,
    /// What the control pipelines have to do to it.
    #[pin]
    pending: SpinLockIrq<Pending>,
    /// Completed when that is done, for who gives the entry up.
    #[pin]
    settled: Completion,
    /// The pages that `map_mr_sg` collects for the next REG_MR.
    #[pin]
    pub(super) shadow: Shadow,
}

impl Entry {
    /// A new entry; `open`: valid from the start.
    pub(super) fn new(
        kind: Kind,
        open: bool,
        state: State,
        shadow: Option<soft::mem::page_list::PageList>,
    ) -> Result<RcuArc<Self>> {
        RcuArc::pin_init(try_pin_init!(Self {
            kind,
            gate <- InUse::new(open, state),
            touched: Atomic::new(false),
            windows: Atomic::new(0),
            changes: Atomic::new(0),
            dead: Atomic::new(false),
            pending <- ranked_spinlock!(Rank::Pending, Pending::new()),
            settled <- Completion::new(),
            shadow <- Shadow::new(shadow),
        }? Error))
    }

    /// The entry in the form that `iwarp::mem::access` checks. Any context.
    pub(crate) fn region(&self) -> Region {
        if let Some(inside) = self.gate.enter() {
            return self.snapshot(&inside, true);
        }
        self.gate.update(|state, open| self.snapshot(state, *open))
    }

    /// Checks an access. Returns its offset in the memory, and the epoch in which that holds.
    pub(super) fn check(&self, access: &Access) -> Result<(u64, u64), AccessError> {
        if let Some(inside) = self.gate.enter() {
            let offset = access::check(Some(&self.snapshot(&inside, true)), access)?;
            return Ok((inside.start.saturating_add(offset), inside.epoch));
        }
        // The check gives the error, unless the entry was opened in between.
        self.gate.update(|state, open| {
            let offset = access::check(Some(&self.snapshot(state, *open)), access)?;
            Ok((state.start.saturating_add(offset), state.epoch))
        })
    }

    /// Checks an access, and runs `copy` with the memory and the offset of the access in it.
    /// Returns the touch, if the access is one that a one-touch entry admits once.
    #[inline]
    pub(super) fn access(
        this: &RcuArc<Self>,
        access: &Access,
        copy: &mut impl FnMut(&Backing, u64) -> Result,
    ) -> Result<Option<Touch>, AccessError> {
        let inside = this.gate.enter().ok_or_else(|| this.gone())?;
        let offset = access::check(Some(&this.snapshot(&inside, true)), access)?;
        let backing = inside.backing.as_ref().ok_or(AccessError::NotValid)?;
        let touches = access.touch && this.touch(&inside)?;
        match copy(backing, inside.start.saturating_add(offset)) {
            Ok(()) => Ok(touches.then(|| Touch::new(this.clone(), inside.epoch))),
            Err(error) => {
                let (error, epoch) = (refusal(error), inside.epoch);
                let again = error == AccessError::Pending;
                if touches && again {
                    // The message has not come in yet.
                    this.touched.write_once(false);
                }
                // The drop of a touch waits until nobody is inside.
                drop(inside);
                if touches && !again {
                    drop(Touch::new(this.clone(), epoch));
                }
                Err(error)
            }
        }
    }

    /// Admits the message that a one-touch entry admits, from inside of the gate. `false` for other
    /// entries.
    fn touch(&self, inside: &State) -> Result<bool, AccessError> {
        if !inside.rights.contains(Rights::ONE_TOUCH) {
            return Ok(false);
        }
        // Of two messages that come at the same time, one gets in.
        if self.touched.xchg(true, Relaxed) {
            return Err(AccessError::Spent);
        }
        Ok(true)
    }

    /// As [`Self::touch`], for an access that was checked in this epoch.
    pub(super) fn touch_in(this: &RcuArc<Self>, epoch: u64) -> Result<Option<Touch>, AccessError> {
        let inside = this.gate.enter().ok_or(AccessError::NotValid)?;
        if inside.epoch != epoch {
            return Err(AccessError::NotValid);
        }
        let touches = this.touch(&inside)?;
        Ok(touches.then(|| Touch::new(this.clone(), epoch)))
    }

    /// As [`Self::touch`], for the end of a message without payload whose other parts went to
    /// `stag`.
    pub(super) fn touch_at_end(
        this: &RcuArc<Self>,
        stag: Stag,
    ) -> Result<Option<Touch>, AccessError> {
        let Some(inside) = this.gate.enter() else {
            return Ok(None);
        };
        if inside.stag != stag {
            return Ok(None);
        }
        let (touches, epoch) = (this.touch(&inside)?, inside.epoch);
        Ok(touches.then(|| Touch::new(this.clone(), epoch)))
    }

    /// The memory of a program's region. Process context.
    pub(super) fn user_memory(&self) -> Option<Backing> {
        self.gate
            .update(|state, _| state.backing.as_ref().and_then(Backing::share_user))
    }

    /// How addresses in the memory are translated; `None` if there is none. Process context.
    pub(super) fn translation(&self) -> Option<Translation> {
        self.gate
            .update(|state, _| state.backing.as_ref().and_then(Backing::translation))
    }

    /// The STag of the region that a window is bound to. Any context.
    pub(super) fn bound_to(&self) -> Option<Stag> {
        let inside = self.gate.enter()?;
        inside.bound.as_ref().map(|bound| bound.stag)
    }

    /// Why the closed gate refuses.
    #[cold]
    fn gone(&self) -> AccessError {
        self.region().gone()
    }

    #[inline]
    pub(super) fn snapshot(&self, state: &State, valid: bool) -> Region {
        Region {
            stag: state.stag,
            kind: self.kind,
            valid,
            touched: self.touched.read_once(),
            pd: state.pd,
            rights: state.rights,
            base: state.base,
            len: state.len,
            bound_qp: state.bound.as_ref().and_then(|bound| bound.qp),
            windows: self.windows.read_once(),
        }
    }

    /// Closes the gate if `check` allows it. Nothing uses the memory after the return.
    pub(super) fn invalidate(
        &self,
        check: impl FnOnce(&Region) -> Result<bool, AccessError>,
    ) -> Result<(), AccessError> {
        let left = self.gate.update(|state, open| {
            let closes = check(&self.snapshot(state, *open))?;
            Ok(closes.then(|| state.close(open)))
        })?;
        drop(left);
        Ok(())
    }

    /// Makes the entry invalid, if it has not been registered anew since `epoch`.
    pub(super) fn spend(&self, epoch: u64) {
        let left = self
            .gate
            .update(|state, open| (state.epoch == epoch).then(|| state.close(open)));
        drop(left);
    }

    /// Registers: `check` sees the entry and returns its new state.
    pub(super) fn register(
        &self,
        change: impl FnOnce(&Region, &mut State) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        self.gate.update(|state, open| {
            let region = self.snapshot(state, *open);
            change(&region, state)?;
            state.epoch = state.epoch.wrapping_add(1);
            self.touched.write_once(false);
            *open = true;
            Ok(())
        })
    }

    /// What the control pipelines have to do to the entry. Any context.
    pub(crate) fn pending(&self) -> Pending {
        *self.pending.lock()
    }

    /// Notes that queue pair `qp` hands an operation to its pipeline. Any context.
    pub(crate) fn notify(&self, qp: u32, validating: bool) -> Result<(), Full> {
        self.pending.lock().push(qp, validating)
    }

    /// Removes notifications. Any context.
    pub(crate) fn settle(&self, remove: impl FnOnce(&mut Pending) -> Removed) -> Removed {
        let removed = remove(&mut self.pending.lock());
        if removed.idle {
            self.settled.complete_all();
        }
        removed
    }

    /// Deregisters a region, or unbinds a window for good: waits for control operations that are
    /// pending, and for users of the memory, and releases it. Process context.
    pub(super) fn retire(&self) {
        let pending = self.pending.lock().wait();
        if pending {
            self.settled.wait_for_completion();
        }
        self.dead.write_once(true);
        let left = self.gate.update(|state, open| {
            let bound = state.close(open);
            (state.backing.take(), bound)
        });
        drop(left);
    }

    /// True if the owner has given the entry up. While the list of windows is locked, which the
    /// owner locks after [`Self::retire`], the answer does not become wrong.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.read_once()
    }

    /// Changes a region by the hand of its owner, which bumps the epoch: users of the memory are
    /// gone, and the parts of messages in progress that come later are refused. Returns what
    /// `change` returns. Process context.
    ///
    /// What is bound to it, or is being bound, has to be unbound afterwards.
    pub(super) fn alter<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        self.gate.update(|state, open| {
            self.changes.fetch_add(1, Relaxed);
            let replaced = change(state);
            state.epoch = state.epoch.wrapping_add(1);
            self.touched.write_once(false);
            *open = true;
            replaced
        })
    }

    /// The number of changes so far. Whoever reads it inside of the gate knows the region as it is
    /// after so many; a bind that finds another number later fails.
    pub(super) fn changes(&self) -> u32 {
        self.changes.read_once()
    }

    /// Opens a region that was made closed. Process context.
    pub(super) fn open(&self) {
        self.gate.update(|_, open| *open = true);
    }
}
