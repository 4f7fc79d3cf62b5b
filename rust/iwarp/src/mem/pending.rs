// SPDX-License-Identifier: GPL-2.0

//! Pending notifications: what the control pipeline has still to do to an entry of the table.
//!
//! A queue pair hands a registration, an invalidation or a bind to its control pipeline, pushes a
//! notification on the entry, and goes on to its next work request at once. Its later messages see
//! the entry as if the operation were done, except that those that use the entry wait for that.
//! Other queue pairs see the entry as it is.
//!
//! The operations of a queue pair are executed in the order of its SQ, those of an entry in the
//! order of their notifications, by whichever queue pair. An operation that is pending waits for
//! those two and for nothing else, so the oldest of all can always be executed.
//!
//! The caller holds a lock for each call, and does what [`Removed`] says after it.

/// Operations that can be pending on an entry. More of them wait in their SQs, which keeps the
/// table small; a chain of an invalidation and a registration takes two.
pub const CAPACITY: usize = 4;

/// An operation that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Notification {
    /// The queue pair that posted it.
    qp: u32,
    /// It gives rights, as a registration or a bind, and does not take them away.
    validating: bool,
}

/// Whether a message that uses the entry may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Yes; an access finds out whether it is allowed.
    Go,
    /// When the queue pair has done more of its operations.
    Stall,
}

/// There is no room; [`Removed::room`] will say when there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What follows from the removal of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Removed {
    /// Another queue pair whose operation may be executed now. Its pipeline is to be woken.
    pub next: Option<u32>,
    /// Queue pairs have found no room before. All are to look again.
    pub room: bool,
    /// Nothing is pending any more, and somebody waits for that.
    pub idle: bool,
}

/// The notifications of an entry, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pending {
    queue: [Option<Notification>; CAPACITY],
    crowded: bool,
    awaited: bool,
}

impl Pending {
    /// Nothing is pending.
    pub const fn new() -> Self {
        Self {
            queue: [None; CAPACITY],
            crowded: false,
            awaited: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Notification> {
        self.queue.iter().flatten()
    }

    /// The number of operations that are pending.
    pub fn len(&self) -> usize {
        self.all().count()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.head().is_none()
    }

    fn head(&self) -> Option<u32> {
        self.all().next().map(|first| first.qp)
    }

    /// Notes that `qp` hands over an operation.
    pub fn push(&mut self, qp: u32, validating: bool) -> Result<(), Full> {
        match self.queue.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(Notification { qp, validating });
                Ok(())
            }
            None => {
                self.crowded = true;
                Err(Full)
            }
        }
    }

    /// Whether a message of `qp` that uses the entry may be sent. All that is pending is older.
    pub fn outbound(&self, qp: u32) -> Look {
        match self.all().any(|one| one.qp == qp) {
            true => Look::Stall,
            false => Look::Go,
        }
    }

    /// Whether a message to `qp` that uses the entry may be taken in.
    ///
    /// The peer may have the STag from a message that went out behind a registration, so it waits
    /// for that. It cannot rely on an invalidation before it hears of its completion.
    pub fn inbound(&self, qp: u32) -> Look {
        match self.all().any(|one| one.qp == qp && one.validating) {
            true => Look::Stall,
            false => Look::Go,
        }
    }

    /// Whether the oldest operation of `qp` on this entry may be executed. Otherwise
    /// [`Removed::next`] will name the queue pair.
    pub fn may_run(&self, qp: u32) -> bool {
        self.head() == Some(qp)
    }

    /// The operation that [`Self::may_run`] has allowed is done, or has failed.
    pub fn done(&mut self, qp: u32) -> Removed {
        match self.may_run(qp) {
            true => self.remove(qp, |n| n == 0),
            false => Removed::default(),
        }
    }

    /// The queue pair ends, and executes nothing any more.
    pub fn drop_qp(&mut self, qp: u32) -> Removed {
        self.remove(qp, |_| true)
    }

    /// Removes what `qp` has at the places that `which` chooses.
    fn remove(&mut self, qp: u32, which: impl Fn(usize) -> bool) -> Removed {
        let before = self.len();
        let old = core::mem::replace(&mut self.queue, [None; CAPACITY]);
        let kept = old
            .iter()
            .flatten()
            .enumerate()
            .filter(|(n, one)| one.qp != qp || !which(*n))
            .map(|(_, one)| *one);
        for (place, one) in self.queue.iter_mut().zip(kept) {
            *place = Some(one);
        }
        if self.len() == before {
            return Removed::default();
        }
        Removed {
            next: self.head().filter(|next| *next != qp),
            room: core::mem::take(&mut self.crowded),
            idle: self.is_empty() && core::mem::take(&mut self.awaited),
        }
    }

    /// Whether somebody who gives the entry up has to wait until nothing is pending, as
    /// [`Removed::idle`] will say. One caller at a time.
    pub fn wait(&mut self) -> bool {
        self.awaited = !self.is_empty();
        self.awaited
    }
}
