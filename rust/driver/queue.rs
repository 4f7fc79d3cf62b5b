// SPDX-License-Identifier: GPL-2.0

//! Queues between a consumer and the driver: work requests one way, completions the other.

use kernel::prelude::*;

/// A queue of a program, in memory that it maps, or of a kernel consumer.
pub(crate) enum Queue<U, K> {
    /// A program's.
    User(U),
    /// A kernel consumer's.
    Kernel(K),
}

impl<U, K> Queue<U, K> {
    /// The program's queue, if it is one.
    pub(crate) fn user(&self) -> Option<&U> {
        match self {
            Self::User(user) => Some(user),
            Self::Kernel(_) => None,
        }
    }
}

/// The elements of a kernel consumer's queue: a bounded FIFO.
pub(crate) struct Slots<T> {
    /// A power of two.
    slots: VVec<Option<T>>,
    /// Index of the oldest element, and of the next one; both run freely and wrap at 2^32.
    get: u32,
    put: u32,
}

impl<T> Slots<T> {
    /// An empty FIFO for `size` elements, a power of two. Sleeps.
    pub(crate) fn new(size: u32) -> Result<Self> {
        let mut slots = VVec::with_capacity(size as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..size {
            slots.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            slots,
            get: 0,
            put: 0,
        })
    }

    #[inline]
    fn slot(&mut self, index: u32) -> Option<&mut Option<T>> {
        let mask = (self.slots.len() as u32).wrapping_sub(1);
        self.slots.get_mut((index & mask) as usize)
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> u32 {
        self.put.wrapping_sub(self.get)
    }

    /// Whether there are no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.get == self.put
    }

    /// Whether there is no room.
    pub(crate) fn is_full(&self) -> bool {
        self.len() as usize >= self.slots.len()
    }

    /// The number of elements that were ever appended and not removed by [`Self::retain`]; wraps.
    pub(crate) fn appended(&self) -> u32 {
        self.put
    }

    /// Appends an element, or gives it back if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        let put = self.put;
        match self.slot(put) {
            Some(free) if free.is_none() => *free = Some(value),
            _ => return Err(value),
        }
        self.put = put.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest element.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let get = self.get;
        let value = self.slot(get).and_then(Option::take)?;
        self.get = get.wrapping_add(1);
        Some(value)
    }

    /// Removes all elements that `keep` refuses, and returns their number.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) -> u64 {
        let (mut from, mut to, mut removed) = (self.get, self.get, 0u64);
        while from != self.put {
            let value = self.slot(from).and_then(Option::take);
            from = from.wrapping_add(1);
            match value {
                Some(value) if keep(&value) => {
                    if let Some(free) = self.slot(to) {
                        *free = Some(value);
                    }
                    to = to.wrapping_add(1);
                }
                Some(_) => removed = removed.wrapping_add(1),
                None => {}
            }
        }
        self.put = to;
        removed
    }
}
