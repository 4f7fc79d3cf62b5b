// SPDX-License-Identifier: GPL-2.0

//! Pending notifications under every interleaving of two queue pairs that register, invalidate and
//! use two entries, and end.
//!
//! The notifications are the real ones (`mem::pending`). Around them are the actors of
//! `rust/driver/qp/control` without their data: one step of an actor is what is done under one
//! lock, or one access to shared memory. All orders of steps are tried. Always: the operations of
//! an entry are executed in the order of their notifications, those of a queue pair in the order of
//! its SQ; a message is sent when the older operations of its queue pair on the entry are done, and
//! taken in when those are that its peer can know of; whatever is pending is done by the pipelines
//! alone, with transmission and reception standing still. In the end nobody waits and nothing is
//! pending.

use iwarp::mem::pending::{
    Look,
    Pending,
    Removed,
    CAPACITY, //
};
use std::{
    collections::HashSet,
    hash::{
        DefaultHasher,
        Hash,
        Hasher, //
    }, //
};

const QPS: usize = 2;
const ENTRIES: usize = 2;

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wr {
    /// Registers or binds an entry.
    Validate(usize),
    /// The same, and fails, which ends the queue pair.
    Fail(usize),
    Invalidate(usize),
    /// Sends from an entry.
    Use(usize),
}

impl Wr {
    fn validates(self) -> bool {
        matches!(self, Self::Validate(_) | Self::Fail(_))
    }

    fn entry(self) -> usize {
        match self {
            Self::Validate(e) | Self::Fail(e) | Self::Invalidate(e) | Self::Use(e) => e,
        }
    }
}

/// What happens.
struct Plan {
    posted: [&'static [Wr]; QPS],
    /// The peer uses the entry when it has what the queue pair has sent before this work request.
    comes: [Option<(usize, usize)>; QPS],
    /// Queue pairs that are ended at some time.
    ends: [bool; QPS],
    /// Somebody gives the first entry up, and waits until nothing is pending.
    leaves: bool,
}

const QUIET: Plan = Plan {
    posted: [&[], &[]],
    comes: [None, None],
    ends: [false, false],
    leaves: false,
};

/// How far transmission has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tx {
    Look,
    /// The operation has a notification, and is to be handed over.
    HandOver,
    /// It has to wait, and leaves if nobody has left a note meanwhile.
    Leave,
    Blocked,
    Stopped,
}

/// How far reception has come with the message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rx {
    Look,
    LookAtEntry,
    Note,
    Stalled,
    Done,
}

/// How far the pipeline has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Idle,
    Peek,
    MayRun(u8),
    Take,
    Remove(u8),
    WakeOthers(Option<u32>, bool),
    Leave,
    Unstall,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Never,
    Begin,
    StopTx,
    StopLane,
    Cancel,
    Drop,
    WakeOthers(Option<u32>, bool),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Qp {
    tx: Tx,
    /// The work request that is next.
    at: u8,
    /// A note for the owner of the token.
    note: bool,
    rx: Rx,
    rx_noted: bool,
    work: Work,
    end: End,
    /// The stream is being torn down.
    dying: bool,
    /// Operations that were handed over and not removed, and those of them in the lane: from the
    /// first of these numbers of control work requests to the second.
    busy: u8,
    lane: [Option<u8>; 4],
    stopped: bool,
    /// The work item is in the work queue.
    queued: bool,
    /// Work requests that were executed, one bit for each; or given up.
    executed: u8,
    dropped: u8,
}

const QP: Qp = Qp {
    tx: Tx::Look,
    at: 0,
    note: false,
    rx: Rx::Look,
    rx_noted: false,
    work: Work::Idle,
    end: End::Never,
    dying: false,
    busy: 0,
    lane: [None; 4],
    stopped: false,
    queued: false,
    executed: 0,
    dropped: 0,
};

impl Qp {
    fn enqueue(&mut self) {
        // The cancellation of a work item refuses more of it.
        if !self.stopped {
            self.queued = true;
        }
    }

    fn unstall_tx(&mut self) {
        match self.tx {
            Tx::Blocked => self.tx = Tx::Look,
            Tx::Stopped => {}
            _ => self.note = true,
        }
    }

    fn unstall_rx(&mut self) {
        if core::mem::take(&mut self.rx_noted) && self.rx == Rx::Stalled {
            self.rx = Rx::Look;
        }
    }

    fn take(&mut self) -> Option<u8> {
        let first = self.lane[0].take();
        self.lane.rotate_left(1);
        first
    }

    fn is_settled(&self, n: usize) -> bool {
        (self.executed | self.dropped) & (1 << n) != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    entries: [Pending; ENTRIES],
    /// The operations in the order of their notifications, which nobody but the check looks at.
    order: [[Option<(u8, u8)>; CAPACITY]; ENTRIES],
    qps: [Qp; QPS],
    /// Who gives the entry up: has not begun, waits, has left.
    leaver: u8,
    woken: bool,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let mut world = Self {
            entries: [Pending::new(); ENTRIES],
            order: [[None; CAPACITY]; ENTRIES],
            qps: [QP; QPS],
            leaver: if plan.leaves { 0 } else { 2 },
            woken: false,
        };
        for (q, qp) in world.qps.iter_mut().enumerate() {
            if plan.comes[q].is_none() {
                qp.rx = Rx::Done;
            }
            if plan.ends[q] {
                qp.end = End::Begin;
            }
        }
        world
    }

    fn removed(&mut self, e: usize, q: usize, removed: Removed, all: bool) {
        let order = &mut self.order[e];
        let mut kept = [None; CAPACITY];
        let mut places = kept.iter_mut();
        let mut first = true;
        for one in order.iter().flatten() {
            let gone = usize::from(one.0) == q && (all || core::mem::take(&mut first));
            if !gone {
                *places.next().unwrap() = Some(*one);
            }
        }
        *order = kept;
        assert_eq!(
            order.iter().flatten().count(),
            self.entries[e].len(),
            "all and no others are removed"
        );
        self.woken |= removed.idle;
    }

    fn wake(&mut self, next: Option<u32>, room: bool) {
        for qp in self.qps.iter_mut().filter(|_| room) {
            qp.unstall_tx();
        }
        if let Some(next) = next {
            self.qps[next as usize].enqueue();
        }
    }

    /// One step of transmission; `false` if it has nothing to do now.
    fn tx(&mut self, plan: &Plan, q: usize) -> bool {
        let posted = plan.posted[q];
        let n = usize::from(self.qps[q].at);
        match self.qps[q].tx {
            Tx::Look => {
                if self.qps[q].dying || n == posted.len() {
                    self.qps[q].tx = Tx::Leave;
                    return true;
                }
                let wr = posted[n];
                let entry = &mut self.entries[wr.entry()];
                let Wr::Use(_) = wr else {
                    self.qps[q].tx = match entry.push(q as u32, wr.validates()) {
                        Ok(()) => {
                            let order = &mut self.order[wr.entry()];
                            let place = order.iter_mut().find(|place| place.is_none());
                            *place.unwrap() = Some((q as u8, n as u8));
                            Tx::HandOver
                        }
                        Err(_) => Tx::Leave,
                    };
                    return true;
                };
                if entry.outbound(q as u32) == Look::Stall {
                    self.qps[q].tx = Tx::Leave;
                    return true;
                }
                for (n, older) in posted[..n].iter().enumerate() {
                    if older.entry() == wr.entry() && !matches!(older, Wr::Use(_)) {
                        assert!(self.qps[q].is_settled(n), "an older operation is done");
                    }
                }
                self.qps[q].at += 1;
            }
            Tx::HandOver => {
                let qp = &mut self.qps[q];
                qp.busy += 1;
                *qp.lane.iter_mut().find(|place| place.is_none()).unwrap() = Some(n as u8);
                qp.at += 1;
                qp.enqueue();
                qp.tx = Tx::Look;
            }
            Tx::Leave => {
                let qp = &mut self.qps[q];
                qp.tx = match (qp.end, core::mem::take(&mut qp.note)) {
                    (End::StopTx, _) => Tx::Stopped,
                    (_, true) => Tx::Look,
                    (_, false) => Tx::Blocked,
                };
            }
            Tx::Blocked | Tx::Stopped => return false,
        }
        true
    }

    fn rx(&mut self, plan: &Plan, q: usize) -> bool {
        let Some((e, after)) = plan.comes[q] else {
            return false;
        };
        if self.qps[q].dying || usize::from(self.qps[q].at) < after {
            return false;
        }
        let come = &plan.posted[q][..after];
        match self.qps[q].rx {
            Rx::Look => match self.qps[q].busy {
                0 => self.take_in(come, e, q),
                _ => self.qps[q].rx = Rx::LookAtEntry,
            },
            Rx::LookAtEntry => match self.entries[e].inbound(q as u32) {
                Look::Go => self.take_in(come, e, q),
                Look::Stall if self.qps[q].rx_noted => self.qps[q].rx = Rx::Stalled,
                Look::Stall => self.qps[q].rx = Rx::Note,
            },
            Rx::Note => {
                self.qps[q].rx_noted = true;
                self.qps[q].rx = Rx::Look;
            }
            Rx::Stalled if !self.qps[q].rx_noted => self.qps[q].rx = Rx::Look,
            Rx::Stalled | Rx::Done => return false,
        }
        true
    }

    fn take_in(&mut self, come: &[Wr], e: usize, q: usize) {
        for (n, older) in come.iter().enumerate() {
            if older.entry() == e && older.validates() {
                assert!(self.qps[q].is_settled(n), "what the peer knows is done");
            }
        }
        self.qps[q].rx_noted = false;
        self.qps[q].rx = Rx::Done;
    }

    fn work(&mut self, plan: &Plan, q: usize) -> bool {
        let posted = plan.posted[q];
        let qp = &mut self.qps[q];
        match qp.work {
            Work::Idle => {
                if !core::mem::take(&mut qp.queued) {
                    return false;
                }
                qp.work = Work::Peek;
            }
            Work::Peek => {
                qp.work = match qp.lane[0] {
                    Some(n) if !qp.stopped => Work::MayRun(n),
                    _ => Work::Idle,
                };
            }
            Work::MayRun(n) => {
                let e = posted[usize::from(n)].entry();
                qp.work = match self.entries[e].may_run(q as u32) {
                    true => Work::Take,
                    false => Work::Idle,
                };
            }
            Work::Take => {
                if qp.stopped {
                    qp.work = Work::Idle;
                    return true;
                }
                let n = qp.take().unwrap();
                let wr = posted[usize::from(n)];
                assert_eq!(
                    self.order[wr.entry()][0],
                    Some((q as u8, n)),
                    "in the order of the entry"
                );
                let later = (qp.executed | qp.dropped) >> n;
                assert_eq!(later, 0, "in the order of the SQ");
                match qp.dying {
                    true => qp.dropped |= 1 << n,
                    false => qp.executed |= 1 << n,
                }
                if let (Wr::Fail(_), false) = (wr, qp.dying) {
                    qp.dying = true;
                    if qp.end == End::Never {
                        qp.end = End::StopTx;
                    }
                }
                qp.work = Work::Remove(n);
            }
            Work::Remove(n) => {
                let e = posted[usize::from(n)].entry();
                let removed = self.entries[e].done(q as u32);
                self.removed(e, q, removed, false);
                self.qps[q].work = match (removed.next, removed.room) {
                    (None, false) => Work::Leave,
                    (next, room) => Work::WakeOthers(next, room),
                };
            }
            Work::WakeOthers(next, room) => {
                qp.work = Work::Leave;
                self.wake(next, room);
            }
            Work::Leave => {
                qp.busy -= 1;
                qp.work = Work::Unstall;
            }
            Work::Unstall => {
                qp.unstall_tx();
                qp.unstall_rx();
                if qp.lane[0].is_some() {
                    qp.enqueue();
                }
                qp.work = Work::Idle;
            }
        }
        true
    }

    fn end(&mut self, plan: &Plan, q: usize) -> bool {
        let qp = &mut self.qps[q];
        match qp.end {
            End::Never | End::Done => return false,
            End::Begin => {
                qp.dying = true;
                qp.end = End::StopTx;
            }
            End::StopTx => match qp.tx {
                Tx::Blocked | Tx::Stopped => {
                    qp.tx = Tx::Stopped;
                    qp.end = End::StopLane;
                }
                // The owner gives the token up.
                _ => return false,
            },
            End::StopLane => {
                qp.stopped = true;
                qp.queued = false;
                qp.end = End::Cancel;
            }
            End::Cancel => {
                if qp.work != Work::Idle {
                    return false;
                }
                qp.end = End::Drop;
            }
            End::Drop => {
                let Some(n) = qp.take() else {
                    qp.end = End::Done;
                    return true;
                };
                qp.dropped |= 1 << n;
                qp.busy -= 1;
                let e = plan.posted[q][usize::from(n)].entry();
                let removed = self.entries[e].drop_qp(q as u32);
                self.removed(e, q, removed, true);
                self.qps[q].end = match (removed.next, removed.room) {
                    (None, false) => End::Drop,
                    (next, room) => End::WakeOthers(next, room),
                };
            }
            End::WakeOthers(next, room) => {
                qp.end = End::Drop;
                self.wake(next, room);
            }
        }
        true
    }

    fn leave(&mut self) -> bool {
        match self.leaver {
            0 => self.leaver = if self.entries[0].wait() { 1 } else { 2 },
            1 if self.woken => self.leaver = 2,
            _ => return false,
        }
        true
    }

    /// What is pending needs neither transmission nor reception.
    fn check_alone(mut self, plan: &Plan) {
        // An owner of the token that has pushed a notification hands the operation over.
        for q in 0..QPS {
            while self.qps[q].tx == Tx::HandOver {
                self.tx(plan, q);
            }
        }
        let mut moves = true;
        while moves {
            moves = false;
            for q in 0..QPS {
                moves |= self.work(plan, q);
                // An end that has begun to cancel goes on.
                if matches!(
                    self.qps[q].end,
                    End::StopLane | End::Cancel | End::Drop | End::WakeOthers(..)
                ) {
                    moves |= self.end(plan, q);
                }
            }
        }
        for (e, entry) in self.entries.iter().enumerate() {
            assert!(
                entry.is_empty(),
                "the pipelines are done with {e}: {self:?}"
            );
        }
    }

    fn check_end(&self, plan: &Plan) {
        for (q, qp) in self.qps.iter().enumerate() {
            let all = plan.posted[q].len();
            match qp.end {
                End::Never => {
                    assert_eq!(usize::from(qp.at), all, "all is taken: {self:?}");
                    assert_eq!(qp.rx, Rx::Done, "what has come is taken in: {self:?}");
                    assert_eq!(qp.dropped, 0, "nothing is dropped");
                }
                end => assert_eq!(end, End::Done, "it ends: {self:?}"),
            }
            assert_eq!(qp.busy, 0, "the count is right: {self:?}");
        }
        assert_eq!(self.leaver, 2, "nobody waits: {self:?}");
    }
}

/// Stands for a state, of which there are many.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Tries all orders of steps, and returns the number of states.
fn explore(plan: &Plan) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![World::new(plan)];
    while let Some(world) = open.pop() {
        if !seen.insert(fingerprint(&world)) {
            continue;
        }
        world.check_alone(plan);
        let mut stuck = true;
        for q in 0..QPS {
            for step in [World::tx, World::rx, World::work, World::end] {
                let mut next = world;
                if step(&mut next, plan, q) {
                    stuck = false;
                    open.push(next);
                }
            }
        }
        let mut next = world;
        if next.leave() {
            stuck = false;
            open.push(next);
        }
        if stuck {
            world.check_end(plan);
        }
    }
    seen.len()
}

use Wr::*;

#[test]
fn a_message_waits_for_what_it_uses() {
    let states = explore(&Plan {
        posted: [
            &[Validate(0), Use(0), Invalidate(0), Use(0)],
            &[Validate(1), Use(1), Use(0)],
        ],
        ..QUIET
    });
    assert!(states > 1000);
}

#[test]
fn what_the_peer_knows_is_there() {
    explore(&Plan {
        posted: [&[Validate(0), Use(1), Invalidate(0)], &[Validate(0)]],
        comes: [Some((0, 2)), None],
        ..QUIET
    });
    explore(&Plan {
        posted: [&[Invalidate(0), Validate(0), Use(1)], &[Invalidate(0)]],
        comes: [Some((0, 3)), Some((0, 1))],
        ..QUIET
    });
}

#[test]
fn two_entries_in_opposite_order() {
    explore(&Plan {
        posted: [
            &[Validate(0), Validate(1), Invalidate(0)],
            &[Validate(1), Validate(0), Use(1)],
        ],
        ..QUIET
    });
}

#[test]
fn a_full_entry_holds_nobody_for_good() {
    // The second queue pair finds no room, and has nothing pending itself.
    const { assert!(CAPACITY == 4) };
    explore(&Plan {
        posted: [
            &[Invalidate(0), Validate(0), Invalidate(0), Validate(0)],
            &[Validate(0)],
        ],
        ..QUIET
    });
    explore(&Plan {
        posted: [
            &[Invalidate(0), Validate(0), Invalidate(0)],
            &[Validate(0), Invalidate(0), Validate(0)],
        ],
        ends: [true, false],
        ..QUIET
    });
}

#[test]
fn a_queue_pair_leaves_nothing_behind() {
    for second in [false, true] {
        explore(&Plan {
            posted: [&[Validate(0), Validate(1)], &[Validate(0), Use(0)]],
            ends: [true, second],
            ..QUIET
        });
    }
    explore(&Plan {
        posted: [&[Validate(0), Invalidate(0)], &[Validate(0)]],
        comes: [None, Some((0, 1))],
        ends: [true, false],
        leaves: true,
    });
}

#[test]
fn a_failure_ends_only_its_queue_pair() {
    explore(&Plan {
        posted: [
            &[Validate(1), Fail(0), Validate(1), Use(0)],
            &[Validate(0), Use(0), Invalidate(1)],
        ],
        comes: [Some((0, 3)), Some((0, 1))],
        ..QUIET
    });
}

#[test]
fn who_gives_an_entry_up_waits() {
    explore(&Plan {
        posted: [&[Validate(0), Invalidate(0)], &[Invalidate(0)]],
        leaves: true,
        ..QUIET
    });
    explore(&Plan {
        posted: [&[Validate(0), Fail(0), Validate(0)], &[Invalidate(0)]],
        leaves: true,
        ..QUIET
    });
}
