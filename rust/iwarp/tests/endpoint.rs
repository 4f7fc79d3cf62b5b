// SPDX-License-Identifier: GPL-2.0

//! The endpoint machine alone: every input in every state, and every order of what can happen to a
//! connection, its consumer and its host.
//!
//! [`World`] is the machine, a TCP connection and a host that performs actions with any outcome
//! they may have. Between two of its moves anything else may happen: FIN, reset, requests to end
//! the connection, time. The explorer tries all orders.

use iwarp::{
    cm::{
        Action,
        Cause,
        Count,
        Deadline,
        End,
        Endpoint,
        Facts,
        Input,
        Notes,
        Owed,
        Pushed,
        Read,
        Side,
        State,
        Step,
        Tcp,
        Teardown,
        Timer, //
    },
    error::MpaError,
    mpa::{
        Config,
        Established,
        Initiator,
        PeerDepth,
        Reply,
        Request,
        Responder,
        Revision,
        Rtr,
        RtrSet,
        MAX_FRAME, //
    }, //
};
use std::{
    collections::HashSet,
    hash::{
        Hash,
        Hasher, //
    },
    mem::discriminant, //
};

/// How often a consumer does not take an offer. More refusals show nothing new, see [`offers_end`];
/// after an eviction the next one is the last.
const OFFERS: u32 = 2;

/// An error of the host.
const HOST: u8 = 1;
/// The error of an abort.
const ABORT: u8 = 2;

const TCP: [Tcp; 6] = [
    Tcp::Opening,
    Tcp::Established,
    Tcp::PeerClosed,
    Tcp::Closing,
    Tcp::FinAcked,
    Tcp::Over,
];
const HOW: [Teardown; 4] = [
    Teardown::Graceful,
    Teardown::Local,
    Teardown::Terminate,
    Teardown::Abort(()),
];
const KINDS: [(Side, bool); 4] = [
    (Side::Active, false),
    (Side::Passive, false),
    (Side::Active, true),
    (Side::Passive, true),
];

/// A request, and what both sides take from it, with or without an RTR message.
fn negotiated(rtr: bool) -> (Request, Established) {
    let config = Config {
        revision: Revision::Two,
        crc: true,
        large_fpdus: false,
        send_imm: false,
        resume: false,
        ird: 4,
        ord: 4,
        max_ird: 8,
        max_ord: 8,
        rtr: if rtr { RtrSet::ALL } else { RtrSet::NONE },
    };
    let (mut frame, mut reply) = ([0; MAX_FRAME], [0; MAX_FRAME]);
    let len = Initiator::new(config).request(&[], &mut frame).unwrap();
    let mut responder = Responder::new(config);
    let mut at = 0;
    loop {
        let take = responder.need();
        let got = responder.feed(&frame[at..at + take]).unwrap();
        at += take;
        if let Some(request) = got {
            assert_eq!(at, len);
            let (_, est) = responder.accept(4, 4, &[], &mut reply).unwrap();
            return (request, est);
        }
    }
}

/// What may come of `action`.
fn outcomes(action: Action) -> Vec<Input<u8>> {
    let results = |f: fn(Result<(), u8>) -> Input<u8>| vec![f(Ok(())), f(Err(HOST))];
    let bools = |f: fn(bool) -> Input<u8>| vec![f(true), f(false)];
    let (request, est) = negotiated(false);
    match action {
        Action::Wait
        | Action::WaitFor(_)
        | Action::Decline
        | Action::Drop
        | Action::Release
        | Action::EndHold
        | Action::Finish { .. } => vec![],
        Action::Look | Action::StreamOver { .. } | Action::LeaveAlone(_) => vec![Input::Look],
        Action::SendRequest => results(Input::RequestSent),
        Action::ReadError => vec![Input::SocketError(HOST)],
        Action::ReadReply => vec![
            Input::Reply(Read::Pending),
            Input::Reply(Read::End(HOST)),
            Input::Reply(Read::Bad(MpaError::Key)),
            Input::Reply(Read::Bad(MpaError::InsufficientIrd)),
            Input::Reply(Read::Whole(Reply::Rejected(PeerDepth::default()))),
            Input::Reply(Read::Whole(Reply::Accepted(Established {
                hold_tx: false,
                ..est
            }))),
        ],
        Action::SendTerminate(_) => bools(Input::TerminateSent),
        Action::Start(_) => results(Input::Started),
        Action::Join(_) => [(true, Ok(())), (true, Err(HOST)), (false, Err(HOST))]
            .map(|(claimed, result)| Input::Joined { claimed, result })
            .to_vec(),
        Action::ReportConnected => results(Input::Reported),
        Action::ReadRequest => vec![
            Input::Request(Read::Pending),
            Input::Request(Read::End(HOST)),
            Input::Request(Read::Bad(MpaError::Key)),
            Input::Request(Read::Whole(request)),
        ],
        Action::Offer => results(Input::Offered),
        Action::Meet => vec![
            Input::Met(None),
            Input::Passed,
            Input::Met(Some(Ok(()))),
            Input::Met(Some(Err(HOST))),
        ],
        Action::Answer => vec![
            Input::Answered(Ok(est)),
            Input::Answered(Ok(negotiated(true).1)),
            Input::Answered(Err(HOST)),
        ],
        Action::Refuse => results(Input::Refused),
        Action::Settle { late } => [true, false]
            .map(|unread| Input::Settled { late, unread })
            .to_vec(),
        Action::Quiesce(how) => [true, false]
            .map(|unsent| Input::Quiesced { how, unsent })
            .to_vec(),
        Action::BeginTerminate => bools(Input::TerminateReady),
        Action::PushTerminate => [
            Pushed::Sent,
            Pushed::NoSpace,
            Pushed::NoMemory,
            Pushed::Lost,
        ]
        .map(Input::Pushed)
        .to_vec(),
        Action::SendFin => bools(Input::FinSent),
        Action::Peek => bools(Input::Unread),
    }
}

/// All inputs that differ to the machine.
fn inputs() -> Vec<Input<u8>> {
    let est = negotiated(true).1;
    let mut all = vec![
        Input::Begun(Ok(())),
        Input::Begun(Err(HOST)),
        Input::Evict,
        Input::Accept,
        Input::Reject,
    ];
    let mut actions = vec![
        Action::Look,
        Action::SendRequest,
        Action::ReadError,
        Action::ReadReply,
        Action::Start(est),
        Action::Join(est),
        Action::ReportConnected,
        Action::ReadRequest,
        Action::Offer,
        Action::Meet,
        Action::Answer,
        Action::Refuse,
        Action::BeginTerminate,
        Action::PushTerminate,
        Action::SendFin,
        Action::Peek,
        Action::Settle { late: true },
        Action::Settle { late: false },
    ];
    actions.extend(HOW.map(Action::Quiesce));
    all.extend(actions.into_iter().flat_map(outcomes));
    all.extend([true, false].map(Input::TerminateSent));
    all
}

fn all_facts() -> Vec<Facts> {
    let asked = [None].into_iter().chain(HOW.map(Some)).collect::<Vec<_>>();
    let mut all = Vec::new();
    for tcp in TCP {
        for &asked in &asked {
            for bits in 0..16 {
                all.push(Facts {
                    tcp,
                    asked,
                    expired: bits & 1 != 0,
                    first_fpdu: bits & 2 != 0,
                    listening: bits & 4 != 0,
                    vain: bits & 8 != 0,
                });
            }
        }
    }
    all
}

/// Whatever the host says, sensible or not: nothing panics, and the end is the end.
#[test]
fn total() {
    let (facts, inputs) = (all_facts(), inputs());
    for (side, paired) in KINDS {
        let first = Endpoint::new(side, paired);
        let (mut seen, mut todo) = (HashSet::from([first]), vec![(first, 0)]);
        while let Some((before, refused)) = todo.pop() {
            for facts in &facts {
                for input in &inputs {
                    let refused = match input {
                        Input::Offered(Err(_)) if refused == OFFERS => continue,
                        Input::Offered(Err(_)) => refused + 1,
                        Input::Evict => 0,
                        _ => refused,
                    };
                    let mut fsm = before;
                    let step = fsm.step(*facts, *input);
                    if before.state() == State::Closed {
                        assert_eq!(fsm, before);
                        assert_eq!(step.timer, Timer::Keep);
                        assert!(matches!(step.action, Action::Wait | Action::Decline));
                    }
                    let set = match step.timer {
                        Timer::Keep => before.deadline(),
                        Timer::Set(deadline) => Some(deadline),
                        Timer::Stop => None,
                    };
                    assert_eq!(set, fsm.deadline(), "{before:?} {facts:?} {input:?}");
                    if let Action::Finish { owed, .. } = step.action {
                        assert_eq!((fsm.state(), fsm.owed()), (State::Closed, Owed::Nothing));
                        let claimed = matches!(input, Input::Joined { claimed: true, .. });
                        let wanted = if claimed {
                            Owed::Nothing
                        } else {
                            before.owed()
                        };
                        assert_eq!(owed, wanted, "{before:?} {input:?}");
                    }
                    if seen.insert(fsm) {
                        todo.push((fsm, refused));
                    }
                }
            }
        }
        let states: HashSet<_> = seen.iter().map(|fsm| fsm.state()).collect();
        let all = if side == Side::Active { 8 } else { 9 };
        assert!(states.len() >= all, "{states:?}");
    }
}

/// What has been counted, as `rdma statistic` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    timeouts: u32,
    evictions: u32,
    rejects: u32,
    aborts: u32,
    drain_timeouts: u32,
}

impl Counts {
    fn add(&mut self, count: Count) {
        *match count {
            Count::Timeout => &mut self.timeouts,
            Count::Eviction => &mut self.evictions,
            Count::Reject => &mut self.rejects,
            Count::Abort => &mut self.aborts,
            Count::DrainTimeout => &mut self.drain_timeouts,
        } += 1;
    }
}

/// What the consumer has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Heard {
    request: bool,
    answered: bool,
    established: bool,
    connected: bool,
    /// The last event, whichever it is.
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Last {
    Nothing,
    Failed,
    Closed,
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct World {
    side: Side,
    paired: bool,
    fsm: Endpoint,
    /// The host is about to do that.
    pending: Option<Action>,
    tcp: Tcp,
    notes: Notes<u8>,
    deadline: Option<Deadline>,
    expired: bool,
    first_fpdu: bool,
    listening: bool,
    /// A QP has the stream; it has agreed to await an RTR; it may send.
    stream: bool,
    rtr: bool,
    held: bool,
    quiet: bool,
    /// TCP had bytes that were not acknowledged when the teardown began.
    unsent: bool,
    claimed: bool,
    /// Offers the consumer has not taken.
    refused: u32,
    evicted: bool,
    heard: Heard,
    counts: Counts,
    /// How the socket has ended: when the QP was left alone, or in the last step.
    left: Option<End>,
    end: Option<End>,
    begun: bool,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hash: &mut H) {
        (self.fsm, self.tcp, self.notes, self.expired, self.heard).hash(hash);
        (self.first_fpdu, self.listening, self.stream, self.held).hash(hash);
        self.pending.as_ref().map(discriminant).hash(hash);
    }
}

impl World {
    fn new(side: Side, paired: bool) -> Self {
        let tcp = match side {
            Side::Active => Tcp::Opening,
            Side::Passive => Tcp::Established,
        };
        Self {
            side,
            paired,
            fsm: Endpoint::new(side, paired),
            pending: None,
            tcp,
            notes: Notes::new(),
            deadline: None,
            expired: false,
            first_fpdu: false,
            listening: side == Side::Passive,
            stream: false,
            rtr: false,
            held: false,
            quiet: false,
            unsent: false,
            claimed: false,
            refused: 0,
            evicted: false,
            heard: Heard::default(),
            counts: Counts::default(),
            left: None,
            end: None,
            begun: false,
        }
    }

    /// One call of the machine.
    fn input(mut self, input: Input<u8>) -> Self {
        let facts = Facts {
            tcp: self.tcp,
            asked: self.notes.asked(),
            expired: self.expired && self.deadline.is_some(),
            first_fpdu: self.first_fpdu,
            listening: self.listening,
            vain: self.notes.vain(),
        };
        let Step {
            note,
            count,
            timer,
            action,
        } = self.fsm.step(facts, input);
        if let Some(cause) = note {
            self.notes.note(cause);
        }
        if let Some(count) = count {
            self.counts.add(count);
        }
        self.evicted |= matches!(input, Input::Evict);
        match timer {
            Timer::Keep => {}
            Timer::Set(deadline) => {
                self.deadline = Some(deadline);
                self.expired = deadline.ms() == 0;
            }
            Timer::Stop => (self.deadline, self.expired) = (None, false),
        }
        if matches!(input, Input::Look | Input::Unread(_)) && action == Action::Wait {
            match self.fsm.state() {
                State::Up => assert_eq!(facts.tcp, Tcp::Established, "the end is not seen"),
                State::Alone if facts.vain => {
                    assert!(self.deadline.is_some(), "sends in vain for ever");
                }
                State::Draining if facts.asked >= Some(Teardown::Local) => {
                    assert_eq!(self.deadline, Some(Deadline::Brief), "no hurry");
                }
                _ => {}
            }
        }
        self.pending = Some(action);
        self
    }

    /// Performs the pending action; the world for each of its outcomes.
    fn perform(mut self, action: Action) -> Vec<Self> {
        self.act(action);
        let outcomes = outcomes(action);
        if outcomes.is_empty() {
            return vec![self];
        }
        outcomes
            .into_iter()
            .filter_map(|input| self.outcome(input))
            .collect()
    }

    /// What the pending action does, whatever comes of it.
    fn act(&mut self, action: Action) {
        self.pending = None;
        assert_eq!(self.deadline, self.fsm.deadline());
        assert!(self.heard.last.is_none(), "{action:?} after the end");
        match action {
            Action::Wait | Action::WaitFor(_) => self.rest(),
            Action::Drop | Action::Release => {
                assert_eq!(self.fsm.owed(), Owed::Nothing);
                self.heard.last = Some(Last::Nothing);
            }
            Action::EndHold => {
                assert!(self.held, "nobody is held");
                assert!(!self.rtr || self.first_fpdu, "the RTR is not awaited");
                self.held = false;
                self.rest();
            }
            Action::Answer | Action::Refuse if !self.paired => {
                assert!(self.heard.request && !self.heard.answered);
                self.heard.answered = true;
            }
            Action::ReportConnected => {
                assert!(self.stream && !self.heard.connected && !self.paired);
            }
            Action::Offer => {
                assert!(!self.heard.request);
                let due = self.deadline.is_none() || self.expired;
                assert!(due, "offered again before the pause is over");
            }
            Action::Start(_) | Action::Join(_) | Action::Meet => assert!(!self.stream),
            Action::Settle { .. } => assert!(self.stream && !self.quiet),
            Action::Quiesce(_) => {
                assert!(self.stream);
                self.quiet = true;
            }
            Action::StreamOver { how, .. } => {
                assert!(!self.paired && self.tcp != Tcp::Established);
                self.notes.ask(how);
            }
            Action::LeaveAlone(end) => {
                assert!(self.paired && self.stream && self.quiet);
                self.close(end);
                self.left = Some(end);
            }
            Action::BeginTerminate | Action::PushTerminate => assert!(self.quiet),
            Action::SendFin => assert!(self.quiet || !self.stream),
            Action::Finish { end, owed } => {
                self.close(end);
                self.end = Some(end);
                self.finish(owed);
            }
            _ => {}
        }
    }

    /// What `input`, the outcome of an action, has done to the world; `None` if it cannot be.
    fn outcome(mut self, input: Input<u8>) -> Option<Self> {
        match input {
            Input::Started(Ok(())) => self.stream = true,
            Input::Joined { claimed, result } => {
                (self.claimed, self.stream) = (claimed, result.is_ok());
            }
            Input::Met(Some(result)) => {
                (self.stream, self.held, self.rtr) = (result.is_ok(), true, true);
            }
            Input::Answered(Ok(est)) => {
                (self.stream, self.held) = (true, true);
                self.rtr = est.rtr != Rtr::None;
                self.heard.established = true;
            }
            Input::Quiesced { unsent, .. } => self.unsent = unsent,
            Input::Reported(Ok(())) => self.heard.connected = true,
            Input::Offered(Ok(())) => self.heard.request = true,
            Input::Offered(Err(_)) if self.refused == OFFERS => return None,
            Input::Offered(Err(_)) => self.refused += 1,
            // The host takes no more once TCP is over, or the exploration would not end.
            Input::Settled {
                late: false,
                unread: true,
            } if self.tcp == Tcp::Over => return None,
            Input::FinSent(sent) => match (self.tcp.is_open(), sent) {
                (true, true) => self.tcp = Tcp::Closing,
                (false, true) => return None,
                _ => {}
            },
            _ => {}
        }
        Some(self.input(input))
    }

    /// The host has nothing to do until something happens.
    fn rest(&self) {
        let state = self.fsm.state();
        let embryo = matches!(state, State::AwaitRequest | State::Offering);
        assert!(!(self.evicted && embryo), "it does not make room");
        let waits_for_peer =
            !matches!(state, State::New | State::Up | State::Alone | State::Closed);
        let held = self.held && !self.first_fpdu && state == State::Up;
        if waits_for_peer || held {
            assert!(self.deadline.is_some(), "no deadline: {self:?}");
        }
        assert!(!self.expired || state == State::Up || self.deadline.is_some());
    }

    fn close(&mut self, end: End) {
        match end {
            End::Reset => self.tcp = Tcp::Over,
            End::Fin => {
                let fin_is_out = matches!(self.tcp, Tcp::Closing | Tcp::FinAcked);
                assert!(!fin_is_out, "a second FIN: {self:?}");
                assert!(!self.unsent, "a FIN behind bytes on their way: {self:?}");
            }
            End::Drained => {
                let drained = matches!(self.tcp, Tcp::FinAcked | Tcp::Over);
                assert!(drained || self.left.is_some(), "not drained: {self:?}");
            }
        }
    }

    /// The last event, of which there is one if the consumer knows of the connection.
    fn finish(&mut self, owed: Owed) {
        let heard = self.heard;
        let last = match owed {
            Owed::Nothing => Last::Nothing,
            Owed::Reply => Last::Failed,
            Owed::Close => Last::Closed,
            Owed::Retry => Last::Retry,
        };
        let wanted = match (self.side, self.paired) {
            (Side::Active, true) if self.claimed => Last::Nothing,
            (Side::Active, true) => Last::Retry,
            (Side::Active, false) if heard.connected => Last::Closed,
            (Side::Active, false) => Last::Failed,
            (Side::Passive, _) if heard.established => Last::Closed,
            (Side::Passive, _) => Last::Nothing,
        };
        assert_eq!(last, wanted, "{self:?}");
        if last == Last::Failed {
            assert!(self.notes.status().is_err(), "a failure without a reason");
        }
        if heard.answered && !heard.established {
            assert_eq!(last, Last::Nothing);
        }
        self.check_counts();
        self.heard.last = Some(last);
    }

    /// A connection fails once, and what it fails of is counted.
    fn check_counts(&self) {
        let cause = self.notes.cause();
        let Counts {
            timeouts,
            evictions,
            rejects,
            aborts,
            drain_timeouts,
        } = self.counts;
        assert!(timeouts + evictions <= 1, "{self:?}");
        assert!(self.evicted || evictions == 0, "{self:?}");
        // Each stream that is reset, and no other.
        assert!(aborts + drain_timeouts <= 1, "{self:?}");
        if self.stream {
            let reset = [self.left, self.end].contains(&Some(End::Reset));
            assert_eq!(aborts + drain_timeouts == 1, reset, "{self:?}");
        }
        assert_eq!(rejects == 1, cause == Some(Cause::Rejected), "{self:?}");
        if cause == Some(Cause::TimedOut) {
            assert_eq!(timeouts, 1, "{self:?}");
        }
    }

    /// All that can happen next.
    fn moves(self) -> Vec<Self> {
        if !self.begun {
            return [Ok(()), Err(HOST)]
                .map(|result| {
                    Self {
                        begun: true,
                        ..self
                    }
                    .input(Input::Begun(result))
                })
                .to_vec();
        }
        if self.heard.last.is_some() {
            return self.after_the_end();
        }
        let mut next = self.environment();
        match self.pending {
            Some(action) => next.extend(self.perform(action)),
            None => {
                next.push(self.input(Input::Look));
                if self.side == Side::Passive {
                    let inputs = [Input::Accept, Input::Reject];
                    next.extend(inputs.map(|input| self.input(input)));
                    let evicted = Self { refused: 0, ..self };
                    next.push(evicted.input(Input::Evict));
                }
            }
        }
        next
    }

    /// What others do, at any time.
    fn environment(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let tcp: &[Tcp] = match self.tcp {
            Tcp::Opening => &[Tcp::Established, Tcp::Over],
            Tcp::Established => &[Tcp::PeerClosed, Tcp::Over],
            Tcp::Closing => &[Tcp::FinAcked, Tcp::Over],
            Tcp::PeerClosed | Tcp::FinAcked => &[Tcp::Over],
            Tcp::Over => &[],
        };
        next.extend(tcp.iter().map(|&tcp| Self { tcp, ..*self }));
        for how in [
            Teardown::Graceful,
            Teardown::Local,
            Teardown::Terminate,
            Teardown::Abort(ABORT),
        ] {
            let mut other = *self;
            other.notes.raise(how);
            next.push(other);
        }
        if self.deadline.is_some() {
            next.push(Self {
                expired: true,
                ..*self
            });
        }
        if self.stream && !self.quiet {
            next.push(Self {
                first_fpdu: true,
                ..*self
            });
        }
        next.push(Self {
            listening: false,
            ..*self
        });
        if self.fsm.state() == State::Alone {
            let mut other = *self;
            other.notes.send_in_vain();
            next.push(other);
        }
        next
    }

    /// Late calls do nothing, except that late answers fail.
    fn after_the_end(self) -> Vec<Self> {
        assert_eq!(self.fsm.state(), State::Closed);
        assert_eq!(self.deadline, None);
        for input in [Input::Look, Input::Evict, Input::Accept, Input::Reject] {
            let late = matches!(input, Input::Accept | Input::Reject);
            let wanted = if late { Action::Decline } else { Action::Wait };
            let after = self.input(input);
            assert_eq!((after.fsm, after.pending), (self.fsm, Some(wanted)));
        }
        vec![]
    }

    /// Nothing comes any more except time. All ends, or the connection is one that may stay.
    fn left_to_time(mut self) {
        if self.pending.is_none() && self.heard.last.is_none() {
            self = self.input(Input::Look);
        }
        for _ in 0..1_000 {
            if self.heard.last.is_some() {
                return;
            }
            let Some(action) = self.pending else {
                let stays = matches!(self.fsm.state(), State::Up | State::Alone);
                if self.deadline.is_none() {
                    assert!(stays && self.notes.asked().is_none(), "stuck: {self:?}");
                    return;
                }
                self.expired = true;
                self = self.input(Input::Look);
                continue;
            };
            // The outcome in which least happens.
            let quiet = |world: &Self| match world.pending {
                None | Some(Action::Wait | Action::WaitFor(_)) => 0,
                Some(Action::Look) => 1,
                _ => 2,
            };
            self = self.perform(action).into_iter().min_by_key(quiet).unwrap();
        }
        panic!("for ever: {self:?}");
    }
}

/// In every order of events: one last event, none after it, a deadline wherever the peer is waited
/// for, and an end.
#[test]
fn every_order() {
    for (side, paired) in KINDS {
        let first = World::new(side, paired);
        let (mut seen, mut todo) = (HashSet::from([first]), vec![first]);
        let mut ends = HashSet::new();
        while let Some(world) = todo.pop() {
            ends.extend(world.heard.last);
            if world.begun && world.pending.is_none() {
                world.left_to_time();
                let mut wanted = world;
                wanted.notes.raise(Teardown::Local);
                wanted.left_to_time();
            }
            for next in world.moves() {
                if seen.insert(next) {
                    todo.push(next);
                }
            }
        }
        let wanted: &[Last] = match (side, paired) {
            (Side::Active, false) => &[Last::Nothing, Last::Failed, Last::Closed],
            (Side::Active, true) => &[Last::Nothing, Last::Retry],
            (Side::Passive, false) => &[Last::Nothing, Last::Closed],
            (Side::Passive, true) => &[Last::Nothing],
        };
        assert_eq!(ends, wanted.iter().copied().collect(), "{side:?} {paired}");
        eprintln!("{side:?} {paired}: {} worlds", seen.len());
    }
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// TCP changes its state.
    Becomes(Tcp),
    Asked(Teardown<u8>),
    /// Its deadline passes.
    Late,
    ListenerGone,
    /// A call of the consumer or of the host, or the outcome of the pending action.
    Told(Input<u8>),
}

use Happens::*;

/// The steps until a connection is up, for each kind of endpoint. `rtr` if an RTR message is
/// agreed.
fn until_up(side: Side, paired: bool, rtr: bool) -> Vec<Happens> {
    let (request, est) = negotiated(rtr);
    let mut steps = vec![Told(Input::Begun(Ok(())))];
    steps.extend(match (side, paired) {
        (Side::Active, false) => vec![
            Becomes(Tcp::Established),
            Told(Input::RequestSent(Ok(()))),
            Told(Input::Reply(Read::Whole(Reply::Accepted(est)))),
            Told(Input::Started(Ok(()))),
            Told(Input::Reported(Ok(()))),
        ],
        (Side::Active, true) => vec![
            Becomes(Tcp::Established),
            Told(Input::RequestSent(Ok(()))),
            Told(Input::Reply(Read::Whole(Reply::Accepted(est)))),
            Told(Input::Joined {
                claimed: true,
                result: Ok(()),
            }),
        ],
        (Side::Passive, false) => vec![
            Told(Input::Request(Read::Whole(request))),
            Told(Input::Offered(Ok(()))),
            Told(Input::Accept),
            Told(Input::Answered(Ok(est))),
        ],
        (Side::Passive, true) => vec![
            Told(Input::Request(Read::Whole(request))),
            Told(Input::Met(Some(Ok(())))),
        ],
    });
    steps
}

impl World {
    /// What comes of `steps`.
    fn after(mut self, steps: &[Happens]) -> Self {
        for step in steps {
            assert!(self.heard.last.is_none(), "{step:?} after the end");
            self = match (*step, self.pending) {
                (Becomes(tcp), _) => Self { tcp, ..self },
                (Asked(how), _) => {
                    self.notes.raise(how);
                    self
                }
                (Late, _) => Self {
                    expired: true,
                    ..self
                },
                (ListenerGone, _) => Self {
                    listening: false,
                    ..self
                },
                (Told(input), None) => self.input(input),
                (Told(input), Some(action)) => {
                    let fits = |one: &Input<u8>| discriminant(one) == discriminant(&input);
                    let outcomes = outcomes(action);
                    assert!(outcomes.iter().any(fits), "{input:?} of {action:?}");
                    self.act(action);
                    self.outcome(input).unwrap()
                }
            };
            if self.pending.is_none() {
                self = self.input(Input::Look);
            }
            self = self.rested();
        }
        self
    }

    /// Performs what has no outcome to choose.
    fn rested(mut self) -> Self {
        while let Some(action) = self.pending {
            match outcomes(action)[..] {
                [] => self.act(action),
                [Input::Look] => {
                    self.act(action);
                    self = self.input(Input::Look);
                }
                _ => break,
            }
        }
        self
    }
}

const NONE: Counts = Counts {
    timeouts: 0,
    evictions: 0,
    rejects: 0,
    aborts: 0,
    drain_timeouts: 0,
};
const TIMEOUT: Counts = Counts {
    timeouts: 1,
    ..NONE
};
const EVICTION: Counts = Counts {
    evictions: 1,
    ..NONE
};
const REJECT: Counts = Counts { rejects: 1, ..NONE };
const ABORT_COUNT: Counts = Counts { aborts: 1, ..NONE };
const DRAIN_TIMEOUT: Counts = Counts {
    drain_timeouts: 1,
    ..NONE
};

/// A connection that does not come up: what a user sees of it in the counters, how its socket ends,
/// and the status of the last event.
#[test]
fn failures_to_connect() {
    let (active, passive) = (Side::Active, Side::Passive);
    let (request, est) = negotiated(false);
    let begun = Told(Input::Begun(Ok(())));
    let connected = [begun, Becomes(Tcp::Established)];
    let asked = [&connected[..], &[Told(Input::RequestSent(Ok(())))]].concat();
    let read = Told(Input::Request(Read::Whole(request)));
    let offered = [begun, read, Told(Input::Offered(Ok(())))];
    let refused = [Told(Input::Reject), Told(Input::Refused(Ok(())))];
    let refused = [&offered[..], &refused].concat();
    let stranger = [begun, read, Told(Input::Met(None))];
    let stranger = [&stranger[..], &[Told(Input::Refused(Ok(())))]].concat();
    let reply = |read| Told(Input::Reply(read));
    let rejected = reply(Read::Whole(Reply::Rejected(PeerDepth::default())));
    let too_deep = reply(Read::Bad(MpaError::InsufficientIrd));
    let terminated = [too_deep, Told(Input::TerminateSent(true))];
    let terminated = [&asked[..], &terminated, &[Told(Input::FinSent(true))]].concat();

    let nothing = Told(Input::Request(Read::Pending));
    let evict = Told(Input::Evict);

    let (timed_out, protocol) = (Err(Cause::TimedOut), Err(Cause::Protocol));
    let aborted = Err(Cause::Aborted);
    let host = Err(Cause::Host(HOST));
    type Row<'a> = (
        (Side, bool),
        &'a [Happens],
        &'a [Happens],
        (Counts, End),
        Result<(), Cause<u8>>,
    );
    let pair = (active, true);
    let rows: &[Row<'_>] = &[
        // Before there is a request.
        (
            (active, false),
            &[begun],
            &[Late],
            (TIMEOUT, End::Reset),
            timed_out,
        ),
        (
            (active, false),
            &[begun],
            &[Becomes(Tcp::Over), Told(Input::SocketError(HOST))],
            (NONE, End::Reset),
            host,
        ),
        (
            (active, false),
            &connected,
            &[Told(Input::RequestSent(Err(HOST)))],
            (NONE, End::Reset),
            host,
        ),
        // The reply.
        (
            (active, false),
            &asked,
            &[Late, reply(Read::Pending)],
            (TIMEOUT, End::Reset),
            timed_out,
        ),
        (
            (active, false),
            &asked,
            &[rejected],
            (REJECT, End::Reset),
            Err(Cause::Rejected),
        ),
        (
            pair,
            &asked,
            &[rejected],
            (REJECT, End::Reset),
            Err(Cause::Rejected),
        ),
        (
            (active, false),
            &asked,
            &[reply(Read::Bad(MpaError::Key))],
            (NONE, End::Reset),
            protocol,
        ),
        (
            (active, false),
            &asked,
            &[reply(Read::End(HOST))],
            (NONE, End::Reset),
            host,
        ),
        (
            (active, false),
            &asked,
            &[too_deep, Told(Input::TerminateSent(false))],
            (NONE, End::Reset),
            protocol,
        ),
        (
            (active, false),
            &terminated,
            &[Becomes(Tcp::FinAcked)],
            (NONE, End::Drained),
            protocol,
        ),
        (
            (active, false),
            &terminated,
            &[Late],
            (DRAIN_TIMEOUT, End::Reset),
            protocol,
        ),
        (
            (active, false),
            &asked,
            &[
                reply(Read::Whole(Reply::Accepted(est))),
                Told(Input::Started(Err(HOST))),
            ],
            (NONE, End::Reset),
            host,
        ),
        // The request.
        (
            (passive, false),
            &[begun],
            &[Late, nothing],
            (TIMEOUT, End::Reset),
            timed_out,
        ),
        (
            (passive, false),
            &[begun],
            &[nothing, evict, nothing],
            (EVICTION, End::Reset),
            aborted,
        ),
        (
            (passive, false),
            &[begun],
            &[nothing, evict, read, Told(Input::Offered(Err(HOST)))],
            (EVICTION, End::Reset),
            aborted,
        ),
        (
            (passive, false),
            &[begun, nothing, evict, read, Told(Input::Offered(Ok(())))],
            &[Late],
            (TIMEOUT, End::Reset),
            timed_out,
        ),
        (
            (passive, false),
            &[begun],
            &[Told(Input::Request(Read::Bad(MpaError::Key)))],
            (NONE, End::Reset),
            protocol,
        ),
        (
            (passive, false),
            &[begun, read],
            &[Told(Input::Offered(Err(HOST))), ListenerGone],
            (NONE, End::Reset),
            aborted,
        ),
        // The answer.
        (
            (passive, false),
            &offered,
            &[Late],
            (TIMEOUT, End::Reset),
            timed_out,
        ),
        (
            (passive, false),
            &offered,
            &[Becomes(Tcp::Over)],
            (NONE, End::Reset),
            Err(Cause::Reset),
        ),
        (
            (passive, false),
            &offered,
            &[Told(Input::Accept), Told(Input::Answered(Err(HOST)))],
            (NONE, End::Reset),
            host,
        ),
        (
            (passive, false),
            &refused,
            &[Becomes(Tcp::PeerClosed)],
            (NONE, End::Fin),
            Ok(()),
        ),
        (
            (passive, false),
            &refused,
            &[Becomes(Tcp::Over)],
            (NONE, End::Drained),
            Ok(()),
        ),
        (
            (passive, false),
            &refused,
            &[Late],
            (DRAIN_TIMEOUT, End::Reset),
            Ok(()),
        ),
        (
            (passive, false),
            &refused,
            &[Asked(Teardown::Abort(ABORT))],
            (ABORT_COUNT, End::Reset),
            Err(Cause::Host(ABORT)),
        ),
        (
            (passive, true),
            &stranger,
            &[Becomes(Tcp::PeerClosed)],
            (NONE, End::Fin),
            Ok(()),
        ),
    ];
    for (at, ((side, paired), before, then, (counts, end), status)) in rows.iter().enumerate() {
        let world = World::new(*side, *paired).after(before).after(then);
        assert_eq!(world.end, Some(*end), "row {at}: {then:?}");
        assert_eq!(world.counts, *counts, "row {at}: {then:?}");
        assert_eq!(world.notes.status(), *status, "row {at}: {then:?}");
    }
}

/// A connection that was up: what a user sees of its end in the counters, and how its socket ends.
#[test]
fn ends_of_streams() {
    let quiesced = |how, unsent| Told(Input::Quiesced { how, unsent });
    let settled = Told(Input::Settled {
        late: false,
        unread: false,
    });
    let (terminate, local, graceful) = (Teardown::Terminate, Teardown::Local, Teardown::Graceful);
    let fin = Told(Input::FinSent(true));
    let push = |pushed| Told(Input::Pushed(pushed));
    let fin_acked = Becomes(Tcp::FinAcked);
    let draining = [Asked(Teardown::Graceful), quiesced(graceful, true), fin];
    let brief = [Asked(Teardown::Local), quiesced(local, true), fin];
    let due = [Asked(Teardown::Terminate), quiesced(terminate, false)];
    let pushing = [&due[..], &[Told(Input::TerminateReady(true))]].concat();
    let terminated = [&pushing[..], &[push(Pushed::Sent), fin]].concat();
    let give_up = Asked(Teardown::Abort(ABORT));
    let abort = quiesced(Teardown::Abort(()), true);

    let rows: &[(&[Happens], &[Happens], Counts, End)] = &[
        // In order.
        (
            &[],
            &[Asked(Teardown::Local), quiesced(local, false)],
            NONE,
            End::Fin,
        ),
        (&brief, &[fin_acked], NONE, End::Drained),
        (&brief, &[Late], DRAIN_TIMEOUT, End::Reset),
        (&draining, &[Becomes(Tcp::Over)], NONE, End::Drained),
        (
            &draining,
            &[fin_acked, Told(Input::Unread(false)), Becomes(Tcp::Over)],
            NONE,
            End::Drained,
        ),
        // The peer's FIN is behind what nobody reads.
        (
            &draining,
            &[fin_acked, Told(Input::Unread(true))],
            NONE,
            End::Drained,
        ),
        (&draining, &[Late], DRAIN_TIMEOUT, End::Reset),
        (&draining, &[give_up], ABORT_COUNT, End::Reset),
        (&brief, &[give_up], ABORT_COUNT, End::Reset),
        // The peer closes.
        (
            &[Becomes(Tcp::PeerClosed), settled],
            &[quiesced(local, false)],
            NONE,
            End::Fin,
        ),
        // A Terminate.
        (&terminated, &[fin_acked], NONE, End::Drained),
        (&terminated, &[Late], DRAIN_TIMEOUT, End::Reset),
        (&terminated, &[give_up], ABORT_COUNT, End::Reset),
        (&pushing, &[push(Pushed::Lost)], ABORT_COUNT, End::Reset),
        (
            &pushing,
            &[Late, push(Pushed::NoSpace)],
            ABORT_COUNT,
            End::Reset,
        ),
        (
            &pushing,
            &[Late, push(Pushed::NoMemory)],
            ABORT_COUNT,
            End::Reset,
        ),
        (
            &due,
            &[Told(Input::TerminateReady(false))],
            ABORT_COUNT,
            End::Reset,
        ),
        // Lost, or given up.
        (
            &[Becomes(Tcp::Over), settled],
            &[abort],
            ABORT_COUNT,
            End::Reset,
        ),
        (
            &[Asked(Teardown::Local), Becomes(Tcp::Over)],
            &[quiesced(local, true)],
            ABORT_COUNT,
            End::Reset,
        ),
        (
            &[Asked(Teardown::Local), quiesced(local, true)],
            &[Becomes(Tcp::Over), Told(Input::FinSent(false))],
            ABORT_COUNT,
            End::Reset,
        ),
        (&[give_up], &[abort], ABORT_COUNT, End::Reset),
    ];
    for (side, paired) in KINDS {
        for (at, (before, then, counts, end)) in rows.iter().enumerate() {
            let leaves_alone = matches!(before, [Becomes(_), ..]);
            if paired && leaves_alone {
                continue;
            }
            let up = World::new(side, paired).after(&until_up(side, paired, false));
            let world = up.after(before).after(then);
            assert_eq!(world.end, Some(*end), "{side:?} row {at}: {then:?}");
            assert_eq!(world.counts, *counts, "{side:?} row {at}: {then:?}");
        }
    }

    // The RTR message does not come.
    let steps = until_up(Side::Passive, false, true);
    let world = World::new(Side::Passive, false).after(&steps);
    let world = world.after(&[Late, abort]);
    let counts = Counts {
        timeouts: 1,
        ..ABORT_COUNT
    };
    assert_eq!((world.counts, world.end), (counts, Some(End::Reset)));
    assert_eq!(world.notes.status(), Err(Cause::TimedOut));

    // A queue pair without a connection manager outlives its connection.
    for (tcp, how, unsent, counts, end) in [
        (Tcp::PeerClosed, local, false, NONE, End::Fin),
        (Tcp::PeerClosed, local, true, ABORT_COUNT, End::Reset),
        (
            Tcp::Over,
            Teardown::Abort(()),
            false,
            ABORT_COUNT,
            End::Reset,
        ),
    ] {
        for side in [Side::Active, Side::Passive] {
            let up = World::new(side, true).after(&until_up(side, true, false));
            let alone = up.after(&[Becomes(tcp), settled, quiesced(how, unsent)]);
            assert_eq!((alone.left, alone.end), (Some(end), None));
            let world = alone.after(&[Asked(Teardown::Local)]);
            assert_eq!((world.counts, world.end), (counts, Some(End::Drained)));
        }
    }
}

/// A consumer whose backlog stays full gets an offer after each pause, however often the connection
/// is looked at, and is left alone in the end.
#[test]
fn offers_end() {
    let mut world = World::new(Side::Passive, false);
    world = world.input(Input::Begun(Ok(())));
    world = world.input(Input::Request(Read::Whole(negotiated(false).0)));
    for offers in 1..1_000 {
        world = world.input(Input::Look);
        assert_eq!(world.pending, Some(Action::Offer));
        world = world.input(Input::Offered(Err(HOST)));
        if world.fsm.state() == State::Closed {
            assert_eq!(world.notes.status(), Err(Cause::Host(HOST)));
            assert_eq!(offers, 201);
            return;
        }
        assert_eq!(world.deadline, Some(Deadline::Retry));
        world = world.input(Input::Look);
        assert_eq!(world.pending, Some(Action::Wait), "no pause");
        world.expired = true;
    }
    panic!("for ever");
}

/// Between QPs without a connection manager, neither end gives up soon when the other one may have
/// joined.
#[test]
fn patience_of_pairs() {
    for (paired, reply, rtr) in [
        (false, Deadline::Reply, Deadline::Rtr),
        (true, Deadline::Join, Deadline::Join),
    ] {
        let mut world = World::new(Side::Active, paired);
        world = world.after(&until_up(Side::Active, paired, true)[..3]);
        assert_eq!(world.deadline, Some(reply));
        world = World::new(Side::Passive, paired);
        world = world.after(&until_up(Side::Passive, paired, true));
        assert_eq!(world.deadline, Some(rtr));
    }
    assert!(Deadline::Join.ms() > 3 * Deadline::Reply.ms());
}

/// The status of the last event is the first reason, unless the peer has rejected the request.
#[test]
fn reasons() {
    let mut notes = Notes::<u8>::new();
    assert_eq!(notes.status(), Ok(()));
    notes.raise(Teardown::Terminate);
    assert_eq!(notes.status(), Err(Cause::Protocol));
    notes.raise(Teardown::Graceful);
    assert_eq!(notes.asked(), Some(Teardown::Terminate));
    notes.raise(Teardown::Abort(ABORT));
    notes.note(Cause::Reset);
    assert_eq!(notes.asked(), Some(Teardown::Abort(())));
    assert_eq!(notes.status(), Err(Cause::Host(ABORT)));
    notes.note(Cause::Rejected);
    notes.note(Cause::TimedOut);
    assert_eq!(notes.status(), Err(Cause::Rejected));
}
