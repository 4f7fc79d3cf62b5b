// SPDX-License-Identifier: GPL-2.0

//! Two machines, the TCP connections between them and two streams of bytes. A byte tells its
//! position, so what is lost, doubled or out of order shows when it is consumed.

use iwarp::{
    session::{
        Action,
        Event,
        Role,
        Session,
        Step, //
    },
    wire::session::{
        Address,
        Key,
        Offer,
        Positions,
        Refusal,
        Refused,
        Resume,
        Resumed, //
    }, //
};

pub const OFFER: Offer = Offer {
    session: 0x0123_4567_89ab_cdef,
    key: Key(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00),
    boot_id: 7,
    dev_epoch: 3,
    addresses: [
        Some(Address::V4([10, 1, 0, 2])),
        Some(Address::V4([10, 2, 0, 2])),
        None,
        None,
    ],
};

/// What one end of a TCP connection sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Lane {
    /// Not arrived yet.
    flying: Vec<u8>,
    /// Arrived, and acknowledged by TCP, but not consumed.
    queue: Vec<u8>,
    /// Acknowledgements on their way.
    acks: u64,
}

/// How far the handshake of a TCP connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Opening,
    Open,
    Request(Resume),
    /// The responder has the request and has not answered.
    Asked,
    Reply(Result<Resumed, Refused>),
    /// The reply is in the queue of the initiator's TCP.
    Answered(Result<Resumed, Refused>),
    Stream,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    pub gen: u32,
    pub stage: Stage,
    /// Its path is lost for good.
    pub dead: bool,
    /// Ends that have let go of it: nothing reaches them, and they send nothing.
    pub left: [bool; 2],
    /// By sender.
    pub lanes: [Lane; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub machine: Session,
    pub at: Positions,
    pub due: Option<u64>,
    /// The carrier that is to be given up when all that it has acknowledged is consumed.
    leaving: Option<u32>,
    pub migrated: u32,
    pub adopted: u32,
    pub failed: bool,
    pub refused: Vec<Refusal>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    Write(usize),
    /// By sender, on the TCP connection at this index.
    Arrive(usize, usize),
    Ack(usize, usize),
    Consume(usize),
    GivenUp(usize),
    Open(usize),
    /// The request, and the reply, cross the wire.
    Deliver(usize),
    Answer(usize),
    ReadReply(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u64,
    pub ends: [End; 2],
    pub wires: Vec<Wire>,
    /// Bytes each end wants to send.
    pub total: u64,
    /// The requests that the responder has got.
    pub seen: Vec<Resume>,
}

pub const A: usize = 0;
pub const B: usize = 1;

impl World {
    pub fn new(total: u64) -> Self {
        let end = |role| End {
            machine: Session::new(role, &OFFER),
            at: Positions::default(),
            due: None,
            leaving: None,
            migrated: 0,
            adopted: 0,
            failed: false,
            refused: Vec::new(),
        };
        let mut world = Self {
            now: 1000,
            ends: [end(Role::Initiator), end(Role::Responder)],
            wires: Vec::new(),
            total,
            seen: Vec::new(),
        };
        world.wire(0, Stage::Stream);
        world
    }

    fn wire(&mut self, gen: u32, stage: Stage) {
        self.wires.push(Wire {
            gen,
            stage,
            dead: false,
            left: [false; 2],
            lanes: Default::default(),
        });
    }

    fn index(&self, gen: u32) -> usize {
        self.wires.iter().position(|w| w.gen == gen).unwrap()
    }

    /// The carrier that an end uses, or still consumes from.
    pub fn carrier(&self, end: usize) -> Option<usize> {
        let end = &self.ends[end];
        let gen = end.machine.carrier().or(end.leaving)?;
        Some(self.index(gen))
    }

    pub fn is_over(&self, end: usize) -> bool {
        self.ends[end].machine.has_ended()
    }

    pub fn is_complete(&self) -> bool {
        let up = self.ends.iter().all(|end| end.machine.carrier().is_some());
        up && self.ends.iter().all(|end| end.at.rx == self.total)
    }

    /// All that can happen and is progress.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for end in [A, B] {
            let carrier = self.carrier(end);
            if self.ends[end].machine.carrier().is_some() && self.ends[end].at.sent < self.total {
                moves.push(Move::Write(end));
            }
            if let Some(wire) = carrier {
                if !self.wires[wire].lanes[1 - end].queue.is_empty() {
                    moves.push(Move::Consume(end));
                } else if self.ends[end].leaving.is_some() {
                    moves.push(Move::GivenUp(end));
                }
            }
        }
        for (i, wire) in self.wires.iter().enumerate() {
            // What an end has sent before it left may arrive later, while the other end is there.
            match wire.stage {
                Stage::Request(_) if !wire.left[B] && !wire.dead => moves.push(Move::Deliver(i)),
                // The initiator's TCP has the reply, but a dead path keeps nobody from reading it.
                Stage::Answered(_) if !wire.left[A] => moves.push(Move::ReadReply(i)),
                _ => {}
            }
            if wire.dead || wire.left == [true; 2] {
                continue;
            }
            match wire.stage {
                Stage::Opening if !wire.left[A] => moves.push(Move::Open(i)),
                Stage::Reply(_) if !wire.left[A] => moves.push(Move::Answer(i)),
                Stage::Stream | Stage::Answered(_) => {
                    for from in [A, B] {
                        let lane = &wire.lanes[from];
                        if !lane.flying.is_empty() && wire.left == [false; 2] {
                            moves.push(Move::Arrive(i, from));
                        }
                        if lane.acks > 0 && !wire.left[from] {
                            moves.push(Move::Ack(i, from));
                        }
                    }
                }
                _ => {}
            }
        }
        moves
    }

    pub fn make(&mut self, m: Move) {
        match m {
            Move::Write(end) => {
                let wire = self.carrier(end).unwrap();
                let byte = self.ends[end].at.sent as u8;
                self.wires[wire].lanes[end].flying.push(byte);
                self.ends[end].at.sent += 1;
            }
            Move::Arrive(i, from) => {
                let lane = &mut self.wires[i].lanes[from];
                let byte = lane.flying.remove(0);
                lane.queue.push(byte);
                lane.acks += 1;
            }
            Move::Ack(i, from) => {
                let acks = std::mem::take(&mut self.wires[i].lanes[from].acks);
                self.ends[from].at.una += acks;
                assert!(self.ends[from].at.una <= self.ends[from].at.sent);
            }
            Move::Consume(end) => {
                let wire = self.carrier(end).unwrap();
                let byte = self.wires[wire].lanes[1 - end].queue.remove(0);
                assert_eq!(byte, self.ends[end].at.rx as u8, "{self:#?}");
                self.ends[end].at.rx += 1;
            }
            Move::GivenUp(end) => {
                let carrier = self.ends[end].leaving.take().unwrap();
                let at = self.ends[end].at;
                self.tell(end, Event::GivenUp { carrier, at });
            }
            Move::Open(i) => {
                let gen = self.wires[i].gen;
                self.wires[i].stage = Stage::Open;
                self.tell(A, Event::Connected { gen });
            }
            Move::Deliver(i) => {
                let Stage::Request(resume) = self.wires[i].stage else {
                    unreachable!()
                };
                self.wires[i].stage = Stage::Asked;
                self.ask(resume);
            }
            Move::Answer(i) => {
                let Stage::Reply(reply) = self.wires[i].stage else {
                    unreachable!()
                };
                self.wires[i].stage = Stage::Answered(reply);
            }
            Move::ReadReply(i) => self.read_reply(i),
        }
    }

    fn read_reply(&mut self, i: usize) {
        let Stage::Answered(reply) = self.wires[i].stage else {
            unreachable!()
        };
        let gen = self.wires[i].gen;
        self.wires[i].stage = Stage::Stream;
        self.tell(A, Event::Replied { gen, reply });
    }

    fn ask(&mut self, resume: Resume) {
        self.seen.push(resume);
        let at = self.ends[B].at;
        self.tell(B, Event::Request { resume, at });
    }

    /// Time passes until an end has something to do. One whose carrier is of no use to the other
    /// end notices that long before a session ends.
    pub fn tick(&mut self) -> bool {
        let lost = |end: usize| {
            let i = self.ends[end].machine.carrier().map(|gen| self.index(gen));
            i.is_some_and(|i| self.wires[i].dead || self.wires[i].left[1 - end])
        };
        match [A, B].into_iter().find(|end| lost(*end)) {
            Some(end) if self.is_over(1 - end) => {
                self.tell(end, Event::End);
                return true;
            }
            Some(end) => {
                self.suspect(end);
                return true;
            }
            None => {}
        }
        let Some(due) = self.ends.iter().filter_map(|end| end.due).min() else {
            return false;
        };
        self.now = self.now.max(due);
        for end in [A, B] {
            if self.ends[end].due.is_some_and(|due| due <= self.now) {
                self.tell(end, Event::Look);
            }
        }
        true
    }

    pub fn suspect(&mut self, end: usize) {
        if let Some(carrier) = self.ends[end].machine.carrier() {
            self.tell(end, Event::PathLost { carrier });
        }
    }

    pub fn tell(&mut self, end: usize, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let step = self.ends[end].machine.step(self.now, event);
            next = self.perform(end, step);
        }
    }

    fn leave(&mut self, end: usize, gen: u32) {
        let i = self.index(gen);
        self.wires[i].left[end] = true;
    }

    fn perform(&mut self, end: usize, step: Step) -> Option<Event> {
        if let Some(gen) = step.drop {
            self.leave(end, gen);
        }
        let it = &mut self.ends[end];
        it.migrated += u32::from(step.migrated);
        it.refused.extend(step.refused);
        it.due = step.due;
        match step.action {
            Action::Wait => None,
            Action::GiveUp { carrier } => {
                it.leaving = Some(carrier);
                self.leave(end, carrier);
                None
            }
            Action::Connect { gen, address } => {
                assert_eq!(end, A);
                assert!(address < 2);
                assert!(self.wires.iter().all(|wire| wire.gen < gen), "{gen}");
                self.wire(gen, Stage::Opening);
                None
            }
            Action::SendResume(resume) => {
                let i = self.index(resume.gen);
                self.wires[i].stage = Stage::Request(resume);
                None
            }
            Action::Abandon { gen } => {
                let i = self.index(gen);
                if let Stage::Answered(reply) = self.wires[i].stage {
                    self.wires[i].stage = Stage::Stream;
                    return Some(Event::Replied { gen, reply });
                }
                self.leave(end, gen);
                Some(Event::Failed { gen })
            }
            Action::Adopt { gen, reply, skip } => {
                let i = self.index(gen);
                if let Some(reply) = reply {
                    self.wires[i].stage = Stage::Reply(Ok(reply));
                }
                let it = &mut self.ends[end];
                it.adopted += 1;
                it.at.una += skip;
                assert!(it.at.una <= it.at.sent);
                let again = (it.at.una..it.at.sent).map(|position| position as u8);
                self.wires[i].lanes[end].flying.extend(again);
                Some(Event::Adopted { gen, ok: true })
            }
            Action::Refuse(refused) => {
                let i = self.index(refused.gen);
                self.wires[i].stage = Stage::Reply(Err(refused));
                Some(Event::Look)
            }
            Action::Fail => {
                it.failed = true;
                it.leaving = None;
                self.ends[end].due = None;
                None
            }
        }
    }

    /// Makes moves until nothing is left to do, and says whether all bytes have arrived. If not,
    /// the session is over at both ends.
    pub fn finish(&mut self, mut choose: impl FnMut(usize) -> usize) -> bool {
        for _ in 0..20_000 {
            if self.is_complete() && self.carrier(A) == self.carrier(B) {
                return true;
            }
            if self.is_over(A) && self.is_over(B) {
                return false;
            }
            let moves = self.moves();
            if !moves.is_empty() {
                self.make(moves[choose(moves.len())]);
                continue;
            }
            assert!(self.tick(), "{self:#?}");
        }
        panic!("{self:#?}")
    }
}
