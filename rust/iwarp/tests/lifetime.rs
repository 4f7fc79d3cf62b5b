// SPDX-License-Identifier: GPL-2.0

//! The life of a queue pair's work requests under every interleaving: posted, taken and sent by
//! whoever owns the transmit token, completed in order by whoever finds the head of the FIFO done,
//! flushed when the queue pair dies.
//!
//! The token is the real one, `iwarp::tx_owner`. What is around it is the protocol of
//! `rust/driver/qp` (kick, tx, retire, flush, state) with its data left out: one step of an actor is
//! one access to shared memory, or what is done under one lock. All orders of steps are tried.
//! Always: at most one owner, completions in the order of posting, each work request once, no
//! success behind a failure. Who ends the queue pair leaves when all that was posted by then has
//! completed, whatever posters do meanwhile. In the end: all that was posted has completed, and if
//! nobody killed the queue pair, with success.

use iwarp::tx_owner::{
    is_stopping, kick, leave, phase as token, stop, take, Action, Leave, Phase as Token, Step,
    Wake, INITIAL,
};
use std::collections::HashSet;

/// Most work requests of a scenario.
const MAX: usize = 4;

/// `qp::state::Phase`, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Rts,
    Terminating,
    Error,
}

/// A work request in the retire FIFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    encoded: bool,
    reading: bool,
    failed: bool,
}

/// What the actors share. Work requests are numbered as they are posted: those up to `retired` have
/// left the FIFO, those up to `taken` are in it, the rest is in the SQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shared {
    word: u32,
    phase: Phase,
    posted: u8,
    taken: u8,
    retired: u8,
    entries: [Entry; MAX],
    /// A work request that has been taken and has to wait for a place in the ORQ.
    waiting: bool,
    /// Reads not answered: those from the first to the second of this number, of `reads`.
    orq: (u8, u8),
    /// All that is encoded has been handed to TCP.
    accepted: u8,
    /// A poster of completions is at work; a failure has been posted.
    busy: bool,
    broken: bool,
    /// The transmit context is in its slot.
    slot: bool,
    space: bool,
    flushes: u8,
    /// What had been posted when the queue pair was seen to be dead.
    due: u8,
    /// Somebody is receiving, or nobody may any more.
    receiving: bool,
    rx_stopped: bool,
    /// Entries on the mover's list.
    list: u8,
    /// Completions posted, and how many of them are successes.
    completed: u8,
    successes: u8,
}

/// What each work request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    reads: [bool; MAX],
    bad: Option<u8>,
    ord: u8,
    /// Places in the retire FIFO.
    limit: u8,
    /// FPDUs of a turn.
    turn: u8,
}

/// Where an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Posts, looks at the phase and kicks; so many more times.
    Post,
    ReadPhase,
    Kick(Wake),
    KickStore(Wake, u32),
    /// The owner.
    TakeSlot,
    Look,
    Next,
    Send(u8),
    Accept,
    Crowded,
    GiveSlot(Leave),
    Leave(Leave),
    LeaveStore(Leave, u32),
    /// Posts completions; what comes after.
    Retire(After),
    RetireNext(After),
    RetirePost(After, u8, bool),
    /// The mover.
    Idle,
    Take,
    TakeStore(u32),
    /// Receives a Read Response.
    Receive,
    ReadDone,
    /// TCP has space.
    Space,
    /// Ends the queue pair.
    StopRx,
    Stop,
    StopStore(u32),
    AwaitStopped,
    EnterError,
    AdvanceError(bool),
    /// Flushes, if it is the first to want to.
    Claim,
    Due,
    Mark(u8),
    FlushSq(u8),
    FlushPost(u8, u8),
    Settle(u8),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum After {
    Owner,
    Receiver,
    Flush(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Actor {
    at: At,
    role: Role,
    owner: bool,
    budget: u8,
    /// Times it still does what it does.
    left: u8,
    /// Why the owner's run ends, while he posts completions.
    why: Option<Leave>,
    /// The retire FIFO was full.
    crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Posts work requests; sends them himself if he may.
    Poster(bool),
    Mover,
    Receiver,
    Space,
    Killer,
}

impl Actor {
    fn new(role: Role, times: u8) -> Self {
        let at = match role {
            Role::Poster(_) => At::Post,
            Role::Mover => At::Idle,
            Role::Receiver => At::Receive,
            Role::Space => At::Space,
            Role::Killer => At::StopRx,
        };
        Self {
            at,
            role,
            owner: false,
            budget: 0,
            left: times,
            why: None,
            crowded: false,
        }
    }

    /// What it was woken for is done.
    fn rest(&mut self, s: &mut Shared) {
        self.owner = false;
        self.left = self.left.saturating_sub(1);
        self.at = match self.role {
            Role::Mover => At::Idle,
            Role::Receiver => {
                s.receiving = false;
                At::Receive
            }
            Role::Poster(_) if self.left > 0 => At::Post,
            _ => At::Done,
        };
    }

    fn follow(&mut self, step: Step, plan: &Plan, s: &mut Shared) {
        s.word = step.next;
        match step.action {
            Action::None | Action::Released | Action::Stopped => self.rest(s),
            Action::Run => {
                self.owner = true;
                self.budget = plan.turn;
                self.at = At::TakeSlot;
            }
            Action::Enqueue => {
                s.list += 1;
                self.rest(s);
            }
            Action::Again => self.at = At::TakeSlot,
            Action::Wait => self.at = At::AwaitStopped,
        }
    }

    fn complete(&mut self, id: u8, success: bool, s: &mut Shared) {
        assert_eq!(id, s.completed, "out of order: {s:?}");
        s.completed += 1;
        if success {
            assert_eq!(s.successes, id, "a success behind a failure: {s:?}");
            s.successes += 1;
        }
    }

    /// One step; `false` if it cannot take one now.
    fn step(&mut self, plan: &Plan, s: &mut Shared) -> bool {
        match self.at {
            At::Post => {
                s.posted += 1;
                self.at = At::ReadPhase;
            }
            At::ReadPhase => {
                self.at = match s.phase {
                    Phase::Rts => At::Kick(Wake::Post),
                    Phase::Error => At::Claim,
                    Phase::Terminating => {
                        self.rest(s);
                        return true;
                    }
                }
            }
            At::Kick(wake) => self.at = At::KickStore(wake, s.word),
            At::KickStore(wake, seen) if seen != s.word => self.at = At::Kick(wake),
            At::KickStore(wake, seen) => {
                let direct = matches!(self.role, Role::Poster(true) | Role::Receiver);
                self.follow(kick(seen, wake, direct), plan, s);
            }
            At::TakeSlot if s.slot => {
                s.slot = false;
                self.at = At::Look;
            }
            At::TakeSlot => self.at = At::Leave(Leave::Hold),
            At::Look if s.phase != Phase::Rts || is_stopping(s.word) => {
                self.at = At::GiveSlot(Leave::Hold);
            }
            At::Look if !s.space => self.at = At::GiveSlot(Leave::Space),
            At::Look => self.at = At::Next,
            At::Next => self.next(plan, s),
            At::Send(id) => {
                let read = plan.reads[usize::from(id)];
                let entry = &mut s.entries[usize::from(id)];
                self.budget = self.budget.saturating_sub(1);
                if plan.bad == Some(id) {
                    entry.failed = true;
                    s.phase = s.phase.max(Phase::Terminating);
                    self.why = Some(Leave::Hold);
                    self.at = At::Accept;
                } else {
                    entry.reading = read;
                    entry.encoded = true;
                    if read {
                        s.orq.1 += 1;
                    }
                    self.at = At::Next;
                }
            }
            At::Accept => {
                s.accepted = s.taken;
                self.at = At::Retire(After::Owner);
            }
            // Behind a Read; its response lets us go on.
            At::Crowded if s.taken - s.retired >= plan.limit => {
                self.at = At::GiveSlot(Leave::Blocked);
            }
            At::Crowded => self.at = At::Look,
            At::GiveSlot(why) => {
                s.slot = true;
                self.at = At::Leave(why);
            }
            At::Leave(why) => self.at = At::LeaveStore(why, s.word),
            At::LeaveStore(why, seen) if seen != s.word => self.at = At::Leave(why),
            At::LeaveStore(why, seen) => self.follow(leave(seen, why), plan, s),
            At::Retire(after) if s.busy => self.retired(after),
            At::Retire(after) => {
                s.busy = true;
                self.at = At::RetireNext(after);
            }
            At::RetireNext(after) => {
                let head = s.entries[usize::from(s.retired).min(MAX - 1)];
                let done = head.failed || (head.encoded && s.accepted > s.retired && !head.reading);
                if s.retired == s.taken || !done {
                    s.busy = false;
                    self.retired(after);
                } else {
                    let success = !head.failed && !s.broken;
                    s.broken |= !success;
                    self.at = At::RetirePost(after, s.retired, success);
                    s.retired += 1;
                }
            }
            At::RetirePost(after, id, success) => {
                self.complete(id, success, s);
                self.at = At::RetireNext(after);
            }
            At::Idle if s.list == 0 => return false,
            At::Idle => {
                s.list -= 1;
                self.at = At::Take;
            }
            At::Take => self.at = At::TakeStore(s.word),
            At::TakeStore(seen) if seen != s.word => self.at = At::Take,
            At::TakeStore(seen) => {
                let step = take(seen);
                assert_ne!(step.action, Action::None, "{:?}", token(seen));
                self.follow(step, plan, s);
            }
            At::Receive if s.rx_stopped || s.orq.0 == s.orq.1 => return false,
            At::Receive => {
                s.receiving = true;
                self.at = At::ReadDone;
            }
            At::ReadDone => {
                // The ORQ is in the order of the requests.
                let nth = usize::from(s.orq.0);
                let id = (0..MAX).filter(|id| plan.reads[*id]).nth(nth).unwrap();
                s.orq.0 += 1;
                s.entries[id].reading = false;
                self.at = At::Retire(After::Receiver);
            }
            At::Space => {
                // With the socket locked, as the owner's last look at the space and his leave are:
                // it never falls between them. That it may here asks for more.
                s.space = true;
                self.at = At::Kick(Wake::Space);
            }
            At::StopRx => {
                s.rx_stopped = true;
                self.at = At::Stop;
            }
            At::Stop if s.receiving => return false,
            At::Stop => self.at = At::StopStore(s.word),
            At::StopStore(seen) if seen != s.word => self.at = At::Stop,
            At::StopStore(seen) => {
                let step = stop(seen);
                s.word = step.next;
                self.at = match step.action {
                    Action::Stopped => At::EnterError,
                    _ => At::AwaitStopped,
                };
            }
            At::AwaitStopped if token(s.word) != Token::Stopped => return false,
            At::AwaitStopped => self.at = At::EnterError,
            At::EnterError => {
                s.flushes += 1;
                self.at = At::AdvanceError(s.flushes == 1);
            }
            At::AdvanceError(ours) => {
                // No poster has begun before he could see that.
                assert!(ours, "{s:?}");
                s.phase = Phase::Error;
                s.due = s.posted;
                self.at = At::Due;
            }
            At::Claim => {
                s.flushes += 1;
                if s.flushes == 1 {
                    self.at = At::Due;
                } else {
                    self.rest(s);
                }
            }
            At::Due => self.at = At::Mark(s.flushes),
            At::Mark(due) => {
                for id in s.retired..s.taken {
                    let entry = &mut s.entries[usize::from(id)];
                    let done = entry.encoded && s.accepted > id && !entry.reading;
                    entry.failed |= !done;
                }
                s.waiting = false;
                self.at = At::Retire(After::Flush(due));
            }
            At::FlushSq(due) if s.taken == s.posted => self.at = At::Settle(due),
            At::FlushSq(due) => {
                let id = s.taken;
                s.taken += 1;
                s.retired += 1;
                self.at = At::FlushPost(due, id);
            }
            At::FlushPost(due, id) => {
                self.complete(id, false, s);
                self.at = At::FlushSq(due);
            }
            At::Settle(due) if s.flushes == due => {
                // So that the end of the connection can be told.
                assert!(s.completed >= s.due, "{s:?}");
                s.flushes = 0;
                self.rest(s);
            }
            At::Settle(_) => self.at = At::Due,
            At::Done => return false,
        }
        true
    }

    /// The owner looks for work: that which waits, or the next of the SQ.
    fn next(&mut self, plan: &Plan, s: &mut Shared) {
        // However it ends, what is encoded goes to TCP and completes first.
        self.at = At::Accept;
        if self.budget == 0 {
            self.why = Some(Leave::Budget);
            return;
        }
        if !s.waiting {
            if s.taken == s.posted {
                self.why = Some(Leave::Idle);
                return;
            }
            if s.taken - s.retired >= plan.limit {
                self.crowded = true;
                return;
            }
            // In the FIFO before anything of it is sent.
            s.taken += 1;
        }
        let id = s.taken - 1;
        s.waiting = plan.reads[usize::from(id)] && s.orq.1 - s.orq.0 >= plan.ord;
        if s.waiting {
            self.why = Some(Leave::Blocked);
        } else {
            self.at = At::Send(id);
        }
    }

    fn retired(&mut self, after: After) {
        self.at = match after {
            After::Owner => match self.why.take() {
                Some(why) => At::GiveSlot(why),
                None if std::mem::take(&mut self.crowded) => At::Crowded,
                None => At::Look,
            },
            After::Receiver => At::Kick(Wake::Unblock),
            After::Flush(due) => At::FlushSq(due),
        };
    }
}

/// Tries all orders; the number of states met.
fn explore(plan: Plan, space: bool, actors: &[Actor]) -> usize {
    let opened = kick(INITIAL, Wake::Open, true);
    let start = Shared {
        word: leave(opened.next, Leave::Idle).next,
        phase: Phase::Rts,
        posted: 0,
        taken: 0,
        retired: 0,
        entries: [Entry::default(); MAX],
        waiting: false,
        orq: (0, 0),
        accepted: 0,
        busy: false,
        broken: false,
        slot: true,
        space,
        flushes: 0,
        due: 0,
        receiving: false,
        rx_stopped: false,
        list: 0,
        completed: 0,
        successes: 0,
    };
    let mut actors = actors.to_vec();
    actors.push(Actor::new(Role::Mover, 0));
    if plan.reads.contains(&true) {
        actors.push(Actor::new(Role::Receiver, 0));
    }
    let killed = actors.iter().any(|a| a.role == Role::Killer);
    let mut seen = HashSet::new();
    let mut todo = vec![(start, actors)];
    let mut ends = 0;
    while let Some((before, actors)) = todo.pop() {
        let mut stuck = true;
        for i in 0..actors.len() {
            let (mut s, mut actors) = (before, actors.clone());
            if !actors[i].step(&plan, &mut s) {
                continue;
            }
            stuck = false;
            let owners = actors.iter().filter(|a| a.owner).count();
            assert!(owners <= 1 && s.list <= 1, "{s:?} {actors:?}");
            assert!(owners == 0 || token(s.word) != Token::Stopped, "{s:?}");
            assert!(s.orq.1 - s.orq.0 <= plan.ord, "{s:?}");
            if seen.insert((s, actors.clone())) {
                todo.push((s, actors));
            }
        }
        if stuck {
            ends += 1;
            end(&plan, killed, &before, &actors);
        }
    }
    assert!(ends > 0);
    seen.len()
}

fn end(plan: &Plan, killed: bool, s: &Shared, actors: &[Actor]) {
    for actor in actors {
        let rest = matches!(actor.at, At::Idle | At::Receive | At::Done);
        assert!(rest, "stuck: {s:?} {actors:?}");
    }
    assert!(!s.busy && s.list == 0, "{s:?}");
    if killed {
        assert_eq!(s.completed, s.posted, "lost: {s:?} {actors:?}");
        assert_eq!(token(s.word), Token::Stopped);
        assert_eq!((s.flushes, s.phase), (0, Phase::Error));
    } else if let Some(bad) = plan.bad {
        // Up to the failure; the teardown does the rest.
        assert_eq!((s.successes, s.completed), (bad, bad + 1), "{s:?}");
    } else {
        assert_eq!(
            (s.completed, s.successes),
            (s.posted, s.posted),
            "lost: {s:?}"
        );
        assert_eq!(token(s.word), Token::Idle);
    }
}

const PLAN: Plan = Plan {
    reads: [false; MAX],
    bad: None,
    ord: 1,
    limit: MAX as u8,
    turn: 3,
};

fn poster(direct: bool, times: u8) -> Actor {
    Actor::new(Role::Poster(direct), times)
}

fn killer() -> Actor {
    Actor::new(Role::Killer, 1)
}

#[test]
fn in_order_and_none_lost() {
    explore(PLAN, true, &[poster(true, 2), poster(true, 1)]);
    let short = Plan { turn: 1, ..PLAN };
    explore(short, true, &[poster(true, 2), poster(false, 2)]);
    explore(short, false, &[poster(true, 2), Actor::new(Role::Space, 1)]);
}

#[test]
fn behind_reads() {
    for reads in [
        [true, false, true, false],
        [true, true, true, false],
        [false, true, false, false],
    ] {
        for ord in [1, 2] {
            let plan = Plan { reads, ord, ..PLAN };
            explore(plan, true, &[poster(true, 3)]);
            explore(plan, true, &[poster(true, 2), poster(false, 1)]);
        }
    }
}

#[test]
fn crowded() {
    for reads in [[true, false, false, false], [false, true, true, false]] {
        for limit in [1, 2] {
            let plan = Plan {
                reads,
                limit,
                ord: 2,
                ..PLAN
            };
            explore(plan, true, &[poster(true, 3)]);
            explore(plan, true, &[poster(true, 2), poster(false, 1)]);
            explore(plan, true, &[poster(true, 3), killer()]);
        }
    }
}

#[test]
fn killed() {
    explore(PLAN, true, &[poster(true, 2), poster(true, 1), killer()]);
    explore(
        PLAN,
        false,
        &[poster(false, 2), Actor::new(Role::Space, 1), killer()],
    );
    let reads = [true, false, true, false];
    explore(Plan { reads, ..PLAN }, true, &[poster(true, 3), killer()]);
    let short = Plan { turn: 1, ..PLAN };
    explore(short, true, &[poster(false, 2), poster(true, 1), killer()]);
}

#[test]
fn killed_by_a_bad_one() {
    for bad in 0..3 {
        let plan = Plan {
            bad: Some(bad),
            ..PLAN
        };
        explore(plan, true, &[poster(true, 3)]);
        explore(plan, true, &[poster(true, 2), poster(true, 1), killer()]);
    }
}

/// Posters that find the queue pair dead flush it, one of them at a time.
#[test]
fn flushed_by_posters() {
    explore(
        PLAN,
        true,
        &[poster(true, 1), poster(true, 1), poster(true, 2), killer()],
    );
}
