// SPDX-License-Identifier: GPL-2.0

//! The small machines: queue pair states, read credits, retirement, steering tags.

mod common;

use common::Rng;
use iwarp::error::Error;
use iwarp::qp_fsm::{step, Actions, Event, Facts, Invalid, State};
use iwarp::read_credits::{Gate, ReadCredits};
use iwarp::retire::{completes_at_handoff, may_retire, Entry, Extend64};
use iwarp::stag::{Stag, StagGenerator};
use std::collections::HashSet;

const STATES: [State; 6] = [
    State::Idle,
    State::Rtr,
    State::Rts,
    State::Closing,
    State::Terminate,
    State::Error,
];

fn events() -> Vec<Event> {
    let mut all: Vec<_> = STATES.into_iter().map(Event::Modify).collect();
    all.extend([
        Event::Established,
        Event::PeerClosed,
        Event::PeerTerminate,
        Event::TerminateDue,
        Event::LlpLost,
        Event::Closed,
    ]);
    all
}

fn facts(sq_busy: bool, connected: bool) -> Facts {
    Facts { sq_busy, connected }
}

#[test]
fn every_transition() {
    for state in STATES {
        for event in events() {
            for (busy, connected) in [(false, false), (false, true), (true, false), (true, true)] {
                let Ok((next, actions)) = step(state, event, facts(busy, connected)) else {
                    assert!(matches!(event, Event::Modify(_)));
                    continue;
                };
                let at = format!("{state:?} {event:?} {busy} {connected} -> {next:?} {actions:?}");
                // Error is final.
                assert!(state != State::Error || next == State::Error, "{at}");
                // Into Error both queues are flushed, once the stream is gone.
                if next == State::Error && state != State::Error {
                    assert!(actions.contains(Actions::FLUSH_SQ), "{at}");
                    assert!(actions.contains(Actions::FLUSH_RQ), "{at}");
                    if connected && event != Event::Closed {
                        assert!(
                            actions.contains(Actions::ABORT)
                                || actions.contains(Actions::CLOSE_GRACEFUL),
                            "{at}"
                        );
                    }
                }
                // Nothing is done to a stream that is not there.
                if !connected {
                    for action in [
                        Actions::ABORT,
                        Actions::CLOSE_GRACEFUL,
                        Actions::SEND_TERMINATE,
                    ] {
                        assert!(!actions.contains(action), "{at}");
                    }
                }
                // The upcall comes last.
                assert_eq!(
                    actions.contains(Actions::UPCALL_CLOSE),
                    event == Event::Closed && !matches!(state, State::Idle | State::Rtr),
                    "{at}"
                );
                // Work starts once.
                let starts = actions.contains(Actions::START_STREAM);
                assert_eq!(starts, next == State::Rts && state != State::Rts, "{at}");
            }
        }
    }
}

#[test]
fn life_of_a_connection() {
    let up = facts(false, true);
    let (state, actions) = step(State::Idle, Event::Established, up).unwrap();
    assert_eq!((state, actions), (State::Rts, Actions::START_STREAM));
    let (state, actions) = step(state, Event::Modify(State::Closing), up).unwrap();
    assert_eq!(state, State::Closing);
    assert_eq!(actions, Actions::CLOSE_GRACEFUL.union(Actions::FLUSH_RQ));
    assert_eq!(
        step(state, Event::PeerClosed, up),
        Ok((state, Actions::NONE))
    );
    assert_eq!(
        step(state, Event::Modify(State::Rts), up),
        Err(Invalid::Closing)
    );
    let (state, actions) = step(state, Event::Closed, up).unwrap();
    assert_eq!(state, State::Error);
    assert!(actions.contains(Actions::UPCALL_CLOSE));

    // A close with work under way is not an orderly one.
    let (state, actions) =
        step(State::Rts, Event::Modify(State::Closing), facts(true, true)).unwrap();
    assert_eq!(state, State::Error);
    assert!(actions.contains(Actions::ABORT));
    // A Terminate is sent, then the stream goes down.
    let (state, actions) = step(State::Rts, Event::TerminateDue, up).unwrap();
    assert_eq!(
        (state, actions),
        (State::Terminate, Actions::SEND_TERMINATE)
    );
    assert_eq!(
        step(state, Event::TerminateDue, up),
        Ok((state, Actions::NONE))
    );
    assert_eq!(step(state, Event::Closed, up).unwrap().0, State::Error);
    // RTS takes a connection.
    let alone = facts(false, false);
    assert_eq!(
        step(State::Rtr, Event::Modify(State::Rts), alone),
        Err(Invalid::NotConnected)
    );
    assert_eq!(
        step(State::Idle, Event::Modify(State::Rtr), alone)
            .unwrap()
            .0,
        State::Rtr
    );
    assert!(step(State::Idle, Event::Modify(State::Closing), alone)
        .unwrap()
        .1
        .is_empty());
}

#[test]
fn names_of_states() {
    for state in STATES {
        assert_eq!(State::from_ib(state.to_ib()), Some(state));
    }
    assert_eq!(State::from_ib(0), Some(State::Idle));
    assert_eq!(State::from_ib(7), None);
}

#[test]
fn credits() {
    let mut c = ReadCredits::new(2, 1);
    assert_eq!(
        (c.gate(true, false), c.gate(false, true)),
        (Gate::Go, Gate::Go)
    );
    assert!(c.try_start());
    assert!(!c.try_start());
    assert_eq!(c.gate(true, false), Gate::WaitSlot);
    assert_eq!(c.gate(true, true), Gate::WaitFence);
    assert_eq!(c.gate(false, true), Gate::WaitFence);
    assert_eq!(c.gate(false, false), Gate::Go);
    assert_eq!(c.outstanding(), 1);
    c.finish();
    c.finish();
    assert_eq!(c.outstanding(), 0);
    assert_eq!(
        (c.accept(), c.accept(), c.accept()),
        (Ok(()), Ok(()), Err(Error::NoReadSlot))
    );
    assert_eq!(c.pending(), 2);
    c.responded();
    assert_eq!(c.accept(), Ok(()));
    let none = ReadCredits::new(0, 0);
    assert_eq!(none.gate(true, false), Gate::Never);
    assert_eq!(none.gate(false, true), Gate::Go);
    assert_eq!((c.ird(), c.ord()), (2, 1));
}

#[test]
fn worked_example() {
    // 2840 bytes behind 1000 older ones, the first unacknowledged byte being 10000: finished at
    // 13840.
    let entry = Entry {
        zero_copy: true,
        hsn: 10_000 + 3840,
        read_pending: false,
        ubuf_busy: true,
    };
    assert!(!may_retire(&entry, 10_000, false));
    assert!(!may_retire(&entry, 13_839, false));
    assert!(may_retire(&entry, 13_840, false));
    assert!(!may_retire(&entry, 13_840, true));
    let released = Entry {
        ubuf_busy: false,
        ..entry
    };
    assert!(may_retire(&released, 13_840, true));
    // 40 bytes of a Write are 60 in the stream; 4500 in packets of 1400 are 4580.
    assert_eq!(iwarp::stream_tx::message_cost(16, 40, 1400), 60);
    assert_eq!(iwarp::stream_tx::message_cost(16, 4500, 1414), 4580);
}

#[test]
fn retirement() {
    let copied = Entry {
        zero_copy: false,
        hsn: u64::MAX,
        read_pending: false,
        ubuf_busy: false,
    };
    assert!(may_retire(&copied, 0, true));
    assert!(completes_at_handoff(true, &copied));
    assert!(!completes_at_handoff(false, &copied));
    let read = Entry {
        read_pending: true,
        ..copied
    };
    assert!(!may_retire(&read, u64::MAX, false));
    assert!(!completes_at_handoff(true, &read));
}

#[test]
fn sequence_numbers() {
    let mut seq = Extend64::new(0xffff_f000);
    assert_eq!(seq.update(0xffff_f000), 0xffff_f000);
    assert_eq!(seq.update(0x400), 0x1_0000_0400);
    // An older value, from another CPU.
    assert_eq!(seq.peek(0xffff_ff00), 0xffff_ff00);
    assert_eq!(seq.update(0xffff_ff00), 0x1_0000_0400);
    assert_eq!(seq.get(), 0x1_0000_0400);
    // At random, against plain 64 bits.
    let mut rng = Rng::new(9);
    let mut truth = 0xffff_0000u64;
    let mut seq = Extend64::new(truth as u32);
    for _ in 0..100_000 {
        truth += rng.below(1 << 31);
        assert_eq!(seq.update(truth as u32), truth);
        let back = rng.below(1 << 31).min(truth);
        assert_eq!(seq.peek((truth - back) as u32), truth - back);
    }
    // Nothing is below zero.
    assert_eq!(Extend64::new(5).peek(0xffff_ffff), 0);
}

#[test]
fn tags() {
    assert_eq!(Stag::new(0, 1), None);
    assert_eq!(Stag::new(0x100_0000, 1), None);
    let stag = Stag::new(0xabcdef, 0x12).unwrap();
    assert_eq!(stag, Stag(0xabcd_ef12));
    assert_eq!((stag.index(), stag.key()), (0xabcdef, 0x12));
    assert_eq!(stag.with_key(0xff), Stag(0xabcd_efff));
    assert_eq!(Stag::RTR, Stag(1));
}

#[test]
fn tags_do_not_come_back() {
    for (seed, draws) in [
        ([0; 4], 100_000),
        ([u32::MAX; 4], 100_000),
        ([1, 2, 3, 4], 2_000_000),
    ] {
        let mut generator = StagGenerator::new(seed);
        let mut seen = vec![false; 1 << 24];
        for draw in 0..draws {
            let stag = generator.draw();
            assert!(stag.index() != 0 && stag.key() != 0);
            let slot = &mut seen[stag.index() as usize];
            assert!(!*slot, "{stag:?} after {draw}");
            *slot = true;
        }
    }
}

#[test]
fn tags_of_two_boots() {
    let draw = |seed| {
        let mut generator = StagGenerator::new(seed);
        (0..1000).map(|_| generator.draw()).collect::<HashSet<_>>()
    };
    let (a, b) = (draw([5, 6, 7, 8]), draw([5, 6, 7, 9]));
    assert_eq!(a.len(), 1000);
    assert!(a.intersection(&b).count() <= 1);
    // Not in order, not even nearly.
    let mut generator = StagGenerator::new([5, 6, 7, 8]);
    let near = (0..1000)
        .map(|_| generator.draw().index().abs_diff(generator.draw().index()))
        .filter(|distance| *distance < 1000)
        .count();
    assert!(near < 10, "{near}");
}
