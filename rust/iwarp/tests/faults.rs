// SPDX-License-Identifier: GPL-2.0

//! Pages that a direction waits for: every interleaving of its accesses, the pager, a program that
//! maps and unmaps its memory, others who bring the page, and the kernel that takes it away.

mod common;

use iwarp::qp::faults::{
    Answer,
    Faults, //
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    faults: Faults<()>,
    /// The program has the memory, and its page is in the table.
    mapped: bool,
    there: bool,
    /// The direction tries its access. Otherwise it waits to be woken up.
    tries: bool,
    /// The access that is tried has been found missing.
    waited: bool,
    /// The pager has the access.
    brings: bool,
    /// Bringing has failed for the access that is tried.
    has_failed: bool,
    /// An access was refused, and that had not been tried for it.
    wronged: bool,
    /// Changes of the memory that will still come.
    changes: u8,
}

impl World {
    const fn new() -> Self {
        Self {
            faults: Faults::new(),
            mapped: false,
            there: false,
            tries: true,
            waited: false,
            brings: false,
            has_failed: false,
            wronged: false,
            changes: 6,
        }
    }

    /// Tries the access; `broken` leaves out what the machine is about.
    fn access(&mut self, broken: bool) {
        if self.there {
            if self.waited && !broken {
                let _ = self.faults.passed();
            }
            // The next access is to the same place.
            (self.waited, self.has_failed) = (false, false);
            return;
        }
        self.waited = true;
        self.tries = false;
        if let Answer::Refused(_) = self.faults.ask((), |_, _| true) {
            self.wronged |= !self.has_failed;
        }
    }

    /// All worlds that are one step away.
    fn steps(&self, broken: bool) -> Vec<World> {
        let mut all = Vec::new();
        let mut step = |f: &dyn Fn(&mut World)| {
            let mut next = self.clone();
            f(&mut next);
            all.push(next);
        };
        if self.tries {
            step(&|w| w.access(broken));
        }
        if self.faults.wanted().is_some() && !self.brings {
            step(&|w| w.brings = w.faults.take(|()| true).is_some());
        }
        if self.brings {
            step(&|w| {
                (w.brings, w.tries) = (false, true);
                if w.mapped {
                    w.there = true;
                } else {
                    w.has_failed = true;
                    let _ = w.faults.fail(());
                }
            });
        }
        if self.changes != 0 {
            step(&|w| {
                w.changes -= 1;
                w.mapped = !w.mapped;
                w.there = false;
            });
            // By another queue pair, or by the program itself.
            step(&|w| {
                w.changes -= 1;
                w.there = w.mapped;
            });
            step(&|w| {
                w.changes -= 1;
                w.there = false;
            });
        }
        all
    }
}

/// Explores all worlds; returns how many there are, and whether an access was wronged in one.
fn explore(broken: bool) -> (usize, bool) {
    let (worlds, _) = common::explore(World::new(), |world| world.steps(broken));
    (worlds.len(), worlds.iter().any(|world| world.wronged))
}

#[test]
fn what_is_refused_has_been_tried() {
    let (worlds, wronged) = explore(false);
    assert!(worlds > 100 && !wronged, "{worlds} worlds");
}

/// The explorer finds a failure that outlives its access.
#[test]
fn a_failure_that_is_not_forgotten_refuses_a_later_access() {
    assert!(explore(true).1);
}

#[test]
fn another_access_ends_a_failure() {
    let mut faults = Faults::new();
    assert!(matches!(
        faults.ask(1, |a, b| a == b),
        Answer::Wait([None, None])
    ));
    assert_eq!(faults.take(|access| *access == 2), None);
    assert_eq!(faults.take(|access| *access == 1), Some(1));
    assert_eq!(faults.fail(1), None);
    assert!(matches!(
        faults.ask(2, |a, b| a == b),
        Answer::Wait([Some(1), None])
    ));
    assert!(matches!(
        faults.ask(1, |a, b| a == b),
        Answer::Wait([None, Some(2)])
    ));
    assert_eq!(faults.clear(), [Some(1), None]);
    assert_eq!(faults, Faults::default());
}
