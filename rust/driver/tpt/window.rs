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
    limits::{
        self,
        Count, //
    },
    Qp,
    QpObj,
    Siw, //
};
use base::{
    context::cond_resched,
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
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::atomic::Relaxed, //
};
use rdma::{
    self,
    mw,
    Udata, //
};
use soft::mem::backing::Backing;

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
        let nodes = Nodes::new(&slot)?;
        new.set_rkey(slot.stag.0);
        let mw = new.init(Self(slot))?;
        pd.windows.add(&mw.0, nodes);
        Ok(mw)
    }

    fn dealloc(mw: &rdma::Mw<Siw>) {
        // Nobody binds the window again. The drop of the slot gives its index up.
        mw.pd().windows.remove(&mw.0);
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

/// What windows are listed under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// The region at this index of the table, or none.
    Region(Option<u32>),
    /// The queue pair with this number, or none. For windows of type 2.
    Qp(Option<u32>),
}

/// The place of a window in [`Windows`]: what it is bound to, or was bound to until it was
/// invalidated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    region: Option<u32>,
    qp: Option<u32>,
}

impl Place {
    const NOWHERE: Self = Self {
        region: None,
        qp: None,
    };

    fn holders(self) -> [Holder; 2] {
        [Holder::Region(self.region), Holder::Qp(self.qp)]
    }
}

/// A holder, and the index of the window.
type Key = (Holder, u32);
type Node = RBTreeNode<Key, RcuArc<Entry>>;
type Tree = RBTree<Key, RcuArc<Entry>>;

/// The nodes of a window in the tree, allocated with the window: a bind only moves them.
struct Nodes {
    region: Node,
    /// For a window of type 2.
    qp: Option<Node>,
}

impl Nodes {
    fn new(slot: &Slot) -> Result<Self> {
        let node = |holder| {
            let key = (holder, slot.stag.index());
            RBTreeNode::new(key, slot.entry.clone(), GFP_KERNEL_ACCOUNT)
        };
        let [region, qp] = Place::NOWHERE.holders();
        Ok(Self {
            region: node(region)?,
            qp: match slot.entry.kind {
                Kind::Mw2 => Some(node(qp)?),
                _ => None,
            },
        })
    }
}

/// The windows of a protection domain, listed under what they are bound to. So the end of a region
/// or queue pair takes time only for its own windows.
///
/// A window that is bound is always listed under its region, and one of type 2 under its queue pair
/// as well. After an invalidation it stays there until it is bound anew, or its holder ends.
#[pin_data]
pub(crate) struct Windows {
    #[pin]
    tree: SpinLockIrq<Tree>,
}

impl Windows {
    /// No windows.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- ranked_spinlock!(Rank::Windows, RBTree::new()),
        })
    }

    /// Adds a new window, which can be bound from here on.
    fn add(&self, slot: &Slot, nodes: Nodes) {
        let mut tree = self.tree.lock();
        // Nobody else has the index.
        let _ = tree.insert(nodes.region);
        if let Some(node) = nodes.qp {
            let _ = tree.insert(node);
        }
        slot.entry
            .gate
            .update(|state, _| state.place = Some(Place::NOWHERE));
    }

    /// Unbinds and removes a window, which is never bound again. The end of its region or queue
    /// pair no longer finds it, so the gate must close here.
    fn remove(&self, slot: &Slot) {
        let mut tree = self.tree.lock();
        let (place, left) = slot
            .entry
            .gate
            .update(|state, open| (state.place.take(), state.close(open)));
        let index = slot.stag.index();
        let nodes = place.map(|place| {
            let holders = place.holders();
            holders.map(|holder| tree.remove_node(&(holder, index)))
        });
        drop(tree);
        drop((left, nodes));
    }

    /// Executes a bind. The window stays as it is if that fails.
    fn bind(
        &self,
        window: &RcuArc<Entry>,
        region: Option<&RcuArc<Entry>>,
        bind: &Bind,
    ) -> Result<(), AccessError> {
        // Memory that the window does not get is dropped after `tree` is unlocked: it may be the
        // last share.
        let (seen, mut memory, changes) = match region {
            Some(region) => {
                let (seen, memory, changes) = usable(region, bind);
                (Some(seen), memory, changes)
            }
            None => (None, None, 0),
        };
        let mut tree = self.tree.lock();
        // Whoever gives the region up, or changes it, locks the tree afterwards.
        let ended = region.is_some_and(|region| region.is_dead() || region.changes() != changes);
        let (left, from, to) = window.bind(seen.as_ref(), ended, region, &mut memory, bind)?;
        relist(&mut tree, window, bind.stag.index(), from, to);
        drop(tree);
        drop(left);
        Ok(())
    }

    /// Unbinds the windows of a region that its owner has changed or given up. Before that its STag
    /// was `stag`. Process context.
    pub(super) fn unbind_region(&self, stag: Stag) {
        self.unbind(Holder::Region(Some(stag.index())), |bound| {
            bound.stag == stag
        });
    }

    /// Unbinds the windows under `holder` as far as what they are bound to has ended. Process
    /// context.
    fn unbind(&self, holder: Holder, has_ended: impl Fn(&Bound) -> bool) {
        let mut next = 0;
        loop {
            let mut tree = self.tree.lock();
            let cursor = tree.cursor_lower_bound(&(holder, next));
            let found = cursor.as_ref().map(|cursor| cursor.current());
            let Some((&(_, index), window)) = found.filter(|((at, _), _)| *at == holder) else {
                return;
            };
            let window = window.clone();
            let (left, from, to) = window.leave(&has_ended);
            relist(&mut tree, &window, index, from, to);
            drop(tree);
            drop((left, window));
            // What is bound to the region as it is now stays.
            next = index.saturating_add(1);
            cond_resched();
        }
    }
}

/// Moves a window to another place.
fn relist(tree: &mut Tree, window: &RcuArc<Entry>, index: u32, from: Place, to: Place) {
    for (from, to) in from.holders().into_iter().zip(to.holders()) {
        if from == to {
            continue;
        }
        if let Some(node) = tree.remove_node(&(from, index)) {
            let node = node.into_reservation();
            // Nothing else is at that key.
            let _ = tree.insert(node.into_node((to, index), window.clone()));
        }
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

/// What a window lets go of, to be dropped outside of locks, and its places before and after.
type Moved = (Option<(Option<Backing>, Bound)>, Place, Place);

impl Entry {
    /// Executes a bind to `memory` of a region, which it takes if it succeeds. `ended`: the region,
    /// as it was `seen`, is no more. The list of windows is locked.
    fn bind(
        &self,
        seen: Option<&Region>,
        ended: bool,
        region: Option<&RcuArc<Self>>,
        memory: &mut Option<Backing>,
        bind: &Bind,
    ) -> Result<Moved, AccessError> {
        self.gate.update(|state, open| {
            let window = self.snapshot(state, *open);
            let binding = check_bind(Some(&window), seen, bind)?;
            // A window without a place is being allocated or deallocated.
            let from = state
                .place
                .filter(|_| !ended)
                .ok_or(AccessError::NotValid)?;
            let left = state.close(open);
            let mut to = from;
            state.stag = bind.stag;
            state.epoch = state.epoch.wrapping_add(1);
            self.touched.write_once(false);
            if let (Binding::At(start), Some(region), Some(memory)) =
                (binding, region, memory.take())
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
                let qp = matches!(self.kind, Kind::Mw2).then_some(bind.by.qp);
                state.bound = Some(Bound {
                    region: region.clone(),
                    stag: bind.region,
                    qp,
                });
                to = Place {
                    region: Some(bind.region.index()),
                    qp,
                };
                *open = true;
            }
            state.place = Some(to);
            Ok((left, from, to))
        })
    }

    /// Unbinds a window if what it is bound to has ended. The list of windows is locked.
    fn leave(&self, has_ended: impl FnOnce(&Bound) -> bool) -> Moved {
        self.gate.update(|state, open| {
            let from = state.place.unwrap_or(Place::NOWHERE);
            let leaves = state.bound.as_ref().is_some_and(has_ended);
            let left = leaves.then(|| state.close(open)).flatten();
            let to = match state.bound {
                Some(_) => from,
                None => Place::NOWHERE,
            };
            state.place = state.place.map(|_| to);
            (left, from, to)
        })
    }
}

impl Tpt {
    /// Binds a window of the protection domain with these windows, or unbinds one of type 1. Any
    /// context except hard interrupts.
    pub(crate) fn bind(&self, windows: &Windows, bind: &Bind) -> Result<(), AccessError> {
        let window = self.table.get(bind.stag.index());
        let region = match bind.len {
            0 => None,
            _ => self.table.get(bind.region.index()),
        };
        match window {
            Some(window) => windows.bind(&window, region.as_ref(), bind),
            None => Err(AccessError::UnknownStag),
        }
    }
}

impl Qp {
    /// Unbinds the windows of type 2 that the queue pair has bound. It binds no more. Process
    /// context.
    pub(crate) fn unbind_windows(self: &QpObj) {
        let qp = Some(self.qp_num());
        self.pd()
            .windows
            .unbind(Holder::Qp(qp), |bound| bound.qp == qp);
    }
}
