// SPDX-License-Identifier: GPL-2.0

//! The state machine of one end of a session.

use super::{
    Action,
    Event,
    Step,
    CONNECT_MS,
    PAUSE_MS,
    REPLY_MS,
    RESUME_MS, //
};
use crate::wire::session::{
    Key,
    Offer,
    Positions,
    Refusal,
    Refused,
    Resume,
    Resumed, //
};

/// Which end of a session this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Has sent the MPA request of the first carrier, and sends those of the others.
    Initiator,
    /// Has offered the session.
    Responder,
}

/// State of a session; the picture is in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Up,
    /// The carrier is being given up, for this request if there is one.
    GivingUp(Option<Resume>),
    /// There is no carrier, and no request yet.
    Parted,
    /// TCP connects, until then.
    Connecting(u64),
    /// The request is out, and the reply may come until then.
    Resuming(u64),
    /// The host looks for the reply a last time.
    Abandoning,
    /// All addresses have failed; the next attempt is then.
    Pausing(u64),
    /// The host makes the attempt the carrier. The number of the switch.
    Adopting(u32),
    Ended,
}

/// One end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    role: Role,
    id: u64,
    key: Key,
    state: State,
    /// The carrier, or the last one.
    carrier: u32,
    /// The last attempt. The responder takes later ones only.
    gen: u32,
    /// The last switch that was reported.
    switch: u32,
    /// Where this end is while there is no carrier.
    at: Positions,
    /// When the session ends if it has no carrier by then.
    deadline: u64,
    /// How many addresses the peer has.
    addresses: usize,
    /// The one in use or tried.
    address: usize,
    /// How many addresses have been tried since the last pause.
    tried: usize,
    /// The addresses, as bits, where nobody will resume this session.
    refused: u32,
}

impl Session {
    /// A session whose first carrier is in use.
    pub fn new(role: Role, offer: &Offer) -> Self {
        Self {
            role,
            id: offer.session,
            key: offer.key,
            state: State::Up,
            carrier: 0,
            gen: 0,
            switch: 0,
            at: Positions::default(),
            deadline: 0,
            addresses: offer.addresses.iter().flatten().count().max(1),
            address: 0,
            tried: 0,
            refused: 0,
        }
    }

    /// The number by which the responder finds it.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The carrier in use.
    pub fn carrier(&self) -> Option<u32> {
        (self.state == State::Up).then_some(self.carrier)
    }

    /// The carrier in use, or the last one.
    pub const fn last_carrier(&self) -> u32 {
        self.carrier
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes one step. `now` is in milliseconds and never goes back. An event that makes no sense
    /// in the state changes nothing.
    pub fn step(&mut self, now: u64, event: Event) -> Step {
        match (self.state, event) {
            (_, Event::Request { resume, at }) => self.request(now, resume, at),
            (State::Ended, _) => self.wait(),
            (_, Event::End) => {
                let attempt = self.attempt();
                self.state = State::Ended;
                Step {
                    drop: attempt,
                    ..self.wait()
                }
            }
            (_, Event::Look) => self.look(now),
            (State::Up, Event::PathLost { carrier }) if carrier == self.carrier => {
                self.give_up(now, None)
            }
            (State::GivingUp(wanted), Event::GivenUp { carrier, at })
                if carrier == self.carrier =>
            {
                self.at = at;
                match (self.role, wanted) {
                    (Role::Initiator, _) => self.first(now),
                    (Role::Responder, Some(resume)) => self.adopt(&resume),
                    (Role::Responder, None) => self.enter(State::Parted, Action::Wait),
                }
            }
            (State::Connecting(_), Event::Connected { gen }) if gen == self.gen => {
                let resume = Resume {
                    session: self.id,
                    key: self.key,
                    gen,
                    switch: self.switch.saturating_add(1),
                    at: self.at,
                };
                let until = now.saturating_add(REPLY_MS);
                self.enter(State::Resuming(until), Action::SendResume(resume))
            }
            (
                State::Connecting(_) | State::Resuming(_) | State::Abandoning,
                Event::Failed { gen },
            ) if gen == self.gen => self.next(now),
            (State::Resuming(_) | State::Abandoning, Event::Replied { gen, reply })
                if gen == self.gen =>
            {
                self.replied(now, reply)
            }
            (State::Adopting(switch), Event::Adopted { gen, ok }) if gen == self.gen => {
                self.adopted(switch, ok)
            }
            _ => self.wait(),
        }
    }

    fn look(&mut self, now: u64) -> Step {
        match self.state {
            State::Connecting(until) | State::Resuming(until)
                if now >= until.min(self.deadline) =>
            {
                let gen = self.gen;
                self.enter(State::Abandoning, Action::Abandon { gen })
            }
            State::GivingUp(_) | State::Parted | State::Pausing(_) if now >= self.deadline => {
                self.fail()
            }
            State::Pausing(until) if now >= until => self.attempt_now(now),
            _ => self.wait(),
        }
    }

    fn give_up(&mut self, now: u64, wanted: Option<Resume>) -> Step {
        self.deadline = now.saturating_add(RESUME_MS);
        let carrier = self.carrier;
        self.enter(State::GivingUp(wanted), Action::GiveUp { carrier })
    }

    /// The first attempt of a switch. It is not to the address whose path is lost, if there is
    /// another one.
    fn first(&mut self, now: u64) -> Step {
        (self.tried, self.refused) = (0, 0);
        self.address = self.after();
        self.attempt_now(now)
    }

    /// The next attempt, when one has failed.
    fn next(&mut self, now: u64) -> Step {
        self.state = State::Pausing(now);
        if now >= self.deadline {
            return self.fail();
        }
        self.address = self.after();
        self.tried = self.tried.saturating_add(1);
        if self.tried < self.addresses {
            return self.attempt_now(now);
        }
        self.tried = 0;
        let until = now.saturating_add(PAUSE_MS);
        self.enter(State::Pausing(until), Action::Wait)
    }

    /// The address after the last one.
    fn after(&self) -> usize {
        match self.address.saturating_add(1) {
            next if next < self.addresses => next,
            _ => 0,
        }
    }

    fn attempt_now(&mut self, now: u64) -> Step {
        let Some(gen) = self.gen.checked_add(1) else {
            return self.fail();
        };
        self.gen = gen;
        let (until, address) = (now.saturating_add(CONNECT_MS), self.address);
        self.enter(State::Connecting(until), Action::Connect { gen, address })
    }

    fn replied(&mut self, now: u64, reply: Result<Resumed, Refused>) -> Step {
        let gen = self.gen;
        let why = match reply {
            Ok(it) if (it.session, it.gen) != (self.id, gen) => Refusal::Unknown,
            Ok(it) => match self.skip(&it.at) {
                Some(skip) => {
                    let adopt = Action::Adopt {
                        gen,
                        reply: None,
                        skip,
                    };
                    let switch = self.switch.saturating_add(1);
                    return self.enter(State::Adopting(switch), adopt);
                }
                None => Refusal::Positions,
            },
            Err(it) if (it.session, it.gen) != (self.id, gen) => Refusal::Unknown,
            Err(it) => it.why,
        };
        if !matches!(why, Refusal::Stale | Refusal::Busy) {
            self.refused |= bit(self.address);
        }
        let all = (0..self.addresses).all(|address| self.refused & bit(address) != 0);
        let step = if all { self.fail() } else { self.next(now) };
        Step {
            drop: Some(gen),
            refused: Some(why),
            ..step
        }
    }

    /// The bytes of what this end has kept that a peer which is at `peer` has, if the two agree.
    fn skip(&self, peer: &Positions) -> Option<u64> {
        peer.skip(self.at.rx)?;
        self.at.skip(peer.rx)
    }

    fn request(&mut self, now: u64, resume: Resume, at: Positions) -> Step {
        if let Some(why) = self.objection(&resume, at) {
            return self.refuse(&resume, why);
        }
        self.gen = resume.gen;
        match self.state {
            State::Up => self.give_up(now, Some(resume)),
            State::GivingUp(before) => Step {
                drop: before.map(|resume| resume.gen),
                ..self.enter(State::GivingUp(Some(resume)), Action::Wait)
            },
            _ => self.adopt(&resume),
        }
    }

    /// What is wrong with a request. The carrier is not given up for one that is not good.
    fn objection(&self, resume: &Resume, now: Positions) -> Option<Refusal> {
        if self.role != Role::Responder || self.has_ended() || resume.session != self.id {
            return Some(Refusal::Unknown);
        }
        if !resume.key.matches(self.key) {
            return Some(Refusal::Key);
        }
        if resume.gen <= self.gen {
            return Some(Refusal::Stale);
        }
        let agree = match self.state {
            State::Adopting(_) => return Some(Refusal::Busy),
            State::Up | State::GivingUp(_) => {
                // TCP has more of the peer's than is consumed yet.
                now.skip(resume.at.rx).is_some() && now.rx <= resume.at.sent
            }
            _ => self.skip(&resume.at).is_some(),
        };
        (!agree).then_some(Refusal::Positions)
    }

    /// Answers a request, now that there is no other carrier.
    fn adopt(&mut self, resume: &Resume) -> Step {
        let Some(skip) = self.skip(&resume.at) else {
            self.state = State::Parted;
            return self.refuse(resume, Refusal::Positions);
        };
        let reply = Resumed {
            session: self.id,
            gen: resume.gen,
            at: self.at,
        };
        let adopt = Action::Adopt {
            gen: resume.gen,
            reply: Some(reply),
            skip,
        };
        self.enter(State::Adopting(resume.switch), adopt)
    }

    fn adopted(&mut self, switch: u32, ok: bool) -> Step {
        if ok {
            self.carrier = self.gen;
            // After a lost reply it is the same switch again.
            let migrated = switch > self.switch;
            self.switch = self.switch.max(switch);
            return Step {
                migrated,
                ..self.enter(State::Up, Action::Wait)
            };
        }
        self.state = State::Parted;
        match self.role {
            // The peer may have sent bytes already, and TCP may have acknowledged them.
            Role::Initiator => self.fail(),
            Role::Responder => self.enter(State::Parted, Action::Wait),
        }
    }

    fn refuse(&self, resume: &Resume, why: Refusal) -> Step {
        let refused = Refused {
            session: resume.session,
            gen: resume.gen,
            why,
        };
        Step {
            refused: Some(why),
            action: Action::Refuse(refused),
            ..self.wait()
        }
    }

    fn fail(&mut self) -> Step {
        let attempt = self.attempt();
        Step {
            drop: attempt,
            ..self.enter(State::Ended, Action::Fail)
        }
    }

    /// The attempt that is under way and has no outcome yet.
    fn attempt(&self) -> Option<u32> {
        match self.state {
            State::GivingUp(wanted) => wanted.map(|resume| resume.gen),
            State::Connecting(_) | State::Resuming(_) | State::Abandoning | State::Adopting(_) => {
                Some(self.gen)
            }
            State::Up | State::Parted | State::Pausing(_) | State::Ended => None,
        }
    }

    fn enter(&mut self, state: State, action: Action) -> Step {
        self.state = state;
        Step {
            action,
            ..self.wait()
        }
    }

    fn wait(&self) -> Step {
        let due = match self.state {
            State::Up | State::Abandoning | State::Adopting(_) | State::Ended => None,
            State::GivingUp(_) | State::Parted => Some(self.deadline),
            State::Connecting(until) | State::Resuming(until) | State::Pausing(until) => {
                Some(until.min(self.deadline))
            }
        };
        Step {
            drop: None,
            migrated: false,
            refused: None,
            due,
            action: Action::Wait,
        }
    }
}

/// The bit of an address.
fn bit(address: usize) -> u32 {
    u32::try_from(address)
        .ok()
        .and_then(|n| 1u32.checked_shl(n))
        .unwrap_or(0)
}
