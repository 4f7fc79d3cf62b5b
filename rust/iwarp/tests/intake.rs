// SPDX-License-Identifier: GPL-2.0

//! Reception that stalls for memory or for a receive: every interleaving of the receiver, the
//! pager, a poster, the timer, a datamover, and the kernel that takes memory away. Data that has
//! arrived is taken in the end, and no message waits beyond its limit.

mod common;

use common::explore;
use iwarp::qp::intake::{
    self,
    next_look,
    Stall, //
};

/// What is explored.
#[derive(Clone, Copy)]
struct Setup {
    /// Receives that will be posted.
    receives: u8,
    /// Messages that will arrive.
    messages: u8,
    /// A post looks at the word. Otherwise the timer looks at the queue.
    post_wakes: bool,
    /// The limit of a wait may pass.
    limited: bool,
    /// Reception may be ended.
    stops: bool,
    /// The receiver leaves without a second look.
    broken: bool,
}

const SETUP: Setup = Setup {
    receives: 3,
    messages: 3,
    post_wakes: true,
    limited: false,
    stops: false,
    broken: false,
};

/// A run of reception, by its next step. It has the socket locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Look { noted: Option<Stall> },
    Note(Stall),
    TakeBack,
}

/// The wait of a message for its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    No,
    Yes,
    /// The limit has passed.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    word: u32,
    /// Messages in the socket, and those that will still arrive.
    unread: u8,
    to_come: u8,
    /// Receives in the queue, and those that will still be posted.
    posted: u8,
    to_post: u8,
    /// The message at the head has its receive.
    taken: bool,
    wait: Wait,
    /// The stream has failed, and everything is dropped.
    failed: bool,
    /// The memory is there, and how often the kernel will still take it away.
    there: bool,
    losses: u8,
    /// The run that has the socket locked.
    run: Option<Run>,
    mover_queued: bool,
    /// The datamover has found that it has to continue, and waits for the lock.
    mover_waits: bool,
    pager_queued: bool,
    /// The pager has brought the memory, and has not said so.
    brought: bool,
    /// The poster has posted, and has not looked at the word.
    posting: bool,
    timer: bool,
    stops: bool,
}

impl World {
    fn new(setup: Setup) -> Self {
        Self {
            word: intake::OPEN,
            unread: 0,
            to_come: setup.messages,
            posted: 0,
            to_post: setup.receives,
            taken: false,
            wait: Wait::No,
            failed: false,
            there: false,
            losses: 2,
            run: None,
            mover_queued: false,
            mover_waits: false,
            pager_queued: false,
            brought: false,
            posting: false,
            timer: false,
            stops: setup.stops,
        }
    }

    fn begin(&mut self) {
        if intake::is_open(self.word) {
            self.run = Some(Run::Look { noted: None });
        }
    }

    fn unstall(&mut self, reason: Stall) {
        self.mover_queued |= intake::waits(self.word, reason);
        self.word = intake::unstall(self.word, reason);
    }

    /// The receiver cannot go on.
    fn stall(&mut self, noted: Option<Stall>, reason: Stall) {
        if noted != Some(reason) {
            self.run = Some(Run::Note(reason));
            return;
        }
        self.run = None;
        self.timer |= reason == Stall::Receive;
    }

    /// The receiver looks at the head of the socket.
    fn look(&mut self, noted: Option<Stall>) {
        match (self.unread, self.taken) {
            (0, _) => self.run = noted.map(|_| Run::TakeBack),
            _ if self.failed => self.unread = 0,
            (_, true) if self.there => {
                self.unread -= 1;
                self.taken = false;
            }
            (_, true) => {
                self.pager_queued = true;
                self.stall(noted, Stall::Memory);
            }
            (_, false) if self.posted != 0 => {
                self.posted -= 1;
                self.taken = true;
                self.wait = Wait::No;
            }
            (_, false) if self.wait == Wait::Over => self.failed = true,
            (_, false) => {
                self.wait = Wait::Yes;
                self.stall(noted, Stall::Receive);
            }
        }
    }

    /// All worlds that are one step away.
    fn steps(&self, setup: Setup) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |f: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            f(&mut next);
            all.push(next);
        };
        match self.run {
            Some(Run::Look { noted }) => step(&|w| w.look(noted)),
            Some(Run::Note(reason)) => step(&|w| {
                w.word = intake::stall(w.word, reason);
                w.timer |= setup.broken && reason == Stall::Receive;
                w.run = (!setup.broken).then_some(Run::Look {
                    noted: Some(reason),
                });
            }),
            Some(Run::TakeBack) => step(&|w| {
                w.word = intake::end_stall(w.word);
                w.run = None;
            }),
            None => {
                if self.to_come != 0 {
                    step(&|w| {
                        w.to_come -= 1;
                        w.unread += 1;
                        w.begin();
                    });
                }
                if self.mover_waits {
                    step(&|w| {
                        w.mover_waits = false;
                        w.begin();
                    });
                }
            }
        }
        if self.mover_queued && !self.mover_waits {
            step(&|w| {
                w.mover_queued = false;
                w.mover_waits = intake::is_due(w.word);
                w.word = intake::take(w.word);
            });
        }
        if self.brought {
            step(&|w| {
                w.brought = false;
                w.unstall(Stall::Memory);
            });
        } else if self.pager_queued {
            step(&|w| {
                w.pager_queued = false;
                w.there = true;
                w.brought = true;
            });
        }
        if self.losses != 0 && self.there {
            step(&|w| {
                w.losses -= 1;
                w.there = false;
            });
        }
        if self.posting {
            step(&|w| {
                w.posting = false;
                w.unstall(Stall::Receive);
            });
        } else if self.to_post != 0 {
            step(&|w| {
                w.to_post -= 1;
                w.posted += 1;
                w.posting = setup.post_wakes;
            });
        }
        if self.wait == Wait::Yes && setup.limited {
            step(&|w| w.wait = Wait::Over);
        }
        let found = self.posted != 0 && !setup.post_wakes;
        let waits = intake::waits(self.word, Stall::Receive);
        if self.timer && (found || !waits || self.wait == Wait::Over) {
            step(&|w| {
                w.timer = false;
                w.unstall(Stall::Receive);
            });
        }
        if self.stops {
            step(&|w| {
                w.stops = false;
                w.word = intake::stop(w.word);
            });
        }
        all
    }
}

/// Explores all worlds; returns those from which no step leads on.
fn ends(setup: Setup) -> Vec<World> {
    let (worlds, ends) = explore(World::new(setup), |world| world.steps(setup));
    println!("{} worlds, {} ends", worlds.len(), ends.len());
    ends
}

fn all_taken(setup: Setup) {
    let ends = ends(setup);
    assert!(!ends.is_empty());
    for end in ends {
        assert_eq!(
            (end.unread, end.word, end.failed),
            (0, intake::OPEN, false),
            "{end:?}"
        );
    }
}

/// No wake-up is lost: neither that of the pager nor that of a post.
#[test]
fn what_has_come_in_is_taken_in_the_end() {
    all_taken(SETUP);
}

#[test]
fn the_timer_finds_what_is_posted_without_a_call() {
    all_taken(Setup {
        post_wakes: false,
        ..SETUP
    });
}

/// Without its receive a message waits until the limit, and then the stream fails. It never fails
/// earlier, and never for another reason.
#[test]
fn no_message_waits_beyond_its_limit() {
    for (receives, post_wakes) in [(0, true), (2, true), (2, false), (3, true), (3, false)] {
        let ends = ends(Setup {
            receives,
            post_wakes,
            limited: true,
            ..SETUP
        });
        assert!(ends.iter().any(|end| end.failed));
        assert_eq!(receives == 3, ends.iter().any(|end| !end.failed));
        for end in ends {
            assert_eq!((end.unread, end.word), (0, intake::OPEN), "{end:?}");
            assert!(!end.failed || end.wait == Wait::Over, "{end:?}");
        }
    }
}

/// The receiver that waits without a limit is the model's only one that is left with a message.
#[test]
fn a_message_without_a_receive_stays_in_the_socket() {
    for end in ends(Setup {
        receives: 2,
        ..SETUP
    }) {
        assert_eq!(end.unread, 1);
        assert_eq!(intake::state(end.word), intake::State::NoReceive);
    }
}

#[test]
fn nothing_keeps_the_end_of_reception() {
    for (receives, limited) in [(3, false), (1, false), (1, true)] {
        for end in ends(Setup {
            receives,
            limited,
            stops: true,
            ..SETUP
        }) {
            assert!(!intake::is_open(end.word) && end.run.is_none());
            assert_eq!(intake::state(end.word), intake::State::Stopped);
        }
    }
}

/// The explorer finds the loss of a wake-up.
#[test]
fn without_the_second_look_a_wake_up_is_lost() {
    let lost = |reason| {
        let ends = ends(Setup {
            broken: true,
            ..SETUP
        });
        ends.iter()
            .any(|end| end.unread != 0 && intake::waits(end.word, reason))
    };
    assert!(lost(Stall::Memory));
    assert!(lost(Stall::Receive));
}

/// The looks at a queue: the last one is at the limit, a late receive is found soon, and there are
/// few of them.
#[test]
fn the_looks_are_few_and_end_at_the_limit() {
    for limit in [0, 1, 2, 3, 63, 64, 65, 1000, 5000, u32::MAX / 2] {
        let (mut at, mut looks) = (0, Vec::new());
        while let Some(pause) = next_look(at, limit) {
            assert!(pause > 0);
            at += pause;
            looks.push(at);
            if looks.len() == 10_000 {
                return assert!(limit > 5000);
            }
        }
        assert_eq!(at, limit);
        assert!(looks.len() as u32 <= 8 + limit / 64, "{limit}: {looks:?}");
        for posted in 1..=limit {
            let found = looks.iter().find(|look| **look >= posted).unwrap();
            assert!(*found <= (2 * posted).min(posted + 64), "{posted}: {found}");
        }
    }
    assert_eq!(next_look(7, 5), None);
}
