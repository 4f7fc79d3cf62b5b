// SPDX-License-Identifier: GPL-2.0

//! Streams that stall for a receive of one shared queue: every interleaving of their receivers, a
//! kernel consumer that posts, datamovers, and the end of a stream. No stream waits while there is
//! a receive that nobody else has been woken for, and a post wakes no more streams than it has
//! receives. There is no timer here, which would make up for what is lost.

mod common;

use common::explore;
use iwarp::qp::intake::{
    self,
    Stall, //
};

const STREAMS: usize = 3;

/// What is explored.
#[derive(Clone, Copy)]
struct Setup {
    /// Messages that will arrive for each stream.
    messages: [u8; STREAMS],
    /// Receives of each post.
    posts: [u8; 2],
    /// The first stream may end.
    ends: bool,
    /// A stream that no longer needs its wake-up does not pass it on.
    broken: bool,
}

const SETUP: Setup = Setup {
    messages: [1, 1, 1],
    posts: [1, 2],
    ends: false,
    broken: false,
};

/// A run of reception, by its next step. It has the socket locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Look { noted: bool },
    Note,
    Enlist,
    TakeBack,
    Strike,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Stream {
    word: u32,
    /// Messages in the socket, and those that will still arrive.
    unread: u8,
    to_come: u8,
    run: Option<Run>,
    mover_queued: bool,
    /// The datamover has found that it has to continue, and waits for the lock.
    mover_waits: bool,
    /// It has ended, and is not yet struck off the list.
    ending: bool,
}

/// A context that wakes streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waker {
    /// Streams that it will still wake.
    left: u8,
    /// The stream that it has taken off the list, and will wake.
    next: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    streams: [Stream; STREAMS],
    posted: u8,
    posts: usize,
    /// The streams that wait, the oldest one first.
    list: Vec<usize>,
    wakers: Vec<Waker>,
    /// The order in which messages began to wait.
    since: [Option<u8>; STREAMS],
    clock: u8,
    /// The first stream may still end.
    ends: bool,
}

impl World {
    fn new(setup: Setup) -> Self {
        let mut streams = [Stream::default(); STREAMS];
        for (stream, to_come) in streams.iter_mut().zip(setup.messages) {
            stream.to_come = to_come;
        }
        Self {
            streams,
            posted: 0,
            posts: 0,
            list: Vec::new(),
            wakers: Vec::new(),
            since: [None; STREAMS],
            clock: 0,
            ends: setup.ends,
        }
    }

    fn begin(&mut self, n: usize) {
        let stream = &mut self.streams[n];
        if intake::is_open(stream.word) {
            stream.run = Some(Run::Look { noted: false });
        }
    }

    fn look(&mut self, n: usize, noted: bool) {
        let stream = &mut self.streams[n];
        if stream.unread == 0 {
            stream.run = noted.then_some(Run::TakeBack);
        } else if self.posted != 0 {
            self.posted -= 1;
            stream.unread -= 1;
            self.since[n] = None;
        } else {
            if self.since[n].is_none() {
                self.since[n] = Some(self.clock);
                self.clock += 1;
            }
            stream.run = (!noted).then_some(Run::Note);
        }
    }

    fn post(&mut self, receives: u8) {
        self.posted += receives;
        self.wake_upto(receives);
    }

    /// A context begins to wake streams.
    fn wake_upto(&mut self, left: u8) {
        if left != 0 {
            self.wakers.push(Waker { left, next: None });
        }
    }

    fn enlist(&mut self, n: usize) {
        let since = self.since;
        self.list.retain(|other| *other != n);
        let at = self.list.partition_point(|other| since[*other] < since[n]);
        self.list.insert(at, n);
    }

    /// Strikes a stream off the list. One that is not there has been woken.
    fn strike(&mut self, n: usize, setup: Setup) {
        let before = self.list.len();
        self.list.retain(|other| *other != n);
        if self.list.len() == before && !setup.broken {
            self.wake_upto(1);
        }
    }

    /// A step of a waker: it takes a stream off the list, or wakes it.
    fn wake(&mut self, at: usize) {
        let waker = self.wakers[at];
        let Some(n) = waker.next else {
            let next = match self.posted {
                0 => None,
                _ if self.list.is_empty() => None,
                _ => Some(self.list.remove(0)),
            };
            match next {
                Some(_) => self.wakers[at].next = next,
                None => drop(self.wakers.remove(at)),
            }
            return;
        };
        let word = self.streams[n].word;
        self.wakers[at].next = None;
        if intake::waits(word, Stall::Receive) {
            self.streams[n].mover_queued = true;
            self.wakers[at].left -= 1;
        }
        self.streams[n].word = intake::unstall(word, Stall::Receive);
        if self.wakers[at].left == 0 {
            self.wakers.remove(at);
        }
    }

    /// All worlds that are one step away.
    fn steps(&self, setup: Setup) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |f: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            f(&mut next);
            next.wakers.sort_by_key(|waker| (waker.left, waker.next));
            all.push(next);
        };
        for (n, stream) in self.streams.iter().enumerate() {
            match stream.run {
                Some(Run::Look { noted }) => step(&|w| w.look(n, noted)),
                Some(Run::Note) => step(&|w| {
                    let stream = &mut w.streams[n];
                    stream.word = intake::stall(stream.word, Stall::Receive);
                    stream.run = Some(Run::Enlist);
                }),
                Some(Run::Enlist) => step(&|w| {
                    w.enlist(n);
                    w.streams[n].run = Some(Run::Look { noted: true });
                }),
                Some(Run::TakeBack) => step(&|w| {
                    let stream = &mut w.streams[n];
                    stream.word = intake::end_stall(stream.word);
                    stream.run = Some(Run::Strike);
                }),
                Some(Run::Strike) => step(&|w| {
                    w.strike(n, setup);
                    w.streams[n].run = None;
                }),
                None => {
                    if stream.to_come != 0 {
                        step(&|w| {
                            w.streams[n].to_come -= 1;
                            w.streams[n].unread += 1;
                            w.begin(n);
                        });
                    }
                    if stream.mover_waits {
                        step(&|w| {
                            w.streams[n].mover_waits = false;
                            w.begin(n);
                        });
                    }
                    if stream.ending {
                        step(&|w| {
                            w.streams[n].ending = false;
                            w.strike(n, setup);
                        });
                    }
                }
            }
            if stream.mover_queued && !stream.mover_waits {
                step(&|w| {
                    let stream = &mut w.streams[n];
                    stream.mover_queued = false;
                    stream.mover_waits = intake::is_due(stream.word);
                    stream.word = intake::take(stream.word);
                });
            }
        }
        for at in 0..self.wakers.len() {
            step(&|w| w.wake(at));
        }
        if let Some(receives) = setup.posts.get(self.posts).copied() {
            step(&|w| {
                w.posts += 1;
                w.post(receives);
            });
        }
        if self.ends {
            step(&|w| {
                w.ends = false;
                let stream = &mut w.streams[0];
                stream.word = intake::stop(stream.word);
                stream.ending = true;
            });
        }
        all
    }
}

/// Explores all worlds; returns those from which no step leads on.
fn ends(setup: Setup) -> Vec<World> {
    let (worlds, ends) = explore(World::new(setup), |world| world.steps(setup));
    println!("{} worlds, {} ends", worlds.len(), ends.len());
    assert!(!ends.is_empty());
    ends
}

/// True if a stream waits although there is a receive.
fn is_lost(end: &World) -> bool {
    let waits = |stream: &Stream| stream.unread != 0 && intake::waits(stream.word, Stall::Receive);
    end.posted != 0 && end.streams.iter().any(waits)
}

#[test]
fn each_message_gets_its_receive() {
    for posts in [[1, 2], [3, 0]] {
        for end in ends(Setup { posts, ..SETUP }) {
            assert_eq!(end.posted, 0, "{end:?}");
            for stream in end.streams {
                assert_eq!((stream.unread, stream.word), (0, intake::OPEN), "{end:?}");
            }
        }
    }
}

/// A stream with two messages may take what another one was woken for, which then waits on.
#[test]
fn no_stream_waits_while_there_is_a_receive() {
    for (messages, posts) in [
        ([2, 1, 0], [1, 1]),
        ([2, 1, 0], [1, 2]),
        ([2, 2, 0], [2, 1]),
    ] {
        let ends = ends(Setup {
            messages,
            posts,
            ..SETUP
        });
        for end in ends {
            assert!(!is_lost(&end), "{end:?}");
        }
    }
}

#[test]
fn the_end_of_a_stream_takes_no_wake_up_along() {
    for posts in [[1, 0], [1, 1], [2, 0]] {
        let ends = ends(Setup {
            messages: [1, 1, 0],
            posts,
            ends: true,
            ..SETUP
        });
        assert!(ends.iter().any(|end| end.streams[0].unread != 0));
        for end in ends {
            assert!(!is_lost(&end), "{end:?}");
        }
    }
}

/// The explorer finds the loss of a wake-up: of a stream that has found a receive by itself, and of
/// one that ends.
#[test]
fn without_passing_on_a_wake_up_is_lost() {
    for (posts, stops) in [([1, 1], false), ([1, 0], true)] {
        let ends = ends(Setup {
            messages: [1, 1, 0],
            posts,
            ends: stops,
            broken: true,
            ..SETUP
        });
        assert!(ends.iter().any(is_lost));
    }
}

/// Of streams that wait, a post wakes the oldest, and no more than it has receives.
#[test]
fn the_oldest_are_woken() {
    for receives in 0..=STREAMS {
        let mut world = World::new(SETUP);
        for n in [1, 2, 0] {
            world.streams[n].unread = 1;
            world.begin(n);
            while world.streams[n].run.is_some() {
                match world.streams[n].run {
                    Some(Run::Look { noted }) => world.look(n, noted),
                    Some(Run::Note) => {
                        world.streams[n].word = intake::stall(intake::OPEN, Stall::Receive);
                        world.streams[n].run = Some(Run::Enlist);
                    }
                    _ => {
                        world.enlist(n);
                        world.streams[n].run = Some(Run::Look { noted: true });
                    }
                }
            }
        }
        world.post(receives as u8);
        while !world.wakers.is_empty() {
            world.wake(0);
        }
        let woken = [1, 2, 0].map(|n| world.streams[n].mover_queued);
        let expected = [0, 1, 2].map(|place| place < receives);
        assert_eq!(woken, expected);
    }
}
