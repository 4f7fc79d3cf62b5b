// SPDX-License-Identifier: GPL-2.0

//! Address translation tables.

use kernel::{
    alloc::Flags,
    prelude::*, //
};

use crate::mem::page_layout::{
    split,
    Order,
    LIST, //
};

/// How addresses in a region are translated.
#[derive(Clone, Copy)]
pub struct Translation {
    /// The order of the table.
    pub order: Order,
    /// The size of the region's pages in bytes; 0 if they have none.
    pub page_size: u64,
}

/// A list of entries that fills a page.
type Leaf = KBox<[u64; LIST]>;

/// A list of leaves that fills a page. The last ones may be missing.
type Node = KBox<[Option<Leaf>; LIST]>;

enum Lists {
    Direct(KVec<u64>),
    First(KVec<Leaf>),
    Second(KVVec<Node>),
}

/// A table of numbers, which are mostly addresses of pages.
///
/// It consists of lists that are not larger than a page, up to 2^27 entries. The lookup takes as
/// long for the last entry as for the first one. The drop may sleep, unless the order is below
/// [`Order::Second`].
pub(super) struct Att {
    lists: Lists,
    len: usize,
}

impl Att {
    /// A table of `len` zeros. May sleep, as `flags` allow.
    pub(super) fn new(len: usize, flags: Flags) -> Result<Self> {
        let leaf = || Leaf::init(pin_init::init_zeroed(), flags);
        let lists = match Order::of(len) {
            Order::Direct => Lists::Direct(KVec::from_elem(0, len, flags)?),
            Order::First => {
                let count = len.div_ceil(LIST);
                let mut leaves = KVec::with_capacity(count, flags)?;
                for _ in 0..count {
                    leaves.push(leaf()?, flags)?;
                }
                Lists::First(leaves)
            }
            Order::Second => {
                let mut missing = len.div_ceil(LIST);
                let mut nodes = KVVec::with_capacity(missing.div_ceil(LIST), flags)?;
                while missing != 0 {
                    let mut node = Node::init(pin_init::init_zeroed(), flags)?;
                    for slot in node.iter_mut().take(missing) {
                        *slot = Some(leaf()?);
                    }
                    missing = missing.saturating_sub(LIST);
                    nodes.push(node, flags)?;
                }
                Lists::Second(nodes)
            }
        };
        Ok(Self { lists, len })
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn order(&self) -> Order {
        match self.lists {
            Lists::Direct(_) => Order::Direct,
            Lists::First(_) => Order::First,
            Lists::Second(_) => Order::Second,
        }
    }

    /// The entry at `index`.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<u64> {
        if let Lists::Direct(entries) = &self.lists {
            return entries.get(index).copied();
        }
        if index >= self.len {
            return None;
        }
        let (list, place) = split(index);
        let entry = match &self.lists {
            Lists::Direct(_) => None,
            Lists::First(leaves) => leaves.get(list)?.get(place),
            Lists::Second(nodes) => {
                let (node, leaf) = split(list);
                nodes.get(node)?.get(leaf)?.as_ref()?.get(place)
            }
        };
        entry.copied()
    }

    /// Changes the entry at `index`. `ENOMEM` if there is none.
    pub(super) fn set(&mut self, index: usize, value: u64) -> Result {
        if index >= self.len {
            return Err(ENOMEM);
        }
        let (list, place) = split(index);
        let entry = match &mut self.lists {
            Lists::Direct(entries) => entries.get_mut(index),
            Lists::First(leaves) => leaves.get_mut(list).and_then(|leaf| leaf.get_mut(place)),
            Lists::Second(nodes) => {
                let (node, leaf) = split(list);
                nodes
                    .get_mut(node)
                    .and_then(|node| node.get_mut(leaf)?.as_mut()?.get_mut(place))
            }
        };
        *entry.ok_or(ENOMEM)? = value;
        Ok(())
    }
}
