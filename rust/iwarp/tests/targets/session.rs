// SPDX-License-Identifier: GPL-2.0

//! Sessions: what is read of the wire, and a machine that is told anything in any order.

use super::{
    common::crc32c,
    Input, //
};
use iwarp::{
    session::{
        Action,
        Event,
        Role,
        Session,
        RESUME_MS, //
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

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => messages(&mut input),
        1 => offer(&mut input),
        2 => machine(&mut input, Role::Initiator),
        _ => machine(&mut input, Role::Responder),
    }
}

/// What is understood says the same when it is written again, but for reserved bytes.
fn messages(input: &mut Input<'_>) {
    let head: &[u8] = match input.below(4) {
        0 => b"siwR\x01\x01",
        1 => b"siwR\x01\x02",
        2 => b"siwR\x01\x03",
        _ => &[],
    };
    let bytes = [head, input.rest()].concat();
    let again = match (
        Resume::parse(&bytes),
        Resumed::parse(&bytes),
        Refused::parse(&bytes),
    ) {
        (None, None, None) => {
            let lengths = [(1, Resume::LEN), (2, Resumed::LEN), (3, Refused::LEN)];
            let whole = |(kind, len)| {
                bytes.len() == len && bytes.starts_with(b"siwR\x01") && bytes[5] == kind
            };
            assert!(!lengths.into_iter().any(whole));
            return;
        }
        (Some(resume), None, None) => resume.emit().to_vec(),
        (None, Some(resumed), None) => resumed.emit().to_vec(),
        (None, None, Some(refused)) => refused.emit().to_vec(),
        more => panic!("{more:?}"),
    };
    assert_eq!(again[..6], bytes[..6]);
    assert_eq!(again[8..], bytes[8..]);
}

/// Any bytes with a good CRC32c behind private data.
fn offer(input: &mut Input<'_>) {
    let ulp = input.take(9);
    let (magic, spoilt) = (input.below(8) != 0, input.below(8) == 0);
    let mut bytes = if magic {
        b"siwO\x01".to_vec()
    } else {
        vec![0; 5]
    };
    bytes.extend(input.rest());
    bytes.resize(Offer::LEN - 4, 0);
    let crc = crc32c(&bytes) ^ u32::from(spoilt);
    let bytes = [ulp, &bytes, &crc.to_be_bytes()].concat();
    let Some((before, offer)) = Offer::split(&bytes) else {
        assert!(!magic || spoilt);
        return;
    };
    assert!(magic && !spoilt);
    assert_eq!(before, ulp);
    let gap = offer.addresses.iter().skip_while(|a| a.is_some());
    assert!(gap.clone().all(|address| address.is_none()));
    assert_eq!(Offer::split(&offer.emit()), Some((&[][..], offer)));
}

const OFFER: Offer = Offer {
    session: 1,
    key: Key(2),
    boot_id: 3,
    dev_epoch: 4,
    addresses: [
        Some(Address::V4([10, 0, 0, 1])),
        Some(Address::V4([10, 0, 0, 2])),
        None,
        None,
    ],
};

fn positions(input: &mut Input<'_>) -> Positions {
    let mut near = || input.edge() & 0xff;
    Positions {
        rx: near(),
        una: near(),
        sent: near(),
    }
}

/// A number, mostly the one that is right.
fn mostly(input: &mut Input<'_>, right: u32) -> u32 {
    match input.below(8) {
        0 => input.edge() as u32,
        1 => right.wrapping_add(1),
        _ => right,
    }
}

/// Whether two ends can go on together, as the plan has it.
fn agree(ours: &Positions, theirs: &Positions) -> bool {
    ours.una <= theirs.rx
        && theirs.rx <= ours.sent
        && theirs.una <= ours.rx
        && ours.rx <= theirs.sent
}

fn machine(input: &mut Input<'_>, role: Role) {
    let mut session = Session::new(role, &OFFER);
    let (mut now, mut since) = (0u64, None);
    // The last TCP connection that was made or had a good request, and what that said.
    let (mut gen, mut told) = (0, Positions::default());
    // The last carrier that was given up, and where this end was then.
    let (mut left, mut here) = (0, Positions::default());
    while !input.is_empty() {
        now += match input.below(4) {
            0 => u64::from(input.u16()),
            _ => u64::from(input.u8()),
        };
        let carrier = session.carrier();
        let at = positions(input);
        let event = match input.below(9) {
            0 => Event::Look,
            1 => Event::PathLost {
                carrier: mostly(input, carrier.unwrap_or(0)),
            },
            2 => {
                let resume = Resume {
                    session: u64::from(mostly(input, 1)),
                    key: Key(u128::from(mostly(input, 2))),
                    gen: mostly(input, gen + 1),
                    switch: u32::from(input.u8()),
                    at: positions(input),
                };
                Event::Request { resume, at }
            }
            3 if input.below(16) == 0 => Event::End,
            3 | 4 => Event::GivenUp {
                carrier: mostly(input, left),
                at,
            },
            5 => Event::Connected {
                gen: mostly(input, gen),
            },
            6 => Event::Failed {
                gen: mostly(input, gen),
            },
            7 => {
                let gen = mostly(input, gen);
                let (session, at) = (u64::from(mostly(input, 1)), positions(input));
                let reply = match input.below(4) {
                    0 => Err(Refused {
                        session,
                        gen,
                        why: [Refusal::Key, Refusal::Stale][input.below(2)],
                    }),
                    _ => Ok(Resumed { session, gen, at }),
                };
                Event::Replied { gen, reply }
            }
            _ => Event::Adopted {
                gen: mostly(input, gen),
                ok: input.below(8) != 0,
            },
        };
        let ended = session.has_ended();
        let before = session.clone();
        let step = session.step(now, event);
        if session.has_ended() {
            since = None;
        } else if session.carrier().is_some() {
            since = None;
        } else {
            since = since.or(Some(now));
        }
        match (event, step.action) {
            (_, Action::GiveUp { carrier: is }) => {
                assert_eq!(Some(is), carrier);
                left = is;
            }
            (_, Action::Connect { gen: new, address }) => {
                assert!(role == Role::Initiator && new > gen && address < 2);
                gen = new;
                if let Event::GivenUp { at, .. } = event {
                    here = at;
                }
            }
            (_, Action::SendResume(resume)) => {
                assert_eq!((resume.session, resume.key, resume.gen), (1, Key(2), gen));
            }
            (Event::Replied { reply, .. }, Action::Adopt { skip, .. }) => {
                let reply = reply.unwrap();
                assert_eq!((reply.session, reply.gen), (1, gen));
                assert!(agree(&here, &reply.at));
                assert_eq!(here.una + skip, reply.at.rx);
            }
            (Event::Request { resume, .. }, Action::Refuse(refused)) => {
                assert_eq!((refused.session, refused.gen), (resume.session, resume.gen));
                assert_eq!(step.refused, Some(refused.why));
                assert_eq!(session, before);
            }
            (_, Action::Fail) => assert!(!ended && session.has_ended()),
            _ => {}
        }
        if let (Event::Request { resume, .. }, true) = (event, step.refused.is_none()) {
            assert_eq!((role, ended), (Role::Responder, false));
            assert_eq!((resume.session, resume.key), (1, Key(2)));
            assert!(resume.gen > gen);
            (gen, told) = (resume.gen, resume.at);
            if gen == u32::MAX {
                return;
            }
        }
        if let Action::Adopt {
            reply: Some(reply),
            skip,
            ..
        } = step.action
        {
            assert_eq!((reply.session, reply.gen), (1, gen));
            assert!(agree(&reply.at, &told));
            assert_eq!(reply.at.una + skip, told.rx);
        }
        assert!(!step.migrated || session.carrier() == Some(gen));
        assert!(!ended || session.has_ended());
        // The end is near: nothing is due after it.
        if let (Some(since), Some(due)) = (since, step.due) {
            assert!(due <= now.max(since + RESUME_MS));
        }
        assert!(!(session.has_ended() || session.carrier().is_some()) || step.due.is_none());
    }
}
