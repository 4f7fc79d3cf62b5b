// SPDX-License-Identifier: GPL-2.0

//! Deficit round robin: what queue pairs with messages of different sizes get of a datamover.

use iwarp::qp::fairness::{
    Share,
    QUANTUM, //
};
use std::collections::VecDeque;

/// A queue pair that always has more to send, in FPDUs of that size.
struct Sender {
    share: Share,
    fpdu: usize,
    sent: usize,
}

impl Sender {
    fn new(fpdu: usize) -> Self {
        Self {
            share: Share::new(),
            fpdu,
            sent: 0,
        }
    }

    /// Sends FPDUs, none of them in part, until `budget` bytes are gone.
    fn send(&mut self, budget: u32) -> usize {
        let mut turn = 0;
        while turn < budget as usize {
            turn += self.fpdu;
        }
        self.share.charge(turn);
        self.sent += turn;
        turn
    }
}

/// Gives `turns` turns, round robin.
fn serve(senders: &mut [Sender], turns: u32) {
    let mut queue: VecDeque<usize> = (0..senders.len()).collect();
    for n in 0..turns {
        let i = queue.pop_front().unwrap();
        let budget = senders[i].share.turn(n + 1, 1);
        senders[i].send(budget);
        queue.push_back(i);
    }
}

#[test]
fn tenants_have_equal_shares_whatever_their_queue_pairs() {
    for many in [1, 7, 64] {
        let mut senders: Vec<_> = (0..=many).map(|_| Sender::new(1448)).collect();
        for n in 0..1000 * (many + 1) {
            let i = n % (many + 1);
            let sharers = if i == 0 { 1 } else { many };
            let budget = senders[i].share.turn(n as u32 + 1, sharers as u32);
            senders[i].send(budget);
        }
        let theirs: usize = senders[1..].iter().map(|s| s.sent).sum();
        let off = theirs.abs_diff(senders[0].sent);
        assert!(
            off <= 1448 * (many + 1),
            "{many} sent {theirs}, one {}",
            senders[0].sent
        );
    }
}

#[test]
fn equal_shares_whatever_the_fpdus() {
    for sizes in [
        [64, 1448, 8960, 65_535],
        [65_535; 4],
        [65_536, 65_535, 40_000, 1],
    ] {
        let mut senders = sizes.map(Sender::new);
        serve(&mut senders, 4 * 500);
        let fair = 500 * QUANTUM as usize;
        for s in &senders {
            let off = s.sent.abs_diff(fair);
            assert!(off <= 65_536, "FPDUs of {}: {} of {fair}", s.fpdu, s.sent);
        }
    }
}

#[test]
fn a_turn_that_is_owed_is_skipped() {
    let mut share = Share::new();
    assert_eq!(share.turn(1, 1), QUANTUM as u32);
    share.charge(3 * QUANTUM as usize);
    assert_eq!(share.turn(2, 1), 0);
    assert_eq!(share.turn(3, 1), 0);
    assert_eq!(share.turn(4, 1), QUANTUM as u32);
}

#[test]
fn nothing_is_saved_up() {
    let mut share = Share::new();
    for n in 1..100 {
        assert_eq!(share.turn(n, 1), QUANTUM as u32);
        share.charge(100);
    }
}

#[test]
fn who_sends_on_the_spot_gets_a_turn_when_the_others_had_theirs() {
    let mut share = Share::new();
    // Three wait, and the datamover has given ten turns.
    assert_eq!(share.direct(10, 3, 1), QUANTUM as u32);
    share.charge(QUANTUM as usize - 100);
    assert_eq!(share.direct(11, 3, 1), 100);
    share.charge(500);
    assert_eq!(share.direct(12, 3, 1), 0);
    // All three had one; what was too much is taken off.
    assert_eq!(share.direct(13, 3, 1), QUANTUM as u32 - 400);
}

#[test]
fn on_the_spot_is_no_more_than_by_turns() {
    // One sends at once whenever it may, ahead of two that a datamover serves.
    let mut movers = [Sender::new(1448), Sender::new(65_535)];
    let mut poster = Sender::new(3000);
    for n in 1..=1000u32 {
        let i = (n % 2) as usize;
        let budget = movers[i].share.turn(n, 1);
        movers[i].send(budget);
        loop {
            match poster.share.direct(n, 2, 1) {
                0 => break,
                budget => poster.send(budget.min(3000)),
            };
        }
    }
    for s in &movers {
        assert!(poster.sent <= s.sent + 2 * QUANTUM as usize);
    }
    assert!(poster.sent > 400 * QUANTUM as usize);
}

#[test]
fn turns_wrap() {
    let mut share = Share::new();
    share.turn(u32::MAX, 1);
    share.charge(QUANTUM as usize);
    assert_eq!(share.direct(0, 2, 1), 0);
    assert_eq!(share.direct(1, 2, 1), QUANTUM as u32);
}

#[test]
fn absurd_amounts_are_harmless() {
    let mut share = Share::new();
    share.charge(usize::MAX);
    share.charge(usize::MAX);
    assert_eq!(share.turn(1, 1), 0);
}
