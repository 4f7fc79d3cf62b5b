// SPDX-License-Identifier: GPL-2.0

//! The transmit token under every interleaving of its users, one shared access at a time.
//!
//! Each actor is a little program; a step reads or changes one shared word. All orders of steps are
//! tried. Always: at most one owner. In the end: nothing is left to send, unless sending was
//! stopped, and then it really was.

use iwarp::qp::owner::{
    is_stopping,
    kick,
    leave,
    phase,
    resume,
    stop,
    suspend,
    take,
    Action,
    Leave,
    Phase,
    Step,
    Wake,
    INITIAL, //
};
use std::collections::HashSet;

/// What the actors share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shared {
    word: u32,
    posted: u8,
    requests: u8,
    space: bool,
    fenced: bool,
    /// Entries on the datamover's list.
    list: u8,
    /// Sending is suspended in between. Then an entry of the list may find nothing, and serve once
    /// more.
    suspends: bool,
}

/// Where an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Makes the change it then kicks for.
    Publish(Cause),
    Kick(Wake, bool),
    KickStore(Wake, bool, u32),
    /// The owner looks: Read Requests, posted work, fence, space.
    Look,
    LookPosted,
    LookFence,
    /// Space for a response, or for posted work.
    LookSpace(bool),
    Send(bool),
    Leave(Leave),
    LeaveStore(Leave, u32),
    RetestSpace,
    /// The datamover, waiting for its list.
    Idle,
    Take,
    TakeStore(u32),
    Stop,
    StopStore(u32),
    AwaitStopped,
    Suspend,
    SuspendStore(u32),
    AwaitSuspended,
    Resume,
    ResumeStore(u32),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Post(bool),
    Request(bool),
    Space,
    Unfence,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Actor {
    at: At,
    mover: bool,
    owner: bool,
    /// FPDUs it may send before its turn is over.
    budget: u8,
}

const TURN: u8 = 2;

impl Actor {
    fn new(at: At) -> Self {
        Self {
            at,
            mover: at == At::Idle,
            owner: false,
            budget: TURN,
        }
    }

    fn rest(&mut self) {
        self.owner = false;
        self.at = if self.mover { At::Idle } else { At::Done };
    }

    fn follow(&mut self, step: Step, why: Option<Leave>, s: &mut Shared) {
        match step.action {
            Action::None => self.rest(),
            Action::Run => {
                self.owner = true;
                self.budget = TURN;
                self.at = At::Look;
            }
            Action::Enqueue => {
                s.list = if s.suspends { 1 } else { s.list + 1 };
                self.rest();
            }
            Action::Again => self.at = At::Look,
            Action::Released => {
                self.rest();
                if why == Some(Leave::Space) {
                    self.at = At::RetestSpace;
                }
            }
            Action::Stopped => self.rest(),
            Action::Wait => self.at = At::AwaitStopped,
        }
    }

    /// One step; `false` if it cannot take one now.
    fn step(&mut self, s: &mut Shared) -> bool {
        let stopping = self.owner && is_stopping(s.word);
        match self.at {
            At::Publish(cause) => {
                let (wake, direct) = match cause {
                    Cause::Post(direct) => (Wake::Post, direct),
                    Cause::Request(direct) => (Wake::ReadRequest, direct),
                    Cause::Space => (Wake::Space, false),
                    Cause::Unfence => (Wake::Unblock, false),
                    Cause::Open => (Wake::Open, false),
                };
                match cause {
                    Cause::Post(_) => s.posted += 1,
                    Cause::Request(_) => s.requests += 1,
                    Cause::Space => s.space = true,
                    Cause::Unfence => s.fenced = false,
                    Cause::Open => {}
                }
                self.at = At::Kick(wake, direct);
            }
            At::Kick(wake, direct) => self.at = At::KickStore(wake, direct, s.word),
            At::KickStore(wake, direct, seen) => {
                if s.word != seen {
                    self.at = At::Kick(wake, direct);
                } else {
                    let step = kick(seen, wake, direct);
                    s.word = step.next;
                    self.follow(step, None, s);
                }
            }
            At::Look if stopping || self.budget == 0 => self.at = At::Leave(Leave::Budget),
            At::Look if s.requests > 0 => self.at = At::LookSpace(true),
            At::Look => self.at = At::LookPosted,
            At::LookPosted if s.posted == 0 => self.at = At::Leave(Leave::Idle),
            At::LookPosted => self.at = At::LookFence,
            At::LookFence if s.fenced => self.at = At::Leave(Leave::Blocked),
            At::LookFence => self.at = At::LookSpace(false),
            At::LookSpace(response) if s.space => self.at = At::Send(response),
            At::LookSpace(_) => self.at = At::Leave(Leave::Space),
            At::Send(true) => {
                s.requests -= 1;
                self.budget -= 1;
                self.at = At::Look;
            }
            At::Send(false) => {
                s.posted -= 1;
                self.budget -= 1;
                self.at = At::Look;
            }
            At::Leave(why) => self.at = At::LeaveStore(why, s.word),
            At::LeaveStore(why, seen) => {
                if s.word != seen {
                    self.at = At::Leave(why);
                } else {
                    let step = leave(seen, why);
                    s.word = step.next;
                    self.follow(step, Some(why), s);
                }
            }
            At::RetestSpace if s.space => self.at = At::Kick(Wake::Space, false),
            At::RetestSpace => self.rest(),
            At::Idle if s.list == 0 => return false,
            At::Idle => {
                s.list -= 1;
                self.at = At::Take;
            }
            At::Take => self.at = At::TakeStore(s.word),
            At::TakeStore(seen) => {
                if s.word != seen {
                    self.at = At::Take;
                } else {
                    let step = take(seen);
                    // The list holds words that were queued only, and each once.
                    let found = step.action != Action::None;
                    assert!(found || s.suspends, "{:?}", phase(seen));
                    s.word = step.next;
                    self.follow(step, None, s);
                }
            }
            At::Stop => self.at = At::StopStore(s.word),
            At::StopStore(seen) => {
                if s.word != seen {
                    self.at = At::Stop;
                } else {
                    let step = stop(seen);
                    s.word = step.next;
                    self.follow(step, None, s);
                }
            }
            At::AwaitStopped => {
                if phase(s.word) != Phase::Stopped {
                    return false;
                }
                self.at = At::Done;
            }
            At::Suspend => self.at = At::SuspendStore(s.word),
            At::SuspendStore(seen) => {
                if s.word != seen {
                    self.at = At::Suspend;
                } else {
                    let step = suspend(seen);
                    s.word = step.next;
                    self.at = match step.action {
                        Action::Released => At::Resume,
                        Action::Wait => At::AwaitSuspended,
                        action => {
                            assert_eq!(action, Action::Stopped);
                            At::Done
                        }
                    };
                }
            }
            At::AwaitSuspended => {
                if matches!(phase(s.word), Phase::Direct | Phase::Running) {
                    return false;
                }
                self.at = At::Suspend;
            }
            At::Resume => self.at = At::ResumeStore(s.word),
            At::ResumeStore(seen) => {
                if s.word != seen {
                    self.at = At::Resume;
                } else {
                    let step = resume(seen);
                    s.word = step.next;
                    self.follow(step, None, s);
                }
            }
            At::Done => return false,
        }
        true
    }
}

struct Explorer {
    seen: HashSet<(Shared, Vec<Actor>)>,
    ends: usize,
    stopped: bool,
}

impl Explorer {
    fn run(start: Shared, actors: &[At], stopped: bool) -> usize {
        let mut actors: Vec<_> = actors.iter().copied().map(Actor::new).collect();
        actors.push(Actor::new(At::Idle));
        let mut explorer = Self {
            seen: HashSet::new(),
            ends: 0,
            stopped,
        };
        let mut todo = vec![(start, actors)];
        while let Some((shared, actors)) = todo.pop() {
            explorer.visit(shared, &actors, &mut todo);
        }
        assert!(explorer.ends > 0);
        explorer.seen.len()
    }

    fn visit(&mut self, shared: Shared, actors: &[Actor], todo: &mut Vec<(Shared, Vec<Actor>)>) {
        let mut stuck = true;
        for i in 0..actors.len() {
            let mut shared = shared;
            let mut actors = actors.to_vec();
            if !actors[i].step(&mut shared) {
                continue;
            }
            stuck = false;
            assert!(
                actors.iter().filter(|a| a.owner).count() <= 1,
                "{shared:?} {actors:?}"
            );
            assert!(shared.list <= 1, "{shared:?} {actors:?}");
            if matches!(phase(shared.word), Phase::Stopped | Phase::Suspended) {
                assert!(!actors.iter().any(|a| a.owner), "{actors:?}");
            }
            if self.seen.insert((shared, actors.clone())) {
                todo.push((shared, actors));
            }
        }
        if stuck {
            self.ends += 1;
            assert_eq!(shared.list, 0);
            for actor in actors {
                let end = if actor.mover { At::Idle } else { At::Done };
                assert_eq!(actor.at, end, "stuck: {shared:?}");
            }
            if self.stopped {
                assert_eq!(phase(shared.word), Phase::Stopped);
            } else {
                assert_eq!((shared.posted, shared.requests), (0, 0), "lost: {shared:?}");
                assert_eq!(phase(shared.word), Phase::Idle);
            }
        }
    }
}

fn shared(word: u32) -> Shared {
    Shared {
        word,
        posted: 0,
        requests: 0,
        space: true,
        fenced: false,
        list: 0,
        suspends: false,
    }
}

/// The word of an idle queue pair: opened, and left again.
fn idle() -> u32 {
    let open = kick(INITIAL, Wake::Open, true);
    assert_eq!(open.action, Action::Run);
    let left = leave(open.next, Leave::Idle);
    assert_eq!(
        (left.action, phase(left.next)),
        (Action::Released, Phase::Idle)
    );
    left.next
}

const POST: At = At::Publish(Cause::Post(true));
const POST_LAZY: At = At::Publish(Cause::Post(false));
const REQUEST: At = At::Publish(Cause::Request(true));
const REQUEST_LAZY: At = At::Publish(Cause::Request(false));
const SPACE: At = At::Publish(Cause::Space);
const UNFENCE: At = At::Publish(Cause::Unfence);
const OPEN: At = At::Publish(Cause::Open);

#[test]
fn posters() {
    Explorer::run(shared(idle()), &[POST, POST, POST], false);
    Explorer::run(shared(idle()), &[POST, POST_LAZY, REQUEST_LAZY], false);
}

#[test]
fn space_comes_back() {
    let start = Shared {
        space: false,
        ..shared(idle())
    };
    Explorer::run(start, &[POST, POST_LAZY, SPACE], false);
    Explorer::run(start, &[POST, REQUEST, SPACE], false);
}

#[test]
fn fence_is_lifted() {
    let start = Shared {
        fenced: true,
        ..shared(idle())
    };
    Explorer::run(start, &[POST, REQUEST, UNFENCE], false);
    Explorer::run(start, &[POST, POST_LAZY, UNFENCE], false);
    let both = Shared {
        space: false,
        ..start
    };
    Explorer::run(both, &[POST, SPACE, UNFENCE], false);
    Explorer::run(both, &[POST_LAZY, REQUEST, SPACE, UNFENCE], false);
}

/// Responses must go out although the SQ waits for one itself.
#[test]
fn responses_pass_a_fence() {
    let start = Shared {
        fenced: true,
        ..shared(idle())
    };
    let mut s = start;
    for at in [POST, REQUEST, At::Idle] {
        let mut actor = Actor::new(at);
        while actor.step(&mut s) {}
    }
    assert_eq!((s.posted, s.requests), (1, 0));
    assert_eq!(phase(s.word), Phase::PausedBlocked);
}

#[test]
fn stream_opens() {
    Explorer::run(shared(INITIAL), &[POST, REQUEST_LAZY, OPEN], false);
}

#[test]
fn stopping() {
    for word in [idle(), INITIAL] {
        for space in [true, false] {
            let start = Shared {
                space,
                ..shared(word)
            };
            Explorer::run(start, &[POST, POST_LAZY, At::Stop], true);
            Explorer::run(start, &[POST, SPACE, At::Stop], true);
            Explorer::run(start, &[OPEN, REQUEST, At::Stop, At::Stop], true);
        }
    }
}

/// What happens while nobody may send is seen to afterwards.
#[test]
fn suspended() {
    let suspends = |word| Shared {
        suspends: true,
        ..shared(word)
    };
    for first in [POST, POST_LAZY] {
        Explorer::run(suspends(idle()), &[first, REQUEST, At::Suspend], false);
        Explorer::run(suspends(idle()), &[first, At::Suspend, At::Stop], true);
    }
    let start = Shared {
        space: false,
        ..suspends(idle())
    };
    Explorer::run(start, &[POST, SPACE, At::Suspend], false);
    let start = Shared {
        fenced: true,
        ..suspends(idle())
    };
    Explorer::run(start, &[POST, UNFENCE, At::Suspend], false);
    // Who resumes need not wait for the peer to begin.
    Explorer::run(suspends(INITIAL), &[POST, At::Suspend], false);
}

/// It may be resumed before the owner has given up.
#[test]
fn not_suspended_after_all() {
    let owned = kick(idle(), Wake::Post, true).next;
    let asked = suspend(owned);
    assert_eq!(asked.action, Action::Wait);
    assert!(is_stopping(asked.next));
    let again = resume(asked.next);
    assert!(!is_stopping(again.next));
    assert_eq!(leave(again.next, Leave::Idle).action, Action::Again);
}

#[test]
fn any_word_is_taken() {
    // Nothing a word may hold upsets the functions, and a stopped one stays so.
    for word in (0..0x1000).chain([u32::MAX]) {
        for wake in [
            Wake::Post,
            Wake::ReadRequest,
            Wake::Space,
            Wake::Unblock,
            Wake::Open,
        ] {
            for direct in [false, true] {
                let step = kick(word, wake, direct);
                if phase(word) == Phase::Stopped {
                    assert_eq!(phase(step.next), Phase::Stopped);
                    assert_eq!(step.action, Action::None);
                }
            }
        }
        for why in [
            Leave::Idle,
            Leave::Space,
            Leave::Blocked,
            Leave::Hold,
            Leave::Budget,
        ] {
            let owned = matches!(phase(word), Phase::Direct | Phase::Running);
            assert_eq!(leave(word, why).action == Action::None, !owned);
        }
        assert_eq!(
            take(word).action == Action::None,
            !matches!(phase(word), Phase::Queued | Phase::Stopped)
        );
        for step in [stop(word), suspend(word)] {
            assert_eq!(
                step.action == Action::Stopped,
                phase(step.next) == Phase::Stopped
            );
        }
        assert_eq!(
            resume(word).action == Action::Enqueue,
            phase(word) == Phase::Suspended
        );
    }
}

#[test]
fn nothing_is_sent_before_the_stream_opens() {
    for wake in [Wake::Post, Wake::ReadRequest, Wake::Space, Wake::Unblock] {
        assert_eq!(
            kick(INITIAL, wake, true),
            Step {
                next: INITIAL,
                action: Action::None
            }
        );
    }
}

#[test]
fn a_note_is_not_lost() {
    let running = take(kick(idle(), Wake::Post, false).next).next;
    assert_eq!(phase(running), Phase::Running);
    let noted = kick(running, Wake::Post, true);
    assert_eq!(noted.action, Action::None);
    assert_eq!(kick(noted.next, Wake::Space, false).next, noted.next);
    for why in [Leave::Idle, Leave::Space, Leave::Blocked, Leave::Hold] {
        assert_eq!(
            leave(noted.next, why),
            Step {
                next: running,
                action: Action::Again
            }
        );
    }
    let queued = leave(noted.next, Leave::Budget);
    assert_eq!(
        (phase(queued.next), queued.action),
        (Phase::Queued, Action::Enqueue)
    );
}
