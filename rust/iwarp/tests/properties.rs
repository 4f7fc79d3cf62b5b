// SPDX-License-Identifier: GPL-2.0

//! Arithmetic against something slow and plain: address translation, tags, Read credits, atomic
//! operations.

mod common;
#[path = "../../kapi/rdma/page_layout.rs"]
mod page_layout;

use common::{
    pseudo_code,
    Rng, //
};
use iwarp::{
    error::Error,
    mem::{
        atomic::AtomicOp,
        stag::{
            Secret,
            Stag,
            StagGenerator, //
        }, //
    },
    qp::credits::{
        Gate,
        ReadCredits, //
    }, //
};
use page_layout::{
    PageLayout,
    Place, //
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

/// All tags of two rounds over the index space: each index twice, with another key, and not before
/// three quarters of a round have passed.
#[test]
fn a_tag_does_not_come_back_with_its_key() {
    const ALL: u64 = 1 << 24;
    /// Quick, and good enough for what holds whatever the secret says.
    struct Mix;
    impl Secret for Mix {
        fn at(&self, [a, b]: [u64; 2]) -> u64 {
            (a.rotate_left(32) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
        }
    }
    let generator = StagGenerator::new(Mix);
    let mut last = vec![(0u64, 0u8); ALL as usize];
    let (mut tags, mut soonest) = (0, u64::MAX);
    for n in 0..2 * ALL {
        let Some(stag) = generator.nth(n) else {
            continue;
        };
        assert!(stag.index() != 0 && stag.key() != 0, "{stag:?}");
        tags += 1;
        let (when, key) = core::mem::replace(&mut last[stag.index() as usize], (n, stag.key()));
        if key != 0 {
            assert_ne!(key, stag.key(), "{stag:?}");
            soonest = soonest.min(n - when);
        }
    }
    // All but index 0 and the few whose key would have been 0.
    assert!(tags > 2 * ALL / 256 * 254, "{tags}");
    assert!(soonest > 3 * ALL / 4, "{soonest}");
    assert!(last.iter().skip(1).all(|(_, key)| *key != 0));
}

/// A consumer that makes a new key for each registration (`ib_inc_rkey`) never meets the old one.
#[test]
fn keys_of_one_index() {
    let stag = Stag::new(0x123456, 0).unwrap();
    let mut seen = [false; 256];
    for key in 0..=255u8 {
        let next = stag.with_key(key);
        assert_eq!((next.index(), next.key()), (stag.index(), key));
        assert!(!std::mem::replace(&mut seen[usize::from(next.key())], true));
        assert_eq!(next == stag, key == 0);
    }
}

/// Depths of any size against plain counts, with more answers than questions.
#[test]
fn credits_are_counts() {
    let mut rng = Rng::new(24);
    for _ in 0..300 {
        let mut depth = || match rng.below(4) {
            0 => 0,
            1 => 1 + rng.below(3) as u16,
            2 => u16::MAX - rng.below(2) as u16,
            _ => rng.next() as u16,
        };
        let (ird, ord) = (depth(), depth());
        let mut credits = ReadCredits::new(ird, ord);
        let (mut out, mut inn) = (0u32, 0u32);
        // Filled up, drained, and around the borders.
        for bias in [9, 1, 9, 5] {
            for _ in 0..if bias == 5 { 1000 } else { 80_000 } {
                if rng.below(10) < bias {
                    assert_eq!(credits.try_start(), out < u32::from(ord));
                    out = (out + 1).min(u32::from(ord));
                    let taken = credits.accept();
                    let full = inn == u32::from(ird);
                    assert_eq!(taken, if full { Err(Error::NoReadSlot) } else { Ok(()) });
                    inn = (inn + 1).min(u32::from(ird));
                } else {
                    credits.finish();
                    credits.responded();
                    (out, inn) = (out.saturating_sub(1), inn.saturating_sub(1));
                }
            }
            assert_eq!(u32::from(credits.outstanding()), out);
            assert_eq!(u32::from(credits.pending()), inn);
            assert_eq!(credits.gate(false, true) == Gate::Go, out == 0);
            let read = credits.gate(true, false);
            assert_eq!(read == Gate::Go, out < u32::from(ord));
            assert_eq!(read == Gate::Never, ord == 0);
        }
    }
}

/// Against the pseudo code of the RFC, bit by bit.
#[test]
fn atomic_operations_are_those_of_the_pseudo_code() {
    let mut rng = Rng::new(25);
    let mut any = || match rng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << rng.below(64),
        3 => rng.next() & rng.next() & rng.next(),
        4 => rng.next() | rng.next(),
        _ => rng.next(),
    };
    let mut swapped = 0;
    for _ in 0..100_000 {
        let (old, add, mask) = (any(), any(), any());
        let op = AtomicOp::FetchAdd { add, mask };
        assert_eq!(op.apply(old), pseudo_code(op, old), "{old:#x} {op:x?}");

        // Often equal, where it counts.
        let (compare_mask, rest) = (any(), any());
        let compare = (old & compare_mask) | (rest & !compare_mask);
        for compare in [compare, compare ^ (1 << (rest % 64)), any()] {
            let op = AtomicOp::CmpSwap {
                compare,
                compare_mask,
                swap: any(),
                swap_mask: any(),
            };
            let new = op.apply(old);
            assert_eq!(new, pseudo_code(op, old), "{old:#x} {op:x?}");
            swapped += u32::from(new != old);
        }
    }
    assert!(swapped > 100_000, "{swapped}");
}

/// What InfiniBand has: all 64 bits.
#[test]
fn atomic_operations_without_masks() {
    let mut rng = Rng::new(26);
    for _ in 0..10_000 {
        let (old, value, other) = (rng.next(), rng.next(), rng.next());
        let add = AtomicOp::FetchAdd {
            add: value,
            mask: 0,
        };
        assert_eq!(add.apply(old), old.wrapping_add(value));
        let swap = |compare| AtomicOp::CmpSwap {
            compare,
            compare_mask: u64::MAX,
            swap: value,
            swap_mask: u64::MAX,
        };
        assert_eq!(swap(old).apply(old), value);
        assert_eq!(swap(other).apply(old), old);
    }
}

/// Fields of a FetchAdd are counters of their own.
#[test]
fn fields_of_an_addition() {
    let mut rng = Rng::new(27);
    for _ in 0..10_000 {
        let (old, add) = (rng.next(), rng.next());
        let op = AtomicOp::FetchAdd {
            add,
            mask: 0x8000_8000_8000_8000,
        };
        let new = op.apply(old);
        for field in 0..4 {
            let part = |value: u64| (value >> (16 * field)) as u16;
            assert_eq!(part(new), part(old).wrapping_add(part(add)));
        }
    }
}
