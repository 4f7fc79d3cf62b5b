// SPDX-License-Identifier: GPL-2.0

//! One machine by itself, and what it is told.

use super::world::OFFER;
use iwarp::{
    session::{
        Action,
        Event,
        Path,
        Role,
        Session,
        RESUME_MS, //
    },
    wire::session::{
        Positions,
        Refusal,
        Resume,
        Resumed, //
    }, //
};

#[test]
fn when_a_path_is_suspect() {
    let fine = Path {
        down: false,
        outstanding: true,
        silent_ms: 999,
        timeouts: 2,
        probes: 1,
    };
    assert!(!fine.is_suspect());
    assert!(Path { down: true, ..fine }.is_suspect());
    assert!(Path { probes: 2, ..fine }.is_suspect());
    for late in [
        Path {
            silent_ms: 1000,
            ..fine
        },
        Path {
            timeouts: 3,
            ..fine
        },
    ] {
        assert!(late.is_suspect());
        // Nothing is expected of a peer that has acknowledged all.
        let idle = Path {
            outstanding: false,
            ..late
        };
        assert!(!idle.is_suspect());
    }
}

/// What is said about a TCP connection that is not in use changes nothing.
#[test]
fn news_of_another_connection() {
    let at = Positions::default();
    let mut machine = Session::new(Role::Initiator, &OFFER);
    let mut steps = vec![Event::PathLost { carrier: 0 }];
    steps.extend([
        Event::GivenUp { carrier: 0, at },
        Event::Connected { gen: 1 },
    ]);
    let reply = |gen| {
        let session = OFFER.session;
        let reply = Ok(Resumed { session, gen, at });
        Event::Replied { gen, reply }
    };
    steps.extend([reply(1), Event::Adopted { gen: 1, ok: true }]);
    for step in steps {
        let others = [
            Event::PathLost { carrier: 7 },
            Event::GivenUp { carrier: 7, at },
            Event::Connected { gen: 7 },
            Event::Failed { gen: 7 },
            reply(7),
            Event::Adopted { gen: 7, ok: true },
            Event::Look,
        ];
        for event in others {
            let before = machine.clone();
            let nothing = machine.step(0, event);
            assert_eq!(nothing.action, Action::Wait, "{event:?} before {step:?}");
            assert_eq!(machine, before, "{event:?} before {step:?}");
        }
        machine.step(0, step);
    }
    assert_eq!(machine.carrier(), Some(1));
    // The first carrier is given up for good.
    let step = machine.step(0, Event::PathLost { carrier: 0 });
    assert_eq!((step.action, machine.carrier()), (Action::Wait, Some(1)));

    // Nobody resumes a session at the end that has to do so itself, nor one that is over.
    let resume = Resume {
        session: OFFER.session,
        key: OFFER.key,
        gen: 9,
        switch: 9,
        at,
    };
    let step = machine.step(0, Event::Request { resume, at });
    assert_eq!(step.refused, Some(Refusal::Unknown));
    let mut machine = Session::new(Role::Responder, &OFFER);
    machine.step(0, Event::End);
    let step = machine.step(0, Event::Request { resume, at });
    assert_eq!(step.refused, Some(Refusal::Unknown));
}

/// A request that comes while the carrier is still being given up replaces the one before.
#[test]
fn the_latest_request_counts() {
    let at = Positions::default();
    let mut machine = Session::new(Role::Responder, &OFFER);
    let mut ask = |gen| {
        let resume = Resume {
            session: OFFER.session,
            key: OFFER.key,
            gen,
            switch: 1,
            at,
        };
        machine.step(0, Event::Request { resume, at })
    };
    assert_eq!(ask(1).action, Action::GiveUp { carrier: 0 });
    let step = ask(3);
    assert_eq!((step.drop, step.action), (Some(1), Action::Wait));
    assert_eq!(ask(2).refused, Some(Refusal::Stale));
    let step = machine.step(0, Event::GivenUp { carrier: 0, at });
    assert!(matches!(step.action, Action::Adopt { gen: 3, .. }));

    // When the connection ends meanwhile, the attempt does, too.
    let step = machine.step(0, Event::End);
    assert_eq!((step.drop, step.due), (Some(3), None));
}

/// No attempt is made when the time is over, and the last one may still succeed.
#[test]
fn the_last_attempt() {
    let at = Positions::default();
    let last = |event| {
        let mut machine = Session::new(Role::Initiator, &OFFER);
        machine.step(0, Event::PathLost { carrier: 0 });
        machine.step(RESUME_MS - 10, Event::GivenUp { carrier: 0, at });
        let step = machine.step(RESUME_MS - 10, Event::Connected { gen: 1 });
        assert_eq!(step.due, Some(RESUME_MS));
        let step = machine.step(RESUME_MS, Event::Look);
        assert_eq!(step.action, Action::Abandon { gen: 1 });
        machine.step(RESUME_MS, event)
    };
    assert_eq!(last(Event::Failed { gen: 1 }).action, Action::Fail);
    let session = OFFER.session;
    let reply = Ok(Resumed {
        session,
        gen: 1,
        at,
    });
    let step = last(Event::Replied { gen: 1, reply });
    assert!(matches!(step.action, Action::Adopt { gen: 1, .. }));
}
