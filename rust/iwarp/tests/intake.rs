// SPDX-License-Identifier: GPL-2.0

//! Reception that waits for memory: every interleaving of the receiver, the pager, a datamover, and
//! the kernel that takes memory away. What has come in is taken in the end.

use iwarp::qp::intake;
use std::collections::HashSet;

/// A run of reception, by its next step. It has the socket locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Look { noted: bool },
    Note,
    TakeBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    word: u32,
    /// Messages in the socket, and those that will still come.
    unread: u8,
    to_come: u8,
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
    stops: bool,
}

impl World {
    fn new(stops: bool) -> Self {
        Self {
            word: intake::OPEN,
            unread: 0,
            to_come: 3,
            there: false,
            losses: 2,
            run: None,
            mover_queued: false,
            mover_waits: false,
            pager_queued: false,
            brought: false,
            stops,
        }
    }

    fn begin(&mut self) {
        if intake::is_open(self.word) {
            self.run = Some(Run::Look { noted: false });
        }
    }

    /// All worlds that are one step away; `broken` leaves out what the protocol is about.
    fn steps(&self, broken: bool) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |f: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            f(&mut next);
            all.push(next);
        };
        match self.run {
            Some(Run::Look { noted }) => step(&|w| match (w.unread, w.there) {
                (0, _) => w.run = noted.then_some(Run::TakeBack),
                (_, true) => w.unread -= 1,
                (_, false) => {
                    w.pager_queued = true;
                    w.run = (!noted).then_some(Run::Note);
                }
            }),
            Some(Run::Note) => step(&|w| {
                w.word = intake::stall(w.word);
                w.run = (!broken).then_some(Run::Look { noted: true });
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
                w.mover_queued |= intake::waits(w.word);
                w.word = intake::unstall(w.word);
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
        if self.stops {
            step(&|w| {
                w.stops = false;
                w.word = intake::stop(w.word);
            });
        }
        all
    }
}

/// Explores all worlds; returns those in which nothing can happen any more.
fn ends(start: World, broken: bool) -> Vec<World> {
    let (mut seen, mut todo, mut ends) = (HashSet::new(), vec![start], Vec::new());
    while let Some(world) = todo.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let next = world.steps(broken);
        if next.is_empty() {
            ends.push(world);
        }
        todo.extend(next);
    }
    println!("{} worlds, {} ends", seen.len(), ends.len());
    ends
}

#[test]
fn what_has_come_in_is_taken_in_the_end() {
    let ends = ends(World::new(false), false);
    assert!(!ends.is_empty());
    for end in ends {
        assert_eq!((end.unread, end.word), (0, intake::OPEN), "{end:?}");
    }
}

#[test]
fn nothing_keeps_the_end_of_reception() {
    for end in ends(World::new(true), false) {
        assert!(!intake::is_open(end.word) && end.run.is_none());
    }
}

/// The explorer finds the loss of a wake-up.
#[test]
fn without_the_second_look_a_wake_up_is_lost() {
    let lost = |end: &World| end.unread != 0;
    assert!(ends(World::new(false), true).iter().any(lost));
}
