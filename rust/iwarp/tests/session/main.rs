// SPDX-License-Identifier: GPL-2.0

//! Sessions between two ends, whatever is lost, late or said again: every byte arrives once and in
//! order, or both ends learn that it does not.

#[path = "../common/mod.rs"]
mod common;
mod lone;
mod world;

use common::Rng;
use iwarp::{
    session::{
        Action,
        Event,
        Role,
        Session,
        RESUME_MS, //
    },
    wire::session::{
        Key,
        Positions,
        Refusal,
        Refused,
        Resume,
        Resumed, //
    }, //
};
use std::collections::HashSet;
use world::{
    Stage,
    World,
    A,
    B,
    OFFER, //
};

/// Plays to the end and checks what both ends know then.
fn play_out(world: &mut World, rng: &mut Rng) -> bool {
    let complete = world.finish(|n| rng.below(n as u64) as usize);
    let [a, b] = &world.ends;
    // One report for each switch.
    assert_eq!(a.migrated, a.adopted, "{world:#?}");
    assert!(b.migrated <= b.adopted, "{world:#?}");
    if complete {
        assert_eq!(a.migrated, b.migrated, "{world:#?}");
        assert!(!a.failed && !b.failed);
    } else {
        assert!(a.failed || b.failed, "{world:#?}");
    }
    complete
}

/// Loses the path of all TCP connections there are.
fn cut(world: &mut World) {
    for wire in &mut world.wires {
        wire.dead = true;
    }
}

/// The path is lost after every single move of a run, and again after every number of further ones:
/// at each byte, and at each step of resuming.
#[test]
fn a_path_lost_at_any_time() {
    const BYTES: u64 = 6;
    let mut runs = 0;
    for seed in 1..=6 {
        'first: for first in 0.. {
            for second in 0..40 {
                let (mut world, mut rng) = (World::new(BYTES), Rng::new(seed));
                for _ in 0..first {
                    let moves = world.moves();
                    if moves.is_empty() {
                        break 'first;
                    }
                    world.make(moves[rng.below(moves.len() as u64) as usize]);
                }
                cut(&mut world);
                let suspicious = rng.below(2) as usize;
                world.suspect(suspicious);
                for _ in 0..second {
                    let moves = world.moves();
                    match moves.len() {
                        0 => drop(world.tick()),
                        n => world.make(moves[rng.below(n as u64) as usize]),
                    }
                }
                if second > 0 {
                    cut(&mut world);
                }
                assert!(play_out(&mut world, &mut rng), "{world:#?}");
                runs += 1;
            }
        }
    }
    assert!(runs > 2000, "{runs}");
}

/// Anything at any time: paths lost or only suspected, slow peers, old requests said again, forged
/// ones.
#[test]
fn whatever_happens() {
    let (mut complete, mut failed, mut refused) = (0, 0, HashSet::new());
    for seed in 1..=6_000 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(1 + rng.below(40));
        let trouble = 1 + rng.below(60);
        for _ in 0..rng.below(300) {
            let moves = world.moves();
            match rng.below(100 + trouble) {
                100..110 => {
                    let i = rng.below(world.wires.len() as u64) as usize;
                    world.wires[i].dead = true;
                }
                110..120 => world.suspect(rng.below(2) as usize),
                120..140 => drop(world.tick()),
                140..150 if !world.seen.is_empty() => {
                    let old = world.seen[rng.below(world.seen.len() as u64) as usize];
                    refuses(&mut world, old, &[Refusal::Stale, Refusal::Unknown]);
                }
                150.. => forge(&mut world, &mut rng),
                _ if moves.is_empty() => drop(world.tick()),
                _ => world.make(moves[rng.below(moves.len() as u64) as usize]),
            }
        }
        match play_out(&mut world, &mut rng) {
            true => complete += 1,
            false => failed += 1,
        }
        refused.extend(world.ends.iter().flat_map(|end| end.refused.clone()));
    }
    assert!(complete > 3000 && failed > 50, "{complete} {failed}");
    assert!(refused.len() >= 4, "{refused:?}");
}

/// The responder refuses the request for one of the reasons, and nothing else changes.
fn refuses(world: &mut World, resume: Resume, reasons: &[Refusal]) {
    let end = &mut world.ends[B];
    let before = end.clone();
    let step = end
        .machine
        .step(world.now, Event::Request { resume, at: end.at });
    let why = step.refused.unwrap();
    assert!(reasons.contains(&why), "{why:?} {resume:?}");
    let refused = Refused {
        session: resume.session,
        gen: resume.gen,
        why,
    };
    assert_eq!(step.action, Action::Refuse(refused));
    assert_eq!((step.drop, step.migrated, step.due), (None, false, end.due));
    assert_eq!(*end, before, "{resume:?}");
    end.refused.push(why);
}

/// A request that is good but for one thing.
fn forge(world: &mut World, rng: &mut Rng) {
    let at = world.ends[B].at;
    let good = Resume {
        session: OFFER.session,
        key: OFFER.key,
        gen: 1_000_000,
        switch: 1,
        at: Positions {
            rx: at.una,
            una: at.rx,
            sent: at.rx,
        },
    };
    let unknown = Resume {
        session: good.session ^ 1 << rng.below(64),
        ..good
    };
    let wrong = Resume {
        key: Key(good.key.0 ^ 1 << rng.below(128)),
        ..good
    };
    let far = |at| Resume { at, ..good };
    let ahead = Positions {
        rx: at.sent + 1,
        ..good.at
    };
    refuses(world, unknown, &[Refusal::Unknown]);
    refuses(world, wrong, &[Refusal::Key, Refusal::Unknown]);
    let reasons = [Refusal::Positions, Refusal::Unknown];
    refuses(world, far(ahead), &reasons);
    if at.una > 0 {
        let behind = Positions {
            rx: at.una - 1,
            ..good.at
        };
        refuses(world, far(behind), &reasons);
    }
    if at.rx > 0 {
        let unsent = Positions {
            una: 0,
            sent: at.rx - 1,
            ..good.at
        };
        refuses(world, far(unsent), &reasons);
    }
}

/// Every order of what can happen to one byte in each direction, while some things go wrong.
#[test]
fn every_order() {
    let (mut seen, mut todo, mut ends) = (HashSet::new(), vec![(World::new(1), 3)], 0);
    while let Some((world, trouble)) = todo.pop() {
        if !seen.insert((world.clone(), trouble)) {
            continue;
        }
        let moves = world.moves();
        for m in &moves {
            let mut next = world.clone();
            next.make(*m);
            todo.push((next, trouble));
        }
        if trouble > 0 {
            for i in 0..world.wires.len() {
                let mut next = world.clone();
                next.wires[i].dead = true;
                todo.push((next, trouble - 1));
            }
            for end in [A, B] {
                let mut next = world.clone();
                next.suspect(end);
                todo.push((next, trouble - 1));
            }
            let mut next = world.clone();
            if next.tick() {
                todo.push((next, trouble - 1));
            }
        }
        if moves.is_empty() {
            ends += 1;
            let mut next = world.clone();
            // Only time ends a session: it passes while reception waits and nothing else happens.
            let complete = play_out(&mut next, &mut Rng::new(1));
            assert!(complete || next.now >= 1000 + RESUME_MS, "{world:#?}");
        }
    }
    assert!(ends > 1000, "{ends} of {}", seen.len());
}

/// Without any path the session ends when its time is over, at both ends, and not before.
#[test]
fn no_path_at_all() {
    for stalls in [false, true] {
        let mut world = World::new(3);
        let begin = world.now;
        for end in [A, B] {
            world.suspect(end);
        }
        while !world.is_over(A) || !world.is_over(B) {
            cut(&mut world);
            let moves = world.moves();
            match moves.first() {
                // Reception waits for memory, so the carrier is never given up.
                Some(m) if !stalls => world.make(*m),
                _ => assert!(world.tick()),
            }
            for end in [A, B] {
                let over = world.is_over(end);
                assert!(!over || world.now >= begin + RESUME_MS, "{}", world.now);
                assert_eq!(world.ends[end].failed, over);
            }
        }
        assert!(world.now <= begin + RESUME_MS, "{}", world.now);
        assert_eq!([A, B].map(|end| world.ends[end].migrated), [0; 2]);
    }
}

/// A peer that has lost its memory refuses at all its addresses; then there is nothing to wait for.
#[test]
fn a_peer_that_knows_nothing() {
    for (why, patient) in [
        (Refusal::Unknown, false),
        (Refusal::Key, false),
        (Refusal::Positions, false),
        (Refusal::Stale, true),
        (Refusal::Busy, true),
    ] {
        let mut world = World::new(3);
        let begin = world.now;
        world.tell(B, Event::End);
        world.suspect(A);
        while !world.is_over(A) {
            let asked = |w: &&mut world::Wire| matches!(w.stage, Stage::Request(_)) && !w.left[A];
            if let Some(wire) = world.wires.iter_mut().find(asked) {
                wire.stage = Stage::Reply(Err(Refused {
                    session: OFFER.session,
                    gen: wire.gen,
                    why,
                }));
            }
            let moves = world.moves();
            match moves.iter().find(|m| !matches!(m, world::Move::Write(_))) {
                Some(m) => world.make(*m),
                None => assert!(world.tick()),
            }
        }
        assert_eq!(world.now == begin + RESUME_MS, patient, "{why:?}");
        assert!(patient || world.now < begin + 1000);
        assert!(world.ends[A].refused.iter().all(|is| *is == why));
        assert!(patient || world.ends[A].refused.len() == 2);
    }
}

/// An initiator takes no reply whose numbers cannot be.
#[test]
fn replies_that_cannot_be() {
    let at = Positions {
        rx: 50,
        una: 100,
        sent: 120,
    };
    let fits = Resumed {
        session: OFFER.session,
        gen: 1,
        at: Positions {
            rx: 110,
            una: 40,
            sent: 60,
        },
    };
    let reply = |resumed| {
        let mut machine = Session::new(Role::Initiator, &OFFER);
        machine.step(0, Event::PathLost { carrier: 0 });
        machine.step(0, Event::GivenUp { carrier: 0, at });
        machine.step(0, Event::Connected { gen: 1 });
        machine.step(
            0,
            Event::Replied {
                gen: 1,
                reply: Ok(resumed),
            },
        )
    };
    let with = |rx, una, sent| Resumed {
        at: Positions { rx, una, sent },
        ..fits
    };
    for (resumed, skip) in [(fits, 10), (with(100, 50, 50), 0), (with(120, 0, 1000), 20)] {
        let adopt = Action::Adopt {
            gen: 1,
            reply: None,
            skip,
        };
        assert_eq!(reply(resumed).action, adopt);
    }
    for resumed in [
        with(99, 40, 60),
        with(121, 40, 60),
        with(110, 51, 60),
        with(110, 40, 49),
        Resumed { gen: 2, ..fits },
        Resumed { session: 1, ..fits },
    ] {
        let step = reply(resumed);
        assert_eq!(step.drop, Some(1), "{resumed:?}");
        assert_eq!(step.action, Action::Connect { gen: 2, address: 0 });
    }
}

/// An end that could not take over an attempt: the responder waits for the next one, the initiator
/// cannot, because the peer has moved.
#[test]
fn an_attempt_that_cannot_be_adopted() {
    let at = Positions::default();
    let mut responder = Session::new(Role::Responder, &OFFER);
    let resume = |gen| Resume {
        session: OFFER.session,
        key: OFFER.key,
        gen,
        switch: 1,
        at,
    };
    let ask = |gen| Event::Request {
        resume: resume(gen),
        at,
    };
    responder.step(0, ask(1));
    responder.step(0, Event::GivenUp { carrier: 0, at });
    let busy = responder.step(0, ask(2));
    assert_eq!(busy.refused, Some(Refusal::Busy));
    responder.step(0, Event::Adopted { gen: 1, ok: false });
    let step = responder.step(0, ask(3));
    assert!(matches!(step.action, Action::Adopt { gen: 3, .. }));
    let step = responder.step(0, Event::Adopted { gen: 3, ok: true });
    assert!(step.migrated);

    let mut initiator = Session::new(Role::Initiator, &OFFER);
    initiator.step(0, Event::PathLost { carrier: 0 });
    initiator.step(0, Event::GivenUp { carrier: 0, at });
    initiator.step(0, Event::Connected { gen: 1 });
    let reply = Ok(Resumed {
        session: OFFER.session,
        gen: 1,
        at,
    });
    initiator.step(0, Event::Replied { gen: 1, reply });
    let step = initiator.step(0, Event::Adopted { gen: 1, ok: false });
    assert_eq!(step.action, Action::Fail);
    assert!(initiator.has_ended());
}
