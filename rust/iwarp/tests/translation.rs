// SPDX-License-Identifier: GPL-2.0

//! Address translation against something slow and plain.

mod common;
#[path = "../../soft/mem/page_layout.rs"]
mod page_layout;

use common::Rng;
use page_layout::{
    find_piece,
    split,
    Order,
    PageLayout,
    Place,
    Runs,
    LIST, //
};

/// Every byte of a region, found by walking through its pages.
fn walk(size: u64, first: u64, len: u64) -> Vec<(usize, usize)> {
    let (mut page, mut within) = (0, first);
    (0..len)
        .map(|_| {
            let place = (page, within as usize);
            within += 1;
            if within == size {
                (page, within) = (page + 1, 0);
            }
            place
        })
        .collect()
}

#[test]
fn every_byte_is_where_a_walk_finds_it() {
    let mut rng = Rng::new(20);
    for round in 0..400 {
        let shift = rng.below(14) as u32;
        let size = 1u64 << shift;
        let len = 1 + rng.below(20_000);
        // An address anywhere, as users have them; sometimes the first byte of a page.
        let addr = if round % 4 == 0 {
            rng.next() & !(size - 1)
        } else {
            rng.next()
        };
        let layout = PageLayout::new(shift, addr).unwrap();
        let bytes = walk(size, addr % size, len);
        for (offset, (page, within)) in bytes.iter().enumerate() {
            let expect = Place {
                page: *page,
                within: *within,
                room: size as usize - within,
            };
            assert_eq!(layout.locate(offset as u64), Some(expect));
        }
        let pages = bytes.last().unwrap().0 as u64 + 1;
        assert_eq!(layout.pages(len), Some(pages));
        // So many pages hold the region, and one less does not.
        assert!(layout.capacity(pages) >= len);
        assert!(layout.capacity(pages - 1) < len);
        assert_eq!(layout.pages(layout.capacity(pages)), Some(pages));
    }
}

/// A copy goes from part to part as `room` says; it meets each byte once, in order, and leaves no
/// page.
#[test]
fn parts_of_an_access_are_the_access() {
    let mut rng = Rng::new(21);
    for _ in 0..20_000 {
        let shift = rng.below(17) as u32;
        let size = 1u64 << shift;
        let layout = PageLayout::new(shift, rng.next()).unwrap();
        let (from, len) = (rng.below(1 << 20), 1 + rng.below(size * 5 + 3) as usize);
        let mut done = 0;
        let mut before: Option<Place> = None;
        while done < len {
            let place = layout.locate(from + done as u64).unwrap();
            assert!(place.room > 0 && place.within + place.room == size as usize);
            if let Some(before) = before {
                assert_eq!((place.page, place.within), (before.page + 1, 0));
            }
            before = Some(place);
            done += place.room.min(len - done);
        }
        let last = layout.locate(from + len as u64 - 1).unwrap();
        assert_eq!(last.page, before.unwrap().page);
    }
}

#[test]
fn numbers_that_do_not_fit() {
    let mut rng = Rng::new(22);
    assert_eq!(PageLayout::new(64, 0), None);
    assert_eq!(PageLayout::new(u32::MAX, 0), None);
    for _ in 0..100_000 {
        let shift = rng.below(64) as u32;
        let size = 1u128 << shift;
        let addr = rng.next();
        let first = u128::from(addr) % size;
        let layout = PageLayout::new(shift, addr).unwrap();
        let offset = u64::MAX - (rng.next() >> rng.below(64));
        let at = first + u128::from(offset);
        let fits = at < 1 << 64;
        let place = layout.locate(offset);
        assert_eq!(place.is_some(), fits);
        assert_eq!(layout.pages(offset).is_some(), fits);
        if let Some(place) = place {
            assert_eq!(place.page as u128 * size + place.within as u128, at);
            assert_eq!(
                layout.pages(offset).map(u128::from),
                Some(at.div_ceil(size))
            );
        }
        let pages = rng.next() >> rng.below(64);
        let room = (u128::from(pages) * size).min(u128::from(u64::MAX));
        assert_eq!(
            u128::from(layout.capacity(pages)),
            room.saturating_sub(first)
        );
    }
}

/// Memory of random runs whose borders are multiples of `align`, byte by byte, and as runs.
fn random_memory(rng: &mut Rng, align: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let mut runs = Vec::new();
    let count = 1 + rng.below(6);
    // The first run may begin anywhere, and the last one end anywhere.
    for run in 0..count {
        let before = if run == 0 { rng.below(align) } else { 0 };
        let behind = if run == count - 1 {
            rng.below(align)
        } else {
            0
        };
        let start = (1 + rng.below(1 << 20)) * align;
        let len = (1 + rng.below(8)) * align - before;
        runs.push((start + before, len.saturating_sub(behind).max(1)));
    }
    let bytes = runs.iter().flat_map(|(addr, len)| *addr..addr + len);
    (bytes.collect(), runs)
}

/// Whether pages of that size, which are contiguous, can have all these bytes, the first one with
/// the alignment that it has.
fn fits(bytes: &[u64], size: u64) -> bool {
    let first = bytes[0] % size;
    bytes.windows(2).zip(1..).all(|(pair, offset)| {
        pair[1] == pair[0] + 1 || ((first + offset) % size == 0 && pair[1] % size == 0)
    })
}

#[test]
fn pages_are_as_large_as_they_can_be() {
    let mut rng = Rng::new(23);
    for _ in 0..3000 {
        let align = 1 << rng.below(8);
        let (bytes, list) = random_memory(&mut rng, align);
        let max = rng.below(14) as u32;
        let mut runs = Runs::default();
        for (addr, len) in &list {
            // A run may come in two parts.
            let part = 1 + rng.below(*len);
            runs.add(*addr, part);
            if part < *len {
                assert!(runs.is_continued(addr + part));
                runs.add(addr + part, len - part);
            }
        }
        assert_eq!(runs.len(), bytes.len() as u64);
        let layout = runs.layout(max).unwrap();
        let size = layout.size();
        assert!(fits(&bytes, size));
        assert!(size == 1 << max || !fits(&bytes, 2 * size) || layout.pages(runs.len()) == Some(1));
    }
}

/// The pages that the runs begin are all pages, each once, and translate each byte to itself.
#[test]
fn runs_fill_a_table() {
    let mut rng = Rng::new(24);
    for _ in 0..3000 {
        let align = 1 << rng.below(8);
        let (bytes, list) = random_memory(&mut rng, align);
        let mut runs = Runs::default();
        list.iter().for_each(|(addr, len)| runs.add(*addr, *len));
        let layout = runs.layout(rng.below(14) as u32).unwrap();
        let mut table = vec![None; layout.pages(runs.len()).unwrap() as usize];
        let mut offset = 0;
        for (addr, len) in &list {
            for (page, start) in layout.starts(offset, *addr, *len) {
                assert_eq!(start % layout.size(), 0);
                assert_eq!(table[page].replace(start), None);
            }
            offset += len;
        }
        for (offset, addr) in bytes.iter().enumerate() {
            let place = layout.locate(offset as u64).unwrap();
            assert_eq!(table[place.page].unwrap() + place.within as u64, *addr);
        }
    }
}

#[test]
fn one_page_has_all_that_is_contiguous() {
    let mut rng = Rng::new(25);
    for _ in 0..10_000 {
        let len = 1 + (rng.next() >> (1 + rng.below(62)));
        let layout = PageLayout::whole(len).unwrap();
        assert_eq!(layout.pages(len), Some(1));
        let at = rng.below(len);
        let place = layout.locate(at).unwrap();
        assert_eq!((place.page, place.within as u64), (0, at));
        assert!(place.room as u64 >= len - at);
    }
    assert_eq!(PageLayout::whole(1 << 63), None);
}

#[test]
fn lists_of_a_page() {
    assert_eq!(LIST * size_of::<u64>(), 4096);
    for (entries, order) in [
        (0, Order::Direct),
        (1, Order::Direct),
        (512, Order::Direct),
        (513, Order::First),
        (262_144, Order::First),
        (262_145, Order::Second),
        (usize::MAX, Order::Second),
    ] {
        assert_eq!(Order::of(entries), order);
    }
    let (mut list, mut place) = (0, 0);
    for index in 0..1 << 20 {
        assert_eq!(split(index), (list, place));
        place += 1;
        if place == LIST {
            (list, place) = (list + 1, 0);
        }
    }
}

#[test]
fn the_piece_of_each_byte() {
    let mut rng = Rng::new(26);
    for _ in 0..2000 {
        let count = rng.below(20) as usize;
        let mut starts = Vec::new();
        let mut owner = Vec::new();
        for piece in 0..count {
            starts.push(owner.len() as u64);
            owner.resize(owner.len() + 1 + rng.below(5) as usize, piece);
        }
        for (offset, piece) in owner.iter().enumerate() {
            let found = find_piece(count, offset as u64, |at| starts.get(at).copied());
            assert_eq!(found, Some(*piece));
        }
        let beyond = find_piece(count, u64::MAX, |at| starts.get(at).copied());
        assert_eq!(beyond, count.checked_sub(1));
    }
}
