// SPDX-License-Identifier: GPL-2.0

//! One end: the machines of a connection and of its QP, and the host that performs their actions,
//! as `rust/driver/cm` and `rust/driver/qp` do.

use super::{
    common::{
        region,
        send,
        send_fpdu,
        Receiver,
        BASE, //
    },
    tcp::{
        Net,
        Recv, //
    }, //
};
use iwarp::{
    cm::{
        pair::{
            Fit,
            Hello, //
        },
        Action,
        Cause,
        Deadline,
        End as SocketEnd,
        Endpoint,
        Facts,
        Input,
        Notes,
        Owed,
        Pushed,
        Read,
        Side,
        State,
        Tcp,
        Teardown,
        Timer, //
    },
    error::MpaError,
    mem::{
        atomic::AtomicOp,
        stag::Stag, //
    },
    mpa::{
        rtr_message,
        Config,
        Established,
        Initiator,
        Reply,
        Request,
        Responder,
        Rtr,
        RtrKind,
        MAX_FRAME, //
    },
    qp::fsm,
    rx::{
        Event as Received,
        Expect,
        ReadExpect, //
    },
    tx::{
        Message,
        TxStream, //
    },
    wire::{
        mpa::RtrSet,
        rdmap::With,
        terminate::Terminate, //
    }, //
};
use std::collections::VecDeque;

/// Errors of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Errno {
    Reset,
    Refused,
    Invalid,
    /// The backlog of the consumer is full.
    Full,
}

/// What the consumer hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Request,
    Established,
    Connected,
    Failed(Option<Cause<Errno>>),
    Close(Option<Cause<Errno>>),
}

enum Handshake {
    None,
    Initiator(Box<Initiator>),
    Responder(Box<Responder>),
}

/// How an end of a pair, which has no connection manager, behaves.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// What it says to the other end.
    pub hello: Hello,
    /// When its QP begins to wait for the other end.
    pub ready_at: u64,
    /// It has work requests that nobody answers when the connection is over.
    pub posts_in_vain: bool,
}

/// Who gets what comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    Stream,
    Terminating,
    Closed,
}

pub struct End {
    pub me: usize,
    pub fsm: Endpoint,
    pair: Option<Pair>,
    pub notes: Notes<Errno>,
    hs: Handshake,
    stage: Stage,
    /// The work item is queued.
    pub queued: bool,
    deadline: Option<u64>,
    again: Option<u64>,
    /// Until when the consumer's backlog is full.
    pub full_until: u64,
    pub events: Vec<Event>,
    /// How the socket has ended under a QP that stays.
    pub left: Option<SocketEnd>,
    /// The attempt of a pair has failed, and there is to be another one.
    pub retries: bool,
    /// State of TCP when the endpoint came to its end.
    pub tcp_at_end: Option<Tcp>,
    pub private: Vec<u8>,

    pub qp: fsm::State,
    tx: Option<TxStream>,
    rx: Option<Receiver>,
    held: bool,
    rtr_awaited: bool,
    stopped: bool,
    first_fpdu: bool,
    owed_term: Option<Terminate>,
    /// Encoded, and not taken by TCP.
    backlog: VecDeque<u8>,
    /// Messages to send, and those that have come.
    pub plan: VecDeque<Vec<u8>>,
    pub got: Vec<Vec<u8>>,
    /// Sends may bring Immediate Data.
    send_imm: bool,
    /// The length of a Send, which has come in Immediate Data.
    announced: Option<[u8; 4]>,
    /// Answers to FetchAdds that have come.
    counted: u64,
}

impl End {
    pub fn new(me: usize, config: Config, pair: Option<Pair>, plan: &[Vec<u8>]) -> Self {
        let (side, hs) = match me {
            0 => (
                Side::Active,
                Handshake::Initiator(Box::new(Initiator::new(config))),
            ),
            _ => (
                Side::Passive,
                Handshake::Responder(Box::new(Responder::new(config))),
            ),
        };
        Self {
            me,
            fsm: Endpoint::new(side, pair.is_some()),
            pair,
            notes: Notes::new(),
            hs,
            stage: Stage::Handshake,
            queued: false,
            deadline: None,
            again: None,
            full_until: 0,
            events: Vec::new(),
            left: None,
            retries: false,
            tcp_at_end: None,
            private: Vec::new(),
            // The program of a pair says when its QP is in RTS.
            qp: match pair {
                Some(_) => fsm::State::Rts,
                None => fsm::State::Idle,
            },
            tx: None,
            rx: None,
            held: false,
            rtr_awaited: false,
            stopped: false,
            first_fpdu: false,
            owed_term: None,
            backlog: VecDeque::new(),
            plan: plan.iter().cloned().collect(),
            got: Vec::new(),
            send_imm: false,
            announced: None,
            counted: 0,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.fsm.state() == State::Closed
    }

    pub fn had_stream(&self) -> bool {
        self.tx.is_some()
    }

    /// When the timer is due.
    pub fn timer(&self) -> Option<u64> {
        [self.deadline, self.again].into_iter().flatten().min()
    }

    pub fn begin(&mut self, net: &mut Net, now: u64) {
        let action = self.decide(net, now, Input::Begun(Ok(())));
        self.run(net, now, action);
    }

    pub fn work(&mut self, net: &mut Net, now: u64) {
        self.queued = false;
        self.again = self.again.filter(|again| *again > now);
        self.run(net, now, Action::Look);
        if self.deadline.is_some_and(|deadline| deadline <= now) && !self.is_closed() {
            panic!("an expired deadline does nothing: {:?}", self.fsm);
        }
    }

    /// The listener needs the place.
    pub fn evict(&mut self, net: &mut Net, now: u64) {
        let action = self.decide(net, now, Input::Evict);
        self.run(net, now, action);
    }

    pub fn teardown(&mut self, how: Teardown<Errno>) {
        self.notes.raise(how);
        self.queued = true;
    }

    /// The consumer closes: `modify_qp(SQD)`.
    pub fn disconnect(&mut self) {
        let actions = self.step_qp(fsm::Event::Modify(fsm::State::Closing));
        if let Some(true) = actions.map(|a| a.contains(fsm::Actions::CLOSE_GRACEFUL)) {
            self.teardown(Teardown::Graceful);
        } else {
            self.teardown(Teardown::Local);
        }
    }

    /// The consumer finds an error that the peer has to hear of.
    pub fn break_off(&mut self) {
        let code = iwarp::error::Error::Mpa(MpaError::LocalCatastrophic).terminate();
        self.fail(
            fsm::Event::TerminateDue,
            code.map(Terminate::bare),
            Teardown::Terminate,
        );
    }

    /// The consumer answers the request.
    pub fn answer(&mut self, net: &mut Net, now: u64, accept: bool, private: &[u8]) {
        let mut frame = [0; MAX_FRAME];
        let input = if accept { Input::Accept } else { Input::Reject };
        let action = self.decide(net, now, input);
        let Handshake::Responder(machine) = &self.hs else {
            assert_eq!(action, Action::Decline);
            return;
        };
        let outcome = match action {
            Action::Answer => {
                let (len, est) = machine.accept(4, 4, private, &mut frame).unwrap();
                let sent = match net.state(self.me) {
                    Tcp::Established => {
                        self.start(&est);
                        self.send_frame(net, &frame[..len])
                    }
                    _ => Err(Errno::Reset),
                };
                if sent.is_ok() {
                    self.stage = Stage::Stream;
                    self.events.push(Event::Established);
                    self.hs = Handshake::None;
                }
                Input::Answered(sent.map(|()| est))
            }
            Action::Refuse => {
                let len = machine.reject(private, &mut frame).unwrap();
                let sent = self.send_frame(net, &frame[..len]);
                self.stage = Stage::Closed;
                Input::Refused(sent)
            }
            other => {
                assert_eq!(other, Action::Decline);
                return;
            }
        };
        let action = self.decide(net, now, outcome);
        self.run(net, now, action);
        self.data_ready(net);
    }

    /// Bytes, or a change of state, have arrived: the socket's callbacks.
    pub fn callback(&mut self, net: &mut Net) {
        let sock = &net.socks[self.me];
        if sock.was_reset && self.stage != Stage::Closed {
            self.notes.note(Cause::Host(Errno::Reset));
        }
        self.queued = true;
        self.data_ready(net);
        self.transmit(net);
    }

    fn decide(&mut self, net: &Net, now: u64, input: Input<Errno>) -> Action {
        let facts = Facts {
            tcp: net.state(self.me),
            asked: self.notes.asked(),
            expired: self.deadline.is_some_and(|deadline| deadline <= now),
            first_fpdu: self.first_fpdu,
            listening: true,
            vain: self.notes.vain(),
        };
        let step = self.fsm.step(facts, input);
        if let Some(cause) = step.note {
            self.notes.note(cause);
        }
        match step.timer {
            Timer::Keep => {}
            Timer::Set(deadline) => self.deadline = Some(now + u64::from(deadline.ms())),
            Timer::Stop => self.deadline = None,
        }
        step.action
    }

    fn run(&mut self, net: &mut Net, now: u64, mut action: Action) {
        for _ in 0..100 {
            match self.perform(net, now, action) {
                Some(outcome) => action = self.decide(net, now, outcome),
                None => return,
            }
        }
        panic!("no rest: {:?}", self.fsm);
    }

    fn perform(&mut self, net: &mut Net, now: u64, action: Action) -> Option<Input<Errno>> {
        let last = matches!(action, Action::Look | Action::Wait | Action::Finish { .. });
        assert!(last || !self.is_closed(), "{action:?} after the end");
        Some(match action {
            Action::Wait => return None,
            Action::WaitFor(ms) => {
                self.again = Some(now + u64::from(ms));
                return None;
            }
            Action::Look => Input::Look,
            Action::SendRequest => {
                let Handshake::Initiator(machine) = &self.hs else {
                    return Some(Input::RequestSent(Err(Errno::Invalid)));
                };
                let mut frame = [0; MAX_FRAME];
                let hello = self.pair.map(|pair| pair.hello.emit());
                let private = hello.as_ref().map_or(&b"to B"[..], |hello| hello);
                let len = machine.request(private, &mut frame).unwrap();
                Input::RequestSent(self.send_frame(net, &frame[..len]))
            }
            Action::ReadError => Input::SocketError(Errno::Refused),
            Action::ReadReply => Input::Reply(self.read_reply(net)),
            Action::ReadRequest => Input::Request(self.read_request(net)),
            Action::SendTerminate(_) => Input::TerminateSent(false),
            Action::Start(est) => {
                self.start(&est);
                self.stage = Stage::Stream;
                self.data_ready(net);
                self.transmit(net);
                Input::Started(Ok(()))
            }
            Action::ReportConnected => {
                self.events.push(Event::Connected);
                Input::Reported(Ok(()))
            }
            Action::Join(est) => self.join(net, &est),
            Action::Meet => Input::Met(self.meet(net, now)),
            Action::Refuse => {
                let Handshake::Responder(machine) = &self.hs else {
                    return Some(Input::Refused(Err(Errno::Invalid)));
                };
                let mut frame = [0; MAX_FRAME];
                let len = machine.reject(&[], &mut frame).unwrap();
                let sent = self.send_frame(net, &frame[..len]);
                self.stage = Stage::Closed;
                Input::Refused(sent)
            }
            Action::LeaveAlone(end) => {
                self.leave_alone(net, end);
                Input::Look
            }
            Action::Offer if now < self.full_until => Input::Offered(Err(Errno::Full)),
            Action::Offer => {
                self.events.push(Event::Request);
                Input::Offered(Ok(()))
            }
            Action::EndHold => {
                assert!(!self.rtr_awaited || self.first_fpdu);
                self.held = false;
                self.transmit(net);
                return None;
            }
            Action::Settle { late } => {
                self.data_ready(net);
                let unread = !net.socks[self.me].inbox.is_empty();
                Input::Settled { late, unread }
            }
            Action::StreamOver { event, how } => {
                self.step_qp(event);
                self.notes.ask(how);
                Input::Look
            }
            Action::Quiesce(how) => {
                self.stopped = true;
                let unsent = net.unacked(self.me);
                Input::Quiesced { how, unsent }
            }
            Action::BeginTerminate => Input::TerminateReady(self.begin_terminate()),
            Action::PushTerminate => Input::Pushed(self.push(net)),
            Action::SendFin => {
                self.stage = Stage::Closed;
                net.shutdown(self.me);
                Input::FinSent(true)
            }
            Action::Peek => Input::Unread(!net.socks[self.me].inbox.is_empty()),
            Action::Finish { end, owed } => {
                self.finish(net, end, owed);
                return None;
            }
            other => panic!("{other:?} is not for `perform`"),
        })
    }

    /// The connecting end of a pair: the other one has answered.
    fn join(&mut self, net: &mut Net, est: &Established) -> Input<Errno> {
        let (Some(pair), Some(theirs)) = (self.pair, Hello::parse(&self.private)) else {
            panic!("accepted by a stranger");
        };
        assert_eq!(pair.hello.fits(&theirs), Fit::Yes);
        self.start(est);
        self.stage = Stage::Stream;
        self.data_ready(net);
        self.transmit(net);
        Input::Joined {
            claimed: true,
            result: Ok(()),
        }
    }

    /// The accepting end of a pair: lets the other one in, if the QP waits for it.
    fn meet(&mut self, net: &mut Net, now: u64) -> Option<Result<(), Errno>> {
        let pair = self.pair.filter(|pair| pair.ready_at <= now)?;
        let theirs = Hello::parse(&self.private)?;
        let (Fit::Yes, Handshake::Responder(machine)) = (pair.hello.fits(&theirs), &self.hs) else {
            return None;
        };
        let mut frame = [0; MAX_FRAME];
        let (len, est) = machine
            .accept(4, 4, &pair.hello.emit(), &mut frame)
            .unwrap();
        self.start(&est);
        let sent = self.send_frame(net, &frame[..len]);
        if sent.is_ok() {
            self.stage = Stage::Stream;
            self.data_ready(net);
        }
        Some(sent)
    }

    fn leave_alone(&mut self, net: &mut Net, end: SocketEnd) {
        assert!(self.stopped);
        (self.stage, self.left) = (Stage::Closed, Some(end));
        match end {
            SocketEnd::Reset => net.abort(self.me),
            SocketEnd::Fin => {
                assert!(!net.unacked(self.me), "a FIN behind bytes on their way");
                net.shutdown(self.me);
            }
            SocketEnd::Drained => panic!("who has drained it?"),
        }
        if self.pair.is_some_and(|pair| pair.posts_in_vain) {
            self.notes.send_in_vain();
        }
    }

    fn send_frame(&self, net: &mut Net, frame: &[u8]) -> Result<(), Errno> {
        match net.send(self.me, frame) {
            Some(len) => {
                assert_eq!(len, frame.len(), "the first bytes on a connection");
                Ok(())
            }
            None => Err(Errno::Reset),
        }
    }

    fn read_reply(&mut self, net: &mut Net) -> Read<Reply, Errno> {
        let Handshake::Initiator(machine) = &mut self.hs else {
            return Read::End(Errno::Invalid);
        };
        loop {
            let bytes = match net.recv(self.me, machine.need()) {
                Recv::Bytes(bytes) => bytes,
                Recv::Nothing => return Read::Pending,
                Recv::End => return Read::End(Errno::Reset),
            };
            match machine.feed(&bytes) {
                Ok(Some(reply)) => {
                    self.private = machine.private_data().to_vec();
                    return Read::Whole(reply);
                }
                Ok(None) => {}
                Err(e) => return Read::Bad(e),
            }
        }
    }

    fn read_request(&mut self, net: &mut Net) -> Read<Request, Errno> {
        let Handshake::Responder(machine) = &mut self.hs else {
            return Read::End(Errno::Invalid);
        };
        loop {
            let bytes = match net.recv(self.me, machine.need()) {
                Recv::Bytes(bytes) => bytes,
                Recv::Nothing => return Read::Pending,
                Recv::End => return Read::End(Errno::Reset),
            };
            match machine.feed(&bytes) {
                Ok(Some(request)) => {
                    self.private = machine.private_data().to_vec();
                    return Read::Whole(request);
                }
                Ok(None) => {}
                Err(e) => return Read::Bad(e),
            }
        }
    }

    /// The QP gets the stream.
    fn start(&mut self, est: &Established) {
        assert!(self.tx.is_none(), "two streams");
        if self.pair.is_none() {
            self.step_qp(fsm::Event::Established);
        }
        let mut tx = TxStream::new(est.net.crc, est.net.tx_markers);
        let expected = match est.rtr {
            Rtr::Expect(set) => set,
            _ => RtrSet::NONE,
        };
        let mut rx = Receiver::new(est.net.crc, expected);
        if let Rtr::Emit(kind) = est.rtr {
            self.backlog
                .extend(send(&mut tx, rtr_message(kind), &[], 1442));
            if kind == RtrKind::Read {
                rx.orq.push(Expect::Read(ReadExpect {
                    stag: Stag::RTR,
                    to: 0,
                    len: 0,
                }));
            }
        }
        self.rtr_awaited = matches!(est.rtr, Rtr::Expect(_));
        self.held = est.hold_tx;
        self.send_imm = est.net.send_imm;
        (self.tx, self.rx) = (Some(tx), Some(rx));
    }

    /// The QP takes what has come.
    fn data_ready(&mut self, net: &mut Net) {
        let Some(rx) = self.rx.as_mut() else { return };
        if self.stage != Stage::Stream || self.stopped {
            return;
        }
        let bytes: Vec<u8> = net.socks[self.me].inbox.drain(..).collect();
        rx.feed(&bytes);
        self.got.append(&mut rx.sends);
        if !rx.rx.awaits_first() && !self.first_fpdu {
            (self.first_fpdu, self.held) = (true, false);
            self.queued = true;
        }
        let error = rx.error.take();
        let mut answers = std::mem::take(&mut rx.answers).into_iter();
        for event in std::mem::take(&mut rx.events) {
            match (event, self.tx.as_mut()) {
                (Received::ReadRequest { request, .. }, Some(tx)) => {
                    let response = Message::ReadResponse {
                        stag: request.sink_stag,
                        to: request.sink_to,
                    };
                    self.backlog.extend(send(tx, response, &[], 1442));
                }
                (Received::AtomicRequest { .. }, Some(tx)) => {
                    let response = Message::AtomicResponse(answers.next().unwrap());
                    self.backlog.extend(send(tx, response, &[], 1442));
                }
                (Received::AtomicResponse { original }, _) => {
                    assert_eq!(original, self.counted, "an addition is lost, or done twice");
                    self.counted += 1;
                }
                (Received::Immediate { data, .. }, _) => {
                    assert!(!self.send_imm);
                    assert_eq!(self.announced.replace(data), None);
                }
                (Received::Send { len, with, .. }, _) => {
                    let announced = match with {
                        With::Immediate(data) if self.send_imm => Some(data),
                        _ => self.announced.take(),
                    };
                    assert_eq!(announced, Some(len.to_be_bytes()));
                }
                (Received::Terminate(_), _) => {
                    self.fail(fsm::Event::PeerTerminate, None, Teardown::Terminate);
                }
                _ => {}
            }
        }
        assert_eq!(error, None, "the stream is not right");
        self.transmit(net);
    }

    /// The QP sends what it can.
    fn transmit(&mut self, net: &mut Net) {
        if self.stage == Stage::Terminating {
            self.queued = true;
        }
        let may_send = self.stage == Stage::Stream && !self.stopped && !self.held;
        let (true, Some(tx), Some(rx)) = (may_send, self.tx.as_mut(), self.rx.as_mut()) else {
            return;
        };
        loop {
            let bytes: Vec<u8> = self.backlog.iter().copied().collect();
            let Some(taken) = net.send(self.me, &bytes) else {
                return;
            };
            self.backlog.drain(..taken);
            if !self.backlog.is_empty() {
                return;
            }
            let Some(message) = self.plan.pop_front() else {
                return;
            };
            // The peer counts the messages in its memory, and hears how long each is.
            let count = Message::AtomicRequest {
                stag: region(0).stag,
                to: BASE,
                op: AtomicOp::FetchAdd { add: 1, mask: 0 },
            };
            let mut request = tx.begin(count, 0);
            rx.orq.extend(request.msn().map(Expect::Atomic));
            self.backlog.extend(send_fpdu(tx, &mut request, &[], 1442));
            let data = (message.len() as u32).to_be_bytes();
            let mut with = With::Immediate(data);
            if !self.send_imm {
                let alone = Message::Immediate { se: false, data };
                self.backlog.extend(send(tx, alone, &[], 1442));
                with = With::Nothing;
            }
            let kind = Message::Send { se: false, with };
            self.backlog.extend(send(tx, kind, &message, 128));
        }
    }

    /// Whether all is sent, the RTR message has come, and so has the answer to it if it is a Read.
    pub fn is_idle(&self) -> bool {
        let reading = self.rx.as_ref().is_some_and(|rx| !rx.orq.is_empty());
        let awaiting = self.rtr_awaited && !self.first_fpdu;
        self.plan.is_empty() && self.backlog.is_empty() && !reading && !awaiting
    }

    fn step_qp(&mut self, event: fsm::Event) -> Option<fsm::Actions> {
        let facts = fsm::Facts {
            sq_busy: !self.is_idle(),
            connected: !self.is_closed(),
        };
        let (next, actions) = fsm::step(self.qp, event, facts).ok()?;
        self.qp = next;
        Some(actions)
    }

    fn fail(&mut self, event: fsm::Event, term: Option<Terminate>, how: Teardown<Errno>) {
        self.owed_term = term;
        self.step_qp(event);
        self.teardown(how);
    }

    fn begin_terminate(&mut self) -> bool {
        let (Some(term), Some(tx)) = (&self.owed_term, self.tx.as_mut()) else {
            return false;
        };
        self.backlog
            .extend(send(tx, Message::Terminate(term), &[], 1442));
        self.stage = Stage::Terminating;
        true
    }

    fn push(&mut self, net: &mut Net) -> Pushed {
        let bytes: Vec<u8> = self.backlog.iter().copied().collect();
        let Some(taken) = net.send(self.me, &bytes) else {
            return Pushed::Lost;
        };
        self.backlog.drain(..taken);
        match self.backlog.is_empty() {
            true => Pushed::Sent,
            false => Pushed::NoSpace,
        }
    }

    /// The order is the driver's: an RST precedes the last event, a FIN follows it.
    fn finish(&mut self, net: &mut Net, end: SocketEnd, owed: Owed) {
        (self.stopped, self.stage) = (true, Stage::Closed);
        let tcp = net.state(self.me);
        self.tcp_at_end = Some(tcp);
        match end {
            SocketEnd::Reset => net.abort(self.me),
            SocketEnd::Fin => {
                let fin_is_out = matches!(tcp, Tcp::Closing | Tcp::FinAcked);
                assert!(!fin_is_out, "a second FIN");
            }
            SocketEnd::Drained => {
                let drained = matches!(tcp, Tcp::FinAcked | Tcp::Over);
                assert!(drained || self.left.is_some(), "not drained: {tcp:?}");
            }
        }
        assert!(!net.unacked(self.me), "bytes leave after the flush");
        self.step_qp(fsm::Event::Closed);
        self.qp = fsm::State::Error;
        let status = self.notes.status().err();
        match owed {
            Owed::Nothing => {}
            Owed::Reply => self.events.push(Event::Failed(status)),
            Owed::Close => self.events.push(Event::Close(status)),
            Owed::Retry => self.retries = true,
        }
        if end == SocketEnd::Fin {
            net.shutdown(self.me);
        }
        net.release(self.me);
        assert_eq!(self.deadline, None);
        self.again = None;
    }

    /// How long the consumer may think at the most.
    pub fn patience() -> u64 {
        u64::from(Deadline::Reply.ms())
    }
}
