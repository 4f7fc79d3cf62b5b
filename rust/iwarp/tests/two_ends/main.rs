// SPDX-License-Identifier: GPL-2.0

//! Two whole ends against each other: the endpoint machine, the MPA handshake, FPDUs both ways and
//! the states of the QPs, over a connection that cuts the stream anywhere, delays, stalls and is
//! reset. TCP delivers in order, so no more than that can happen to an end.
//!
//! Always: both ends come to their end, each consumer hears what it may hear and its last event
//! once, and what has arrived is what was sent, up to some message. Without a reset or a stall: all
//! of it has arrived.

#[path = "../common/mod.rs"]
mod common;
mod end;
mod tcp;

use common::Rng;
use end::{
    End,
    Errno,
    Event,
    Pair, //
};
use iwarp::{
    cm::{
        pair::{
            Hello,
            Life, //
        },
        Cause,
        End as SocketEnd,
        State,
        Tcp,
        Teardown, //
    },
    mpa::{
        Config,
        Revision,
        RtrSet, //
    },
    qp::fsm, //
};
use tcp::Net;

/// What ends the connection once a side has sent and got all it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finale {
    /// Nothing of its own accord.
    None,
    /// `rdma_disconnect`.
    Graceful,
    /// The QP is destroyed.
    Destroy,
    /// An error with a Terminate.
    Terminate,
}

#[derive(Clone, Debug)]
struct Script {
    configs: [Config; 2],
    messages: [Vec<Vec<u8>>; 2],
    /// B's consumer accepts, rejects, or never answers; after so many milliseconds.
    accept: Option<bool>,
    think: u64,
    finale: Finale,
    closer: usize,
    /// The stream of each direction pauses behind this byte until nothing else happens.
    cut: [Option<usize>; 2],
    /// So many bytes of a direction have arrived when the socket of an end is destroyed.
    reset: Option<(usize, usize, usize)>,
    /// From a byte on a direction stands still for so many milliseconds.
    stall: Option<(usize, usize, u64)>,
    /// After so many moves an end is told to end.
    ended: Option<(usize, usize, Teardown<Errno>)>,
    /// For how long the backlog of B's consumer is full.
    full_until: u64,
    /// After so many moves B's listener needs the place.
    evicted: Option<usize>,
    /// The QPs are a pair without a connection manager: B's waits after so many milliseconds.
    ready_at: Option<u64>,
    posts_in_vain: bool,
    /// Order and sizes are drawn.
    seed: Option<u64>,
}

const CONFIG: Config = Config {
    revision: Revision::Two,
    crc: true,
    large_fpdus: false,
    send_imm: false,
    resume: false,
    ird: 4,
    ord: 4,
    max_ird: 8,
    max_ord: 8,
    rtr: RtrSet::NONE,
};

impl Script {
    fn new() -> Self {
        let message = |n: usize| (0..n).map(|at| (at * 7 + n) as u8).collect();
        Self {
            configs: [CONFIG; 2],
            messages: [
                [40, 0, 100].map(message).to_vec(),
                [1, 90].map(message).to_vec(),
            ],
            accept: Some(true),
            think: 0,
            finale: Finale::Graceful,
            closer: 0,
            cut: [None; 2],
            reset: None,
            stall: None,
            ended: None,
            full_until: 0,
            evicted: None,
            ready_at: None,
            posts_in_vain: false,
            seed: None,
        }
    }

    /// A pair whose accepting end waits after `ready_at` milliseconds.
    fn pair(ready_at: u64) -> Self {
        let mut script = Self::new();
        script.ready_at = Some(ready_at);
        for config in &mut script.configs {
            config.rtr = RtrSet::ALL;
        }
        script.finale = Finale::Destroy;
        script
    }

    /// An end of this script, new.
    fn end(&self, side: usize) -> End {
        let hello = |qpn, peer_qpn, rq_psn, sq_psn| Hello {
            qpn,
            peer_qpn,
            rq_psn,
            sq_psn: Some(sq_psn),
            nonce: 7,
            life: Life {
                device: qpn.into(),
                boot_id: 1,
                epoch: 1,
            },
        };
        let hellos = [hello(3, 9, 100, 200), hello(9, 3, 200, 100)];
        let pair = self.ready_at.map(|ready_at| Pair {
            hello: hellos[side],
            ready_at,
            posts_in_vain: self.posts_in_vain,
        });
        let mut end = End::new(side, self.configs[side], pair, &self.messages[side]);
        end.full_until = self.full_until;
        end
    }
}

/// Pause before a pair tries again.
const PAUSE: u64 = 100;

struct World<'a> {
    script: &'a Script,
    net: Net,
    ends: [Option<End>; 2],
    now: u64,
    moves: usize,
    rng: Option<Rng>,
    answer_at: Option<u64>,
    /// When a pair tries again, and how often it has.
    retry_at: Option<u64>,
    retries: usize,
    stalled_until: [u64; 2],
    closing: bool,
    /// Ends that would stay have been told to end.
    told: bool,
    was_cut: [bool; 2],
    was_reset: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Work(usize),
    Deliver(usize),
    Answer,
    Close,
    End,
    Evict,
    Retry,
    /// Behind a cut.
    GoOn(usize),
}

impl<'a> World<'a> {
    fn new(script: &'a Script) -> Self {
        let mut net = Net::new();
        let mut a = script.end(0);
        a.begin(&mut net, 0);
        Self {
            script,
            net,
            ends: [Some(a), None],
            now: 0,
            moves: 0,
            rng: script.seed.map(Rng::new),
            answer_at: None,
            retry_at: None,
            retries: 0,
            stalled_until: [0; 2],
            closing: false,
            told: false,
            was_cut: [false; 2],
            was_reset: false,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        match &mut self.rng {
            Some(rng) => rng.below(n as u64) as usize,
            None => 0,
        }
    }

    fn is_closed(&self, side: usize) -> bool {
        self.ends[side].as_ref().is_none_or(End::is_closed)
    }

    /// Bytes `side`'s direction delivers in one go at the most; 0 if it stands still.
    fn may_deliver(&self, side: usize) -> usize {
        let arrived = self.net.socks[side].arrived;
        let cut = match self.script.cut[side] {
            Some(at) if !self.was_cut[side] => at.saturating_sub(arrived),
            _ => usize::MAX,
        };
        let reset = match self.script.reset {
            Some((dir, at, _)) if dir == side && arrived < at => at - arrived,
            _ => usize::MAX,
        };
        let stall = match self.script.stall {
            Some((dir, at, _)) if dir == side && arrived < at => at - arrived,
            _ => usize::MAX,
        };
        if !self.net.can_deliver(side) || self.stalled_until[side] > self.now {
            return 0;
        }
        cut.min(reset).min(stall)
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for side in [0, 1] {
            if self.ends[side].as_ref().is_some_and(|end| end.queued) {
                moves.push(Move::Work(side));
            }
            if self.may_deliver(side) > 0 {
                moves.push(Move::Deliver(side));
            }
        }
        if self.answer_at.is_some_and(|at| at <= self.now) {
            moves.push(Move::Answer);
        }
        if self.may_close() {
            moves.push(Move::Close);
        }
        if self.script.ended.is_some_and(|(at, side, _)| {
            at == self.moves && self.ends[side].is_some() && !self.is_closed(side)
        }) {
            return vec![Move::End];
        }
        if self.script.evicted == Some(self.moves) && self.ends[1].is_some() && !self.is_closed(1) {
            return vec![Move::Evict];
        }
        if self.retry_at.is_some_and(|at| at <= self.now) {
            moves.push(Move::Retry);
        }
        if moves.is_empty() {
            for side in [0, 1] {
                let held = self.script.cut[side].is_some() && !self.was_cut[side];
                if held && self.net.can_deliver(side) && self.stalled_until[side] <= self.now {
                    moves.push(Move::GoOn(side));
                }
            }
        }
        moves
    }

    fn may_close(&self) -> bool {
        let side = self.script.closer;
        let wanted = self.script.messages[1 - side].len();
        !self.closing
            && self.script.finale != Finale::None
            && self.ends[side].as_ref().is_some_and(|end| {
                end.fsm.state() == State::Up && end.is_idle() && end.got.len() == wanted
            })
    }

    fn make(&mut self, what: Move) {
        self.moves += 1;
        match what {
            Move::Work(side) => {
                if let Some(end) = &mut self.ends[side] {
                    end.work(&mut self.net, self.now);
                }
            }
            Move::Deliver(side) => self.deliver(side),
            Move::Answer => {
                self.answer_at = None;
                let accept = self.script.accept == Some(true);
                if let Some(end) = &mut self.ends[1] {
                    end.answer(&mut self.net, self.now, accept, b"to A");
                }
            }
            Move::Close => {
                self.closing = true;
                if let Some(end) = &mut self.ends[self.script.closer] {
                    match self.script.finale {
                        Finale::None => {}
                        Finale::Graceful => end.disconnect(),
                        Finale::Destroy => end.teardown(Teardown::Local),
                        Finale::Terminate => end.break_off(),
                    }
                }
            }
            Move::End => {
                if let Some((_, side, how)) = self.script.ended {
                    if let Some(end) = &mut self.ends[side] {
                        end.teardown(how);
                    }
                }
            }
            Move::Evict => {
                if let Some(end) = &mut self.ends[1] {
                    end.evict(&mut self.net, self.now);
                    let state = end.fsm.state();
                    let embryo = matches!(state, State::AwaitRequest | State::Offering);
                    assert!(!embryo, "it does not make room");
                }
            }
            Move::Retry => {
                self.retry_at = None;
                self.retries += 1;
                self.net = Net::new();
                let mut a = self.script.end(0);
                a.begin(&mut self.net, self.now);
                self.ends = [Some(a), None];
            }
            Move::GoOn(side) => self.was_cut[side] = true,
        }
        self.plan_retry();
        let asked = |end: &End| end.fsm.state() == State::Offered;
        let answered = |end: &End| end.events.len() > 1;
        if let (Some(end), None) = (&self.ends[1], self.answer_at) {
            if asked(end) && !answered(end) && self.script.accept.is_some() {
                self.answer_at = Some(self.now + self.script.think);
            }
        }
    }

    /// The attempt of a pair has failed. There is another one, unless B's QP has had its stream: it
    /// does not wait any more, and A's gives up.
    fn plan_retry(&mut self) {
        let [Some(a), b] = &mut self.ends else { return };
        let free = b.as_ref().is_none_or(|b| b.is_closed() && !b.had_stream());
        if a.retries && free {
            a.retries = false;
            self.retry_at = Some(self.now + PAUSE);
        }
    }

    fn deliver(&mut self, side: usize) {
        let most = self.may_deliver(side);
        let max = match self.rng {
            Some(_) => 1 + self.below(most.min(200)),
            None => most,
        };
        if self.net.deliver(side, max) {
            let mut end = self.script.end(1);
            end.begin(&mut self.net, self.now);
            self.ends[1] = Some(end);
        }
        let arrived = self.net.socks[side].arrived;
        match self.script.reset {
            Some((dir, at, victim)) if dir == side && arrived == at && !self.was_reset => {
                self.was_reset = true;
                self.net.kill(victim);
            }
            _ => {}
        }
        match self.script.stall {
            Some((dir, at, ms)) if dir == side && arrived == at && at > 0 => {
                if self.stalled_until[side] == 0 {
                    self.stalled_until[side] = self.now + ms;
                }
            }
            _ => {}
        }
        for end in self.ends.iter_mut().flatten() {
            end.callback(&mut self.net);
        }
    }

    /// The next time at which something happens by itself.
    fn next_time(&self) -> Option<u64> {
        let timers = self.ends.iter().flatten().filter_map(End::timer);
        let stalls = [0, 1]
            .into_iter()
            .filter(|side| self.net.can_deliver(*side))
            .map(|side| self.stalled_until[side]);
        let later = |time: &u64| *time > self.now;
        timers
            .chain(stalls.filter(later))
            .chain(self.answer_at.filter(later))
            .chain(self.retry_at.filter(later))
            .min()
    }

    fn pass(&mut self, time: u64) {
        self.now = self.now.max(time);
        for end in self.ends.iter_mut().flatten() {
            if end.timer().is_some_and(|due| due <= self.now) {
                end.queued = true;
            }
        }
    }

    fn run(mut self) -> Self {
        for _ in 0..20_000 {
            let moves = self.moves();
            if moves.is_empty() {
                if let Some(time) = self.next_time() {
                    self.pass(time);
                    continue;
                }
                if [0, 1].into_iter().all(|side| self.is_closed(side)) {
                    return self;
                }
                assert!(!self.told, "ends that do not end: {:?}", self.states());
                self.told = true;
                for end in self.ends.iter_mut().flatten() {
                    end.teardown(Teardown::Local);
                }
                continue;
            }
            if self.rng.is_some() && self.below(50) == 0 {
                // Something takes its time.
                let ms = 1 << self.below(8);
                self.pass(self.now + ms);
            }
            let at = self.below(moves.len());
            self.make(moves[at]);
        }
        panic!("for ever: {:?} {:?}", self.states(), self.script);
    }

    fn states(&self) -> Vec<State> {
        let ends = self.ends.iter().flatten();
        ends.map(|end| end.fsm.state()).collect()
    }

    fn events(&self, side: usize) -> &[Event] {
        self.ends[side].as_ref().map_or(&[], |end| &end.events)
    }

    /// What holds for every script.
    fn check(&self) {
        let script = self.script;
        match self.events(0) {
            [] if script.ready_at.is_some() => {}
            [Event::Failed(Some(_))] | [Event::Connected, Event::Close(_)] => {}
            other => panic!("{other:?} {script:?}"),
        }
        match self.events(1) {
            [] => {}
            [Event::Request] | [Event::Request, Event::Established, Event::Close(_)]
                if script.ready_at.is_none() => {}
            other => panic!("{other:?} {script:?}"),
        }
        if self.events(0).contains(&Event::Connected) {
            assert!(self.events(1).contains(&Event::Established), "{script:?}");
        }
        for side in [0, 1] {
            let Some(end) = &self.ends[side] else {
                continue;
            };
            assert_eq!(end.qp, fsm::State::Error);
            let sent = &script.messages[1 - side];
            assert!(sent.starts_with(&end.got), "wrong bytes: {script:?}");
            if let [Event::Connected | Event::Request, ..] = end.events[..] {
                let said: &[u8] = if side == 0 { b"to A" } else { b"to B" };
                assert_eq!(end.private, said);
            }
        }
    }

    /// What holds if nothing has gone wrong.
    fn check_all_well(&self) {
        self.check();
        let script = self.script;
        let closed = [Event::Connected, Event::Close(None)];
        assert_eq!(self.events(0), closed, "{script:?}");
        let closed = [Event::Request, Event::Established, Event::Close(None)];
        assert_eq!(self.events(1), closed, "{script:?}");
        for side in [0, 1] {
            let got = self.ends[side].as_ref().map(|end| &end.got);
            assert_eq!(got, Some(&script.messages[1 - side]), "{script:?}");
        }
        if script.finale == Finale::Graceful {
            // An orderly close waits for the peer's FIN.
            let end = self.ends[script.closer].as_ref();
            assert_eq!(end.and_then(|end| end.tcp_at_end), Some(Tcp::Over));
        }
    }

    /// Bytes of each direction, all told.
    fn bytes(&self) -> [usize; 2] {
        [0, 1].map(|side| self.net.socks[side].arrived)
    }
}

fn run(script: &Script) -> World<'_> {
    let world = World::new(script).run();
    world.check();
    world
}

/// The settings that make a difference to the handshake.
fn variants() -> Vec<Script> {
    let mut all = Vec::new();
    for (revision, rtr) in [
        (Revision::One, RtrSet::NONE),
        (Revision::Two, RtrSet::NONE),
        (Revision::Two, RtrSet::SEND),
        (Revision::Two, RtrSet::WRITE),
        (Revision::Two, RtrSet::READ),
    ] {
        for closer in [0, 1] {
            let mut script = Script::new();
            script.configs[0] = Config {
                revision,
                rtr,
                ..CONFIG
            };
            script.closer = closer;
            all.push(script);
        }
    }
    all
}

#[test]
fn undisturbed() {
    for script in variants() {
        for finale in [Finale::Graceful, Finale::Destroy] {
            let script = Script {
                finale,
                ..script.clone()
            };
            run(&script).check_all_well();
        }
    }
}

/// The peer of a failed QP hears of it, in both directions.
#[test]
fn terminated() {
    for script in variants() {
        let script = Script {
            finale: Finale::Terminate,
            ..script
        };
        let world = run(&script);
        for side in [0, 1] {
            let last = world.events(side).last();
            assert_eq!(last, Some(&Event::Close(Some(Cause::Protocol))));
        }
    }
}

#[test]
fn rejected() {
    for think in [0, 100, End::patience() - 1] {
        let script = Script {
            accept: Some(false),
            think,
            ..Script::new()
        };
        let world = run(&script);
        assert_eq!(world.events(0), [Event::Failed(Some(Cause::Rejected))]);
        assert_eq!(world.events(1), [Event::Request]);
    }
}

/// A consumer that never answers, or too late for the peer.
#[test]
fn unanswered() {
    for accept in [None, Some(true), Some(false)] {
        let script = Script {
            accept,
            think: End::patience() + 1,
            ..Script::new()
        };
        let world = run(&script);
        assert_eq!(world.events(0), [Event::Failed(Some(Cause::TimedOut))]);
        assert_eq!(world.events(1), [Event::Request]);
    }
}

/// Handshakes and streams cut behind every byte; handshakes in both directions at once.
#[test]
fn cut_anywhere() {
    for script in variants() {
        let bytes = run(&script).bytes();
        for a in 0..=bytes[0] {
            // A frame with what is enhanced and private in it has 28 bytes.
            let most = match a {
                0 => bytes[1],
                1..=30 if script.closer == 0 => 30,
                _ => 0,
            };
            for b in 0..=most {
                let script = Script {
                    cut: [Some(a), Some(b)],
                    ..script.clone()
                };
                World::new(&script).run().check_all_well();
            }
        }
    }
}

/// The connection is lost behind every byte of either direction, at either end.
#[test]
fn reset_anywhere() {
    for script in variants() {
        let bytes = run(&script).bytes();
        for dir in [0, 1] {
            for at in 1..=bytes[dir] {
                for victim in [0, 1] {
                    let script = Script {
                        reset: Some((dir, at, victim)),
                        ..script.clone()
                    };
                    run(&script);
                }
            }
        }
    }
}

/// The stream stands still behind every byte, for a moment and for longer than anybody waits.
#[test]
fn stalled_anywhere() {
    for script in variants() {
        let bytes = run(&script).bytes();
        for dir in [0, 1] {
            for at in 1..=bytes[dir] {
                for ms in [50, 400, 2_000, 70_000] {
                    let script = Script {
                        stall: Some((dir, at, ms)),
                        ..script.clone()
                    };
                    let world = run(&script);
                    if ms <= 400 {
                        world.check_all_well();
                    }
                }
            }
        }
    }
}

/// An end is told to end, in every way, after every move.
#[test]
fn ended_at_any_time() {
    for script in variants() {
        let moves = World::new(&script).run().moves;
        for at in 0..moves {
            for side in [0, 1] {
                for how in [
                    Teardown::Graceful,
                    Teardown::Local,
                    Teardown::Terminate,
                    Teardown::Abort(Errno::Invalid),
                ] {
                    let script = Script {
                        ended: Some((at, side, how)),
                        ..script.clone()
                    };
                    run(&script);
                }
            }
        }
    }
}

/// Without an RTR message a responder that has nothing to wait for speaks after a moment; with one
/// it is silent until that has come, and a peer that sends none loses the connection.
#[test]
fn silent_responder() {
    let mut script = Script::new();
    script.messages[0].clear();
    script.closer = 1;
    script.finale = Finale::None;
    let world = run(&script);
    assert_eq!(world.ends[0].as_ref().map(|end| end.got.len()), Some(2));

    script.configs[0].rtr = RtrSet::WRITE;
    let world = run(&script);
    assert_eq!(world.ends[0].as_ref().map(|end| end.got.len()), Some(2));
    // The RTR follows the request, whose 28 bytes arrive.
    script.stall = Some((0, 28, 30_000));
    let world = run(&script);
    assert_eq!(world.ends[0].as_ref().map(|end| end.got.len()), Some(0));
    let timed_out = Event::Close(Some(Cause::TimedOut));
    assert_eq!(world.events(1).last(), Some(&timed_out));
}

/// A consumer whose backlog is full for a while gets the request when there is room.
#[test]
fn full_backlog() {
    for full_until in [1, 50, 70, 400, 9_000] {
        let script = Script {
            full_until,
            ..Script::new()
        };
        World::new(&script).run().check_all_well();
    }
    let script = Script {
        full_until: u64::MAX,
        ..Script::new()
    };
    let world = run(&script);
    assert!(matches!(world.events(0), [Event::Failed(_)]));
    assert_eq!(world.events(1), []);
}

/// The place of a connection is needed, after every move: one that the consumer knows of stays.
#[test]
fn evicted_at_any_time() {
    for full_until in [0, 400] {
        let script = Script {
            full_until,
            ..Script::new()
        };
        let moves = World::new(&script).run().moves;
        for at in 0..moves {
            let script = Script {
                evicted: Some(at),
                ..script.clone()
            };
            let world = run(&script);
            match world.events(1) {
                [] => assert!(matches!(world.events(0), [Event::Failed(_)])),
                _ => world.check_all_well(),
            }
        }
    }
}

/// A pair without a connection manager: one end connects until the QP of the other one waits. No
/// consumer hears of it.
#[test]
fn pairs() {
    for ready_at in [0, 1, 250, 5_000] {
        for closer in [0, 1] {
            let script = Script {
                closer,
                ..Script::pair(ready_at)
            };
            let world = run(&script);
            assert_eq!(world.retries as u64, ready_at.div_ceil(PAUSE));
            for side in [0, 1] {
                let end = world.ends[side].as_ref().unwrap();
                assert_eq!(end.got, script.messages[1 - side], "{script:?}");
                assert!(!end.retries, "it has had its peer: {script:?}");
                // The QP whose peer goes stays as it is.
                let left = (side != closer).then_some(SocketEnd::Fin);
                assert_eq!(end.left, left, "{script:?}");
            }
        }
    }
}

/// A QP of a pair that goes on sending learns that its peer is gone.
#[test]
fn pair_in_vain() {
    for posts_in_vain in [false, true] {
        let script = Script {
            posts_in_vain,
            ..Script::pair(0)
        };
        let world = run(&script);
        assert_eq!(world.told, !posts_in_vain);
    }
}

/// The connection of a pair is lost behind every byte, and an end is told to end after every move.
#[test]
fn pair_lost_at_any_time() {
    let script = Script::pair(0);
    let world = run(&script);
    for dir in [0, 1] {
        for at in 1..=world.bytes()[dir] {
            for victim in [0, 1] {
                let script = Script {
                    reset: Some((dir, at, victim)),
                    ..script.clone()
                };
                run(&script);
            }
        }
    }
    for at in 0..world.moves {
        for side in [0, 1] {
            for how in [Teardown::Local, Teardown::Abort(Errno::Invalid)] {
                let script = Script {
                    ended: Some((at, side, how)),
                    ..script.clone()
                };
                run(&script);
            }
        }
    }
}

/// All of it at once, drawn.
#[test]
fn random() {
    for seed in 0..5_000 {
        let mut rng = Rng::new(seed);
        let variants = variants();
        let mut script = variants[rng.below(variants.len() as u64) as usize].clone();
        script.seed = Some(seed);
        script.configs[1].crc = rng.below(2) == 0;
        script.configs[0].crc = rng.below(2) == 0;
        script.configs[0].send_imm = rng.below(4) != 0;
        script.configs[1].send_imm = rng.below(4) != 0;
        for messages in &mut script.messages {
            *messages = (0..rng.below(6))
                .map(|_| {
                    let len = rng.below(300) as usize;
                    rng.bytes(len)
                })
                .collect();
        }
        script.think = rng.below(2) * rng.below(500);
        script.finale = [
            Finale::Graceful,
            Finale::Destroy,
            Finale::Terminate,
            Finale::None,
        ][rng.below(4) as usize];
        let (dir, at) = (rng.below(2) as usize, 1 + rng.below(600) as usize);
        match rng.below(6) {
            0 => script.reset = Some((dir, at, rng.below(2) as usize)),
            1 => script.stall = Some((dir, at, 1 << rng.below(17))),
            2 => script.ended = Some((rng.below(60) as usize, dir, Teardown::Graceful)),
            3 => script.accept = [Some(false), None][rng.below(2) as usize],
            _ => {}
        }
        let quiet = script.reset.is_none() && script.stall.is_none() && script.ended.is_none();
        let world = run(&script);
        let orderly = matches!(script.finale, Finale::Graceful | Finale::Destroy);
        if quiet && orderly && script.accept == Some(true) {
            world.check_all_well();
        }
    }
}
