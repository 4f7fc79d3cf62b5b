// SPDX-License-Identifier: GPL-2.0

//! The life of a queue pair's work requests under every interleaving: posted, taken and sent by
//! whoever owns the transmit token, completed in order by whoever finds the head of the FIFO done,
//! flushed when the queue pair dies.
//!
//! The machines are the real ones: the transmit token (`qp::owner`), the phase (`qp::phase`), the
//! FIFO (`qp::completions`) and the claim of the flush (`qp::flush`). Around them are the actors of
//! `rust/driver/qp` without their data: one step of an actor is one access to shared memory, or
//! what is done under one lock. All orders of steps are tried. Always: at most one owner,
//! completions in the order of posting, each work request once, no success behind a failure. The
//! context that ends the queue pair leaves when all that was posted by then has completed, whatever
//! posters do meanwhile. In the end: all that was posted has completed, and if nobody killed the
//! queue pair, with success.
//!
//! A queue pair may begin anew after its end, as `qp/end/renew` does, while actors of its first
//! life are still on their way.
//!
//! A control operation may fail on the spot or in the control pipeline, as in `qp/control`, and
//! stop the SQ alone. What is behind it is flushed, until the consumer resumes the SQ. From then on
//! all succeeds.

use iwarp::{
    qp::{
        completions::{
            Fifo,
            Item,
            Next,
            Queue,
            Request, //
        },
        delivery::{
            Rule,
            Sent, //
        },
        flush,
        owner::{
            is_stopping,
            kick,
            leave,
            phase as token,
            stop,
            take,
            Action,
            Leave,
            Phase as Token,
            Step,
            Wake,
            INITIAL, //
        },
        phase::{
            advance,
            Phase,
            Posted, //
        }, //
    },
    verdict::WcStatus, //
};
use std::collections::HashSet;

/// Most work requests of a scenario.
const MAX: usize = 4;

/// A work request, by its number, and whether TCP still refers to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wr {
    id: u8,
    held: bool,
}

impl Request for Wr {
    fn is_signalled(&self) -> bool {
        true
    }

    fn is_held(&self) -> bool {
        self.held
    }
}

/// The memory of the FIFO: each work request has a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slots {
    items: [Option<Item<Wr>>; MAX],
}

impl Slots {
    const EMPTY: Self = Self { items: [None; MAX] };

    fn push(&mut self, id: u8) {
        self.items[usize::from(id)] = Some(Item::new(Wr { id, held: false }));
    }

    fn get(&mut self, id: u8) -> Option<&mut Item<Wr>> {
        self.items[usize::from(id)].as_mut()
    }

    /// Whether the oldest Read that is under way is.
    fn read(&mut self, plan: &Plan) -> Option<&mut bool> {
        let items = self.items.iter_mut().zip(plan.reads);
        let reads = items.filter(|(_, read)| *read);
        let mut under_way = reads
            .flat_map(|(item, _)| item)
            .map(|item| &mut item.under_way);
        under_way.find(|under_way| **under_way)
    }

    /// Place of the oldest work request whose memory is still referred to.
    fn held(&mut self) -> Option<&mut bool> {
        let items = self.items.iter_mut().flatten();
        items.map(|item| &mut item.request.held).find(|held| **held)
    }

    fn len(&self) -> usize {
        self.items.iter().flatten().count()
    }
}

impl Queue for Slots {
    type Request = Wr;

    fn front(&self) -> Option<&Item<Wr>> {
        self.items.iter().flatten().next()
    }

    fn pop(&mut self) -> Option<Item<Wr>> {
        self.items.iter_mut().find_map(Option::take)
    }
}

/// What the actors share. Work requests are numbered as they are posted: those up to `taken` have
/// been taken from the SQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shared {
    word: u32,
    phase: u32,
    posted: u8,
    taken: u8,
    /// Those up to this one have entered the FIFO.
    pushed: u8,
    fifo: Fifo<Slots>,
    /// A work request that has been taken and has to wait for a place in the ORQ, or for the
    /// control pipeline.
    waiting: bool,
    /// An operation in the control pipeline that nobody has taken.
    handed: Option<u8>,
    /// There is one in the control pipeline; it is being executed.
    busy: bool,
    working: bool,
    /// The state of the queue pair is that of a stopped SQ.
    drained: bool,
    /// Reads not answered: those from the first to the second of this number, of `reads`.
    orq: (u8, u8),
    /// The context that waits for the poster of completions has been woken.
    woken: bool,
    /// A release of memory is to be told to the datamover; the datamover was told of that, or of
    /// completions that are due.
    watched: bool,
    told: bool,
    /// The transmit context is in its slot.
    slot: bool,
    space: bool,
    flushes: u32,
    /// What had been posted when the queue pair was seen to be dead.
    due: u8,
    /// The queue pair is about to begin anew, and completes nothing; it has done so.
    resets: bool,
    renewed: bool,
    /// A context is receiving, or no context may any more.
    receiving: bool,
    rx_stopped: bool,
    /// Entries on the datamover's list.
    list: u8,
    /// Completions posted, and a bit for each that is a failure.
    completed: u8,
    failures: u8,
    /// A bit for each that has been sent.
    sent: u8,
    /// Work requests from this one on are not affected by failures before it.
    fresh: u8,
}

impl Shared {
    fn advance(&mut self, to: Phase) {
        self.phase = advance(self.phase, to).unwrap_or(self.phase);
    }

    /// Whether the stream is up, so that a failed control operation stops the SQ alone.
    fn is_up(&self) -> bool {
        self.phase == Phase::Rts.word()
    }

    /// Whether the caller is the one to flush.
    fn claim(&mut self) -> bool {
        let (next, ours) = flush::claim(self.flushes);
        self.flushes = next;
        ours
    }
}

/// What each work request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    reads: [bool; MAX],
    /// Sent by reference.
    shared: [bool; MAX],
    bad: Option<u8>,
    /// The bad one is a control operation that stops the SQ alone, in the control pipeline or not.
    drains: Option<Where>,
    ord: u8,
    /// Places in the retire FIFO.
    limit: u8,
    /// FPDUs of a turn.
    turn: u8,
    /// Completions of a turn.
    posts: u8,
}

/// Where a control operation is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Spot,
    Pipeline,
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
    Push(u8),
    Begin(u8),
    Send(u8),
    Drain(u8),
    Flush(u8),
    Accept,
    Crowded,
    GiveSlot(Leave),
    Leave(Leave),
    LeaveStore(Leave, u32),
    /// Posts completions; what comes after.
    Retire(After),
    RetireNext(After),
    RetirePost(After, u8, bool),
    RetireHand(After),
    AwaitWoken,
    /// The datamover.
    Idle,
    Take,
    TakeStore(u32),
    /// Receives a Read Response.
    Receive,
    ReadDone,
    /// Memory is not referred to any more, and that is told.
    Release,
    Released,
    /// Executes a control operation, which fails.
    Work,
    WorkDrain(u8),
    WorkDone,
    /// The consumer resumes the SQ.
    LookFifo,
    LookSq,
    Resume,
    /// The program asks for the end.
    Modify,
    /// TCP has space.
    Space,
    /// Ends the queue pair.
    StopRx,
    Stop,
    StopStore(u32),
    AwaitStopped,
    StopControl,
    /// Takes the flush away from others, who have been told that it is wanted.
    Hold(Then, bool),
    AdvanceError,
    Mark,
    /// Flushes, if it is the first to want to.
    Claim,
    Due,
    FlushSq(u32),
    FlushPost(u32, u8),
    Settle(u32),
    /// Begins anew.
    NewStream,
    NewOwner,
    NewPhase,
    LetFlush,
    Start,
    Done,
}

/// What comes when the flush is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    Error,
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum After {
    Owner,
    Receiver,
    Mover,
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Actor {
    at: At,
    role: Role,
    owner: bool,
    budget: u8,
    /// Completions that it has posted in its turn.
    spent: u8,
    /// Times it still does what it does.
    left: u8,
    /// Why the owner's run ends, while the owner posts completions.
    why: Option<Leave>,
    /// The retire FIFO was full.
    crowded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Posts work requests, and sends them itself if it may.
    Poster(bool),
    Mover,
    Receiver,
    Releaser,
    Worker,
    Resumer,
    Modifier,
    Space,
    Killer,
    /// Ends the queue pair, has it begin anew, starts another stream, and ends that.
    Renewer,
}

impl Actor {
    fn new(role: Role, times: u8) -> Self {
        let at = match role {
            Role::Poster(_) => At::Post,
            Role::Mover => At::Idle,
            Role::Receiver => At::Receive,
            Role::Releaser => At::Release,
            Role::Worker => At::Work,
            Role::Resumer => At::LookFifo,
            Role::Modifier => At::Modify,
            Role::Space => At::Space,
            Role::Killer | Role::Renewer => At::StopRx,
        };
        Self {
            at,
            role,
            owner: false,
            budget: 0,
            spent: 0,
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
            Role::Worker => {
                s.working = false;
                At::Work
            }
            Role::Poster(_) if self.left > 0 => At::Post,
            Role::Renewer if self.left == 2 => At::Hold(Then::Renew, false),
            Role::Renewer if self.left > 0 => At::StopRx,
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
                s.list = 1;
                self.rest(s);
            }
            Action::Again => self.at = At::TakeSlot,
            Action::Wait => self.at = At::AwaitStopped,
        }
    }

    fn complete(&mut self, id: u8, success: bool, s: &mut Shared) {
        assert_eq!(id, s.completed, "out of order: {s:?}");
        s.completed += 1;
        if s.resets {
            return;
        }
        if success {
            let since = if id < s.fresh { 0 } else { s.fresh };
            let before = (1 << id) - (1 << since);
            let behind = s.failures & before != 0;
            assert!(!behind, "a success behind a failure: {s:?}");
        } else {
            s.failures |= 1 << id;
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
                self.at = match Phase::from_word(s.phase).posted() {
                    Posted::Transmit => At::Kick(Wake::Post),
                    Posted::Flush => At::Claim,
                    _ => {
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
            At::Look if s.phase != Phase::Rts.word() || is_stopping(s.word) => {
                self.at = At::GiveSlot(Leave::Hold);
            }
            At::Look if !s.space => self.at = At::GiveSlot(Leave::Space),
            At::Look => self.at = At::Next,
            At::Next => self.next(plan, s),
            At::Push(id) => {
                // In the FIFO before anything of it is sent.
                s.fifo.queue.push(id);
                s.pushed += 1;
                self.at = match s.fifo.is_drained() {
                    true => At::Flush(id),
                    false => At::Begin(id),
                };
            }
            At::Begin(id) => {
                let slots = s.orq.1 - s.orq.0;
                s.waiting = s.busy || (plan.reads[usize::from(id)] && slots >= plan.ord);
                if s.waiting {
                    self.why = Some(Leave::Blocked);
                    self.at = At::Accept;
                } else {
                    self.at = At::Send(id);
                }
            }
            // One that has failed stopped the SQ before it was done.
            At::Send(id) if s.fifo.is_drained() => self.at = At::Flush(id),
            At::Send(id) if plan.bad == Some(id) && plan.drains == Some(Where::Pipeline) => {
                let item = s.fifo.queue.get(id).unwrap();
                item.end = u64::from(id);
                item.under_way = true;
                s.busy = true;
                s.handed = Some(id);
                self.at = At::Next;
            }
            At::Send(id) if plan.bad == Some(id) && plan.drains.is_some() && s.is_up() => {
                s.drained = true;
                self.at = At::Drain(id);
            }
            At::Drain(id) => {
                s.fifo.queue.get(id).unwrap().failed = Some(WcStatus::LocQpOpErr);
                s.fifo.drain();
                self.at = At::Next;
            }
            At::Flush(id) => {
                s.fifo.queue.get(id).unwrap().failed = Some(WcStatus::WrFlushErr);
                self.at = At::Next;
            }
            At::Send(id) => {
                let read = plan.reads[usize::from(id)];
                let item = s.fifo.queue.get(id).unwrap();
                self.budget = self.budget.saturating_sub(1);
                if plan.bad == Some(id) {
                    item.failed = Some(WcStatus::LocProtErr);
                    s.advance(Phase::Terminating);
                    self.why = Some(Leave::Hold);
                    self.at = At::Accept;
                } else {
                    s.sent |= 1 << id;
                    item.under_way = read;
                    item.end = u64::from(id) + 1;
                    item.awaits_ack = plan.shared[usize::from(id)];
                    item.request.held = item.awaits_ack;
                    if read {
                        s.orq.1 += 1;
                    }
                    self.at = At::Next;
                }
            }
            At::Accept => {
                // All that is encoded has been handed to TCP, and acknowledged.
                let next = u32::from(s.taken);
                s.fifo.handed(u64::from(s.taken), next);
                s.fifo.sent(Sent { una: next, next });
                self.at = At::Retire(After::Owner);
            }
            // Behind a Read; its response lets us go on.
            At::Crowded if s.fifo.queue.len() >= usize::from(plan.limit) => {
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
            At::Retire(After::Flush) => {
                self.at = match s.fifo.begin_or_wait() {
                    true => At::RetireNext(After::Flush),
                    false => At::AwaitWoken,
                }
            }
            At::Retire(after) if s.fifo.begin() => self.at = At::RetireNext(after),
            At::Retire(after) => self.retired(after),
            At::RetireNext(after) => {
                let spent = after != After::Flush && self.spent >= plan.posts;
                let mut next = s.fifo.next(false, spent);
                if next == Next::Watch {
                    s.watched = true;
                    next = s.fifo.next(true, spent);
                }
                match next {
                    Next::Left(item, status) => {
                        let success = status.unwrap() == WcStatus::Success;
                        self.at = At::RetirePost(after, item.request.id, success);
                    }
                    Next::Leave { wake, .. } => {
                        s.woken |= wake;
                        self.retired(after);
                    }
                    Next::Hand => self.at = At::RetireHand(after),
                    Next::Watch => unreachable!(),
                }
            }
            At::RetirePost(after, id, success) => {
                self.complete(id, success, s);
                self.spent += 1;
                self.at = At::RetireNext(after);
            }
            At::RetireHand(after) => {
                s.list = 1;
                s.told = true;
                self.retired(after);
            }
            At::Idle if s.list == 0 => return false,
            At::Idle => {
                s.list = 0;
                self.at = At::Retire(After::Mover);
            }
            At::Take => self.at = At::TakeStore(s.word),
            At::TakeStore(seen) if seen != s.word => self.at = At::Take,
            At::TakeStore(seen) => {
                let step = take(seen);
                // It may have been told of completions only, or called in an earlier life.
                let told = s.told || s.resets || s.renewed;
                assert!(step.action != Action::None || told, "{:?}", token(seen));
                self.follow(step, plan, s);
            }
            At::Receive if s.rx_stopped || s.orq.0 == s.orq.1 => return false,
            At::Receive => {
                s.receiving = true;
                self.at = At::ReadDone;
            }
            At::ReadDone => {
                // Responses come in the order of the requests.
                s.orq.0 += 1;
                if let Some(under_way) = s.fifo.queue.read(plan) {
                    *under_way = false;
                }
                self.at = At::Retire(After::Receiver);
            }
            At::Release => match s.fifo.queue.held() {
                Some(held) => {
                    *held = false;
                    self.at = At::Released;
                }
                None => return false,
            },
            At::Released => {
                if std::mem::take(&mut s.watched) {
                    s.list = 1;
                    s.told = true;
                }
                self.at = At::Release;
            }
            At::Work => {
                let Some(id) = s.handed.take() else {
                    return false;
                };
                s.working = true;
                // Otherwise the flush completes it.
                s.drained |= s.is_up();
                self.at = match s.drained {
                    true => At::WorkDrain(id),
                    false => At::WorkDone,
                };
            }
            At::WorkDrain(id) => {
                if let Some(item) = s.fifo.queue.get(id) {
                    item.failed = Some(WcStatus::LocQpOpErr);
                }
                s.fifo.drain();
                self.at = At::WorkDone;
            }
            At::WorkDone => {
                s.busy = false;
                self.at = At::Retire(After::Receiver);
            }
            At::LookFifo if !s.drained || s.fifo.queue.len() > 0 || s.orq.0 != s.orq.1 => {
                return false;
            }
            At::LookFifo => self.at = At::LookSq,
            At::LookSq if s.taken != s.posted => self.at = At::LookFifo,
            At::LookSq => self.at = At::Resume,
            // One has entered since.
            At::Resume if s.fifo.queue.len() > 0 => self.at = At::LookFifo,
            At::Resume => {
                s.fifo.resume();
                s.drained = false;
                s.fresh = s.pushed;
                self.at = At::Done;
            }
            At::Modify => {
                s.advance(Phase::Terminating);
                self.rest(s);
            }
            At::Space => {
                // With the socket locked, as for the owner's last look at the space and its leave:
                // it never falls between them. That it may here asks for more.
                s.space = true;
                self.at = At::Kick(Wake::Space);
            }
            At::StopRx => {
                s.resets = self.role == Role::Renewer && !s.renewed;
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
                    Action::Stopped => At::StopControl,
                    _ => At::AwaitStopped,
                };
            }
            At::AwaitStopped if token(s.word) != Token::Stopped => return false,
            At::AwaitStopped => self.at = At::StopControl,
            At::StopControl if s.working => return false,
            At::StopControl => {
                s.busy &= s.handed.take().is_none();
                self.at = At::Hold(Then::Error, false);
            }
            At::Hold(_, true) if s.flushes != flush::IDLE => return false,
            At::Hold(then, _) => {
                self.at = match (s.claim(), then) {
                    (false, _) => At::Hold(then, true),
                    (true, Then::Error) => At::AdvanceError,
                    (true, Then::Renew) => At::NewStream,
                }
            }
            At::AdvanceError => {
                s.advance(Phase::Error);
                s.due = s.posted;
                self.at = At::Mark;
            }
            At::Mark => {
                s.fifo.flush();
                s.waiting = false;
                self.at = At::Retire(After::Flush);
            }
            At::AwaitWoken if !s.woken => return false,
            At::AwaitWoken => self.at = At::Due,
            At::Claim if s.claim() => self.at = At::Due,
            At::Claim => self.rest(s),
            At::Due if s.phase == Phase::Error.word() => self.at = At::FlushSq(s.flushes),
            // It has begun anew before the claim.
            At::Due => self.at = At::Settle(s.flushes),
            At::FlushSq(due) if s.taken == s.posted => self.at = At::Settle(due),
            At::FlushSq(due) => {
                let id = s.taken;
                s.taken += 1;
                self.at = At::FlushPost(due, id);
            }
            At::FlushPost(due, id) => {
                self.complete(id, false, s);
                self.at = At::FlushSq(due);
            }
            At::Settle(due) => match flush::release(s.flushes, due) {
                Some(next) => {
                    // So that the end of the connection can be told.
                    assert!(s.completed >= s.due, "{s:?}");
                    s.flushes = next;
                    self.rest(s);
                }
                None => self.at = At::Due,
            },
            At::NewStream => {
                assert_eq!(s.fifo.queue.len(), 0, "{s:?}");
                s.woken = false;
                s.rx_stopped = false;
                s.orq.0 = s.orq.1;
                self.at = At::NewOwner;
            }
            At::NewOwner => {
                s.word = INITIAL;
                self.at = At::NewPhase;
            }
            At::NewPhase => {
                s.phase = Phase::Idle.word();
                s.resets = false;
                s.renewed = true;
                s.fresh = s.completed;
                self.at = At::LetFlush;
            }
            At::LetFlush => {
                s.flushes = flush::IDLE;
                self.at = At::Start;
            }
            At::Start => {
                s.fifo.restart(Rule::Hsn);
                s.advance(Phase::Rts);
                assert_eq!(s.phase, Phase::Rts.word());
                self.at = At::Kick(Wake::Open);
            }
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
            if s.fifo.queue.len() >= usize::from(plan.limit) {
                self.crowded = true;
                return;
            }
            self.at = At::Push(s.taken);
            s.taken += 1;
        } else if s.fifo.is_drained() {
            s.waiting = false;
            self.at = At::Flush(s.taken - 1);
        } else {
            self.at = At::Begin(s.taken - 1);
        }
    }

    fn retired(&mut self, after: After) {
        self.spent = 0;
        self.at = match after {
            After::Owner => match self.why.take() {
                Some(why) => At::GiveSlot(why),
                None if std::mem::take(&mut self.crowded) => At::Crowded,
                None => At::Look,
            },
            After::Receiver => At::Kick(Wake::Unblock),
            After::Mover => At::Take,
            After::Flush => At::Due,
        };
    }
}

/// Tries all orders; the number of states met.
fn explore(plan: Plan, space: bool, actors: &[Actor]) -> usize {
    let opened = kick(INITIAL, Wake::Open, true);
    let start = Shared {
        word: leave(opened.next, Leave::Idle).next,
        phase: Phase::Rts.word(),
        posted: 0,
        taken: 0,
        pushed: 0,
        fifo: Fifo::new(Slots::EMPTY, Rule::Hsn),
        waiting: false,
        handed: None,
        busy: false,
        working: false,
        drained: false,
        orq: (0, 0),
        woken: false,
        watched: false,
        told: false,
        slot: true,
        space,
        flushes: 0,
        due: 0,
        resets: false,
        renewed: false,
        receiving: false,
        rx_stopped: false,
        list: 0,
        completed: 0,
        failures: 0,
        sent: 0,
        fresh: 0,
    };
    let mut actors = actors.to_vec();
    actors.push(Actor::new(Role::Mover, 0));
    if plan.reads.contains(&true) {
        actors.push(Actor::new(Role::Receiver, 0));
    }
    if plan.shared.contains(&true) {
        actors.push(Actor::new(Role::Releaser, 0));
    }
    if plan.drains == Some(Where::Pipeline) {
        actors.push(Actor::new(Role::Worker, 0));
    }
    let killed = actors
        .iter()
        .any(|a| matches!(a.role, Role::Killer | Role::Renewer));
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
        let waits = matches!(actor.at, At::Idle | At::Receive | At::Release | At::Work);
        // Nobody resumes the SQ of a dead queue pair.
        let rest = waits || actor.at == At::Done || (killed && actor.role == Role::Resumer);
        assert!(rest, "stuck: {s:?} {actors:?}");
    }
    assert!(s.list == 0 && { s.fifo }.begin(), "{s:?}");
    if killed {
        assert_eq!(s.completed, s.posted, "lost: {s:?} {actors:?}");
        assert_eq!(token(s.word), Token::Stopped);
        assert_eq!((s.flushes, s.phase), (flush::IDLE, Phase::Error.word()));
        return;
    }
    match plan.bad {
        Some(bad) if plan.drains.is_none() => {
            // Up to the failure; the teardown does the rest.
            assert_eq!((s.failures, s.completed), (1 << bad, bad + 1), "{s:?}");
        }
        _ => {
            // From the failure on, up to the first one that comes when the SQ has been resumed.
            let resumed = if s.drained { s.posted } else { s.fresh };
            let failed = plan.bad.map_or(0, |bad| (1 << resumed) - (1 << bad));
            assert_eq!((s.completed, s.failures), (s.posted, failed), "{s:?}");
            assert_eq!(s.sent & s.failures, 0, "{s:?}");
            assert_eq!(token(s.word), Token::Idle);
        }
    }
}

const PLAN: Plan = Plan {
    reads: [false; MAX],
    shared: [false; MAX],
    bad: None,
    drains: None,
    ord: 1,
    limit: MAX as u8,
    turn: 3,
    posts: u8::MAX,
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

/// A program that asks for the end when it has come changes nothing.
#[test]
fn ended_twice() {
    let modifier = Actor::new(Role::Modifier, 1);
    explore(PLAN, true, &[poster(true, 2), modifier, killer()]);
}

/// The datamover posts completions when memory is released, whoever has the token, and whatever
/// ends.
#[test]
fn by_reference() {
    for shared in [
        [true, false, false, false],
        [true, true, false, false],
        [false, true, true, false],
    ] {
        let plan = Plan { shared, ..PLAN };
        explore(plan, true, &[poster(true, 3)]);
        explore(plan, true, &[poster(true, 2), killer()]);
        let reads = [false, false, true, false];
        explore(Plan { reads, ..plan }, true, &[poster(true, 3), killer()]);
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

/// Each life is like the first: nothing of an earlier one counts, whoever of it is still on the
/// way.
#[test]
fn begins_anew() {
    // To the end, to the start, to the end.
    let renewer = Actor::new(Role::Renewer, 3);
    explore(PLAN, true, &[poster(true, 2), renewer]);
    explore(PLAN, true, &[poster(true, 1), poster(true, 1), renewer]);
    let short = Plan { turn: 1, ..PLAN };
    explore(short, true, &[poster(false, 3), renewer]);
    let reads = [true, false, true, false];
    explore(Plan { reads, ..PLAN }, true, &[poster(true, 3), renewer]);
    let shared = [true, true, false, false];
    explore(Plan { shared, ..PLAN }, true, &[poster(true, 2), renewer]);
}

/// A control operation fails, and the SQ is resumed. Posters do not wait for either.
#[test]
fn drained_and_resumed() {
    let resumer = Actor::new(Role::Resumer, 1);
    for place in [Where::Spot, Where::Pipeline] {
        for bad in 0..2 {
            let plan = Plan {
                bad: Some(bad),
                drains: Some(place),
                ..PLAN
            };
            explore(plan, true, &[poster(true, 3)]);
            explore(plan, true, &[poster(true, 3), resumer]);
            explore(plan, true, &[poster(true, 2), poster(false, 1), resumer]);
            explore(plan, true, &[poster(true, 2), killer(), resumer]);
            let short = Plan { turn: 1, ..plan };
            explore(short, true, &[poster(false, 3), resumer]);
            let reads = [false, false, true, true];
            let reading = Plan { reads, ..plan };
            explore(reading, true, &[poster(true, 4), resumer]);
        }
    }
}

/// A context that has posted its share leaves the rest to the datamover, which may do so as well.
/// Whoever comes first goes on, the end of the queue pair included.
#[test]
fn handed_on() {
    let few = Plan { posts: 1, ..PLAN };
    let reads = [true, false, true, false];
    let behind = Plan { reads, ..few };
    explore(behind, true, &[poster(true, 3)]);
    explore(behind, true, &[poster(true, 2), poster(false, 1)]);
    explore(behind, true, &[poster(true, 3), killer()]);
    explore(
        behind,
        true,
        &[poster(true, 3), Actor::new(Role::Renewer, 3)],
    );
    let crowded = Plan { limit: 2, ..behind };
    explore(crowded, true, &[poster(true, 3)]);
    explore(crowded, true, &[poster(true, 3), killer()]);
    let shared = [true, true, false, false];
    let held = Plan { shared, ..few };
    explore(held, true, &[poster(true, 3)]);
    explore(held, true, &[poster(true, 3), killer()]);
    let bad = Plan {
        bad: Some(2),
        ..few
    };
    explore(bad, true, &[poster(true, 2), poster(true, 1), killer()]);
    let drained = Plan {
        bad: Some(1),
        drains: Some(Where::Pipeline),
        ..behind
    };
    let resumer = Actor::new(Role::Resumer, 1);
    explore(drained, true, &[poster(true, 3), resumer]);
}
