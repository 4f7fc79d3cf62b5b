// SPDX-License-Identifier: GPL-2.0

//! A bounded FIFO that allocates once and numbers its elements.

use kernel::{
    alloc::flags::GFP_KERNEL_ACCOUNT,
    prelude::*, //
};

/// A FIFO of at most `limit` elements. Each gets the next sequence number, by which it can be found
/// until it is popped.
pub(super) struct Ring<T> {
    /// As many slots as there can be elements.
    slots: KVVec<Option<T>>,
    /// Sequence number of the oldest element, which wraps at 2^32, and its slot, which wraps at the
    /// end.
    head: u32,
    first: u32,
    len: u32,
}

impl<T> Ring<T> {
    /// A ring without room.
    pub(super) const fn empty() -> Self {
        Self {
            slots: KVVec::new(),
            head: 0,
            first: 0,
            len: 0,
        }
    }

    /// A ring for `limit` elements. Sleeps.
    pub(super) fn new(limit: u32) -> Result<Self> {
        let mut slots = KVVec::with_capacity(limit as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..limit {
            slots.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            slots,
            ..Self::empty()
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.len as usize >= self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The slot `n` behind that of the oldest element, if there are so many.
    fn slot(&self, n: u32) -> usize {
        let slot = (self.first as usize).saturating_add(n as usize);
        slot.checked_sub(self.slots.len()).unwrap_or(slot)
    }

    /// Appends and returns the sequence number, or gives the element back when full.
    pub(super) fn push(&mut self, value: T) -> Result<u32, T> {
        if self.is_full() {
            return Err(value);
        }
        let seq = self.head.wrapping_add(self.len);
        let slot = self.slot(self.len);
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(value),
            None => return Err(value),
        }
        self.len = self.len.saturating_add(1);
        Ok(seq)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The `n`th element from the head.
    pub(super) fn get(&self, n: u32) -> Option<&T> {
        if n >= self.len {
            return None;
        }
        self.slots.get(self.slot(n))?.as_ref()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.by_seq(self.head)
    }

    /// The element with sequence number `seq`, if it is still in.
    pub(super) fn by_seq(&mut self, seq: u32) -> Option<&mut T> {
        let n = seq.wrapping_sub(self.head);
        if n >= self.len {
            return None;
        }
        let slot = self.slot(n);
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let slot = self.slot(0);
        self.first = self.slot(1) as u32;
        self.head = self.head.wrapping_add(1);
        self.len = self.len.saturating_sub(1);
        self.slots.get_mut(slot)?.take()
    }
}
