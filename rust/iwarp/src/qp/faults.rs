// SPDX-License-Identifier: GPL-2.0

//! The pages that one direction of a queue pair waits for, and those that it cannot have.
//!
//! A direction waits for one access at a time. It asks for it, is woken up, and tries again. If the
//! pages could not be brought, the second request for the same access is refused. If the access
//! goes through instead, because somebody else has brought the pages, the failure is forgotten:
//! otherwise it would refuse a later access to the same place, which may be possible by then.
//!
//! `A` describes an access, and keeps its memory. What a method returns is to be dropped outside of
//! the caller's lock.

/// The accesses of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Faults<A> {
    wanted: Option<A>,
    failed: Option<A>,
}

/// The answer to [`Faults::ask`].
#[must_use]
pub enum Answer<A> {
    /// The pages will be brought. The accesses are no longer needed.
    Wait([Option<A>; 2]),
    /// That was tried, and failed. The accesses are no longer needed.
    Refused([Option<A>; 2]),
}

impl<A> Faults<A> {
    /// Nothing is wanted.
    pub const fn new() -> Self {
        Self {
            wanted: None,
            failed: None,
        }
    }

    /// The direction waits for `access`. `is_same` says if another access is the same one.
    pub fn ask(&mut self, access: A, is_same: impl FnOnce(&A, &A) -> bool) -> Answer<A> {
        match self.failed.take() {
            Some(failed) if is_same(&failed, &access) => {
                Answer::Refused([Some(failed), Some(access)])
            }
            failed => Answer::Wait([failed, self.wanted.replace(access)]),
        }
    }

    /// The access that is to be brought next.
    pub const fn wanted(&self) -> Option<&A> {
        self.wanted.as_ref()
    }

    /// Takes the access that is to be brought next, if `fits` holds for it.
    pub fn take(&mut self, fits: impl FnOnce(&A) -> bool) -> Option<A> {
        self.wanted.take_if(|access| fits(access))
    }

    /// The pages of `access` could not be brought. The direction is woken up afterwards. Returns an
    /// access that is no longer needed.
    #[must_use]
    pub const fn fail(&mut self, access: A) -> Option<A> {
        self.failed.replace(access)
    }

    /// The access that the direction has waited for has gone through. Returns what had failed.
    #[must_use]
    pub const fn passed(&mut self) -> Option<A> {
        self.failed.take()
    }

    /// The direction has ended. Returns all accesses.
    #[must_use]
    pub const fn clear(&mut self) -> [Option<A>; 2] {
        [self.wanted.take(), self.failed.take()]
    }
}

impl<A> Default for Faults<A> {
    fn default() -> Self {
        Self::new()
    }
}
