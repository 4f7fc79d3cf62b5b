// SPDX-License-Identifier: GPL-2.0

//! Arithmetic against something slow and plain: tags, Read credits, atomic operations.

mod common;

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
