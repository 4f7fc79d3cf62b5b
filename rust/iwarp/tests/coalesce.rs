// SPDX-License-Identifier: GPL-2.0

//! Which doorbells are answered later: only those of programs that post one request after another.

use iwarp::qp::coalesce::{
    Gather,
    Turn,
    ENOUGH,
    LONGEST_ROW,
    ROW,
    SMALL, //
};

/// A program that rings the bell of one queue pair.
struct Program {
    gather: Gather,
    later: bool,
    received: u64,
    tick: u32,
    /// Doorbells, and how many of them were answered later.
    bells: u32,
    put_off: u32,
}

impl Program {
    fn new() -> Self {
        Self {
            gather: Gather::new(),
            later: false,
            received: 0,
            tick: u32::MAX,
            bells: 0,
            put_off: 0,
        }
    }

    /// A doorbell: for `requests` requests, and for `more` if it is answered later.
    fn ring(&mut self, requests: u32, more: u32, bytes: usize) {
        let turn = Turn {
            later: self.later,
            requests: if self.later { more } else { requests },
            bytes,
            received: self.received,
            tick: self.tick,
        };
        self.bells += 1;
        self.put_off += u32::from(self.later);
        self.later = self.gather.ended(turn);
    }
}

#[test]
fn who_posts_and_posts_is_served_later() {
    let mut p = Program::new();
    for _ in 0..1000 {
        p.ring(1, ENOUGH, 84);
    }
    assert_eq!(p.bells - p.put_off, ROW);
}

#[test]
fn who_posts_now_and_then_is_served_at_once() {
    let mut p = Program::new();
    for _ in 0..10 * LONGEST_ROW {
        p.ring(1, 1, 84);
        p.tick = p.tick.wrapping_add(1);
    }
    assert_eq!(p.put_off, 0);
    // Two in a tick are a row.
    for n in 0..2 * ROW {
        p.ring(1, ENOUGH, 84);
        p.tick = p.tick.wrapping_add(n % 2);
    }
    assert!(p.put_off > 0);
}

#[test]
fn who_waits_for_answers_is_served_at_once() {
    // One answer to each request, or to a few.
    for requests in 1..ROW {
        let mut p = Program::new();
        for n in 0..10_000 {
            p.ring(1, 1, 84);
            if n % requests == 0 {
                p.received += 1;
            }
        }
        assert_eq!(p.put_off, 0, "{requests} to an answer");
    }
}

#[test]
fn large_messages_and_lists_gain_nothing() {
    let mut p = Program::new();
    for _ in 0..10_000 {
        p.ring(1, 100, SMALL + 1);
        p.ring(ENOUGH, 100, 84);
    }
    assert_eq!(p.put_off, 0);
}

#[test]
fn in_vain_is_ever_rarer() {
    // Too few come together: a program with a short queue, or one that takes its time.
    let mut p = Program::new();
    for _ in 0..100_000 {
        p.ring(1, ENOUGH - 1, 84);
    }
    assert!((1..=40).contains(&p.put_off), "{} times", p.put_off);
    // But it is found out if that changes.
    for _ in 0..=LONGEST_ROW {
        p.ring(1, ENOUGH, 84);
    }
    assert!(p.later);
    p.ring(1, ENOUGH, 84);
    assert!(p.later);
}

#[test]
fn it_ends_with_the_first_that_comes_alone() {
    let mut p = Program::new();
    while !p.later {
        p.ring(1, 1, 84);
    }
    p.ring(1, ENOUGH, 84);
    assert!(p.later);
    p.ring(1, 1, 84);
    assert!(!p.later);
}
