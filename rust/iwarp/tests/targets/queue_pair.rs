// SPDX-License-Identifier: GPL-2.0

//! A queue pair in any order of events: work requests complete in the order they were posted, each
//! once; Reads stay within their depths; a state machine that has ended does not begin again.

use super::Input;
use iwarp::{
    error::Error,
    qp::{
        credits::{
            Gate,
            ReadCredits, //
        },
        delivery::{
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
        },
        owner::{
            self,
            Action,
            Leave,
            Phase,
            Wake, //
        }, //
    }, //
};
use std::collections::VecDeque;

/// A posted work request.
#[derive(Clone, Copy)]
struct Wr {
    id: u32,
    read: bool,
    fence: bool,
    zero_copy: bool,
    len: u32,
}

struct Sim {
    state: State,
    connected: bool,
    credits: ReadCredits,
    ird: u16,
    ord: u16,
    posted: u32,
    sq: VecDeque<Wr>,
    fifo: VecDeque<(u32, Entry)>,
    /// Reads without a response, and Reads of the peer.
    reads: VecDeque<u32>,
    requests: u16,
    /// The next number expected to complete, and whether those are flushed already.
    completed: u32,
    flushed: bool,
    /// Bytes handed to TCP and acknowledged, as sequence numbers with all their bits, and what is
    /// known of that.
    sent: u64,
    acked: u64,
    progress: Progress,
    word: u32,
    /// Times the transmit side is on a list: 0 or 1.
    queued: u8,
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (ird, ord) = (u16::from(input.u8() % 5), u16::from(input.u8() % 5));
    let start = input.u32();
    let rule = if start & 1 == 0 { Rule::Hsn } else { Rule::Eql };
    let mut progress = Progress::new(rule);
    progress.handed(start.into(), start);
    progress.sent(Sent {
        una: start,
        next: start,
    });
    let mut sim = Sim {
        state: State::Idle,
        connected: false,
        credits: ReadCredits::new(ird, ord),
        ird,
        ord,
        posted: 0,
        sq: VecDeque::new(),
        fifo: VecDeque::new(),
        reads: VecDeque::new(),
        requests: 0,
        completed: 0,
        flushed: false,
        sent: u64::from(start),
        acked: u64::from(start),
        progress,
        word: owner::INITIAL,
        queued: 0,
    };
    while !input.is_empty() {
        sim.operation(&mut input);
        sim.check();
    }
    sim.end();
}

impl Sim {
    fn operation(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0 => {
                let wr = Wr {
                    id: self.posted,
                    read: input.flag(),
                    fence: input.below(4) == 0,
                    zero_copy: input.flag(),
                    len: match input.below(4) {
                        0 => input.u32() >> 1,
                        _ => u32::from(input.u16()),
                    },
                };
                self.posted += 1;
                if self.flushed {
                    // Posted to a dead queue pair: flushed behind the others.
                    self.complete(wr.id);
                } else {
                    self.sq.push_back(wr);
                }
                self.kick(Wake::Post, input.flag());
            }
            1 => self.kick(Wake::Unblock, false),
            2 => self.kick(Wake::Space, input.flag()),
            3 | 4 => self.run(input.flag()),
            5 => {
                // Acknowledged: all, or a part; TCP never has more than 31 bits can count. An old
                // number may come after it.
                let upto = self.acked + u64::from(input.u32() & 0x7fff_fe00);
                let upto = upto
                    .min(self.sent)
                    .max(self.sent.saturating_sub(0x7fff_ffff));
                let old = self.acked.saturating_sub(u64::from(input.u8()));
                let old = old.max(self.sent.saturating_sub(0x7fff_ffff));
                self.acked = self.acked.max(upto);
                for una in [self.acked, old] {
                    self.progress.sent(Sent {
                        una: una as u32,
                        next: self.sent as u32,
                    });
                }
                self.retire();
            }
            6 => self.response(),
            7 => {
                let before = self.credits.pending();
                let result = self.credits.accept();
                if before == self.ird {
                    assert_eq!(result, Err(Error::NoReadSlot));
                } else {
                    assert_eq!(result, Ok(()));
                    self.requests += 1;
                    self.kick(Wake::ReadRequest, input.flag());
                }
            }
            8 => {
                if self.requests > 0 {
                    self.requests -= 1;
                }
                // Not one too many, even if there was none.
                self.credits.responded();
            }
            9 => self.stop(),
            _ => self.event(input),
        }
    }

    fn kick(&mut self, wake: Wake, direct: bool) {
        let step = owner::kick(self.word, wake, direct);
        self.word = step.next;
        match step.action {
            Action::Run => self.own(Leave::Idle),
            Action::Enqueue => self.queued += 1,
            Action::None => {}
            other => panic!("{other:?}"),
        }
    }

    /// A datamover's turn.
    fn run(&mut self, more: bool) {
        if self.queued == 0 {
            return;
        }
        self.queued -= 1;
        let step = owner::take(self.word);
        self.word = step.next;
        match step.action {
            Action::Run => self.own(if more { Leave::Budget } else { Leave::Space }),
            Action::Stopped => {}
            other => panic!("{other:?}"),
        }
    }

    fn own(&mut self, why: Leave) {
        let blocked = self.send();
        let why = if blocked { Leave::Blocked } else { why };
        let step = owner::leave(self.word, why);
        self.word = step.next;
        match step.action {
            Action::Enqueue => self.queued += 1,
            Action::Released | Action::Stopped => {}
            other => panic!("{other:?}"),
        }
    }

    /// Takes work requests from the SQ until one has to wait; whether one has.
    fn send(&mut self) -> bool {
        if self.state != State::Rts {
            return false;
        }
        while let Some(wr) = self.sq.front().copied() {
            let out = self.reads.len();
            let expect = match (wr.read, wr.fence) {
                (true, _) if self.ord == 0 => Gate::Never,
                (_, true) if out != 0 => Gate::WaitFence,
                (true, _) if out == usize::from(self.ord) => Gate::WaitSlot,
                _ => Gate::Go,
            };
            assert_eq!(self.credits.gate(wr.read, wr.fence), expect);
            match expect {
                Gate::Go => {}
                Gate::Never => {
                    self.fail();
                    return false;
                }
                Gate::WaitSlot => {
                    // Nor is there one for who does not ask.
                    assert!(!self.credits.try_start());
                    return true;
                }
                Gate::WaitFence => return true,
            }
            self.sq.pop_front();
            if wr.read {
                assert!(self.credits.try_start());
                self.reads.push_back(wr.id);
            }
            self.sent += u64::from(wr.len) + 20;
            self.progress.handed(self.sent, self.sent as u32);
            let entry = Entry {
                end: self.sent,
                awaits_ack: wr.zero_copy && !wr.read,
                under_way: wr.read,
                held: false,
            };
            self.fifo.push_back((wr.id, entry));
            self.retire();
        }
        false
    }

    fn response(&mut self) {
        let Some(id) = self.reads.pop_front() else {
            // Nobody asked: the count stays at nothing.
            self.credits.finish();
            return;
        };
        self.credits.finish();
        for (other, entry) in &mut self.fifo {
            if *other == id {
                entry.under_way = false;
            }
        }
        self.retire();
        self.kick(Wake::Unblock, true);
    }

    fn retire(&mut self) {
        while let Some((id, entry)) = self.fifo.front().copied() {
            let held = entry.under_way || (entry.awaits_ack && entry.end > self.acked);
            assert_eq!(may_retire(&entry, &self.progress), !held);
            if held {
                return;
            }
            self.fifo.pop_front();
            self.complete(id);
        }
    }

    fn complete(&mut self, id: u32) {
        assert_eq!(id, self.completed);
        self.completed += 1;
    }

    /// Ends all sending; nobody owns the transmit side between two operations.
    fn stop(&mut self) {
        let step = owner::stop(self.word);
        self.word = step.next;
        assert_eq!(step.action, Action::Stopped);
        assert_eq!(owner::phase(self.word), Phase::Stopped);
        // A datamover that has it on its list finds nothing to do.
        self.run(false);
    }

    fn flush(&mut self) {
        self.flushed = true;
        self.stop();
        while let Some((id, _)) = self.fifo.pop_front() {
            self.complete(id);
        }
        self.reads.clear();
        while let Some(wr) = self.sq.pop_front() {
            self.complete(wr.id);
        }
        self.credits = ReadCredits::new(0, 0);
        (self.ird, self.ord, self.requests) = (0, 0, 0);
    }

    fn facts(&self) -> Facts {
        Facts {
            sq_busy: !self.sq.is_empty() || !self.fifo.is_empty(),
            connected: self.connected,
        }
    }

    /// A request that cannot be done ends the stream. The owner is still at it, so what follows
    /// from that happens later.
    fn fail(&mut self) {
        let (next, actions) = step(self.state, Event::TerminateDue, self.facts()).unwrap();
        assert_eq!(next, State::Terminate);
        assert_eq!(actions, Actions::SEND_TERMINATE);
        self.state = next;
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let states = [
            State::Idle,
            State::Rtr,
            State::Rts,
            State::Closing,
            State::Terminate,
            State::Error,
        ];
        let event = match input.below(13) {
            0..7 => Event::Established,
            7 => Event::PeerClosed,
            8 => Event::PeerTerminate,
            9 => Event::TerminateDue,
            10 => Event::LlpLost,
            11 => Event::Closed,
            _ => Event::Modify(states[input.below(6)]),
        };
        // A stream comes up once.
        if event == Event::Established && matches!(self.state, State::Idle | State::Rtr) {
            self.connected = true;
        }
        let before = self.state;
        let alive = matches!(before, State::Rts | State::Closing | State::Terminate);
        let (after, actions) = match step(before, event, self.facts()) {
            Ok(done) => done,
            Err(Invalid::NotConnected) => {
                assert!(!self.connected && event == Event::Modify(State::Rts));
                return;
            }
            Err(Invalid::NoSuchChange) => {
                assert!(matches!(event, Event::Modify(_)));
                return;
            }
            Err(Invalid::Busy) => unreachable!("no control operation has failed"),
            Err(Invalid::Closing) => {
                assert!(before == State::Closing && matches!(event, Event::Modify(_)));
                return;
            }
        };
        let has = |what| actions.contains(what);
        let ends = Actions::CLOSE_GRACEFUL
            .union(Actions::ABORT)
            .union(Actions::SEND_TERMINATE);
        // Dead is dead, and is shown to be so once.
        if before == State::Error {
            assert_eq!(after, State::Error);
            assert!(!has(Actions::START_STREAM) && !has(Actions::ABORT));
            assert!(actions.is_empty() || event == Event::Closed);
        }
        if after == State::Error && before != State::Error {
            assert!(has(Actions::FLUSH_SQ) && has(Actions::FLUSH_RQ));
            let down = has(Actions::ABORT) || has(Actions::CLOSE_GRACEFUL);
            assert!(down || !self.connected || event == Event::Closed);
        }
        if has(Actions::START_STREAM) {
            assert!(self.connected && !alive && after == State::Rts);
        } else {
            assert!(after != State::Rts || before == State::Rts);
        }
        if has(Actions::SEND_TERMINATE) {
            assert!(after == State::Terminate && !has(Actions::FLUSH_SQ));
        }
        if !self.connected {
            assert!(![ends, Actions::START_STREAM].iter().any(|some| has(*some)));
        }
        assert_eq!(
            has(Actions::UPCALL_CLOSE),
            event == Event::Closed && (alive || before == State::Error)
        );
        assert_eq!(State::from_ib(after.to_ib()), Some(after));

        self.state = after;
        if has(Actions::START_STREAM) {
            self.kick(Wake::Open, input.flag());
        }
        if has(Actions::FLUSH_SQ) {
            self.flush();
        }
        if event == Event::Closed {
            self.connected = false;
        }
    }

    fn check(&self) {
        assert!(self.queued <= 1);
        let phase = owner::phase(self.word);
        assert!(!matches!(phase, Phase::Direct | Phase::Running));
        assert_eq!(phase == Phase::Queued, self.queued == 1);
        assert!(self.credits.outstanding() <= self.ord);
        assert!(self.credits.pending() <= self.ird);
        assert_eq!(usize::from(self.credits.outstanding()), self.reads.len());
        assert_eq!(self.credits.pending(), self.requests);
        let open = self.sq.len() + self.fifo.len();
        assert_eq!(self.completed as usize + open, self.posted as usize);
        if self.flushed {
            assert_eq!((open, self.state), (0, State::Error));
            assert_eq!(phase, Phase::Stopped);
        }
    }

    /// In the end nothing stays behind.
    fn end(&mut self) {
        let (_, actions) = step(self.state, Event::Modify(State::Error), self.facts()).unwrap();
        assert!(self.state == State::Error || actions.contains(Actions::FLUSH_SQ));
        self.state = State::Error;
        self.flush();
        self.check();
        assert_eq!(self.completed, self.posted);
    }
}
