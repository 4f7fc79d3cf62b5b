// SPDX-License-Identifier: GPL-2.0

//! The small machines: queue pair states, read credits, retirement, steering tags.

mod common;

use common::{
    tags,
    Boot,
    Rng, //
};
use iwarp::{
    error::Error,
    mem::stag::{
        Secret,
        Stag,
        StagGenerator, //
    },
    qp::{
        credits::{
            Gate,
            ReadCredits, //
        },
        delivery::{
            is_only_held,
            may_retire,
            Entry,
            Progress,
            Rule,
            Sent, //
        },
        fsm::{
            step,
            Actions,
            Event,
            Facts,
            Invalid,
            State, //
        }, //
    }, //
};
use std::{
    cell::RefCell,
    collections::HashSet, //
};

const STATES: [State; 8] = [
    State::Reset,
    State::Idle,
    State::Rtr,
    State::Rts,
    State::Drained,
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
        Event::ControlFailed,
        Event::TerminateDue,
        Event::LlpLost,
        Event::Closed,
        Event::Renewed,
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
                // It begins anew from everywhere.
                if event == Event::Renewed {
                    assert_eq!((next, actions), (State::Reset, Actions::NONE), "{at}");
                    continue;
                }
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
                    event == Event::Closed
                        && !matches!(state, State::Reset | State::Idle | State::Rtr),
                    "{at}"
                );
                // Work starts once.
                let starts = actions.contains(Actions::START_STREAM);
                let up = matches!(state, State::Rts | State::Drained);
                assert_eq!(starts, next == State::Rts && !up, "{at}");
                // The SQ rests while the state says so.
                let drains = actions.contains(Actions::DRAIN_SQ);
                assert_eq!(
                    drains,
                    next == State::Drained && state == State::Rts,
                    "{at}"
                );
                let resumes = actions.contains(Actions::RESUME_SQ);
                assert_eq!(
                    resumes,
                    next == State::Rts && state == State::Drained,
                    "{at}"
                );
                assert!(
                    next != State::Drained || up,
                    "it had something to drain: {at}"
                );
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
fn verbs_have_no_other_changes() {
    use State::{
        Closing,
        Drained,
        Error,
        Idle,
        Reset,
        Rtr,
        Rts,
        Terminate, //
    };
    let change = |from, to, connected| step(from, Event::Modify(to), facts(false, connected));
    assert_eq!(change(Reset, Idle, false), Ok((Idle, Actions::NONE)));
    for connected in [false, true] {
        for from in [Rts, Drained, Terminate, Error] {
            for to in [Idle, Rtr] {
                let refused = Err(Invalid::NoSuchChange);
                assert_eq!(change(from, to, connected), refused, "{from:?} {to:?}");
            }
        }
        for from in [Terminate, Error] {
            let refused = Err(Invalid::NoSuchChange);
            assert_eq!(change(from, Rts, connected), refused, "{from:?}");
        }
        // The host ends what there is first.
        for from in STATES {
            assert!(change(from, Reset, connected).is_err(), "{from:?}");
        }
        // A connection manager ends it in any state, and need not know of an end.
        for from in STATES {
            for to in [Closing, Error] {
                assert!(change(from, to, connected).is_ok(), "{from:?} {to:?}");
            }
        }
    }
}

#[test]
fn a_drained_queue_goes_on() {
    let (busy, empty) = (facts(true, true), facts(false, true));
    let drained = (State::Drained, Actions::DRAIN_SQ);
    assert_eq!(step(State::Rts, Event::ControlFailed, busy), Ok(drained));
    let again = step(State::Drained, Event::ControlFailed, busy);
    assert_eq!(again, Ok((State::Drained, Actions::NONE)));
    // Not before all has been flushed.
    let rts = Event::Modify(State::Rts);
    assert_eq!(step(State::Drained, rts, busy), Err(Invalid::Busy));
    let resumed = (State::Rts, Actions::RESUME_SQ);
    assert_eq!(step(State::Drained, rts, empty), Ok(resumed));
    // Whatever ends a queue pair in operation ends this one alike.
    for event in events() {
        let settled = [State::Rts, State::Drained];
        if event == rts || event == Event::ControlFailed {
            continue;
        }
        let [up, down] = settled.map(|state| step(state, event, busy));
        assert!(
            up == down || up.is_ok_and(|(next, _)| settled.contains(&next)),
            "{event:?}"
        );
    }
    // Elsewhere it means nothing.
    for state in [State::Closing, State::Terminate, State::Error] {
        let same = Ok((state, Actions::NONE));
        assert_eq!(step(state, Event::ControlFailed, busy), same);
    }
}

#[test]
fn names_of_states() {
    for state in STATES {
        let named = match state {
            State::Drained => State::Terminate,
            state => state,
        };
        assert_eq!(State::from_ib(state.to_ib()), Some(named));
    }
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

/// The sender's side of TCP: sequence numbers of 32 bits, and what they stand for.
struct Tcp {
    write_seq: u64,
    una: u64,
}

impl Tcp {
    fn sent(&self) -> Sent {
        Sent {
            una: self.una as u32,
            next: self.write_seq as u32,
        }
    }
}

#[test]
fn worked_example() {
    // 2840 bytes behind 1000 older ones, the first unacknowledged byte being 10000: finished at
    // 13840.
    let mut tcp = Tcp {
        write_seq: 13_840,
        una: 10_000,
    };
    let entry = Entry {
        end: 3840,
        awaits_ack: true,
        under_way: false,
        held: false,
    };
    let mut progress = Progress::new(Rule::Hsn);
    progress.handed(3840, 13_840);
    for (una, done) in [(10_000, false), (13_839, false), (13_840, true)] {
        tcp.una = una;
        progress.sent(tcp.sent());
        assert_eq!(may_retire(&entry, &progress), done, "{una}");
    }
    // Two elements, by the length of the queue alone: 3840 bytes, the second adds 1020; a queue of
    // 1020 finishes the first, an empty one both.
    let second = Entry { end: 4860, ..entry };
    let mut progress = Progress::new(Rule::Eql);
    let queue_of = |len| Sent { una: 0, next: len };
    progress.handed(3840, 0);
    progress.sent(queue_of(3840));
    assert!(!may_retire(&entry, &progress));
    progress.handed(4860, 0);
    for (queued, first_done, second_done) in [
        (4860, false, false),
        (1021, false, false),
        (1020, true, false),
        (1, true, false),
        (0, true, true),
    ] {
        progress.sent(queue_of(queued));
        assert_eq!(may_retire(&entry, &progress), first_done, "{queued}");
        assert_eq!(may_retire(&second, &progress), second_done, "{queued}");
    }
    // 40 bytes of a Write are 60 in the stream; 4500 in packets of 1400 are 4580.
    assert_eq!(iwarp::tx::message_cost(16, 40, 1400), 60);
    assert_eq!(iwarp::tx::message_cost(16, 4500, 1414), 4580);
}

#[test]
fn retirement() {
    let copied = Entry {
        end: 100,
        awaits_ack: false,
        under_way: false,
        held: false,
    };
    let mut progress = Progress::new(Rule::Hsn);
    progress.handed(99, 1099);
    assert!(!may_retire(&copied, &progress));
    progress.handed(100, 1100);
    assert!(may_retire(&copied, &progress));
    let shared = Entry {
        awaits_ack: true,
        ..copied
    };
    assert!(!may_retire(&shared, &progress));
    // The last byte is not acknowledged, then it is.
    let next = 1100;
    progress.sent(Sent { una: 1099, next });
    assert!(!may_retire(&shared, &progress));
    progress.sent(Sent { una: 1100, next });
    assert!(may_retire(&shared, &progress));
    // A FIN that is acknowledged comes behind all.
    let mut progress = Progress::new(Rule::Hsn);
    progress.handed(100, 1100);
    progress.sent(Sent {
        una: 1101,
        next: 1101,
    });
    assert!(may_retire(&shared, &progress));
    // One that is not keeps the length of the queue from being 0.
    let mut progress = Progress::new(Rule::Eql);
    progress.handed(100, 1100);
    progress.sent(Sent {
        una: 1100,
        next: 1101,
    });
    assert!(!may_retire(&shared, &progress));
    // Acknowledged, and still in a queue on its way out.
    let held = Entry {
        held: true,
        ..shared
    };
    let mut progress = Progress::new(Rule::Hsn);
    progress.handed(100, 1100);
    assert!(!may_retire(&held, &progress) && !is_only_held(&held, &progress));
    progress.sent(Sent { una: 1100, next });
    assert!(!may_retire(&held, &progress) && is_only_held(&held, &progress));
    assert!(may_retire(&shared, &progress) && !is_only_held(&shared, &progress));
    let read = Entry {
        under_way: true,
        ..copied
    };
    assert!(!may_retire(&read, &progress));
    let begun = Entry {
        end: u64::MAX,
        ..copied
    };
    assert!(!may_retire(&begun, &progress));
}

/// Both rules, against sequence numbers with all their bits: an element is finished when the first
/// unacknowledged byte is not before the one that came behind its last at the handoff.
#[test]
fn sequence_numbers() {
    let mut rng = Rng::new(9);
    let starts = [0xffff_f000u64, 0x400, 0x7fff_ff00];
    let both = [Rule::Hsn, Rule::Eql];
    for (start, rule) in starts
        .into_iter()
        .flat_map(|start| both.map(|rule| (start, rule)))
    {
        // The peer's start-up frame, or ours, may still be on its way.
        let mut tcp = Tcp {
            write_seq: start,
            una: start - 20,
        };
        let mut progress = Progress::new(rule);
        let mut handed = 0;
        let mut entries = Vec::new();
        for _ in 0..100_000 {
            if rng.below(2) == 0 {
                let room = (1 << 31) - 1 - u64::from(tcp.sent().queued());
                let most = [2000, 1 << 20, 1 << 31][rng.below(3) as usize];
                let len = rng.below(most).min(room);
                // From inside the send: TCP has taken it, and we do not know yet.
                tcp.write_seq += len;
                progress.sent(tcp.sent());
                handed += len;
                progress.handed(handed, tcp.write_seq as u32);
                entries.push((handed, tcp.write_seq));
            } else {
                tcp.una += rng.below(u64::from(tcp.sent().queued()) + 1);
            }
            if rng.below(4) != 0 {
                continue;
            }
            progress.sent(tcp.sent());
            entries.retain(|&(end, hsn)| {
                let entry = Entry {
                    end,
                    awaits_ack: true,
                    under_way: false,
                    held: false,
                };
                let done = may_retire(&entry, &progress);
                assert_eq!(done, tcp.una >= hsn);
                !done
            });
        }
    }
}

#[test]
fn tags_apart_and_together() {
    assert_eq!(Stag::new(0, 1), None);
    assert_eq!(Stag::new(0x100_0000, 1), None);
    let stag = Stag::new(0xabcdef, 0x12).unwrap();
    assert_eq!(stag, Stag(0xabcd_ef12));
    assert_eq!((stag.index(), stag.key()), (0xabcdef, 0x12));
    assert_eq!(stag.with_key(0xff), Stag(0xabcd_efff));
    assert_eq!(Stag::RTR, Stag(1));
}

/// Gives the same value everywhere.
#[derive(Clone, Copy)]
struct Constant(u64);

impl Secret for Constant {
    fn at(&self, _: [u64; 2]) -> u64 {
        self.0
    }
}

#[test]
fn tags_do_not_come_back() {
    fn check(tags: impl Iterator<Item = Stag>) {
        let mut seen = vec![false; 1 << 24];
        for (nth, stag) in tags.enumerate() {
            assert!(stag.index() != 0 && stag.key() != 0);
            let slot = &mut seen[stag.index() as usize];
            assert!(!*slot, "{stag:?} after {nth}");
            *slot = true;
        }
    }
    check(tags(Constant(0)).take(100_000));
    check(tags(Constant(u64::MAX)).take(100_000));
    check(tags(Boot(1)).take(1_000_000));
}

/// Nothing tells passes apart here, so a number and those 2^24 behind it have one index.
#[test]
fn an_index_has_all_keys() {
    for secret in [0, 5, u64::MAX] {
        let generator = StagGenerator::new(Constant(secret));
        for place in [1, 77, 0x12_3456] {
            let of_index: Vec<_> = (0..256)
                .filter_map(|round| generator.nth(round << 24 | place))
                .collect();
            let keys: HashSet<_> = of_index.iter().map(|stag| stag.key()).collect();
            assert_eq!(keys.len(), 255);
            assert!(of_index
                .iter()
                .all(|stag| stag.index() == of_index[0].index()));
        }
    }
}

#[test]
fn tags_of_two_boots() {
    let draw = |boot| tags(Boot(boot)).take(1000).collect::<HashSet<_>>();
    let (a, b) = (draw(5), draw(6));
    assert_eq!(a.len(), 1000);
    assert!(a.intersection(&b).count() <= 1);
    // Not in order, not even nearly.
    let near = tags(Boot(5))
        .zip(tags(Boot(5)).skip(1))
        .take(1000)
        .filter(|(a, b)| a.index().abs_diff(b.index()) < 1000)
        .count();
    assert!(near < 10, "{near}");
}

/// The tags so far tell nothing about the next one.
///
/// The secret keeps its values where the tags so far have used it, and has others elsewhere. The
/// tags so far stay the same, and the next one can be any.
#[test]
fn a_tag_does_not_follow_from_those_before() {
    /// Notes where it was used, and gives other values elsewhere if there is a second secret.
    struct Known<'a> {
        asked: &'a RefCell<HashSet<[u64; 2]>>,
        other: Option<Boot>,
    }
    impl Secret for Known<'_> {
        fn at(&self, point: [u64; 2]) -> u64 {
            let mut asked = self.asked.borrow_mut();
            match self.other {
                Some(other) if !asked.contains(&point) => other.at(point),
                Some(_) => Boot(0).at(point),
                None => {
                    asked.insert(point);
                    Boot(0).at(point)
                }
            }
        }
    }
    const SEEN: usize = 1000;
    let asked = RefCell::new(HashSet::new());
    let seen = |other| {
        let asked = &asked;
        tags(Known { asked, other })
    };
    let before: Vec<_> = seen(None).take(SEEN).collect();
    let mut next = HashSet::new();
    let mut ones = [0; 32];
    for boot in 1..=1000 {
        let mut tags = seen(Some(Boot(boot)));
        assert!(before.iter().all(|stag| Some(*stag) == tags.next()));
        let stag = tags.next().unwrap();
        next.insert(stag);
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += stag.0 >> bit & 1;
        }
    }
    assert!(next.len() > 990, "{}", next.len());
    for (bit, ones) in ones.iter().enumerate() {
        // The least two of the index say which quarter is used up.
        let told = (8..10).contains(&bit);
        assert!(
            told || (400..600).contains(ones),
            "bit {bit}: {ones} of 1000"
        );
    }
}
